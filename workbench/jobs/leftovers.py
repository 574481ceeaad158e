"""Temporary files and cut uploads that nobody will finish: removed when the page or a job starts.

Only what is provably nobody's: it has not been written to for a day, and the process whose number is in its name is
gone, or began after it was last written.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

SECONDS = 86_400.0  # without a byte: no upload and no write takes a pause that long
# .NAME.PID.tmp, .NAME.PID.THREAD.tmp (workspace), .NAME.PID.THREAD.part (cuts), .SAMPLE.PID.mp4 (samples)
TEMPORARY = re.compile(r"\..+?\.(?P<pid>\d{1,9})(\.\d+)?\.(tmp|part)|\.[\d-]+-[0-9a-f]{4}\.(?P<sample>\d{1,9})\.mp4")
HEARTBEAT = re.compile(r"\.heartbeat\.json\.\d+")
UPLOAD = re.compile(r"tmp[a-z0-9_]{8}")  # what Gradio writes an upload to until it is whole


def sweep(folder: Path) -> list[Path]:
    """Remove what nobody will finish in a folder and below it; returns what went. Raises nothing."""
    return _remove((Path(parent, name) for parent, _, names in os.walk(folder) for name in names), _nobodys)


def sweep_uploads(folder: Path) -> list[Path]:
    """Remove uploads that were cut off, from the folder in which the page takes them. Raises nothing."""
    return _remove(folder.glob("*"), lambda path, _: UPLOAD.fullmatch(path.name) is not None)


def _remove(files: Iterable[Path], unwanted: Callable[[Path, float], bool]) -> list[Path]:
    """unwanted: by a file's path and when it was last written"""
    gone = []
    for path in files:
        with contextlib.suppress(OSError):
            written = path.lstat().st_mtime
            if time.time() - written > SECONDS and unwanted(path, written):
                path.unlink()
                gone.append(path)
    return gone


def _nobodys(path: Path, written: float) -> bool:
    """Whether the name is that of a temporary file, and its process cannot be the one that is there now."""
    if HEARTBEAT.fullmatch(path.name):
        return True
    match = TEMPORARY.fullmatch(path.name)
    if match is None:
        return False
    try:
        return psutil.Process(int(match["pid"] or match["sample"])).create_time() > written
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:  # it is there, and hides when it began
        return False
