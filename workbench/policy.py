"""What this process may do for its user: normally everything, for a visitor of the public demo little.

A visitor's page is a process of its own (workbench.demo_space), and the variable WORKBENCH_POLICY of its environment
names the JSON file that holds the rules; its jobs inherit both. The library checks the rules where it matters, whoever
calls it: every set of settings that is read (`check_settings`), every job that is started (jobs.admission), samples
that are requested (`check_waiting`), archives (`unpacked`). Without readable rules nothing is done.

`resolve` is the one way from a path that a user wrote to a file: a page that other machines can reach accepts only
paths below some folders (`confine`), and so do the imports that it starts; a visitor only their own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.errors import ConfigError
from workbench.workspace import LORA_NAME

VARIABLE = "WORKBENCH_POLICY"
ROOTS = "WORKBENCH_ROOTS"
OFF = "is switched off in this demo: run the workbench yourself, or duplicate the Space, to have it"
HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(:[^@]+)?(@[\w./-]+)?")
CLIPS = ("chosen", "clips", "clip")  # settings that name clips of a dataset, as clips/ID.mp4
# Free text, which may begin with a stroke or speak of an address.
FREE = re.compile(r"prompt|caption|instruction|text|find|replace")


@dataclass(frozen=True)
class Policy:
    """home: the folder below which every named file must lie
    jobs: modules that may run in the background
    models, hub: models and repositories of the Hub that may be named
    most: setting, or Class.setting -> its highest value; of a text or a list, its greatest length
    only: setting -> its legal values; empty: settings that stay as they are
    runs, waiting: runs and waiting samples of one visitor at most; size: bytes of all files
    at_once: jobs of one visitor; together, all_at_once: trainings and jobs of all visitors, whose homes lie in the
    folder `everybody`
    memory: bytes that one process may have for its data; text, entries: of an archive, bytes of captions and members
    """

    home: str
    jobs: tuple[str, ...]
    models: tuple[str, ...]
    hub: tuple[str, ...] = ()
    most: Mapping[str, float] = field(default_factory=dict)
    only: Mapping[str, tuple[str | bool | None, ...]] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    runs: int = 6
    waiting: int = 32
    size: int = 300_000_000
    at_once: int = 4
    together: int = 2
    all_at_once: int = 16
    everybody: str = ""
    memory: int = 3 * 1024**3
    text: int = 8 * 1024**2
    entries: int = 4000

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def current() -> Policy | None:
    """The rules of this process; None where there are none. Raises ConfigError for rules that cannot be read."""
    path = os.environ.get(VARIABLE, "")
    return _read(path) if path else None


@lru_cache(maxsize=8)
def _read(path: str) -> Policy:
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        only = {name: tuple(legal) for name, legal in values.get("only", {}).items()}
        return Policy(**{**values, **lists, "only": only})
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"the rules in {VARIABLE} cannot be read ({error}): nothing is done without them") from error


# ---- settings -------------------------------------------------------------------------------------------------------


def check_settings(kind: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raises ConfigError with a sentence for each setting that this process may not have. kind: the class's name"""
    policy = current()
    if policy is None:
        return
    found = {}
    for name, value in values.items():
        # A default names nothing of the visitor's choosing, but may still be switched off.
        problem = _off(policy, name, value)
        if not problem and value != defaults.get(name):
            problem = _problem(policy, kind, name, value)
        if problem:
            found[name] = problem
    if found:
        raise ConfigError("; ".join(found.values()), found)


def _off(policy: Policy, name: str, value: Any) -> str:
    if name in policy.empty:
        return f"{name} {OFF}" if value else ""
    if name in policy.only and value not in policy.only[name]:
        return f"{name} is {str(value)[:40]!r}, which {OFF}"
    return ""


def _problem(policy: Policy, kind: str, name: str, value: Any) -> str:
    """What is wrong with one setting that was chosen; "" when nothing is."""
    most = policy.most.get(f"{kind}.{name}", policy.most.get(name))
    size = value if isinstance(value, int | float) else len(value) if isinstance(value, str | tuple | list) else 0
    if most is not None and size > most:
        return f"{name} is {value if value is size else size}, at most {most:g} in this demo: use {most:g}"
    if name == "model" and value and value not in (*policy.models, *policy.hub):
        return f"model is {str(value)[:80]!r}, in this demo only {', '.join(policy.models)}: choose it"
    for text in _texts(value):
        if not FREE.search(name) and _elsewhere(policy, text) and not (name in CLIPS and text.startswith("clips/")):
            return f"{name} names {text[:80]!r}, and this demo reads and writes your own workspace alone"
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _texts(one)


