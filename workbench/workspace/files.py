"""Write files atomically, and read files that anybody may have edited."""

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

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # as escaped in JSON


@contextlib.contextmanager
def writing(path: Path) -> Any:
    """Turn an OSError while writing into a CannotWrite with one sentence."""
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
    """Make a folder and its parents if they do not exist. Raises CannotWrite."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def link_or_copy(source: str, target: str) -> None:
    """Hard-link weights, which nobody edits, if the disk allows it; copy other files. Raises OSError.

    Meant as the copy_function of shutil.copytree.
    """
    real = os.path.realpath(source)
    if source.endswith(".safetensors"):
        with contextlib.suppress(OSError):
            os.link(real, target)
            return
    shutil.copy2(real, target)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; if the block succeeds, flush that file and rename it to `path`. Raises CannotWrite."""
    # The thread id is part of the name because two threads of a page may write the same file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            with temporary.open("r+b") as file:  # Windows only flushes files open for writing
                os.fsync(file.fileno())
            disk.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically. mode: its permissions, minus the process's umask. Raises CannotWrite."""
    opened = partial(os.open, mode=mode)
    with replacing(path) as temporary, open(temporary, "wb", opener=opened) as file:
        file.write(data)


def append_line(path: Path, text: str) -> None:
    """Append a line to a file, first ending an incomplete last line. Raises CannotWrite."""
    with writing(path), path.open("ab+") as file:
        incomplete = False
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            incomplete = file.read(1) != b"\n"
        file.write((b"\n" if incomplete else b"") + text.encode() + b"\n")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder. Links below it are not followed."""
    if path.is_file():
        return path.stat().st_size
    total, left = 0, [path]
    while left:
        with contextlib.suppress(OSError), os.scandir(left.pop()) as entries:  # it may just have been removed
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut, on systems that can open folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Write text atomically, in UTF-8. Raises CannotWrite."""
    write_bytes(path, text.encode(), mode)


def write_json(path: Path, value: Any, mode: int = 0o666) -> None:
    """Write indented JSON atomically. NaN and Infinity, which JSON does not have, become null. Raises CannotWrite."""
    write_text(path, json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n", mode)


def finite(value: Any) -> Any:
    """Replace NaN and infinities in nested values with None, because JSON has no word for them."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_bytes(path: Path) -> bytes:
    """Return a file's content; b"" if it does not exist or cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_bytes() if path.is_file() else b""
    return b""


def from_json(text: str | bytes) -> Any:
    """Parse JSON. Unpaired surrogates, which cannot be written to a file, become "\ufffd".

    NaN and Infinity, which earlier versions wrote, become None. Raises ValueError, also if it is nested too deeply.
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
    """Read a JSON file's object; {} if the file is missing, not JSON or not an object."""
    with contextlib.suppress(ConfigError):
        value = read_json(path)
        return value if isinstance(value, dict) else {}
    return {}


def read_to_change(path: Path) -> dict[str, Any]:
    """Read a JSON file's object in order to change and rewrite it; {} if the file is missing.

    Raises ConfigError if it is damaged, because rewriting would lose what a person put into it.
    """
    if not path.exists() and not path.is_symlink():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise ConfigError(f"{path} does not hold a JSON object: fix or remove it")
    return value


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises ConfigError if it is missing or not JSON."""
    try:
        return from_json(disk.patiently(lambda: path.read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing: check the name") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read as JSON ({reason}): fix or remove it") from error
