"""The files of a grid's cells: read once for each state of them, by every page that looks. Plain functions, no torch.

Not covered: what a grid makes of them (grid).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.workspace import read_json

MOST_KEPT = 4000
_HASHES: dict[tuple[str, int], str] = {}
_RECORDS: dict[Path, tuple[int, dict[str, Any]]] = {}


def stamp(video: Path) -> int:
    """Changes when a video is drawn again."""
    try:
        return video.with_suffix(".json").stat().st_mtime_ns
    except OSError:
        return 0


def outdated(record: dict[str, Any], video: Path) -> bool:
    """Whether a LoRA that the video was drawn with is another file by now."""
    for lora in record.get("loras") or ():
        path = Path(str(lora.get("file", "")))
        with contextlib.suppress(OSError):
            if path.stat().st_mtime_ns > stamp(video) and _sha256(path) != lora.get("sha256"):
                return True
    return False


def _sha256(path: Path) -> str:
    """Hashed once for each state of the file."""
    mark = (str(path), path.stat().st_mtime_ns)
    if mark not in _HASHES:
        _HASHES[mark] = file_sha256(path)
    return _HASHES[mark]


def record_of(path: Path) -> dict[str, Any]:
    """A sample's record, read once for each state of its file; {} when it is not there."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return {}
    known = _RECORDS.get(path)
    if known is None or known[0] != changed:
        if len(_RECORDS) > MOST_KEPT:
            _RECORDS.clear()
        _RECORDS[path] = known = (changed, read_object(path))
    return known[1]


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object, {} when it is not there or not whole."""
    with contextlib.suppress(ConfigError):
        value = read_json(path) if path.exists() else {}
        return value if isinstance(value, dict) else {}
    return {}
