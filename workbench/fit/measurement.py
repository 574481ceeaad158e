"""Measured instead of estimated: a few real steps, a preview and a save in a process of their own, kept for next time.

    .measuring/KEY/            the job while it works (workbench.jobs), and what its trial run leaves until it is over
    cache/measured/KEY.json    {device, phases: {phase: GiB}, host_gb, step_seconds, checkpoint_bytes, ran_out, time}

The key is the hash of all that decides the figures: model, device, and those settings that change what is computed at
a time. It leaves no run. No torch.
"""

from __future__ import annotations

import hashlib
import json
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

MODULE = "workbench.trainer.trial"
FOLDER, TITLE = ".measuring", "a measurement"
HELP = "Some real steps, a preview and a save in a process of their own. Takes a minute or more, leaves no run."
# Settings that change the figures; every other one can change without a new measurement.
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
# Likewise, but with no part in the key at their defaults, so that older measurements keep theirs.
LATER = ("blocks", "lokr_factor", "base_lora", "training_adapter", "preview_lora")


@dataclass(frozen=True)
class Measurement:
    """What a trial found. phases: GiB of the device by phase; ran_out: the one in which memory ran out, "" in none."""

    phases: Mapping[str, float]
    host_gb: float
    step_seconds: float
    checkpoint_bytes: int
    ran_out: str
    time: float


def key_of(settings: TrainSettings, device: Device) -> str:
    values = settings.model_dump(mode="json")
    what = {name: values[name] for name in MATTERS} | {"ema_decay": settings.ema_decay > 0}
    what |= {name: values[name] for name in LATER if values[name] != TrainSettings.model_fields[name].default}
    what |= {"device": [device.kind, device.name, device.uuid]}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:40]


def find(workspace: Workspace, settings: TrainSettings, device: Device) -> Measurement | None:
    """What was measured with such settings on this device, None when nothing was."""
    path = _path(workspace, settings, device)
    if not path.exists():
        return None
    try:
        return Measurement(**{name: value for name, value in read_json(path).items() if name != "device"})
    except (ConfigError, TypeError):  # of another version
        return None


def keep(workspace: Workspace, settings: TrainSettings, device: Device, found: Measurement) -> None:
    """Raises CannotWrite."""
    write_json(_path(workspace, settings, device), {"device": device.name, **vars(found)})


def _path(workspace: Workspace, settings: TrainSettings, device: Device) -> Path:
    return workspace.cache / "measured" / f"{key_of(settings, device)}.json"


def start(workspace: Workspace, settings: TrainSettings) -> Path:
    """Measure these settings in a process of their own, once the device is free; the job's folder.

    Raises ConfigError for settings with which no run could start, CannotWrite.
    """
    check(workspace, settings)
    device = pick_device(settings.device)
    check_device(settings, device)
    if device.kind == "mps":
        raise ConfigError("device is mps, where torch tells no peak of memory to measure: go by the estimate")
    folder = workspace.root / FOLDER / key_of(settings, device)
    for status in jobs.jobs_in(workspace.root / FOLDER):
        if not status.state.alive:
            shutil.rmtree(status.folder, ignore_errors=True)
    if not jobs.status(folder).state.alive:
        settings.save(folder / jobs.CONFIG)
    queue.submit(workspace, folder, MODULE, [device], TITLE)
    return folder


def stop(status: jobs.Status) -> None:
    """Ask a measurement to end; one that was asked before is ended by force."""
    jobs.stop(status.folder, 0.0 if status.state is jobs.State.STOPPING else None)


def newest(workspace: Workspace, within: float = 3600.0) -> jobs.Status | None:
    """The measurement that works now, else the one that ended last, no longer ago than `within` seconds."""
    found = jobs.jobs_in(workspace.root / FOLDER)
    alive = next((status for status in found if status.state.alive), None)
    ended = [status for status in found if (status.ended_at or 0.0) > time.time() - within]
    return alive or max(ended, key=lambda status: status.ended_at or 0.0, default=None)


def progress(status: jobs.Status | None) -> str:
    """What a measurement does, or how it ended, in words; "" when there is none."""
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
    """The measuring process's job, which passes its phase and message on to a listener, too."""

    listener: Callable[[str, str], None] | None = None

    def beat(self, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        super().beat(phase, step, total, **more)
        if self.listener is not None:
            self.listener(phase, str(more.get("message", "")))
