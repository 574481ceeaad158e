"""Giving a run another name: its folder is renamed, and forks of it name it anew. No torch.

Not covered: samples, grids and stars that name its LoRA, which keep the old name; removing (removal).
"""

from __future__ import annotations

from workbench import jobs
from workbench.errors import ConfigError
from workbench.operating_system import system
from workbench.runs import queue
from workbench.runs.checkpoints import PARENT
from workbench.runs.run import REMOTE, Run
from workbench.workspace import Workspace, checked_slug, read_object, write_json, writing


def rename(workspace: Workspace, run: Run, name: str) -> Run:
    """Rename a run that is over; returns it. Raises ConfigError where the name cannot be used, CannotWrite."""
    target = workspace.runs / checked_slug(name)
    if target == run.folder:
        return run
    with jobs.locked(workspace.runs / queue.LOCK):  # nobody puts it into the queue meanwhile
        state = jobs.status(run.folder).state
        if state.alive:
            raise ConfigError(
                f"{run.name} is {state.value} and cannot be renamed: workbench runs stop {run.name} first"
            )
        if (run.folder / REMOTE).exists():
            raise ConfigError(f"{run.name} trains on {run.target}, where it keeps its name: clone it under another one")
        if target.exists():
            raise ConfigError(f"there is a run {name!r} already: choose another name")
        with writing(target):
            system.replace(run.folder, target)
    for other in Run.all(workspace):
        if other.parent.get("run") == run.name:
            write_json(other.folder / PARENT, {**read_object(other.folder / PARENT), "run": name})
    return Run(target)
