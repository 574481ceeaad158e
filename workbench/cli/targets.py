"""`workbench targets`: machines, clusters and accounts to which runs can be sent.

Not covered: sending one (train --target, runs start --target), what each setting does (workbench.remote.settings).
"""

from __future__ import annotations

from dataclasses import asdict, astuple
from typing import Any

import click

from workbench.cli.options import SettingsCommand, json_flag, settings_flags, settings_from, with_workspace
from workbench.cli.printing import print_json, say
from workbench.cli.tables import print_checks, print_table
from workbench.errors import ConfigError, ExitCode, ModelUnavailable
from workbench.remote import targets as kept
from workbench.remote.base import Unreachable
from workbench.remote.settings import KINDS
from workbench.settings import Settings
from workbench.workspace import Workspace

target_flag = click.option(
    "--target",
    metavar="NAME",
    help="Train on a target (workbench targets), or local. A run stays where it is until it is sent elsewhere.",
)


@click.group(invoke_without_command=True)
@json_flag
@with_workspace
@click.pass_context
def targets(context: click.Context, workspace: Workspace, as_json: bool) -> None:
    """Machines, clusters and accounts to which runs can be sent. Without a command: list them."""
    if context.invoked_subcommand is None:
        _list(workspace, as_json)


@targets.command("list")
@json_flag
@with_workspace
def list_(workspace: Workspace, as_json: bool) -> None:
    """List the targets."""
    _list(workspace, as_json)


def _list(workspace: Workspace, as_json: bool) -> None:
    names = kept.names(workspace)
    if as_json:
        print_json([_document(workspace, name) for name in names])
        return
    if not names:
        say("no targets yet: workbench targets add ssh NAME --host HOST adds one")
        return
    print_table(("target", "kind", "settings"), [_row(_document(workspace, name)) for name in names])


def _row(one: dict[str, Any]) -> tuple[str, str, str]:
    settings = ", ".join(f"{key}={value}" for key, value in one["settings"].items())
    return one["name"], one["kind"] or "?", one["problem"] or settings


def _document(workspace: Workspace, name: str) -> dict[str, Any]:
    try:
        target = kept.load(workspace, name)
    except ConfigError as error:
        return {"name": name, "kind": None, "settings": {}, "problem": str(error)}
    values = target.model_dump(mode="json", exclude_defaults=True)
    return {"name": name, "kind": target.model_dump()["kind"], "settings": values, "problem": ""}


@targets.group()
def add() -> None:
    """Add a target, or replace one: its kind, then its name."""


def _add(kind: str, cls: type[Settings]) -> None:
    @add.command(kind, cls=SettingsCommand, help=cls.__doc__)
    @click.argument("name")
    @settings_flags(cls, leave_out=("kind",))
    @with_workspace
    def command(workspace: Workspace, name: str, **flags: Any) -> None:
        kept.save(workspace, name, settings_from(cls, (), flags))
        say(f"{name} is a target now; check whether it is ready: workbench targets check {name}")


for kind, settings in KINDS.items():
    _add(kind, settings)


@targets.command()
@click.argument("name")
@with_workspace
def remove(workspace: Workspace, name: str) -> None:
    """Remove a target. Nothing is deleted on it."""
    kept.remove(workspace, name)
    say(f"{name} is removed")


@targets.command()
@click.argument("name")
@json_flag
@with_workspace
def check(workspace: Workspace, name: str, as_json: bool) -> int:
    """Check whether a target is ready: starts and changes nothing on it.

    Exits with 0 when nothing has to be fixed.
    """
    try:
        found = kept.check_target(workspace, name)
    except Unreachable as error:
        raise ModelUnavailable(f"{name} does not answer: {error}") from error
    if as_json:
        print_json([asdict(one) for one in found])
        return int(ExitCode.BAD_CONFIG) if any(one.remedy for one in found) else 0
    return int(ExitCode.BAD_CONFIG) if print_checks(map(astuple, found)) else 0
