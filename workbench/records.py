"""Files of a workspace that hold records of a known shape: read whole and of the right types, or not at all.

Anybody may have written into a workspace: a person, another version, a disk that failed. Not covered: settings, whose
errors a person is told (settings); files that only the process reads that writes them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workbench.errors import ConfigError
from workbench.workspace import read_json

LATEST = 1e11  # seconds since the epoch: no calendar goes much further


def read_record(path: Path, shape: TypeAdapter[Any]) -> Any:
    """A JSON file's value as it is; None where it is missing, no JSON or not of that shape."""
    with contextlib.suppress(ConfigError, ValidationError):
        value = read_json(path)
        shape.validate_python(value, strict=True)
        return value
    return None
