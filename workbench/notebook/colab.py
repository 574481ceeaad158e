"""Notebooks on Colab, whose runtimes end: where to keep the workspace, how much time is left, and resuming.

On other machines these functions do the usual thing, so that notebooks need no special cells.
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
LOCAL = Path("/content/workspace")  # outside the code, which may be fetched again
HOURS = "WORKBENCH_COLAB_HOURS"  # overrides USUAL_HOURS
USUAL_HOURS = 12.0
MARGIN_MINUTES = 10.0  # to save the last checkpoint and store it on Drive
TIME_IS_UP = "The time limit is reached"  # start of the trainer's message
TEMPORARY = "temporary: to keep it, mount Drive with the folder button on the left and run this cell again"


def in_colab() -> bool:
    return "google.colab" in sys.modules


def open_workspace(beside: Path | None = None) -> Workspace:
    """Open $WORKBENCH_HOME, else in Colab a folder on a mounted Drive, else a folder in `beside`, and print which."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE) or str((beside or Path.cwd()) / "workspace")
    note = ""
    if in_colab() and ENVIRONMENT_VARIABLE not in os.environ:
        mounted = DRIVE.is_dir()
        chosen = str(DRIVE / "workbench" if mounted else LOCAL)
        note = "  (kept on Drive)" if mounted else f"  ({TEMPORARY})"
    workspace = Workspace.open(chosen)
    print(f"{workspace.root}{note}")  # noqa: T201
    return workspace


def minutes_left() -> float | None:
    """Return the minutes until this Colab runtime ends, less a margin, or None on other machines.

    Colab does not tell, so this assumes that runtimes last $WORKBENCH_COLAB_HOURS (12 by default) from the start of the
    machine's first process.
    """
    if not in_colab():
        return None
    age = time.time() - psutil.Process(1).create_time()
    hours = float(os.environ.get(HOURS) or USUAL_HOURS)
    return max(1.0, hours * 60 - age / 60 - MARGIN_MINUTES)


def in_time(settings: TrainSettings) -> TrainSettings:
    """Return the settings with a time limit, so that the run saves and stops before the runtime ends."""
    left = minutes_left()
    if left is None:
        return settings
    return settings.changed(time_limit=round(min(left, settings.time_limit or left), 1))


def resume(workspace: Workspace) -> list[Run]:
    """Resume everything that a disconnect or the end of a runtime interrupted, and print it.

    Runs that died or reached their time limit resume from their last checkpoint, and dataset tasks that died start
    again. Returns the runs that are training now.
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
        print(f"{what}: resumed")  # noqa: T201
    except WorkbenchError as error:
        print(f"{what}: cannot resume: {error}")  # noqa: T201
