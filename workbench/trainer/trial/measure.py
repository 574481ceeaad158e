"""The trial run: the real session on a few of the run's clips, three steps, a preview and a save, watched by phase.

Not covered: where its figures are kept and who starts it (measuring), waiting for the device (__main__).
"""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import replace
from pathlib import Path

import torch

from workbench import jobs
from workbench.fit import memory
from workbench.fit.measurement import Measurement, TrialJob
from workbench.jobs.devices import GIGABYTE, Device
from workbench.jobs.torch_devices import free_memory
from workbench.operating_system import system
from workbench.runs import checkpoints
from workbench.runs.settings import TrainSettings
from workbench.trainer import previewing
from workbench.trainer.loop import set_arithmetic, train_step
from workbench.trainer.monitoring.preview_inputs import PreviewInputs
from workbench.trainer.session import Session

STEPS = 3  # the first has to find its kernels and its memory
CLIPS = 2
PREVIEW_STEPS = 2
LOADING = "loading"
# A session's phase -> the phase of the estimate.
PHASES = {
    "loading the text encoder": memory.CAPTIONS,
    "encoding captions": memory.CAPTIONS,
    "loading the video encoder": memory.CLIPS,
    "encoding clips": memory.CLIPS,
    "measuring": memory.MEASURING,
    "saving a checkpoint": memory.SAVING,
}
LEFTOVERS = ("checkpoints", "previews", "metrics.jsonl", "dataset.lock.json", "sessions.jsonl", "stars.json")


class Meter:
    """The most memory that each phase took, in GiB: of the GPU, or of this process on a processor."""

    def __init__(self, device: Device) -> None:
        self._cuda = device.kind == "cuda"
        self.phase = LOADING
        self.peaks: dict[str, float] = {}
        self.host = 0.0
        self._reset()

    def enter(self, phase: str) -> None:
        """A phase begins; the one before it is over."""
        if phase == self.phase:
            return
        self._note()
        self.phase = phase
        if self._cuda:
            torch.cuda.empty_cache()
        self._reset()

    def follow(self, phase: str, message: str) -> None:
        """Enter the phase of the estimate that a session's phase belongs to, if any."""
        if phase in PHASES:
            self.enter(PHASES[phase])
        elif phase == previewing.PHASE and message.endswith(f"{PREVIEW_STEPS} of {PREVIEW_STEPS}"):
            self.enter(memory.DECODING)  # what comes after the last denoising step

    def close(self) -> None:
        self._note()

    def _note(self) -> None:
        host = system.peak_memory() / GIGABYTE
        self.host = max(self.host, host)
        peak = torch.cuda.max_memory_reserved() / GIGABYTE + memory.CONTEXT_GB if self._cuda else host
        self.peaks[self.phase] = max(peak, self.peaks.get(self.phase, 0.0))

    def _reset(self) -> None:
        system.reset_peak_memory()
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()


class Trial(Session):
    """A session on a few clips of the largest shape, in which a failed preview is an error."""

    keeps_going = False

    def _encode(self) -> None:
        data, count = self.data, max(CLIPS, self.settings.batch_size)
        largest = max(data.buckets, key=lambda bucket: bucket.frames * bucket.height * bucket.width)
        train = [item for item in data.train if item.bucket == largest] or list(data.train)
        bucket = train[0].bucket
        self.data = replace(
            data,
            train=tuple(train[:count]),
            regularization=tuple(item for item in data.regularization if item.bucket == bucket)[:CLIPS],
            held_out=tuple(item for item in data.held_out if item.bucket == bucket)[:1],
            buckets=(bucket,),
        )
        self.shape = bucket.shape(self.shape.fps)
        self.preview_inputs = PreviewInputs(self.data, self.settings)
        self.preview_inputs.prompts = self.preview_inputs.prompts[:1]
        super()._encode()


def trial_settings(settings: TrainSettings) -> TrainSettings:
    """The same run, as short as it can be."""
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


def measure(folder: Path, job: TrialJob, settings: TrainSettings, device: Device) -> Measurement:
    """Run the trial in the folder and clean up after it. Raises WorkbenchError, or jobs.Stop when asked to stop."""
    clean(folder)
    meter = Meter(device)
    job.listener = meter.follow
    ran_out, seconds, size = "", [0.0], 0
    try:
        set_arithmetic(settings, device)
        session = Trial(folder, job, trial_settings(settings), device)
        with contextlib.closing(session):
            seconds = run(session, job, meter)
            size = checkpoints.bytes_of(checkpoints.folder_of(folder, STEPS))
    except torch.OutOfMemoryError:
        ran_out = meter.phase
    finally:
        meter.close()
        job.listener = None
        clean(folder)
    phases = {name: gb for name, gb in meter.peaks.items() if name in memory.PHASES}
    return Measurement(phases, meter.host, min(seconds), size, ran_out, time.time())


def run(session: Trial, job: TrialJob, meter: Meter) -> list[float]:
    """The trial's steps; their seconds, the first left out."""
    settings, seconds = session.settings, []
    meter.enter(memory.TRAINING)
    for number in range(STEPS):
        stop_if_requested(job)
        began = time.perf_counter()
        train_step(session)
        seconds.append(time.perf_counter() - began)
        job.beat("training", number + 1, STEPS)
    if settings.evaluate_every:
        session.evaluate()
        stop_if_requested(job)
    if settings.preview_every:
        free_memory()
        meter.enter(memory.DENOISING)
        previewing.preview(session)
        stop_if_requested(job)
    session.save()
    return seconds[1:]


def stop_if_requested(job: jobs.Job) -> None:
    job.check_stop("Stopped; nothing was measured.")


def clean(folder: Path) -> None:
    """Take away what a trial leaves beside its job's own files."""
    for name in LEFTOVERS:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
