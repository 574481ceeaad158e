"""Files of a workspace that hold records: one of a known shape, read whole or not at all, or one record a line.

Anybody may have written into a workspace: a person, another version, a disk that failed. Not covered: settings, whose
errors a person is told (settings); files that only the process reads that writes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workbench.errors import ConfigError
from workbench.workspace import from_json, read_json

LATEST = 1e11  # seconds since the epoch: no calendar goes much further


def read_record(path: Path, shape: TypeAdapter[Any]) -> Any:
    """A JSON file's value as it is; None where it is missing, no JSON or not of that shape."""
    with contextlib.suppress(ConfigError, ValidationError):
        value = read_json(path)
        shape.validate_python(value, strict=True)
        return value
    return None


def json_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects of JSON Lines; a line that was torn, or that is no object, is left out."""
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            value = from_json(line.decode("utf-8", errors="replace")) if line.strip() else None
            if isinstance(value, dict):
                yield value


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file, none where there is no file."""
    return list(json_lines(path.read_bytes())) if path.is_file() else []
