"""`python -m workbench.loras JOB_DIR`: the process of one operation on LoRAs."""

from __future__ import annotations

import sys
import time

from workbench import jobs
from workbench.jobs import platform
from workbench.loras.tasks import TASKS, settings_of
from workbench.workspace import Workspace


class TaskProgress:
    """Reports an operation's progress to its job, and ends it on the stop command."""

    def __init__(self, job: jobs.Job, phase: str) -> None:
        self._job, self._phase, self._began = job, phase, time.monotonic()
        self._total = 0

    def report(self, text: str) -> None:
        self._job.beat(text.rstrip(" ."), patient=True)
        self._began = time.monotonic()

    def step(self, done: int, total: int) -> None:
        self._job.check_stop("stopped; nothing was made")
        self._total = total
        pace = {"step_seconds": (time.monotonic() - self._began) / done} if done else {}
        self._job.beat(self._phase, done, total, **pace)

    def finish(self) -> None:
        if self._total:
            self._job.beat(self._phase, self._total, self._total)


def run(job: jobs.Job) -> None:
    """Run the operation of a job's folder."""
    platform.lower_priority(5)  # it may share the CPU with a run
    name, settings = settings_of(job.folder)
    _, operation, phase = TASKS[name]
    progress = TaskProgress(job, phase)
    job.beat("loading torch")
    made = operation(Workspace.open(job.folder.parent.parent.parent), settings, progress.report, progress.step)
    if not made.error:
        progress.finish()
    job.outcome = {
        "made": made.name,
        "summary": made.message,
        "error": made.error,
        "reports": list(made.reports),
        "files": list(made.files),
    }
    sys.stdout.write(f"{made.message}\n")


if __name__ == "__main__":
    sys.exit(jobs.main(run))
