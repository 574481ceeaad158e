"""Notebooks on a machine that goes away, as Colab's do: where the workspace stays, how long is left, going on after.

Everywhere else these functions do the plain thing, so that a notebook has the same cells on every machine. Not covered:
installing the workbench (the first cell of each notebook), the panels (workbench.notebook).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.tasks import Name
from workbench.errors import WorkbenchError
from workbench.jobs import State
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import ENVIRONMENT_VARIABLE, Workspace

DRIVE = Path("/content/drive/MyDrive")
LOCAL = Path("/content/workspace")  # outside of the code, which may be fetched anew
HOURS = "WORKBENCH_COLAB_HOURS"  # how long the runtime lives, if it is not what is usual
USUAL_HOURS = 12.0
MARGIN_MINUTES = 10.0  # for the last checkpoint, and for Drive to take it in
TIME_IS_UP = "The time limit is reached"  # how the trainer says it
TASKS: tuple[Name, ...] = ("import", "split", "caption", "check", "fix", "export")


def in_colab() -> bool:
    return "google.colab" in sys.modules


def open_workspace(beside: Path | None = None) -> Workspace:
    """$WORKBENCH_HOME; in Colab a folder on Drive where it is mounted; else a folder beside the code. Says which."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE) or str((beside or Path.cwd()) / "workspace")
    said = ""
    if in_colab() and ENVIRONMENT_VARIABLE not in os.environ:
        mounted = DRIVE.is_dir()
        chosen = str(DRIVE / "workbench" if mounted else LOCAL)
        said = "  (on Drive: it stays)" if mounted else (
            "  (ends with this runtime: mount Drive with the folder's button on the left, then run this cell again)"
        )  # fmt: skip
    workspace = Workspace.open(chosen)
    print(f"{workspace.root}{said}")  # noqa: T201
    return workspace


def minutes_left() -> float | None:
    """Minutes until this Colab runtime ends, less a margin; None where nothing ends by itself.

    Counted from the age of the machine's first process and $WORKBENCH_COLAB_HOURS (12 if not set): Colab tells nobody.
    """
    if not in_colab():
        return None
    age = time.time() - psutil.Process(1).create_time()
    hours = float(os.environ.get(HOURS) or USUAL_HOURS)
    return max(1.0, hours * 60 - age / 60 - MARGIN_MINUTES)


def in_time(settings: TrainSettings) -> TrainSettings:
    """The same settings with a time limit, so that the run saves and stops before the runtime ends."""
    left = minutes_left()
    if left is None:
        return settings
    return settings.changed(time_limit=round(min(left, settings.time_limit or left), 1))


def go_on(workspace: Workspace) -> list[Run]:
    """Take everything up again that a disconnect or the end of a runtime broke off, and say what was done.

    Runs that died, or were stopped by their time limit, go on from their last checkpoint; tasks of datasets that died
    start again. What lives is left alone. Returns the runs that train now.
    """
    for dataset in Dataset.all(workspace):
        for name in TASKS:
            if (dataset.folder / f".{name}").is_dir() and dataset.task(name).status.state is State.DIED:
                _try(f"{dataset.name}: {name}", dataset.task(name).go_on)
    going = []
    for run in reversed(Run.all(workspace)):
        status = run.status
        if status.state is State.DIED or (status.state is State.STOPPED and _ran_out(run)):
            _try(run.name, run.start)
        if run.status.state.alive:
            going.append(run)
    if not going:
        print("No run is under way, and none was broken off.")  # noqa: T201
    return going


def _ran_out(run: Run) -> bool:
    """Whether a run was stopped by its time limit and not by a person."""
    return TIME_IS_UP in str(run.result.get("message", ""))


def _try(what: str, start: Callable[[], object]) -> None:
    try:
        start()
        print(f"{what} goes on.")  # noqa: T201
    except WorkbenchError as error:
        print(f"{what} does not go on: {error}")  # noqa: T201
