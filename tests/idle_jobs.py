"""Jobs for test_queue and test_watchdog: `python -m tests.idle_jobs FOLDER`, which do what a variable names.

They wait and are watched as a training run is, and load no torch.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

from workbench import jobs
from workbench.errors import DataError
from workbench.jobs import queue
from workbench.jobs.devices import Device
from workbench.trainer.stall_timeout import StallTimeout
from workbench.workspace import Workspace

MODULE, BEHAVIOR, LIMIT = "tests.idle_jobs", "IDLE_BEHAVIOR", 2.0  # seconds
DEVICES = {"cpu": Device("cpu", "processor", 1.0), "gpu": Device("cuda", "a card", 1.0, uuid="GPU-1")}


def silent(job: jobs.Job) -> None:
    """Nothing more is heard, but other threads run."""
    job.beat("training", 12, 300)
    time.sleep(600)


def native(job: jobs.Job) -> None:
    """A call into C that keeps the interpreter's lock."""
    job.beat("training", 12, 300)
    ctypes.PyDLL(None).sleep(600)


def busy(job: jobs.Job) -> None:
    """Says something all the time, and ends well."""
    for step in range(30):
        job.beat("training", step, 30)
        time.sleep(0.1)


def patient(job: jobs.Job) -> None:
    """Is silent, but has said that it would be."""
    job.beat("downloading the model", patient=True)
    time.sleep(2 * LIMIT)


def queued(job: jobs.Job, device: str, brief_seconds: float | None = None) -> None:
    """Takes its turn, says so, and holds the device until it is told to fail or to stop."""
    workspace = Workspace(job.folder.parent.parent)
    if not workspace.runs.exists():  # a task of a dataset
        workspace = Workspace(job.folder.parent.parent.parent)
    title = f"{job.folder.name[1:]} of {job.folder.parent.name}"
    with queue.acquired(workspace, [DEVICES[device]], job, title, brief_seconds):
        (job.folder / "turn").write_text(str(time.time()))
        job.beat("training", 1, 2)
        while not (job.folder / "fail").exists():
            if job.take("stop") is not None:
                raise jobs.Stop("stopped as asked")
            time.sleep(0.02)
        raise DataError("no usable clips")


def main() -> None:
    folder, behavior = Path(sys.argv[1]), os.environ[BEHAVIOR]
    with jobs.Job(folder) as job:
        if behavior in DEVICES:
            queued(job, behavior)
        elif behavior == "brief":
            queued(job, "cpu", 600.0)
        else:
            with StallTimeout(job, LIMIT / 60):
                globals()[behavior](job)
    sys.exit(job.exit_code)


if __name__ == "__main__":
    main()
