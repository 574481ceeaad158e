"""Removing whole runs, and restoring them: a removed run's folder moves to the bin (bins). No torch.

A living run is never removed. A fork has copied its checkpoint, so it goes on without its parent. Not covered: removing
LoRAs and checkpoints of runs (loras.removal, retention).
"""

from __future__ import annotations

from workbench import jobs
from workbench.bins import Bin
from workbench.errors import ConfigError
from workbench.runs import queue
from workbench.runs.run import Run
from workbench.workspace import Workspace


def remove(workspace: Workspace, run: Run) -> str:
    """Move a run that is over to the bin; returns what became of it, in sentences. Raises ConfigError, CannotWrite."""
    forks = forks_of(workspace, run.name)
    with jobs.locked(workspace.runs / queue.LOCK):  # nobody puts it into the queue meanwhile
        state = jobs.status(run.folder).state
        if state.alive:
            raise ConfigError(
                f"{run.name} is {state.value} and cannot be removed: workbench runs stop {run.name} first"
            )
        name = _bin(workspace).put(run.folder)
    kept = f" Began at it, and go on without it: {', '.join(forks)}." if forks else ""
    return f"{run.name} is removed. To restore it: workbench runs restore {name}.{kept}"


def removed(workspace: Workspace) -> list[str]:
    """Names of the removed runs, by which they are restored, removed last first."""
    return _bin(workspace).names


def restore(workspace: Workspace, name: str) -> Run:
    """Move a removed run back. Raises ConfigError where there is none, or another run has its name; CannotWrite."""
    return Run(_bin(workspace).restore(name))


def forks_of(workspace: Workspace, name: str) -> list[str]:
    """Names of the runs that began at a checkpoint of that one."""
    return sorted(run.name for run in Run.all(workspace) if run.parent.get("run") == name)


def _bin(workspace: Workspace) -> Bin:
    return Bin(workspace.runs, "run")
