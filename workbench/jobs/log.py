"""A job's output, job.log: write a line, read the last lines, and keep it from growing without bound."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from workbench.errors import CannotWrite
from workbench.jobs.locks import acquire

LOG = "job.log"
MOST = 16 * 1024**2  # bytes of a log; a longer one loses its middle
HEAD, TAIL = 1024**2, 7 * 1024**2  # bytes kept of a log that grew too long
TAIL_BYTES = 65536  # at the end of a log, searched for its last lines


def log(text: str) -> None:
    """Write a line to this job's log. On a full disk the line is lost and the job continues."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def log_tail(folder: Path, lines: int = 50) -> str:
    """Return the last lines of the job's log. Of a progress bar, only the last state is kept."""
    path = folder / LOG
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in text.rstrip("\r\n").split("\n")[-lines:])


def bound(folder: Path, most: int = MOST, head: int = HEAD, tail: int = TAIL) -> None:
    """Cut the middle out of a log that is longer than `most` bytes, keeping its first and last lines.

    The file is edited in place because the job's processes have it open for appending; what one of them writes at
    that very moment is lost. Does nothing if the file cannot be read or written.
    """
    path = folder / LOG
    with contextlib.suppress(OSError, CannotWrite):
        if path.stat().st_size <= most:
            return
        with path.open("r+b", buffering=0) as file:
            acquire(file, wait=False)  # only one of several processes does this
            size = os.fstat(file.fileno()).st_size
            if size <= most:
                return
            first = file.read(head)
            first = first[: first.rfind(b"\n") + 1]
            file.seek(size - tail)
            last = file.read()
            last = last[last.find(b"\n") + 1 :]
            left_out = size - len(first) - len(last)
            file.truncate(len(first))
            file.seek(len(first))
            file.write(b"[... %d bytes of this log were left out here ...]\n" % left_out + last)
