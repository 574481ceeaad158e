"""The commands of `workbench runs` that watch a run; the others are operations."""

from __future__ import annotations

import click

from workbench.cli.follow import follow
from workbench.cli.options import detach_flag, target_flag, with_workspace
from workbench.cli.printing import say
from workbench.operations import runs as operations
from workbench.runs.run import Run
from workbench.workspace import Workspace


@click.command("follow")
@click.argument("names", nargs=-1, required=True)
@with_workspace
def follow_(workspace: Workspace, names: tuple[str, ...]) -> int:
    """Watch a run, or several, to the end.

    Ctrl-C stops watching, not the run.
    """
    return follow(*(Run.open(workspace, name) for name in names))


@click.command()
@click.argument("name")
@target_flag
@click.option("--from-start", is_flag=True, help="Begin at step 0 again if it has no good checkpoint.")
@detach_flag
@with_workspace
def start(workspace: Workspace, name: str, target: str | None, from_start: bool, detach: bool) -> int:
    """Start a run, or let one that ended go on.

    It goes on from its newest good checkpoint. A run that has made steps but has none is refused: --from-start lets it
    begin again.
    """
    run = operations.startable(workspace, name, target or "")
    if not detach:
        return follow(run, begin=lambda: run.start(from_start))
    run.start(from_start)
    say(f"watch it: workbench runs follow {run.name}")
    return 0


SECTION, COMMANDS = "", (follow_, start)
