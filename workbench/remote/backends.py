"""Which engine serves which kind of place. Not covered: what an engine does (base)."""

from __future__ import annotations

import importlib

from workbench.remote import targets
from workbench.remote.base import Backend, TargetCheck
from workbench.remote.record import RemoteRecord
from workbench.settings import Settings
from workbench.workspace import Workspace

MODULES = {"ssh": "ssh", "slurm": "slurm", "hf-jobs": "hub_jobs"}


def engine_class(place: Settings) -> type[Backend]:
    """The engine of a place's kind."""
    kind: str = getattr(place, "kind")  # noqa: B009 - each class of places declares it for itself
    module = importlib.import_module(f"workbench.remote.{MODULES[kind]}")
    found: type[Backend] = module.ENGINE
    return found


def make(workspace: Workspace, run: str, record: RemoteRecord) -> Backend:
    """The engine for a run, by its record. Raises ConfigError."""
    place = targets.load(workspace, record.place)
    kind = engine_class(place)
    kind.require()
    return kind(place, record.place, workspace, run, record)


def check(workspace: Workspace, name: str) -> list[TargetCheck]:
    """A dry run at a place. Raises ConfigError, base.Lost."""
    engine = make(workspace, "", RemoteRecord(place=name))
    try:
        return engine.check()
    finally:
        engine.close()
