"""The order in which waiting runs train, and which checkpoints are kept: in the shell.

Not covered: the rules of keeping (workbench.runs.retention), how runs wait (workbench.runs.queue).
"""

from __future__ import annotations

import contextlib

import click

from workbench.cli.follow import doing
from workbench.cli.options import with_workspace
from workbench.errors import ConfigError
from workbench.runs import queue as run_queue
from workbench.runs import retention
from workbench.runs.run import Run
from workbench.workspace import Workspace


@click.command()
@click.option("--move", nargs=2, type=(str, int), metavar="NAME POSITION", help="Move a waiting run; 1 is next.")
@with_workspace
def queue(workspace: Workspace, move: tuple[str, int] | None) -> None:
    """Which run trains now, and which wait, in order."""
    waiting = run_queue.move(workspace, *move) if move else run_queue.order(workspace)
    for run in Run.all(workspace):
        status = run.status
        if status.state.alive and run.name not in waiting:
            click.echo(f"now  {run.name}: {doing(status)} {status.step}/{status.total or '?'}")
    for position, name in enumerate(waiting, 1):
        click.echo(f"{position:>3}  {name}")
    if not waiting:
        click.echo("no run waits")


@click.command()
@click.argument("name")
@click.argument("step", type=int)
@with_workspace
def star(workspace: Workspace, name: str, step: int) -> None:
    """Keep the checkpoint of a step for good."""
    retention.star(Run.open(workspace, name).folder, step)
    click.echo(f"the checkpoint of step {step} stays")


@click.command()
@click.argument("name")
@click.argument("step", type=int)
@with_workspace
def unstar(workspace: Workspace, name: str, step: int) -> None:
    """Let the checkpoint of a step go with the others."""
    retention.unstar(Run.open(workspace, name).folder, step)
    click.echo(f"the checkpoint of step {step} goes when its turn comes")


@click.command()
@click.argument("name")
@click.option("--keep", type=click.IntRange(1), required=True, metavar="N", help="How many of the newest stay.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_workspace
def prune(workspace: Workspace, name: str, keep: int, yes: bool) -> None:
    """Remove old checkpoints; says which first, and asks.

    The newest N stay, and so do the best and the starred ones.
    """
    run = Run.open(workspace, name)
    every = 0
    with contextlib.suppress(ConfigError):
        every = run.settings.keep_every
    going = retention.doomed(run.folder, keep, every)
    for one in going:
        click.echo(f"step {one.step}  {one.bytes / 1e6:.1f} MB")
    if not going:
        click.echo("nothing goes: the newest, the best and the starred checkpoints stay")
    elif yes or click.confirm(f"Remove {len(going)} checkpoints, {sum(one.bytes for one in going) / 1e6:.1f} MB?"):
        gone = retention.retire_now(run.folder, keep, every)
        click.echo(f"removed {len(gone)} checkpoints, {sum(one.bytes for one in gone) / 1e6:.1f} MB are free")
    else:
        click.echo("nothing was removed")


COMMANDS = (queue, star, unstar, prune)
