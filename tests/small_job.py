"""A job for the tests: `python -m tests.small_job FOLDER`. Does nothing, in the way that a variable names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from workbench import jobs
from workbench.errors import DataError
from workbench.jobs import gpu_lock

BEHAVIOR = "WORKBENCH_TEST_BEHAVIOR"


def work(job: jobs.Job, behavior: str) -> None:
    """Beat until told to stop, unless the behavior says otherwise."""
    (job.folder / "environment.json").write_text(json.dumps(dict(os.environ)))
    with (job.folder / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if behavior == "finish":
        job.outcome = {"lora": "lora.safetensors"}
        return
    if behavior == "fail":
        raise DataError("no usable clips: import some")
    if behavior == "crash":
        raise ZeroDivisionError("a bug")
    if behavior == "hold":
        with gpu_lock.hold(job.folder, "GPU-1", f"run {job.folder.name}"):
            run(job)
    if behavior == "saves":  # is asked to end while it saves, and does not hear of it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        job.beat("saving a checkpoint", 1, 2)
        time.sleep(4.0)
        (job.folder / "saved").touch()
    if behavior == "deaf":  # ignores the stop command and SIGTERM, and has a child of its own
        child = subprocess.Popen(["sleep", "600"])
        (job.folder / "child").write_text(str(child.pid))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (job.folder / "deaf").touch()
        time.sleep(600)
    run(job)


def run(job: jobs.Job) -> None:
    """Steps until the stop command."""
    paused = False
    for step in range(100_000):
        if job.take("stop") is not None:
            raise jobs.Stop("stopped as asked")
        if job.take("pause") is not None:
            paused = True
        if job.take("resume") is not None:
            paused = False
        if (wanted := job.take("preview")) is not None:
            (job.folder / "preview.json").write_text(json.dumps(wanted))
        job.beat("train", step, 200_000, step_seconds=0.5, paused=paused)
        time.sleep(0.01)


def main() -> None:
    folder, behavior = Path(sys.argv[1]), os.environ.get(BEHAVIOR, "run")
    if behavior == "silent":  # dies before it says anything
        time.sleep(600)
    with jobs.Job(folder) as job:
        work(job, behavior)
    sys.exit(job.exit_code)


if __name__ == "__main__":
    main()
