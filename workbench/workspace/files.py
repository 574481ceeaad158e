"""Files of a workspace: written whole or not at all, read as what they should hold. Done is written last."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from workbench.errors import CannotWrite, ConfigError
from workbench.workspace import disk

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # as JSON writes it


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


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; links below it count as links."""
    if path.is_file():
        return path.stat().st_size
    total, left = 0, [path]
    while left:
        with contextlib.suppress(OSError), os.scandir(left.pop()) as entries:  # removed meanwhile
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


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
