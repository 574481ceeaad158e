"""`workbench runs note, group, rename, remove, restore`: what a person writes about runs, and the bin of whole runs.

Not covered: what removing means (workbench.runs.run), the other commands of runs (cli.runs).
"""

from __future__ import annotations

import click

from workbench.cli.notes import print_or_set_group, print_or_write
from workbench.cli.options import json_flag, with_opened, with_workspace
from workbench.cli.printing import print_json, say
from workbench.runs.run import Run, remove_run, removed_runs, rename_run, restore_run
from workbench.workspace import Workspace

with_run = with_opened(Run.open)


@click.command()
@with_run
@click.argument("text", required=False)
@json_flag
def note(run: Run, text: str | None, as_json: bool) -> None:
    """Write TEXT as the notes on a run; without it, print them. "" removes them."""
    print_or_write(run, text, "runs note", as_json)


@click.command()
@with_run
@click.argument("label", metavar="GROUP", required=False)
@json_flag
def group(run: Run, label: str | None, as_json: bool) -> None:
    """Put a run into a GROUP, under which lists show it; without GROUP, print it. "" takes it out."""
    print_or_set_group(run, label, "runs group", as_json)


@click.command()
@click.argument("name")
@click.argument("new_name")
@with_workspace
def rename(workspace: Workspace, name: str, new_name: str) -> None:
    """Give a run that is over another name. Samples and grids that were made with it keep the old one."""
    say(f"{name} is now {rename_run(workspace, Run.open(workspace, name), new_name).name}")


@click.command()
@click.argument("names", nargs=-1, required=True)
@with_workspace
def remove(workspace: Workspace, names: tuple[str, ...]) -> None:
    """Move runs that are over to the bin. `restore` brings them back."""
    for run in [Run.open(workspace, name) for name in dict.fromkeys(names)]:
        say(remove_run(workspace, run))


@click.command()
@click.argument("name", required=False)
@json_flag
@with_workspace
def restore(workspace: Workspace, name: str | None, as_json: bool) -> None:
    """Restore a removed run; without NAME, list the removed ones."""
    if name:
        say(f"{restore_run(workspace, name).name} is restored")
        return
    if as_json:
        print_json([{"name": one} for one in removed_runs(workspace)])
        return
    for one in removed_runs(workspace) or ["no run is removed"]:
        say(one)
