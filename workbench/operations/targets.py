"""Targets: the machines, clusters and accounts that can train runs remotely."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from workbench.errors import ConfigError, ExitCode, ModelUnavailable
from workbench.operations.registry import operation
from workbench.remote import targets as kept
from workbench.remote.base import Unreachable
from workbench.remote.targets import KINDS
from workbench.settings import parse
from workbench.snapshots import Check, Shown, Snapshot
from workbench.workspace import Workspace

Name = Annotated[str, Field(title="Target", description="Name of the target, as in `--target NAME`.")]


class Target(Snapshot):
    """A remote machine, a cluster or an account."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "kind", "settings", "problem")

    name: Annotated[str, Shown("target")]
    """Name of the target, as in `--target NAME`."""

    kind: str | None
    """`ssh`, `slurm` or `hf-jobs`; null if its file cannot be read."""

    settings: Annotated[dict[str, Any], Shown(text=lambda some: ", ".join(f"{key}={some[key]}" for key in some))]
    """Its settings, without those at their defaults."""

    problem: str
    """Why it cannot be used; "" if it can."""


@operation(path="/targets", none="no targets yet: add one with workbench targets add ssh NAME --host HOST")
def list_(workspace: Workspace) -> list[Target]:
    """List the remote targets."""
    return [_target(workspace, name) for name in kept.names(workspace)]


def _target(workspace: Workspace, name: str) -> Target:
    try:
        target = kept.load(workspace, name)
    except ConfigError as error:
        return Target(name=name, kind=None, settings={}, problem=str(error))
    values = target.model_dump(mode="json", exclude_defaults=True)
    return Target(name=name, kind=target.model_dump()["kind"], settings=values, problem="")


@operation(changes=True, shell=False)
def add(
    workspace: Workspace,
    name: Name,
    kind: Annotated[str, Field(description="`ssh`, `slurm` or `hf-jobs`.")],
    *,
    settings: Annotated[dict[str, Any], Field(description="Settings for that kind of target.")],
) -> Target:
    """Add a target, replacing any of the same name."""
    if kind not in KINDS:
        raise ConfigError(f"kind is {kind[:80]!r}, must be one of {', '.join(KINDS)}")
    kept.save(workspace, name, parse(KINDS[kind], settings))
    return _target(workspace, name)


@operation(changes=True, says=lambda target: f"{target.name} is removed")
def remove(workspace: Workspace, name: Name) -> Target:
    """Remove a target from this workspace. Nothing is deleted on the target itself."""
    removed = _target(workspace, name)
    kept.remove(workspace, name)
    return removed


@operation(
    says=lambda one: one.said, exit_code=lambda checks: ExitCode.BAD_CONFIG if any(one.remedy for one in checks) else 0
)
def check(workspace: Workspace, name: Name) -> list[Check]:
    """Check whether a target is ready to train. Nothing is started or changed on it.

    Exits with 0 if there is nothing to fix.
    """
    try:
        return kept.check_target(workspace, name)
    except Unreachable as error:
        raise ModelUnavailable(f"{name} does not answer: {error}") from error
