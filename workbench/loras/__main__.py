"""`python -m workbench.loras JOB_DIR`: the process of one operation on LoRAs."""

from __future__ import annotations

import sys
import time

from workbench import jobs
from workbench.jobs import platform, queue
from workbench.loras.tasks import TASKS, TITLE, held_by, settings_of
from workbench.workspace import Workspace


def run(job: jobs.Job) -> None:
    """Run the operation of a job's folder, which ends on the stop command."""
    platform.lower_priority(5)  # it may share the CPU with a run
    name, settings = settings_of(job.folder)
    _, operation, phase = TASKS[name]
    began, layers = time.monotonic(), 0

    def report(text: str) -> None:
        nonlocal began
        job.beat(text.rstrip(" ."), patient=True)
        began = time.monotonic()

    def step(done: int, total: int) -> None:
        nonlocal layers
        job.check_stop("stopped; nothing was made")
        layers = total
        pace = {"step_seconds": (time.monotonic() - began) / done} if done else {}
        job.beat(phase, done, total, **pace)

    job.beat("loading torch")
    workspace = Workspace.open(job.folder.parent.parent.parent)
    with queue.acquired(workspace, held_by(settings), job, TITLE):
        made = operation(workspace, settings, report, step)
    if layers and not made.error:
        job.beat(phase, layers, layers)
    job.outcome = {
        "made": made.name,
        "summary": made.message,
        "error": made.error,
        "reports": list(made.reports),
        "files": list(made.files),
        "survives": dict(made.survives),
        "repair": dict(made.repair) or None,
    }
    sys.stdout.write(f"{made.message}\n")


if __name__ == "__main__":
    sys.exit(jobs.Job.main(run))
