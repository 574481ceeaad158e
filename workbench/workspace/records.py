"""Read files with records, either one of a known shape or one per line, and cache what was read.

A record may be damaged, or come from a person or another version.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from workbench.errors import ConfigError
from workbench.workspace.files import from_json, read_bytes, read_json

LATEST = 1e11  # Unix time; calendars do not go much further
T = TypeVar("T")
_READ: dict[tuple[Path, str], tuple[Any, Any]] = {}
_MOST_KEPT = 20_000


def read_once(path: Path, read: Callable[[Path], T], *more: Any) -> T:
    """Return `read(path)`, cached until the file or `more` changes. Raises what `read` raises."""
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
    """A cache for a reader that polls: one value per name, made again when its mark changes."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Any, T]] = {}

    def of(self, name: Hashable, mark: Any, make: Callable[[], T]) -> T:
        """Return the value of a name, calling `make` if there is none with this mark."""
        if name not in self._kept or self._kept[name][0] != mark:
            self._kept[name] = mark, make()
        return self._kept[name][1]

    def forget(self, name: Hashable) -> None:
        """Drop a value."""
        self._kept.pop(name, None)


def key_of(what: Mapping[str, Any]) -> str:
    """Hash JSON values, in any order, into a key of 40 digits."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:40]


def read_record(path: Path, shape: Any) -> Any:
    """Read a JSON file; None if it is missing, not JSON or not of this shape (any type that pydantic knows)."""
    with contextlib.suppress(ConfigError, ValidationError):
        value = read_json(path)
        _adapter(shape).validate_python(value, strict=True)
        return value
    return None


def sound(record: Any, shape: type[BaseModel]) -> dict[str, Any]:
    """Return a record without the values that break the shape's rules; {} if it is not an object."""
    if not isinstance(record, dict):
        return {}
    try:
        shape.model_validate(record)
    except ValidationError as error:
        broken = {one["loc"][0] for one in error.errors(include_url=False, include_input=False) if one["loc"]}
        return {name: value for name, value in record.items() if name not in broken}
    return record


def broken_rule(error: ValidationError) -> str:
    """Say in a few words what is wrong with a record: the first invalid field and the rule it breaks."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"][:200].replace("\n", " "))))


@functools.cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def json_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSON Lines, skipping lines that are incomplete or hold something else."""
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            value = from_json(line.decode("utf-8", errors="replace")) if line.strip() else None
            if isinstance(value, dict):
                yield value


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a JSON Lines file; none if it cannot be read."""
    return list(json_lines(read_bytes(path)))
