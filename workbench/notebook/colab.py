"""Notebooks on a Colab runtime, which ends: where the workspace is kept, how long is left, resuming afterwards.

Everywhere else these functions do the usual thing, so that a notebook has the same cells on every machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.tasks import NAMES
from workbench.errors import WorkbenchError
from workbench.jobs import State
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import ENVIRONMENT_VARIABLE, Workspace

DRIVE = Path("/content/drive/MyDrive")
LOCAL = Path("/content/workspace")  # outside of the code, which may be fetched anew
HOURS = "WORKBENCH_COLAB_HOURS"  # how long the runtime lasts, if not USUAL_HOURS
USUAL_HOURS = 12.0
MARGIN_MINUTES = 10.0  # for the last checkpoint, and for Drive to store it
TIME_IS_UP = "The time limit is reached"  # begins the trainer's message
TEMPORARY = "ends with this runtime: mount Drive with the folder's button on the left, then run this cell again"


def in_colab() -> bool:
    return "google.colab" in sys.modules


def open_workspace(beside: Path | None = None) -> Workspace:
    """$WORKBENCH_HOME; in Colab a folder on Drive where it is mounted; else a folder beside the code. Prints which."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE) or str((beside or Path.cwd()) / "workspace")
    note = ""
    if in_colab() and ENVIRONMENT_VARIABLE not in os.environ:
        mounted = DRIVE.is_dir()
        chosen = str(DRIVE / "workbench" if mounted else LOCAL)
        note = "  (on Drive: it is kept)" if mounted else f"  ({TEMPORARY})"
    workspace = Workspace.open(chosen)
    print(f"{workspace.root}{note}")  # noqa: T201
    return workspace


def minutes_left() -> float | None:
    """Minutes until this Colab runtime ends, less a margin; None where nothing ends by itself.

    Counted from the age of the machine's first process and $WORKBENCH_COLAB_HOURS (12 if not set): Colab does not say.
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


def resume(workspace: Workspace) -> list[Run]:
    """Resume everything that a disconnect or the end of a runtime interrupted, and print what was done.

    Runs that died, or were stopped by their time limit, resume from their last checkpoint; tasks of datasets that died
    start again. What is running is left alone. Returns the runs that train now.
    """
    for dataset in Dataset.all(workspace):
        for name in NAMES:
            if (dataset.folder / f".{name}").is_dir() and dataset.task(name).status.state is State.DIED:
                _attempt(f"{dataset.name}: {name}", dataset.task(name).go_on)
    training = []
    for run in reversed(Run.all(workspace)):
        status = run.status
        ran_out = status.state is State.STOPPED and TIME_IS_UP in str(run.result.get("message", ""))
        if status.state is State.DIED or ran_out:
            _attempt(run.name, run.start)
        if run.status.state.alive:
            training.append(run)
    if not training:
        print("No run is training, and none was interrupted.")  # noqa: T201
    return training


def _attempt(what: str, start: Callable[[], object]) -> None:
    try:
        start()
        print(f"{what} is resumed.")  # noqa: T201
    except WorkbenchError as error:
        print(f"{what} cannot be resumed: {error}")  # noqa: T201
