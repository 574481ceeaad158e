"""Commands from files to files: `convert` (weights in another layout), `record` and `replay` (what a run showed)."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.options import with_workspace
from workbench.cli.printing import say
from workbench.demo_space import replays
from workbench.display.quantities import byte_size
from workbench.errors import ConfigError
from workbench.families import convert as convert_weights
from workbench.runs.run import Run
from workbench.workspace import Workspace, write_text

MOMENTS = 12  # of a run, in which a replay is told


@click.command()
@click.argument("source")
@click.argument("target")
@click.option(
    "--like",
    metavar="MODEL",
    help="The model of SOURCE; needed where SOURCE is no model itself, as a LoRA.",
)
def convert(source: str, target: str, like: str | None) -> None:
    """Write the model or LoRA SOURCE as TARGET in the other layout: diffusers' to the authors' own, or back.

    Which way to go is read from SOURCE: a file, a folder, or the name of a known model. TARGET must be new.
    """
    summary = convert_weights(source, target, like, lambda text: say(text, err=True))
    say(summary)


@click.command()
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--description", default="", metavar="TEXT", help="A sentence that says what it is.")
@with_workspace
def record(workspace: Workspace, run: str, folder: Path, description: str) -> None:
    """Write what RUN showed over its time (curves and previews, no weights, no clips) into a new FOLDER."""
    made = replays.record(Run.open(workspace, run), folder, description)
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    count = len(made.record["previews"])
    say(f"{folder}: {made.record['steps']:,} steps, {count} previews, {byte_size(size)}")


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--page", type=click.Path(path_type=Path), help="Write a page with a slider instead, as one file.")
def replay(folder: Path | None, page: Path | None) -> None:
    """Show a replay; the one that comes with the workbench when no FOLDER is given."""
    found = [replays.Replay.open(folder)] if folder else replays.shipped()
    if not found:
        raise ConfigError("this copy comes with no replay: name the folder of one")
    chosen = found[0]
    if page:
        write_text(page, "".join(replays.page(chosen)))
        say(f"written: {page}")
        return
    say(f"{chosen.record['title']}  {chosen.record['description']}")
    for number in range(MOMENTS + 1):
        say(replays.at(chosen, chosen.record["seconds"] * number / MOMENTS))
