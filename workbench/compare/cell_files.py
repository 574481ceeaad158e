"""The files of a grid's cells, read once for each of their versions. Plain functions, no torch.

Not covered: the state of a cell (grid).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from workbench.clips.records import file_sha256
from workbench.workspace import read_object

MOST_KEPT = 4000
_HASHES: dict[tuple[str, int], str] = {}
_RECORDS: dict[Path, tuple[int, dict[str, Any]]] = {}


def stamp(video: Path) -> int:
    """The version of a video: another number after it was generated again."""
    try:
        return video.with_suffix(".json").stat().st_mtime_ns
    except OSError:
        return 0


def outdated(record: dict[str, Any], video: Path) -> bool:
    """Whether a LoRA that the video was generated with is another file by now."""
    for lora in record.get("loras") or ():
        path = Path(str(lora.get("file", "")))
        with contextlib.suppress(OSError):
            if path.stat().st_mtime_ns > stamp(video) and _sha256(path) != lora.get("sha256"):
                return True
    return False


def _sha256(path: Path) -> str:
    """Hashed once for each version of the file."""
    mark = (str(path), path.stat().st_mtime_ns)
    if mark not in _HASHES:
        _HASHES[mark] = file_sha256(path)
    return _HASHES[mark]


def record_of(path: Path) -> dict[str, Any]:
    """A sample's record, read once for each version of its file; {} when it is not there."""
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
