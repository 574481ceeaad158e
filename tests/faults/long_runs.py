"""A run in a process of its own that does not end by itself, and a disk that refuses what it writes."""

from __future__ import annotations

import resource
from typing import Any

import psutil

from workbench.families.model import Model
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def start(workspace: Workspace, model: Model, **values: Any) -> Run:
    """Start one on the dataset "squares"; settings by name."""
    usual = {
        "model": model.source, "dataset": "squares", "steps": 100_000, "rank": 2, "keep_checkpoints": 2,
        "preview_every": 0, "evaluate_every": 0, "held_out": 1, "frames": 9, "tracker": "none",
    }  # fmt: skip
    run = Run.create(workspace, TrainSettings().changed(**{**usual, **values}), "run")
    run.start()
    return run


def limit_files(run: Run, most: int) -> None:
    """From now on the kernel refuses that the run's process writes a file larger than this (in bytes)."""
    process = psutil.Process(run.status.pid)
    _, hard = process.rlimit(resource.RLIMIT_FSIZE)
    process.rlimit(resource.RLIMIT_FSIZE, (most, hard))