def _elsewhere(policy: Policy, text: str) -> bool:
    """Whether a text names something outside of the visitor's own folder: a file, an address, a repository."""
    if "://" in text or text.startswith(("~", "\\", "//")) or "\0" in text or ".." in PurePosixPath(text).parts:
        return True
    if text.startswith("/"):
        return not Path(text).resolve().is_relative_to(Path(policy.home).resolve())
    name = text.rpartition("=")[0] or text
    named = HUB_ID.fullmatch(name)
    return named is not None and not LORA_NAME.fullmatch(name) and named["repo"] not in policy.hub


# ---- files ----------------------------------------------------------------------------------------------------------

_roots: list[Path] = []


def confine(roots: Sequence[Path]) -> None:
    """From now on this process takes only paths below these folders; none: any."""
    _roots[:] = [root.resolve() for root in roots]


def browsed() -> Path:
    """Return the folder at which somebody begins to look for files: the first that is open, else the home."""
    return _roots[0] if _roots else Path.home()


def handed_on() -> dict[str, str]:
    """The variable by which a job learns to which folders this process is confined (`inherit`)."""
    return {ROOTS: json.dumps([str(root) for root in _roots])} if _roots else {}


def inherit() -> None:
    """Confine this job as the process was that started it."""
    if ROOTS in os.environ:
        confine([Path(root) for root in json.loads(os.environ[ROOTS])])


def resolve(path: Path | str, name: str = "the path") -> Path:
    """The file or folder that a person names: expanded, links resolved, and one that this process may touch.

    name: of the setting, for the sentence. Raises ConfigError.
    """
    text = str(path)
    try:
        found = Path(text).expanduser().resolve()
        found.exists()  # raises for what no system takes as a name
    except (OSError, ValueError, RuntimeError) as error:
        sentence = f"{name} is {text[:80]!r}, which is no path that can be read: check its spelling"
        raise ConfigError(sentence, {name: sentence}) from error
    policy = current()
    allowed = [Path(policy.home).resolve()] if policy is not None else _roots
    if allowed and not any(found.is_relative_to(root) for root in allowed):
        below = "your workspace" if policy is not None else f"{' or '.join(map(str, allowed))} (started with --root)"
        sentence = f"{name} is {str(found)[:200]!r}, which this page may not read: use one below {below}"
        raise ConfigError(sentence, {name: sentence})
    return found


def checked(path: Path | str, name: str = "the path") -> Path:
    """The file or folder that a person names, under that very name, by which its captions are found: absolute, links
    unresolved. It must lie where this process may read, and lead there. Raises ConfigError.
    """
    resolve(path, name)
    found = Path(os.path.abspath(Path(path).expanduser()))  # ".." is taken out of the name, whatever is a link in it
    if not resolve(found, name).is_dir():
        resolve(found.parent, name)
    return found


def check_paths(name: str, value: Any) -> None:
    """Raises ConfigError when a setting that may name files, beside other things, names one that is not allowed."""
    if _roots:
        for text in _texts(value):
            for one in {text, text.rpartition("=")[0]}:  # a LoRA comes with its scale
                if one and names_file(one):
                    resolve(one, name)


def names_file(text: str) -> bool:
    """Whether it is a path, and no name of a model, a run or a repository."""
    if not text:
        return False
    if text.startswith(("/", "~", ".", "\\")) or "\0" in text or ".." in PurePosixPath(text).parts:
        return True
    try:
        return Path(text).exists()
    except OSError:  # longer than a name can be
        return True


# ---- work -----------------------------------------------------------------------------------------------------------


def check_waiting(count: int) -> None:
    """Raises ConfigError when so many samples may not wait at once."""
    policy = current()
    if policy is not None and count > policy.waiting:
        raise ConfigError(f"{count} videos would wait, at most {policy.waiting} in this demo: request fewer, or wait")


def unpacked(entries: int, size: int, text: int) -> tuple[int, int, int]:
    """How many members of an archive are read, their bytes and those of its captions: these, or a visitor's."""
    policy = current()
    if policy is None:
        return entries, size, text
    return min(entries, policy.entries), min(size, policy.size), min(text, policy.text)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; links count as links."""
    total, left = 0, [folder]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # removed meanwhile
            continue
    return total
