"""Waiting for what a run does, and small words about it."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.patience import PATIENCE
from workbench import jobs
from workbench.trainer.runs import Run


def until(true: Callable[[], object], run: Run) -> None:
    """Wait for something that a living run does."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert run.status.state.alive, f"{run.status} {jobs.log_tail(run.folder)}"
        assert time.monotonic() < end, jobs.log_tail(run.folder)
        time.sleep(0.05)


def steps(run: Run) -> list[int]:
    """The steps it has made, as the metrics here say."""
    return [line["step"] for line in run.metrics if "loss" in line]
