"""A run driven in the test's own process: many settings in little time. Real processes are in test_trainer.py."""

from __future__ import annotations

import math
from typing import Any

from accelerate.state import AcceleratorState

from workbench.jobs import Job
from workbench.jobs.devices import pick_device
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.loop import train_step
from workbench.trainer.session import Session
from workbench.workspace import Workspace


def create(workspace: Workspace, model: str, **values: Any) -> Run:
    """A run of a few steps on the dataset "squares"; settings by name."""
    usual = {
        "model": model, "dataset": "squares", "steps": 7, "rank": 2, "learning_rate": 0.01, "held_out": 1,
        "preview_every": 0, "warmup_steps": 1,
    }  # fmt: skip
    return Run.create(workspace, TrainSettings().changed(**{**usual, **values}), "one")


def session(run: Run, ends_at: float = math.inf) -> Session:
    """The run, ready for its next step. ends_at: its time limit"""
    AcceleratorState._reset_state(reset_partial_state=True)  # a process has one; a run has a process of its own
    return Session(Job(run.folder), run.settings, pick_device("cpu"), ends_at=ends_at)


def go(run: Run, until: int) -> Session:
    """Make steps up to `until`, without what is due in between."""
    made = session(run)
    while made.step < until:
        train_step(made)
    return made
