"""Measure instead of estimating: run a few real steps, a preview and a save in a separate process, and keep the result.

    .measuring/KEY/            the job, and its trial run's files until it has ended
    cache/measured/KEY.json    {device, phases: {phase: GiB}, host_gb, step_seconds, checkpoint_bytes, ran_out, time}

The key is a hash of everything that affects the figures: the model, the device and some settings. No torch.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError
from workbench.jobs import queue
from workbench.jobs.devices import Device, pick_device
from workbench.runs.checks import check, check_device
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, read_json, write_json
from workbench.workspace.records import key_of

MODULE = "workbench.trainer.trial"
FOLDER, TITLE = ".measuring", "a measurement"
HELP = "Run some real steps, a preview and a save in a separate process. Takes a minute or more and leaves no run."
# Settings that affect the figures. Others can change without a new measurement.
MATTERS = (
    "model",
    "method",
    "condition",
    "condition_frames",
    "frames",
    "height",
    "width",
    "buckets",
    "bucket_limit",
    "batch_size",
    "optimizer",
    "rank",
    "targets",
    "lora_dropout",
    "dora",
    "train_also",
    "precision",
    "ema_decay",
    "gradient_checkpointing",
    "base_model_precision",
    "blocks_to_swap",
    "compile",
    "attention",
    "preview_frames",
    "preview_latents_only",
)
# Likewise, but part of the key only if not at their defaults, so that older measurements stay valid.
LATER = ("blocks", "lokr_factor", "base_lora", "training_adapter", "preview_lora", "sound")


@dataclass(frozen=True)
class Measurement:
    """The result of a trial. phases: GiB by phase;  ran_out: the phase in which memory ran out, "" if none."""

    phases: Mapping[str, float]
    host_gb: float
    step_seconds: float
    checkpoint_bytes: int
    ran_out: str
    time: float


def measurement_key(settings: TrainSettings, device: Device) -> str:
    values = settings.model_dump(mode="json")
    what = {name: values[name] for name in MATTERS} | {"ema_decay": settings.ema_decay > 0}
    what |= {name: values[name] for name in LATER if values[name] != TrainSettings.model_fields[name].default}
    return key_of(what | {"device": [device.kind, device.name, device.uuid]})


def find(workspace: Workspace, settings: TrainSettings, device: Device) -> Measurement | None:
    """Return what was measured with such settings on this device, or None."""
    path = _path(workspace, settings, device)
    if not path.exists():
        return None
    try:
        return Measurement(**{name: value for name, value in read_json(path).items() if name != "device"})
    except (ConfigError, TypeError):  # written by another version
        return None


def keep(workspace: Workspace, settings: TrainSettings, device: Device, found: Measurement) -> None:
    """Save a measurement. Raises CannotWrite."""
    write_json(_path(workspace, settings, device), {"device": device.name, **vars(found)})


def _path(workspace: Workspace, settings: TrainSettings, device: Device) -> Path:
    return workspace.cache / "measured" / f"{measurement_key(settings, device)}.json"


def start(workspace: Workspace, settings: TrainSettings) -> Path:
    """Start measuring these settings, once the device is free, and return the job's folder.

    Raises ConfigError if no run could start with these settings, CannotWrite.
    """
    check(workspace, settings)
    device = pick_device(settings.device)
    check_device(settings, device)
    if device.kind == "mps":
        raise ConfigError("device is mps, where torch does not report peak memory: rely on the estimate")
    folder = workspace.root / FOLDER / measurement_key(settings, device)
    for status in jobs.jobs_in(workspace.root / FOLDER):
        if not status.state.alive:
            shutil.rmtree(status.folder, ignore_errors=True)
    if not jobs.status(folder).state.alive:
        settings.save(folder / jobs.CONFIG)
    queue.submit(workspace, folder, MODULE, [device], TITLE)
    return folder


def stop(status: jobs.Status) -> None:
    """Ask a measurement to end; kill it if it was asked before."""
    jobs.stop(status.folder, 0.0 if status.state is jobs.State.STOPPING else None)


def newest(workspace: Workspace) -> jobs.Status | None:
    """Return the running measurement, or else the one that ended last within an hour."""
    found = jobs.jobs_in(workspace.root / FOLDER)
    alive = next((status for status in found if status.state.alive), None)
    ended = [status for status in found if (status.ended_at or 0.0) > time.time() - 3600]
    return alive or max(ended, key=lambda status: status.ended_at or 0.0, default=None)


def progress(status: jobs.Status | None) -> str:
    """Describe a measurement's progress, or how it ended; "" without one."""
    if status is None:
        return ""
    if status.state.alive:
        doing = status.phase or "starting"
        return f"Measuring: {doing}" + (f", {status.step} of {status.total}" if status.total else "")
    if status.state is jobs.State.FINISHED:
        return "Measured."
    message = status.message or jobs.log_tail(status.folder, 1)
    return f"Not measured: {message}" if message else "Not measured."


class TrialJob(jobs.Job):
    """The measuring process's job, which also passes its phase and message to a listener."""

    listener: Callable[[str, str], None] | None = None

    def beat(self, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        super().beat(phase, step, total, **more)
        if self.listener is not None:
            self.listener(phase, str(more.get("message", "")))
