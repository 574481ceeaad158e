"""What a person writes on a run or a dataset, printed or written by the commands `note` and `group` of each."""

from __future__ import annotations

import click

from workbench.notes import NotedFolder


def print_or_write(noted: NotedFolder, text: str | None, command: str) -> None:
    """Print the notes, or write `text` as them. command: such as "runs note", for the hint where there are none"""
    if text is None:
        click.echo(noted.notes or f"no notes: workbench {command} {noted.name} TEXT writes some")
        return
    noted.write_notes(text)
    click.echo(f"the notes on {noted.name} are {'written' if text.strip() else 'removed'}")


def print_or_set_group(noted: NotedFolder, label: str | None, command: str) -> None:
    """Print the group, or put it into the one that `label` names. command: such as "runs group", for the hint"""
    if label is None:
        click.echo(noted.group or f"no group: workbench {command} {noted.name} GROUP gives it one")
        return
    noted.set_group(label)
    click.echo(f"{noted.name} is in the group {noted.group}" if noted.group else f"{noted.name} is in no group")
