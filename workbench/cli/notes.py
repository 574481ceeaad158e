"""What a person writes on a run or a dataset, printed or written by the commands `note` and `group` of each."""

from __future__ import annotations

import click

from workbench.cli.options import print_json
from workbench.notes import NotedFolder


def print_or_write(noted: NotedFolder, text: str | None, command: str, as_json: bool) -> None:
    """Print the notes, or write `text` as them. command: such as "runs note", for the hint where there are none

    as_json: print what the notes are now
    """
    if text is not None:
        noted.write_notes(text)
    if as_json:
        print_json({"name": noted.name, "own_notes": noted.notes})
        return
    if text is None:
        click.echo(noted.notes or f"no notes: workbench {command} {noted.name} TEXT writes some")
        return
    click.echo(f"the notes on {noted.name} are {'written' if text.strip() else 'removed'}")


def print_or_set_group(noted: NotedFolder, label: str | None, command: str, as_json: bool) -> None:
    """Print the group, or put it into the one that `label` names. command: such as "runs group", for the hint

    as_json: print what the group is now
    """
    if label is not None:
        noted.set_group(label)
    if as_json:
        print_json({"name": noted.name, "group": noted.group})
        return
    if label is None:
        click.echo(noted.group or f"no group: workbench {command} {noted.name} GROUP gives it one")
        return
    click.echo(f"{noted.name} is in the group {noted.group}" if noted.group else f"{noted.name} is in no group")
