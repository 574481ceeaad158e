"""Where things live on disk: the workspace folder, names that are safe as folder names, writes that are all or nothing.

Not covered: what is inside the files (clips, jobs, trainer, sampler own their formats).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import threading
import unicodedata
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from workbench import inline_html
from workbench.errors import CannotWrite, ConfigError
from workbench.workspace import disk

SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(?=\.|$)")  # of Windows, with any suffix
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # as JSON writes it
STEP = re.compile(r"step-([0-9]{8,12})")
# What LoRAs of a workspace are called: runs/RUN, runs/RUN@STEP, loras/NAME.
LORA_NAME = re.compile(rf"(runs)/({SLUG.pattern})(?:@([0-9]{{1,8}}))?|(loras)/({SLUG.pattern})")
ENVIRONMENT_VARIABLE = "WORKBENCH_HOME"
LONGEST = 160  # characters of the longest path below a workspace: a temporary file of a run with a long name
FORMER_NAMES = ".former_names.json"


@dataclass(frozen=True)
class Workspace:
    """The folder that the web app, notebooks, shell and background jobs share."""

    root: Path

    @classmethod
    def open(cls, root: Path | str | None = None) -> Workspace:
        """Open (or create) the given folder, else $WORKBENCH_HOME, else ./workspace.

        Raises CannotWrite; ConfigError where the system takes no path that is as long as those in it would be.
        """
        chosen = Path(root or os.environ.get(ENVIRONMENT_VARIABLE) or "workspace").expanduser().resolve()
        if len(str(chosen)) + LONGEST > disk.longest_path():
            raise ConfigError(
                f"the workspace {chosen} has a path of {len(str(chosen))} characters, at most "
                f"{disk.longest_path() - LONGEST} here: choose another folder, or switch on long paths in Windows"
            )
        workspace = cls(chosen)
        with writing(chosen):
            for name in ("datasets", "runs", "samples", "grids", "cache", "locks"):
                (chosen / name).mkdir(parents=True, exist_ok=True)
        return workspace

    @classmethod
    def of(cls, folder: Path) -> Workspace:
        """The workspace that the folder of a run, a dataset or a job lies in."""
        return cls(folder.absolute().parent.parent)

    @property
    def datasets(self) -> Path:
        return self.root / "datasets"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def samples(self) -> Path:
        return self.root / "samples"

    @property
    def grids(self) -> Path:
        return self.root / "grids"

    @property
    def presets(self) -> Path:
        return self.root / "presets"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def locks(self) -> Path:
        return self.root / "locks"

    def model(self, name: str) -> str:
        """The model that a name stands for: the folder of `runs/NAME`, a finished run that trained all weights.

        Any other name is returned as it is. Raises ConfigError for a run that left no model.
        """
        match = LORA_NAME.fullmatch(name)
        if match is None or match[2] is None:
            return name
        folder = self.run(match[2])
        if match[3] is None and (folder / "model_index.json").is_file():
            return str(folder)
        reason = "is not a finished run that trained all weights (method full)"
        if match[3] is not None:
            reason = "names a checkpoint, and only a run's end result is a model"
        elif (folder / "lora.safetensors").is_file():
            reason = f"trained a LoRA: choose the model that it was trained on, with {name} as the LoRA"
        sentence = f"model is {name}, which {reason}"
        raise ConfigError(sentence, {"model": sentence})

    def _repr_html_(self) -> str:
        folders = (self.datasets, self.runs, self.grids)
        names = {folder.name: sorted(path.name for path in folder.glob("[!.]*/")) for folder in folders}
        rows = [(kind, len(found), ", ".join(found)) for kind, found in names.items()]
        rows.append(("samples", len(list(self.samples.glob("[!.]*/*.mp4"))), ""))
        return inline_html.heading(str(self.root)) + inline_html.table(("", "count", "names"), rows)

    def dataset(self, slug: str) -> Path:
        """The folder of a dataset, there or not, also by a name that it had before.

        Raises ConfigError for a name that is no slug.
        """
        folder = self.datasets / checked_slug(slug)
        return folder if folder.exists() else self.datasets / self.former_names.get(slug, slug)

    @property
    def former_names(self) -> dict[str, str]:
        """What datasets were called before they were renamed -> what they are called now."""
        names = read_object(self.datasets / FORMER_NAMES)
        return {old: new for old, new in names.items() if isinstance(new, str) and is_slug(new)}

    def run(self, slug: str) -> Path:
        """The folder of a training run, there or not. Raises ConfigError for a name that is no slug."""
        return self.runs / checked_slug(slug)

    def grid(self, slug: str) -> Path:
        """The folder of a grid of videos, there or not. Raises ConfigError for a name that is no slug."""
        return self.grids / checked_slug(slug)

    def inside(self, path: str | Path) -> Path:
        """The file of this workspace that a record names, links resolved.

        The folder of a run or a dataset may be a link to another disk; links below it must stay in it. Raises
        ConfigError for a file that lies elsewhere.
        """
        whole = Path(os.path.normpath(self.root / path))
        parts = whole.relative_to(self.root).parts if whole.is_relative_to(self.root) else ()
        return confined(self.root.joinpath(*parts[:2]) if len(parts) > 2 else self.root, whole)


def slugify(title: str) -> str:
    """A folder name from any text: "Été, 2 clips!" -> "ete-2-clips"; "untitled" when nothing is left."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    joined = re.sub(r"\.{2,}", ".", re.sub(r"[^a-z0-9._]+", "-", plain))
    stripped = joined.strip("-._")
    if DEVICES.match(stripped):
        stripped = DEVICES.sub(r"\1-1", stripped, count=1)
    return stripped[:64].strip("-._") or "untitled"


