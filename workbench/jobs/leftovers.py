"""Temporary files and cut uploads that nobody will finish: removed when the page or a job starts.

Only what is provably nobody's: it has not been written to for a day, and the process whose number is in its name is
gone, or began after it was last written. Not covered: half checkpoints (runs.retention), what a task of a dataset
left (its own next start), sessions of visitors (demo_space.sessions).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

SECONDS = 86_400.0  # without a byte: no upload and no write takes a pause that long
# .NAME.PID.tmp, .NAME.PID.THREAD.tmp (workspace), .NAME.PID.THREAD.part (cuts), .SAMPLE.PID.mp4 (samples)
TEMPORARY = re.compile(r"\..+?\.(?P<pid>\d{1,9})(\.\d+)?\.(tmp|part)|\.[\d-]+-[0-9a-f]{4}\.(?P<sample>\d{1,9})\.mp4")
HEARTBEAT = re.compile(r"\.heartbeat\.json\.\d+")
UPLOAD = re.compile(r"tmp[a-z0-9_]{8}")  # what Gradio writes an upload to until it is whole


def sweep(folder: Path, deep: bool = True) -> list[Path]:
    """Remove what nobody will finish in a folder, and with `deep` below it; returns what went. Raises nothing."""
    gone = []
    for path in _files(folder, deep):
        with contextlib.suppress(OSError):
            written = path.lstat().st_mtime
            if time.time() - written > SECONDS and _nobodys(path, written):
                path.unlink()
                gone.append(path)
    return gone


def sweep_uploads(folder: Path) -> list[Path]:
    """Remove uploads that were cut off, from the folder in which the page takes them. Raises nothing."""
    gone = []
    for path in _files(folder, deep=False):
        with contextlib.suppress(OSError):
            if UPLOAD.fullmatch(path.name) and time.time() - path.lstat().st_mtime > SECONDS:
                path.unlink()
                gone.append(path)
    return gone


def _files(folder: Path, deep: bool) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        if not deep:
            folders.clear()
        yield from (Path(parent, name) for name in names)


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
