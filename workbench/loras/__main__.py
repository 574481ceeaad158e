"""`python -m workbench.loras JOB_DIR`: the process of one operation on LoRAs. See workbench.jobs for the protocol."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from workbench import jobs
from workbench.jobs import platform
from workbench.loras.tasks import MODULE, TASKS, settings_of
from workbench.workspace import Workspace


class TaskProgress:
    """Reports the progress of an operation to its job, and ends it on the command "stop"."""

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


def main() -> int:
    platform.lower_priority(5)  # it may share the processor with a run
    folder = Path(sys.argv[1]).resolve()
    with jobs.Job(folder) as job:
        name, settings = settings_of(folder)
        _, module, function, phase = TASKS[name]
        progress = TaskProgress(job, phase)
        job.beat("loading torch")
        operation = getattr(importlib.import_module(f"{MODULE}.{module}"), function)
        made = operation(Workspace.open(folder.parent.parent.parent), settings, progress.report, progress.step)
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
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
