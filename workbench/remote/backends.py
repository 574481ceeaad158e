"""Which backend serves which kind of target, and which target a run is sent to. It stays there until it is sent on.

Not covered: what a backend does (base), the way there and back (sync).
"""

from __future__ import annotations

import importlib

from workbench import jobs
from workbench.errors import ConfigError
from workbench.remote import targets
from workbench.remote.base import Backend, TargetCheck
from workbench.remote.record import RemoteRecord
from workbench.runs.run import REMOTE, Run
from workbench.settings import Settings
from workbench.workspace import Workspace

MODULES = {"ssh": "ssh", "slurm": "slurm", "hf-jobs": "hub_jobs"}


def backend_class(target: Settings) -> type[Backend]:
    """The backend of a target's kind."""
    kind: str = getattr(target, "kind")  # noqa: B009 - each class of targets declares it for itself
    module = importlib.import_module(f"workbench.remote.{MODULES[kind]}")
    found: type[Backend] = module.BACKEND
    return found


def make(workspace: Workspace, run: str, record: RemoteRecord) -> Backend:
    """The backend of a run, by its record. Raises ConfigError."""
    target = targets.load(workspace, record.target)
    kind = backend_class(target)
    kind.require()
    return kind(target, record.target, workspace, run, record)


def check_target(workspace: Workspace, name: str) -> list[TargetCheck]:
    """A dry run on a target. Raises ConfigError, base.Unreachable."""
    backend = make(workspace, "", RemoteRecord(target=name))
    try:
        return backend.check()
    finally:
        backend.close()


def resolve_target(workspace: Workspace, name: str) -> str:
    """The target's name, "" for this machine. Raises ConfigError for an unknown one, or when a package is missing."""
    if name == targets.LOCAL:
        return ""
    backend_class(targets.load(workspace, name)).require()
    return name


def choose_target(workspace: Workspace, run: Run, name: str) -> None:
    """Let the next start of the run happen on a target, or on this machine (`targets.LOCAL`).

    Raises ConfigError when there is no such target, when a package for it is missing, or when the run may still be
    running elsewhere.
    """
    record, target = RemoteRecord.load(run.folder), resolve_target(workspace, name)
    if record.target == target:
        return
    if run.status.state.alive:
        raise ConfigError(f"{run.name} is running: stop it first: workbench runs stop {run.name}")
    if record.open:
        raise ConfigError(
            f"{run.name} was sent to {record.target} and its end was not brought back: start it again, which looks "
            f"there, then stop it. If {record.target} is gone for good, remove {run.folder / REMOTE}"
        )
    RemoteRecord(target=target, folder=record.folder).save(run.folder)


def start_on(workspace: Workspace, run: Run, target: str) -> jobs.Status:
    """Start a run on a target, or let it go on there. Raises ConfigError, CannotWrite."""
    choose_target(workspace, run, target)
    return run.start()
