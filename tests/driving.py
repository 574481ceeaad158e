"""Drive a run in the test's own process, to test many settings quickly. test_trainer.py uses real processes."""

from __future__ import annotations

import gc
import math
from typing import Any

from accelerate.state import AcceleratorState

from workbench.clips.records import file_sha256
from workbench.jobs import Job
from workbench.jobs.devices import pick_device
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.loop import train_step
from workbench.trainer.session import Session
from workbench.workspace import Workspace


def create(workspace: Workspace, model: str, **values: Any) -> Run:
    """Create a run of a few steps on the dataset "squares"; settings by name."""
    usual = {
        "model": model, "dataset": "squares", "steps": 7, "rank": 2, "learning_rate": 0.01, "held_out": 1,
        "preview_every": 0, "warmup_steps": 1,
    }  # fmt: skip
    return Run.create(workspace, TrainSettings().changed(**{**usual, **values}), "one")


def session(run: Run, ends_at: float = math.inf) -> Session:
    """Return the run's session, ready for its next step. ends_at: its time limit"""
    AcceleratorState._reset_state(reset_partial_state=True)  # a process has one; a run has a process of its own
    return Session(Job(run.folder), run.settings, pick_device("cpu"), ends_at=ends_at)


def go(run: Run, until: int) -> Session:
    """Train up to step `until`, without the previews, measurements and saves in between."""
    made = session(run)
    while made.step < until:
        train_step(made)
    return made


def saved(run: Run, until: int) -> str:
    """Train up to step `until` and save; return the hash of the checkpoint's LoRA."""
    made = go(run, until)
    made.save()
    made.metrics.close()
    del made
    gc.collect()
    return file_sha256(checkpoints.folder_of(run.folder, until) / "lora.safetensors")