def is_slug(name: str) -> bool:
    """Whether the name may be that of a dataset, a run, a grid or a LoRA, on every system: a workspace can be moved."""
    return SLUG.fullmatch(name) is not None and ".." not in name and not name.endswith(".") and not DEVICES.match(name)


def checked_slug(name: str) -> str:
    """The name itself, if it may be a folder name. Raises ConfigError."""
    if DEVICES.match(name):
        raise ConfigError(f"the name {name[:80]!r} is that of a device on Windows: use {slugify(name)!r}")
    if not is_slug(name):
        raise ConfigError(
            f"the name {name[:80]!r} cannot be used: small letters, digits, '.', '_' and '-' only, at most 64: "
            f"use {slugify(name)!r}"
        )
    return name


def fresh_folder(parent: Path, title: str, taken: Container[str] = ()) -> Path:
    """Make a folder for the title under a name that is not taken: cats, cats-2, cats-3 ... Raises CannotWrite.

    Two who ask at the same time get two folders. taken: names that are not free without a folder, too
    """
    stem = slugify(title)
    name, count = stem, 1
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            if name not in taken:
                with contextlib.suppress(FileExistsError):
                    (parent / name).mkdir()
                    return parent / name
            count += 1
            name = f"{stem[:58]}-{count}"


def step_of(name: str) -> int | None:
    """The step of a folder that is named by one: "step-00000250" is 250; None for any other name, also for a copy's."""
    match = STEP.fullmatch(name)
    return int(match[1]) if match is not None and name == f"step-{int(match[1]):08d}" else None


def step_folders(parent: Path) -> dict[int, Path]:
    """The folders in parent that are named by a step, by that step, lowest first; all else is left out."""
    found = {step: path for path in parent.glob("step-*") if (step := step_of(path.name)) is not None and path.is_dir()}
    return dict(sorted(found.items()))


def confined(root: Path, relative: str | Path) -> Path:
    """The path below root, links resolved: the one way from a path in a record or a request to a file.

    Raises ConfigError when it leads outside, by itself or through a link, and for what is no path.
    """
    try:
        path, base = (root / relative).resolve(), root.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, links in a circle
        raise ConfigError(f"{str(relative)[:120]!r} is no path that can be read: check its spelling") from error
    if not path.is_relative_to(base):
        raise ConfigError(f"the path {str(relative)[:120]!r} leads outside {root.name}: name a file inside it")
    return path


