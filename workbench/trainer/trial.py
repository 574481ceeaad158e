"""`python -m workbench.trainer.trial FOLDER`: measure the memory and time of a run's settings.

It runs the real session on a few of the run's clips (three steps, an evaluation, a preview and a save) and measures
each phase. Like a run, it waits for its device before it loads torch. fit.measurement describes the folder.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import jobs
from workbench.fit import measurement, memory
from workbench.fit.constants import CONTEXT_GB
from workbench.fit.measurement import Measurement, TrialJob
from workbench.jobs import platform, processes, queue
from workbench.jobs.devices import GIGABYTE, Device, pick_device
from workbench.jobs.torch_devices import free_memory
from workbench.runs import checkpoints, optimizer_options
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from workbench.trainer.session import Session

STEPS = 3  # the first one warms up and is not timed
PREVIEW_STEPS = 2
LOADING = "loading"
STOPPED = "Stopped; nothing was measured."
# Session phase -> phase of the memory estimate.
PHASES = {
    "loading the text encoder": memory.CAPTIONS,
    "encoding captions": memory.CAPTIONS,
    "loading the video encoder": memory.CLIPS,
    "encoding clips": memory.CLIPS,
    "measuring": memory.MEASURING,
    "saving a checkpoint": memory.SAVING,
}
LAST_DENOISING = f"denoising step {PREVIEW_STEPS} of {PREVIEW_STEPS}"  # the last message before decoding
LEFTOVERS = ("checkpoints", "previews", "metrics.jsonl", "dataset.lock.json", "sessions.jsonl", "stars.json")


def trial(job: TrialJob) -> None:
    settings, workspace = TrainSettings.load(job.folder / jobs.CONFIG), Workspace.open(job.folder.parent.parent)
    device = pick_device(settings.device)
    with queue.acquired(workspace, [device], job, measurement.TITLE):
        job.beat("loading torch")
        compiler = settings.compile or bool(optimizer_options.package(settings))
        with processes.without_compiler(compiler):
            found = measure(job, settings, device)
    measurement.keep(workspace, settings, device, found)


def measure(job: TrialJob, settings: TrainSettings, device: Device) -> Measurement:
    """Run the trial in the job's folder and clean up. Raises WorkbenchError, or jobs.Stop when asked to stop."""
    with processes.loading():
        import torch

        from workbench.trainer.loop import set_arithmetic
        from workbench.trainer.session import Session
    clean(job.folder)
    meter = Meter(device)
    job.listener = meter.follow
    ran_out, seconds, size = "", [0.0], 0
    try:
        set_arithmetic(settings, device)
        with contextlib.closing(Session(job, trial_settings(settings), device, trial=True)) as session:
            seconds = run(session, meter)
            size = checkpoints.bytes_of(checkpoints.folder_of(job.folder, STEPS))
    except torch.OutOfMemoryError:
        ran_out = meter.phase
    finally:
        meter.note()
        job.listener = None
        clean(job.folder)
    phases = {name: gb for name, gb in meter.peaks.items() if name in memory.PHASES}
    return Measurement(phases, meter.host, min(seconds), size, ran_out, time.time())


def trial_settings(settings: TrainSettings) -> TrainSettings:
    """Return the settings of the same run, as short as possible."""
    return settings.changed(
        steps=STEPS,
        epochs=None,
        tokenizer_steps=0,
        save_every=STEPS,
        evaluate_every=int(settings.evaluate_every > 0),
        preview_every=int(settings.preview_every > 0),
        preview_steps=PREVIEW_STEPS,
        preview_count=1,
        preview_controls=0,
        preview_prompts=settings.preview_prompts[:1],
        preview_inputs=False,
        tracker="none",
        time_limit=None,
        oom_fallback=False,
        gpus=1,
        parallel="ddp",
    )


def run(session: Session, meter: Meter) -> list[float]:
    """Run the trial's phases and return the seconds of each step after the first."""
    from workbench.trainer.loop import preview, train_step

    settings, job, seconds = session.settings, session.job, []
    meter.enter(memory.TRAINING)
    for number in range(STEPS):
        job.check_stop(STOPPED)
        began = time.perf_counter()
        train_step(session)
        seconds.append(time.perf_counter() - began)
        job.beat("training", number + 1, STEPS)
    if settings.evaluate_every:
        session.evaluate()
        job.check_stop(STOPPED)
    if settings.preview_every:
        free_memory()
        meter.enter(memory.DENOISING)
        preview(session, session.preview_inputs.prompts[:1])
        job.check_stop(STOPPED)
    session.save()
    return seconds[1:]


def clean(folder: Path) -> None:
    """Remove what a trial leaves in the folder besides its job's files."""
    for name in LEFTOVERS:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class Meter:
    """Records the peak memory of each phase in GiB: the GPU's, or this process's on a CPU."""

    def __init__(self, device: Device) -> None:
        self._cuda = device.kind == "cuda"
        self.phase = LOADING
        self.peaks: dict[str, float] = {}
        self.host = 0.0
        self._reset()

    def enter(self, phase: str) -> None:
        """End the current phase and begin another, unless it is the same."""
        if phase == self.phase:
            return
        self.note()
        self.phase = phase
        self._reset()

    def follow(self, phase: str, message: str) -> None:
        """Follow a session's heartbeat into the matching phase of the estimate, if any."""
        if phase in PHASES:
            self.enter(PHASES[phase])
        elif message == LAST_DENOISING:
            self.enter(memory.DECODING)

    def note(self) -> None:
        """Record the peak of the current phase so far."""
        host = platform.peak_memory() / GIGABYTE
        self.host = max(self.host, host)
        peak = host
        if self._cuda:
            import torch

            peak = torch.cuda.max_memory_reserved() / GIGABYTE + CONTEXT_GB
        self.peaks[self.phase] = max(peak, self.peaks.get(self.phase, 0.0))

    def _reset(self) -> None:
        platform.reset_peak_memory()
        if self._cuda:
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    sys.exit(TrialJob.main(trial))
