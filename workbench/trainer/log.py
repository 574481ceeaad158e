"""Lines of a run's log. Not covered: figures (runs.metrics), heartbeats (jobs)."""

from __future__ import annotations

import sys
from contextlib import suppress


def log(text: str) -> None:
    """Write a line; a disk that is full has no room for it, and the run goes on."""
    with suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
