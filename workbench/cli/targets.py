"""`workbench targets add KIND NAME`: a command per kind, with its settings. The other commands are operations."""

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
    """Add or replace a target: give its kind, then its name."""


def _add(kind: str, cls: type[Settings]) -> None:
    @add.command(kind, cls=SettingsCommand, help=cls.__doc__)
    @click.argument("name")
    @settings_flags(cls, leave_out=("kind",))
    @with_workspace
    def command(workspace: Workspace, name: str, **flags: Any) -> None:
        kept.save(workspace, name, settings_from(cls, (), flags))
        say(f"saved the target {name}. Check it: workbench targets check {name}")


for kind, settings in KINDS.items():
    _add(kind, settings)
