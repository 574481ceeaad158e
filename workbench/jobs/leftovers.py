"""Remove temporary files and interrupted uploads that nobody will finish, when the page or a job starts.

A file is removed only if it has not been written to for a day and the process named in it is gone, or began later.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

SECONDS = 86_400.0  # without a write, after which a file is given up
# .NAME.PID.tmp, .NAME.PID.THREAD.tmp (workspace), .NAME.PID.THREAD.part (cuts), .SAMPLE.PID.mp4 (samples)
TEMPORARY = re.compile(r"\..+?\.(?P<pid>\d{1,9})(\.\d+)?\.(tmp|part)|\.[\d-]+-[0-9a-f]{4}\.(?P<sample>\d{1,9})\.mp4")
HEARTBEAT = re.compile(r"\.heartbeat\.json\.\d+")
UPLOAD = re.compile(r"tmp[a-z0-9_]{8}")  # Gradio's name for an upload that is not complete


def sweep(folder: Path) -> list[Path]:
    """Remove abandoned temporary files in a folder and below it; return what was removed. Never raises."""
    return _remove((Path(parent, name) for parent, _, names in os.walk(folder) for name in names), _abandoned)


def sweep_uploads(folder: Path) -> list[Path]:
    """Remove interrupted uploads from the page's upload folder; return what was removed. Never raises."""
    return _remove(folder.glob("*"), lambda path, _: UPLOAD.fullmatch(path.name) is not None)


def _remove(files: Iterable[Path], unwanted: Callable[[Path, float], bool]) -> list[Path]:
    """Remove old files that are unwanted, judged by path and time of the last write."""
    removed = []
    for path in files:
        with contextlib.suppress(OSError):
            written = path.lstat().st_mtime
            if time.time() - written > SECONDS and unwanted(path, written):
                path.unlink()
                removed.append(path)
    return removed


def _abandoned(path: Path, written: float) -> bool:
    """Whether this is a temporary file whose process has ended (its pid may belong to a newer process)."""
    if HEARTBEAT.fullmatch(path.name):
        return True
    match = TEMPORARY.fullmatch(path.name)
    if match is None:
        return False
    try:
        return psutil.Process(int(match["pid"] or match["sample"])).create_time() > written
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:  # the process exists but does not tell when it began
        return False
