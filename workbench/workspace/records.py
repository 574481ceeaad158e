"""Files of a workspace that hold records: one of a known shape, read whole or not at all, or one record a line.

Anybody may have written into a workspace: a person, another version, a disk that failed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from workbench.errors import ConfigError
from workbench.workspace.files import from_json, read_bytes, read_json

LATEST = 1e11  # seconds since the epoch: no calendar goes much further
T = TypeVar("T")


_READ: dict[tuple[Path, str], tuple[Any, Any]] = {}
_MOST_KEPT = 20_000


def read_once(path: Path, read: Callable[[Path], T], *more: Any) -> T:
    """What `read` returns for a file, read again when the file, or `more`, has changed. Raises what `read` raises."""
    try:
        about = path.stat()
    except OSError:
        return read(path)
    version, key = (about.st_mtime_ns, about.st_size, *more), (path, read.__qualname__)
    if (known := _READ.get(key)) is None or known[0] != version:
        if len(_READ) > _MOST_KEPT:
            _READ.clear()
        _READ[key] = known = (version, read(path))
    found: T = known[1]
    return found


class Kept(Generic[T]):
    """What a reader that reads again and again made of each thing; made again once the thing's mark has changed."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Any, T]] = {}

    def of(self, name: Hashable, mark: Any, make: Callable[[], T]) -> T:
        """Return what was made of it, now if its mark is another one."""
        if name not in self._kept or self._kept[name][0] != mark:
            self._kept[name] = mark, make()
        return self._kept[name][1]

    def forget(self, name: Hashable) -> None:
        """Let it be made again."""
        self._kept.pop(name, None)


def read_record(path: Path, shape: Any) -> Any:
    """A JSON file's value as it is; None where it is missing, no JSON or not of that shape, a type of pydantic's."""
    with contextlib.suppress(ConfigError, ValidationError):
        value = read_json(path)
        _adapter(shape).validate_python(value, strict=True)
        return value
    return None


def sound(record: Any, shape: type[BaseModel]) -> dict[str, Any]:
    """The record without those of its values that break the shape's rules; {} of what is no record at all."""
    if not isinstance(record, dict):
        return {}
    try:
        shape.model_validate(record)
    except ValidationError as error:
        broken = {one["loc"][0] for one in error.errors(include_url=False, include_input=False) if one["loc"]}
        return {name: value for name, value in record.items() if name not in broken}
    return record


def broken_rule(error: ValidationError) -> str:
    """Say in a few words what is wrong with a record: its first field that breaks a rule, and which."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"][:200].replace("\n", " "))))


@functools.cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def json_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects of JSON Lines; a line that was torn, or that is no object, is left out."""
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            value = from_json(line.decode("utf-8", errors="replace")) if line.strip() else None
            if isinstance(value, dict):
                yield value


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file, none where there is no file that can be read."""
    return list(json_lines(read_bytes(path)))
