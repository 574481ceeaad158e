"""`workbench targets add KIND NAME`: a command for each kind, with its settings; the others are operations."""

from __future__ import annotations

from typing import Any

import click

from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.cli.printing import say
from workbench.remote import targets as kept
from workbench.remote.targets import KINDS
from workbench.settings import Settings
from workbench.workspace import Workspace


@click.group()
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
