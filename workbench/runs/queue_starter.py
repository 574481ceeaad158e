"""`python -m workbench.runs.queue_starter WORKSPACE/runs/.starter`: the job that gives waiting runs their processes.

There is one for each workspace. It is started by whoever finds that runs wait and that it does not live
(queue.keep_going). It ends when no run waits and every run that it started is over; until then it stays, because
only the process that started another one learns what ended it. Not covered: which run is next (queue).
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import psutil

from workbench import jobs
from workbench.errors import CannotWrite
from workbench.runs import queue
from workbench.workspace import Workspace

LOOK_SECONDS = 0.5
LONG = 10.0  # seconds after which the queue is read though nothing seems to have changed


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with jobs.Job(folder) as job:
        serve(Workspace.of(folder), job)
    return int(job.exit_code)


def serve(workspace: Workspace, job: jobs.Job) -> None:
    """Start what is next until nothing waits. Raises jobs.Stop when asked to stop."""
    seen, first, read_at = -1, list[str](), 0.0
    while (workspace.runs).exists():
        job.check_stop("stopped as asked; it starts again when runs wait")
        now = _changed(workspace)
        waiting = [slug for slug in first if jobs.status(workspace.runs / slug).state.alive]
        if now != seen or waiting != first or time.monotonic() > read_at + LONG:
            seen, read_at = now, time.monotonic()
            with contextlib.suppress(CannotWrite):  # a full disk: it looks again
                first = queue.advance(workspace)
            if not first and not psutil.Process().children():
                return
        job.beat("starting runs that wait", patient=True)
        time.sleep(LOOK_SECONDS)


def _changed(workspace: Workspace) -> int:
    with contextlib.suppress(OSError):
        return (workspace.runs / queue.QUEUE).stat().st_mtime_ns
    return 0


if __name__ == "__main__":
    sys.exit(main())
