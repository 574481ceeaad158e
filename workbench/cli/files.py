"""Commands on files: `convert` (weights to another layout), `record` and `replay` (a run's curves and previews)."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.options import with_workspace
from workbench.cli.printing import say
from workbench.compare import export
from workbench.compare.grid import Grid
from workbench.demo_space import replays
from workbench.display.quantities import byte_size
from workbench.errors import ConfigError
from workbench.families import convert as convert_weights
from workbench.runs.run import Run
from workbench.workspace import Workspace, write_text

MOMENTS = 12  # printed of a replay


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--like", metavar="MODEL", help="The model that SOURCE belongs to. Required for a LoRA.")
def convert(source: str, target: str, like: str | None) -> None:
    """Convert the model or LoRA SOURCE between the diffusers layout and its authors' layout, as TARGET.

    The direction follows from SOURCE: a file, a folder, or the name of a known model. TARGET must be new.
    """
    say(convert_weights(source, target, like, lambda text: say(text, err=True)))


@click.command()
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--description", default="", metavar="TEXT", help="One sentence about the run.")
@click.option("--grid", metavar="NAME", help="Also record the videos of this grid.")
@with_workspace
def record(workspace: Workspace, run: str, folder: Path, description: str, grid: str | None) -> None:
    """Record the curves, previews and verdict of RUN, without weights and clips, in a new FOLDER."""
    compared = export.contents(Grid.open(workspace, grid)) if grid else None
    made = replays.record(Run.open(workspace, run), folder, description, compared)
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    say(f"{folder}: {made.record['steps']:,} steps, {len(made.videos)} videos, {byte_size(size)}")


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--page", type=click.Path(path_type=Path), help="Write it as a single HTML file with a slider instead.")
def replay(folder: Path | None, page: Path | None) -> None:
    """Show the replay in FOLDER, or the one that comes with the workbench."""
    found = [replays.Replay.open(folder)] if folder else replays.shipped()
    if not found:
        raise ConfigError("this installation has no replay: give the folder of one")
    chosen = found[0]
    if page:
        write_text(page, "".join(replays.page(chosen)))
        say(f"written: {page}")
        return
    say(f"{chosen.record['title']}  {chosen.record['description']}")
    for number in range(MOMENTS + 1):
        say(replays.at(chosen, chosen.record["seconds"] * number / MOMENTS))
