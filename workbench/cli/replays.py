"""`workbench record` and `workbench replay`: a run's course as a small folder, and looking at it again.

Not covered: what a recording holds (workbench.demo_space.replays), runs that are still there (workbench runs).
"""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.options import with_workspace
from workbench.demo_space import replays
from workbench.errors import ConfigError
from workbench.runs.run import Run
from workbench.workspace import Workspace, write_text

MOMENTS = 12


@click.command()
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--say", default="", metavar="TEXT", help="A sentence for those who look at it: what it is.")
@with_workspace
def record(workspace: Workspace, run: str, folder: Path, say: str) -> None:
    """Write what RUN showed over its time (curves and previews, no weights, no clips) into a new FOLDER."""
    made = replays.record(Run.open(workspace, run), folder, say)
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    count = len(made.record["previews"])
    click.echo(f"{folder}: {made.record['steps']:,} steps, {count} previews, {size:.1f} MB")


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--page", type=click.Path(path_type=Path), help="Write a page with a slider instead: one file, for any "
              "browser.")  # fmt: skip
def replay(folder: Path | None, page: Path | None) -> None:
    """Tell the course of a recorded run; of the one that comes with the workbench when no FOLDER is given."""
    found = [replays.Recording.open(folder)] if folder else replays.shipped()
    if not found:
        raise ConfigError("no recorded run came with this copy: name the folder of one")
    recording = found[0]
    if page:
        write_text(page, f"<!doctype html><meta charset='utf-8'>{replays.standalone(recording)}")
        click.echo(f"written: {page}")
        return
    click.echo(f"{recording.record['title']}  {recording.record['said']}")
    for number in range(MOMENTS + 1):
        click.echo(replays.at(recording, recording.record["seconds"] * number / MOMENTS))
