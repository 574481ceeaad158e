"""`workbench targets`: machines, clusters and accounts to which runs can be sent.

Not covered: sending one (train --target, runs start --target), what each setting does (workbench.remote.settings).
"""

from __future__ import annotations

from typing import Any

import click

from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.cli.tables import print_table
from workbench.errors import ConfigError, ExitCode, ModelUnavailable
from workbench.remote import targets as kept
from workbench.remote.backends import check_target
from workbench.remote.base import Unreachable
from workbench.remote.settings import KINDS
from workbench.settings import Settings
from workbench.workspace import Workspace

TARGET_HELP = "Train on a target (workbench targets), or local. A run stays where it is until it is sent elsewhere."
KIND = ("kind",)


@click.group(invoke_without_command=True)
@with_workspace
@click.pass_context
def targets(context: click.Context, workspace: Workspace) -> None:
    """Machines, clusters and accounts to which runs can be sent. Without a command: list them."""
    if context.invoked_subcommand is None:
        _list(workspace)


@targets.command("list")
@with_workspace
def list_(workspace: Workspace) -> None:
    """List the targets."""
    _list(workspace)


def _list(workspace: Workspace) -> None:
    names = kept.names(workspace)
    if not names:
        click.echo("no targets yet: workbench targets add ssh NAME --host HOST adds one")
        return
    print_table(("target", "kind", "settings"), [_row(workspace, name) for name in names])


def _row(workspace: Workspace, name: str) -> tuple[str, str, str]:
    try:
        values = kept.load(workspace, name).model_dump(mode="json", exclude_defaults=True)
        kind = str(getattr(kept.load(workspace, name), "kind"))  # noqa: B009 - each class of targets declares it
    except ConfigError as error:
        return name, "?", str(error)
    return name, kind, ", ".join(f"{key}={value}" for key, value in values.items())


@targets.group()
def add() -> None:
    """Add a target, or replace one: its kind, then its name."""


def _adding(kind: str, cls: type[Settings]) -> click.Command:
    @click.command(kind, cls=SettingsCommand, help=cls.__doc__)
    @click.argument("name")
    @settings_flags(cls, leave_out=KIND)
    @with_workspace
    def command(workspace: Workspace, name: str, **flags: Any) -> None:
        kept.save(workspace, name, settings_from(cls, None, flags))
        click.echo(f"{name} is a target now; check whether it is ready: workbench targets check {name}")

    return command


for kind, settings in KINDS.items():
    add.add_command(_adding(kind, settings))


@targets.command()
@click.argument("name")
@with_workspace
def remove(workspace: Workspace, name: str) -> None:
    """Remove a target. Nothing is deleted on it."""
    kept.remove(workspace, name)
    click.echo(f"{name} is removed")


@targets.command()
@click.argument("name")
@with_workspace
def check(workspace: Workspace, name: str) -> int:
    """Check whether a target is ready: starts and changes nothing on it.

    Exits with 0 when nothing has to be fixed.
    """
    try:
        found = check_target(workspace, name)
    except Unreachable as error:
        raise ModelUnavailable(f"{name} does not answer: {error}") from error
    width = max(len(line.title) for line in found)
    for line in found:
        click.echo(f"{'!' if line.remedy else ' '} {line.title:<{width}}  {line.found}")
        if line.remedy:
            click.echo(f"  {'':<{width}}  -> {line.remedy}")
    return int(ExitCode.BAD_CONFIG) if any(line.remedy for line in found) else 0
