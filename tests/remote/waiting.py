"""Small words about what a run does."""

from __future__ import annotations

from workbench.remote.targets import choose_target
from workbench.runs.run import Run
from workbench.workspace import Workspace


def steps(run: Run) -> list[int]:
    """The steps it has made, as the metrics here say."""
    return [line["step"] for line in run.metrics if "loss" in line]


def start_on(workspace: Workspace, run: Run, target: str) -> None:
    """Start a run on a target, or resume it there."""
    choose_target(workspace, run, target)
    run.start()
