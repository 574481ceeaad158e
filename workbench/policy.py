"""What this process may do for whoever uses it: ordinarily everything, for a visitor of the public demo little.

A visitor's page is a process of its own (workbench.visitors), and the variable WORKBENCH_POLICY of its environment
names the JSON file that holds the rules; its jobs inherit both. The library asks where it matters, whoever calls it and
by which way: every set of settings that is read (`check_settings`), every job that is started (`check_start`), samples
that are asked for (`check_waiting`), files that are named outside of settings (`check_path`). A file of rules that
cannot be read stops everything. Not covered: who gets which rules (workbench.visitors), who may see which page
(workbench.ui.guard).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from workbench import processes
from workbench.errors import ConfigError

VARIABLE = "WORKBENCH_POLICY"
OFF = "is switched off in this demo: run the workbench yourself, or duplicate the Space, to have it"
HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(:[^@]+)?(@[\w./-]+)?")
# Names of the workspace that look like those of the Hub.
OWN = ("runs/", "loras/", "walls/", "samples/", "datasets/", "clips/")
# Free text, which may begin with a stroke or speak of an address.
FREE = re.compile(r"prompt|caption|instruction|text|find|replace")
TRAINER, RUNS = "workbench.trainer", "workspace/runs/*"


@dataclass(frozen=True)
class Policy:
    """home: the folder below which every named file must lie
    jobs: modules that may run in the background
    models, hub: models and repositories of the Hub that may be named
    most: setting, or Class.setting -> its highest value; of a text or a list, its greatest length
    only: setting -> its legal values; empty: settings that stay as they are
    runs, waiting: runs and asked-for samples of one visitor at most; size: bytes of all files
    together, everybody: so many trainings at once of all visitors, whose homes lie in the folder `everybody`
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
    together: int = 2
    everybody: str = ""

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
        # What a setting is by itself names nothing of the visitor's choosing, but may still be switched off.
        said = _off(policy, name, value) or (_said(policy, kind, name, value) if value != defaults.get(name) else "")
        if said:
            found[name] = said
    if found:
        raise ConfigError("; ".join(found.values()), found)


def _off(policy: Policy, name: str, value: Any) -> str:
    if name in policy.empty:
        return f"{name} {OFF}" if value else ""
    if name in policy.only and value not in policy.only[name]:
        return f"{name} is {str(value)[:40]!r}, which {OFF}"
    return ""


def _said(policy: Policy, kind: str, name: str, value: Any) -> str:
    """What is wrong with one setting that was chosen; "" when nothing is."""
    most = policy.most.get(f"{kind}.{name}", policy.most.get(name))
    size = value if isinstance(value, int | float) else len(value) if isinstance(value, str | tuple | list) else 0
    if most is not None and size > most:
        return f"{name} is {value if value is size else size}, at most {most:g} in this demo: use {most:g}"
    if name == "model" and value and value not in (*policy.models, *policy.hub):
        return f"model is {str(value)[:80]!r}, in this demo only {', '.join(policy.models)}: choose it"
    for text in _texts(value):
        if not FREE.search(name) and _elsewhere(policy, text):
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
    named = HUB_ID.fullmatch(text.rpartition("=")[0] or text)
    return named is not None and not text.startswith(OWN) and named["repo"] not in policy.hub


def check_path(path: Path | str) -> None:
    """Raises ConfigError when this process may not read or write the file."""
    policy = current()
    if policy is not None and not Path(path).resolve().is_relative_to(Path(policy.home).resolve()):
        raise ConfigError(f"{str(path)[:80]!r} lies outside of your workspace, and this demo reads nothing else")


# ---- work -----------------------------------------------------------------------------------------------------------


def check_waiting(count: int) -> None:
    """Raises ConfigError when so many samples may not wait at once."""
    policy = current()
    if policy is not None and count > policy.waiting:
        raise ConfigError(f"{count} videos would wait, at most {policy.waiting} in this demo: ask for fewer, or wait")


def check_start(module: str) -> None:
    """Raises ConfigError when this process may not start a job of this module now."""
    policy = current()
    if policy is None:
        return
    home = Path(policy.home)
    if module not in policy.jobs:
        raise ConfigError(f"this {OFF}")
    if size_of(home) > policy.size:
        raise ConfigError(
            f"your workspace is full: this demo keeps {policy.size // 10**6} MB a visitor; remove runs or clips"
        )
    if module != TRAINER:
        return
    if _training(home):
        raise ConfigError("a run of yours trains already: one at a time in this demo; wait for it, or stop it")
    if (runs := len(list(home.glob(RUNS)))) > policy.runs:
        raise ConfigError(f"you have {runs - 1} runs, at most {policy.runs} in this demo: remove one first")
    others = sum(_training(one) for one in Path(policy.everybody).glob("*")) if policy.everybody else 0
    if others >= policy.together:
        raise ConfigError(f"{others} other visitors train now, which is all this machine can do: try in a minute")


def _training(home: Path) -> int:
    """How many runs of a visitor train now."""
    count = 0
    count += len(list(home.glob(f"{RUNS}/waiting.json")))
    for path in home.glob(f"{RUNS}/process.json"):
        with contextlib.suppress(OSError, ValueError):
            count += processes.alive(json.loads(path.read_text(encoding="utf-8")))
    return count


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
