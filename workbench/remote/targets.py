"""The targets of a workspace (`targets/NAME.json`), their backends, and which of them a run is sent to.

A target's file holds plain settings without secrets. A run stays on its target until it is sent on.
"""

from __future__ import annotations

import pkgutil
from pathlib import Path

from workbench import jobs
from workbench.errors import ConfigError, Unknown
from workbench.remote.base import Backend, RemoteRecord, TargetCheck
from workbench.remote.settings import KINDS
from workbench.runs.run import REMOTE, Run
from workbench.settings import Settings
from workbench.workspace import Workspace, checked_slug, read_json, slugify

FOLDER = "targets"
LOCAL = "local"  # this machine
BACKENDS = {"ssh": "ssh:SshBackend", "slurm": "slurm:SlurmBackend", "hf-jobs": "hub_jobs:HubJobsBackend"}


def names(workspace: Workspace) -> list[str]:
    """The names of the targets, sorted."""
    return sorted(path.stem for path in (workspace.root / FOLDER).glob("*.json"))


def load(workspace: Workspace, name: str) -> Settings:
    """Return a target's settings, of the class of its kind. Raises ConfigError."""
    path = _existing(workspace, name)
    values = read_json(path)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind not in KINDS:
        raise ConfigError(f"{path} has the kind {kind!r}: use one of {', '.join(KINDS)}")
    return KINDS[kind].load(path)


def save(workspace: Workspace, name: str, target: Settings) -> None:
    """Save a target under a name; one of that name is replaced. Raises ConfigError, CannotWrite."""
    if name == LOCAL or slugify(name) != name:
        raise ConfigError(f"the name {name!r} cannot be a target's: use small letters, digits and '-', and not {LOCAL}")
    target.save(_path(workspace, name))


def remove(workspace: Workspace, name: str) -> None:
    """Remove a target, also a damaged one; runs that are there go on. Raises Unknown."""
    _existing(workspace, name).unlink()


def _existing(workspace: Workspace, name: str) -> Path:
    path = _path(workspace, name)
    if not path.exists():
        known = ", ".join(names(workspace)) or "none yet: workbench targets add"
        raise Unknown(f"there is no target {name!r}: choose one of {known}")
    return path


def _path(workspace: Workspace, name: str) -> Path:
    return workspace.root / FOLDER / f"{checked_slug(name)}.json"


def backend_class(target: Settings) -> type[Backend]:
    """The backend of a target's kind. Raises ConfigError when a package for it is missing."""
    kind: str = getattr(target, "kind")  # noqa: B009 - each class of targets declares it for itself
    found: type[Backend] = pkgutil.resolve_name(f"workbench.remote.{BACKENDS[kind]}")
    found.require()
    return found


def make_backend(workspace: Workspace, run: str, record: RemoteRecord) -> Backend:
    """The backend of a run, by its record. Raises ConfigError."""
    target = load(workspace, record.target)
    return backend_class(target)(target, record.target, workspace, run, record)


def check_target(workspace: Workspace, name: str) -> list[TargetCheck]:
    """A dry run on a target. Raises ConfigError, base.Unreachable."""
    backend = make_backend(workspace, "", RemoteRecord(target=name))
    try:
        return backend.check()
    finally:
        backend.close()


def resolve_target(workspace: Workspace, name: str) -> str:
    """The target's name, "" for this machine. Raises ConfigError for an unknown one, or when a package is missing."""
    if name == LOCAL:
        return ""
    backend_class(load(workspace, name))
    return name


def choose_target(workspace: Workspace, run: Run, name: str) -> None:
    """Let the next start of the run happen on a target, or on this machine (LOCAL).

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
