"""`python -m workbench.trainer RUN_DIR`: the process of one training run. See workbench.jobs for the protocol.

It waits in the queue before it loads torch, so waiting costs next to nothing, and then holds its devices until it ends.
A run on several GPUs has one more process per GPU, started from here, by `accelerate launch` or by torchrun. See
workbench.trainer.launcher.
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
from workbench.jobs import processes, queue
from workbench.jobs.devices import pick_devices
from workbench.jobs.log import log
from workbench.runs import checkpoints, optimizer_options, webhook
from workbench.runs.checks import check_device
from workbench.runs.failures import BEGIN
from workbench.runs.model_card import start_push
from workbench.runs.settings import TrainSettings
from workbench.trainer import launcher
from workbench.trainer.launcher import SINGLE, ProcessRank
from workbench.trainer.stall_timeout import StallTimeout
from workbench.workspace import Workspace


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    process = launcher.launched_process()
    if process is not None:
        return rank(folder, process)
    with launcher.Launcher(folder) as job:
        webhook.watch(folder)
        begin()
        # Refuse now what would fail anyway after hours in the queue.
        checkpoints.check_start(folder, checkpoints.from_start_requested())
        settings = TrainSettings.load(folder / jobs.CONFIG)
        devices = pick_devices(settings.device, settings.gpus)
        check_device(settings, devices[0])
        with queue.acquired(Workspace.open(folder.parent.parent), devices, job) as slot:
            if len(devices) > 1:
                launcher.launch(job, len(devices), slot.locks)
            else:
                compute(job, settings, SINGLE, slot)
    if job.exit_code == ExitCode.FINISHED:
        push(folder, settings)
    return int(job.exit_code)


def rank(folder: Path, process: ProcessRank) -> int:
    """Run one rank. Without a launcher of ours, the first rank waits in the queue."""
    with launcher.job_of(folder, process) as job, contextlib.ExitStack() as held:
        settings = TrainSettings.load(folder / jobs.CONFIG)
        if process.first:
            begin()
        if process.first and process.launcher_pid is None:
            webhook.watch(folder)
            devices = pick_devices(settings.device, process.local_count)
            held.enter_context(queue.acquired(Workspace.open(folder.parent.parent), devices, job))
        compute(job, settings, process)
    if process.first and process.launcher_pid is None and job.exit_code == ExitCode.FINISHED:
        push(folder, settings)
    sys.stdout.flush()
    sys.stderr.flush()
    stopped = job.exit_code == ExitCode.STOPPED and not process.first  # rank 0 is still saving and reports the stop
    os._exit(0 if stopped else int(job.exit_code))  # skip exit handlers, which might wait for ranks that are gone


def begin() -> None:
    log(f"{BEGIN}{time.strftime('%Y-%m-%d %H:%M:%S')}")


def push(folder: Path, settings: TrainSettings) -> None:
    """Start sending the LoRA to the Hub, if `push_to_hub` is set. The run's result is written by now."""
    if notice := start_push(folder, settings):
        log(notice)


def compute(job: jobs.Job, settings: TrainSettings, process: ProcessRank, slot: queue.QueueSlot | None = None) -> None:
    """Load torch and train. slot: the devices to lend while the run is paused; None if it must not lend them"""
    compiler = settings.compile or bool(optimizer_options.package(settings))
    with StallTimeout(job, settings.stall_timeout, process.rank), processes.without_compiler(compiler):
        job.beat("loading torch")
        with processes.loading():
            from workbench.trainer.loop import train
        gc.freeze()  # imported modules stay, so the garbage collector can skip them
        train(job, process, slot)


if __name__ == "__main__":
    sys.exit(main())
