"""Where a run is started: here, or at a place. It stays there until it is sent elsewhere.

Not covered: the way there and back (mirror).
"""

from __future__ import annotations

from workbench import jobs
from workbench.errors import ConfigError
from workbench.remote import targets
from workbench.remote.backends import engine_class
from workbench.remote.record import RemoteRecord
from workbench.runs.run import REMOTE, Run
from workbench.workspace import Workspace


def ready(workspace: Workspace, place: str) -> str:
    """The place's name, "" for here. Raises ConfigError when there is none of that name, or a package is missing."""
    if place == targets.HERE:
        return ""
    engine_class(targets.load(workspace, place)).require()
    return place


def choose(workspace: Workspace, run: Run, place: str) -> None:
    """Let the next start of the run happen at a place, or here (`places.HERE`).

    Raises ConfigError when there is no such place, when a package for it is missing, or when the run may still be at
    work elsewhere.
    """
    record, target = RemoteRecord.load(run.folder), ready(workspace, place)
    if record.place == target:
        return
    if run.status.state.alive:
        raise ConfigError(f"{run.name} is at work: stop it first: workbench runs stop {run.name}")
    if record.open:
        raise ConfigError(
            f"{run.name} was sent to {record.place} and its end was not brought back: start it again, which looks "
            f"there, then stop it. If {record.place} is gone for good, remove {run.folder / REMOTE}"
        )
    RemoteRecord(place=target, box=record.box).save(run.folder)


def start_at(workspace: Workspace, run: Run, place: str) -> jobs.Status:
    """Start a run at a place, or let it go on there. Raises ConfigError, CannotWrite."""
    choose(workspace, run, place)
    return run.start()
