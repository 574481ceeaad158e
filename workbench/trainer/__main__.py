"""`python -m workbench.trainer RUN_DIR`: the process of one training run. See workbench.jobs for the protocol.

It waits for its turn before it loads torch, so that a long queue costs next to nothing, and holds its devices from then
to its end. A run on several GPUs has a process for each beside this one; `accelerate launch` and torchrun may start
them, too. See workbench.trainer.distributed.launcher.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from pathlib import Path

from workbench import jobs
from workbench.errors import ExitCode
from workbench.jobs import processes
from workbench.jobs.devices import pick_devices
from workbench.runs import hub_push, optimizer_options, queue, recovery
from workbench.runs.failures import BEGIN
from workbench.runs.settings import TrainSettings
from workbench.trainer.distributed import launcher
from workbench.trainer.distributed.launcher import ALONE, Place
from workbench.trainer.monitoring.stall_timeout import Watchdog
from workbench.workspace import Workspace


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    place = launcher.place()
    if place is not None:
        return rank(folder, place)
    with launcher.Keeper(folder) as job:
        begin()
        recovery.check(folder, recovery.asked_from_start())  # not after hours in the queue
        settings = TrainSettings.load(folder / jobs.CONFIG)
        devices = pick_devices(settings.device, settings.gpus)
        with queue.turn(Workspace.open(folder.parent.parent), devices, job) as turn:
            if len(devices) > 1:
                launcher.keep(job, len(devices), turn.locks)
            else:
                compute(job, settings, ALONE, turn)
    if job.exit_code == ExitCode.FINISHED:
        push(folder, settings)
    return int(job.exit_code)


def rank(folder: Path, place: Place) -> int:
    """One of the processes of a run; without a keeper the first of them waits for the run's turn."""
    with launcher.job_of(folder, place) as job, contextlib.ExitStack() as held:
        settings = TrainSettings.load(folder / jobs.CONFIG)
        if place.first:
            begin()
        if place.first and place.keeper is None:
            devices = pick_devices(settings.device, place.local_count)
            held.enter_context(queue.turn(Workspace.open(folder.parent.parent), devices, job))
        compute(job, settings, place)
    if place.first and place.keeper is None and job.exit_code == ExitCode.FINISHED:
        push(folder, settings)
    sys.stdout.flush()
    sys.stderr.flush()
    stopped = job.exit_code == ExitCode.STOPPED and not place.first  # rank 0 still saves, and says so itself
    os._exit(0 if stopped else int(job.exit_code))  # no word to processes that may be gone


def begin() -> None:
    with contextlib.suppress(OSError):  # a full disk
        sys.stdout.write(f"{BEGIN}{time.strftime('%Y-%m-%d %H:%M:%S')}\n")


def push(folder: Path, settings: TrainSettings) -> None:
    """Send the LoRA to the Hub where that was asked for; the run's result is written already."""
    if said := hub_push.start(folder, settings):
        sys.stdout.write(f"{said}\n")


def compute(job: jobs.Job, settings: TrainSettings, place: Place, turn: queue.QueueSlot | None = None) -> None:
    """Load torch, and train. turn: what is lent while the run is paused; None where it is not this process's to lend"""
    compiler = settings.compile or bool(optimizer_options.package(settings))
    with Watchdog(job, settings.stall_timeout, place.rank), processes.without_compiler(compiler):
        job.beat("loading torch")
        with processes.loading():
            from workbench.trainer.loop import train
        gc.freeze()  # what was imported stays: later collections need not look at it

        train(job.folder, job, place, turn)


if __name__ == "__main__":
    sys.exit(main())