@contextlib.contextmanager
def writing(path: Path) -> Any:
    """Turn an OSError while writing into one sentence. Raises CannotWrite."""
    try:
        yield
    except OSError as error:
        reasons = {
            errno.ENOSPC: "the disk is full: free some space",
            errno.EDQUOT: "the disk quota is used up: free some space",
            errno.EACCES: "permission is missing: choose another workspace or change its owner",
            errno.EROFS: "the disk is read-only: choose another workspace",
        }
        reason = reasons.get(error.errno or 0, f"{error.strerror or error}: check the disk")
        raise CannotWrite(f"cannot write {path}: {reason}") from error


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless it is there. Raises CannotWrite."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def link_or_copy(source: str, target: str) -> None:
    """Gigabytes of weights that nobody edits get a second name where the disk allows it; all else is copied.

    For shutil.copytree. Raises OSError.
    """
    real = os.path.realpath(source)
    if source.endswith(".safetensors"):
        with contextlib.suppress(OSError):
            os.link(real, target)
            return
    shutil.copy2(real, target)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path for a file, flushed to the disk and renamed to `path` when the block ends without an error.

    Raises CannotWrite.
    """
    # A page's handlers are threads of one process and may write the same file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            with temporary.open("r+b") as file:  # Windows flushes what is open for writing alone
                os.fsync(file.fileno())
            disk.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file so that it is there whole or not at all: see `replacing`. Raises CannotWrite.

    mode: who may read and write it, less what the process's umask takes away
    """
    opened = partial(os.open, mode=mode)
    with replacing(path) as temporary, open(temporary, "wb", opener=opened) as file:
        file.write(data)


def append_line(path: Path, text: str) -> None:
    """Add a line to a file that grows, on a line of its own even after a torn one. Raises CannotWrite."""
    with writing(path), path.open("ab+") as file:
        torn = False
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        file.write((b"\n" if torn else b"") + text.encode() + b"\n")


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut (where the system lets folders be opened)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """As write_bytes, in UTF-8."""
    write_bytes(path, text.encode(), mode)


def write_json(path: Path, value: Any, mode: int = 0o666) -> None:
    """As write_bytes, as indented JSON. NaN and Infinity, which JSON does not have, become null."""
    write_text(path, json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n", mode)


def finite(value: Any) -> Any:
    """The same with None for what is no number: JSON has no word for it."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_bytes(path: Path) -> bytes:
    """A file's content; b"" where there is none, or nothing that can be read."""
    with contextlib.suppress(OSError):
        return path.read_bytes() if path.is_file() else b""
    return b""


def from_json(text: str | bytes) -> Any:
    """The value of a JSON text, in which half a surrogate pair, that no file can hold, is replaced by "\ufffd".

    NaN and Infinity, which earlier versions wrote, are None. Raises ValueError, also where it is nested too deeply to
    be read.
    """
    try:
        value = json.loads(text, parse_constant=lambda _: None)
        return _storable(value) if SURROGATE.search(text if isinstance(text, str) else text.decode()) else value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_storable(name): _storable(one) for name, one in value.items()}
    return [_storable(one) for one in value] if isinstance(value, list) else value


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file's object; {} when it is missing, not JSON or no object."""
    with contextlib.suppress(ConfigError):
        value = read_json(path)
        return value if isinstance(value, dict) else {}
    return {}


def read_to_change(path: Path) -> dict[str, Any]:
    """A JSON file's object, to be changed and written again; {} when it is missing.

    Raises ConfigError for a damaged file: what a person has put into it would be lost.
    """
    if not path.exists() and not path.is_symlink():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object: fix or remove it")
    return value


def read_json(path: Path) -> Any:
    """A JSON file's value. Raises ConfigError when it is missing or not JSON."""
    try:
        return from_json(disk.patiently(lambda: path.read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing: check the name") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read as JSON ({reason}): fix or remove it") from error
