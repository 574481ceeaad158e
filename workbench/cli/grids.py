"""`workbench grid`: grids of videos in a shell: make, extend, look at, mark, export, delete.

Ctrl-C stops watching, never the drawing; `grid stop` takes back what is not drawn yet. Not covered: the grids
themselves (workbench.compare).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.cli.tables import print_table
from workbench.compare import Cell, CellState, Grid, GridSettings, GridState, marks, measurements
from workbench.compare.settings import GridExportSettings
from workbench.compare.suggestions import base_of
from workbench.errors import ConfigError, ExitCode, WorkbenchError
from workbench.jobs import duration
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

POLL_SECONDS = 0.3
# Axes and rows say these.
OWN = ("prompt", "image", "seed", "loras", "guidance_scale", "steps", "scheduler", "video", "strength", "continue_from")
EXTENDED = ("prompts", "seeds", "checkpoints", "scales", "loras", "guidance", "steps", "schedulers", "column_seeds")
WORDS = {
    CellState.DONE: "done", CellState.MISSING: "not drawn", CellState.WAITING: "waiting", CellState.DRAWING: "drawing",
    CellState.FAILED: "failed",
}  # fmt: skip


@click.group()
def grid() -> None:
    """Compare videos of the same prompts: checkpoints, LoRA scales, guidance, LoRAs ... in columns.

    workbench grid make --run cats --checkpoints base,150,300,450 --scales 0.5,0.75,1
    """


@grid.command("list")
@with_workspace
def list_(workspace: Workspace) -> None:
    """All grids, newest first."""
    grids = Grid.all(workspace)
    if not grids:
        click.echo("no grid yet: workbench grid make --run NAME")
    for one in grids:
        view = one.look()
        click.echo(f"{one.name}  {view.count(CellState.DONE)} of {len(view.all)} videos  {one.folder}")


@grid.command(cls=SettingsCommand)
@click.option("--wait/--no-wait", default=True, help="Wait until all is drawn; else the worker goes on alone.")
@settings_flags(GridSettings)
@settings_flags(SampleSettings, leave_out=OWN)
@with_workspace
def make(workspace: Workspace, wait: bool, **flags: Any) -> int:
    """Make a grid and draw its videos; a run alone gives its preview prompts by base model and last checkpoints.

    Values of one axis stand with commas between them; at most two things may have several values.
    """
    own = {name: flags.pop(name) for name in GridSettings.model_fields}
    settings = settings_from(GridSettings, None, own)
    base = settings_from(SampleSettings, None, flags, base=base_of(workspace, settings))
    made = Grid.create(workspace, settings, base)
    click.echo(f"grid {made.name}: {made.folder}")
    return _draw(made, wait)


@grid.command(cls=SettingsCommand)
@click.argument("name")
@click.option("--wait/--no-wait", default=True, help="Wait until all is drawn; else the worker goes on alone.")
@settings_flags(GridSettings, only=EXTENDED)
@with_workspace
def extend(workspace: Workspace, name: str, wait: bool, **flags: Any) -> int:
    """Give a grid further columns or rows; only their videos are drawn. Without any: draw what is missing."""
    opened = Grid.open(workspace, name)
    more = {axis: values for axis, values in flags.items() if values}
    if more:
        opened.extend(**more)
    return _draw(opened, wait)


@grid.command()
@click.argument("name")
@with_workspace
def show(workspace: Workspace, name: str) -> None:
    """What is in a grid: a line a video, with its numbers, its marks and its file."""
    opened = Grid.open(workspace, name)
    view = opened.look()
    opened.follow(view)
    _print(opened, view)


@grid.command()
@click.argument("name")
@settings_flags(GridExportSettings)
@with_workspace
def export(workspace: Workspace, name: str, **flags: Any) -> int:
    """Write the whole grid as a video, a GIF and a page that needs nothing else; prints where they lie."""
    opened = Grid.open(workspace, name)
    opened.export(settings_from(GridExportSettings, None, flags))
    done = jobs.wait(opened.folder / ".export")
    if done.state is not jobs.State.FINISHED:
        click.echo(f"Error: {done.message or 'the export ended early'}", err=True)
        return int(done.exit_code or ExitCode.BUG)
    for path in opened.exported:
        click.echo(str(path))
    return 0


@grid.command()
@click.argument("name")
@with_workspace
def stop(workspace: Workspace, name: str) -> None:
    """Take back what is not drawn yet; `grid extend NAME` asks for it again."""
    Grid.open(workspace, name).cancel()
    click.echo("what was not drawn yet is taken back")


@grid.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_workspace
def delete(workspace: Workspace, name: str, yes: bool) -> None:
    """Take a grid away; its folder moves to grids/.removed."""
    opened = Grid.open(workspace, name)
    if yes or click.confirm(f"Take the grid {name} with {opened.look().count(CellState.DONE)} videos away?"):
        opened.delete()
        click.echo(f"moved to {workspace.grids / '.removed'}")


# ---- what people think


def _of_a_video(function: Callable[..., None]) -> Callable[..., None]:
    """The arguments of a command that marks a video, or takes the mark back."""
    for argument in (
        click.option("--off", is_flag=True, help="Take it back."),
        click.argument("column", type=int),
        click.argument("row", type=int),
        click.argument("name"),
    ):
        function = argument(function)
    return function


@grid.command()
@_of_a_video
@with_workspace
def star(workspace: Workspace, name: str, row: int, column: int, off: bool) -> None:
    """Star the video in a row and a column, counted from 1."""
    opened = Grid.open(workspace, name)
    opened.mark(_cell(opened, row, column).key, starred=not off)
    click.echo("not starred any more" if off else "starred")


@grid.command()
@_of_a_video
@with_workspace
def reject(workspace: Workspace, name: str, row: int, column: int, off: bool) -> None:
    """Reject the video in a row and a column, counted from 1."""
    opened = Grid.open(workspace, name)
    opened.mark(_cell(opened, row, column).key, rejected=not off)
    click.echo("not rejected any more" if off else "rejected")


@grid.command()
@click.argument("name")
@click.argument("row", type=int)
@click.argument("better", type=int)
@click.argument("other", type=int)
@click.option("--tie", is_flag=True, help="Neither is better.")
@with_workspace
def vote(workspace: Workspace, name: str, row: int, better: int, other: int, tie: bool) -> None:
    """Note that in a row the video of column BETTER beats that of column OTHER, counted from 1; prints the votes."""
    opened = Grid.open(workspace, name)
    first, second = _cell(opened, row, better).key, _cell(opened, row, other).key
    opened.vote(first, second, "" if tie else first)
    _print_votes(opened, opened.look())


@grid.command()
@click.argument("name")
@click.argument("column", type=int)
@click.option("--why", default="", metavar="TEXT", help="Why, for the run's page.")
@with_workspace
def best(workspace: Workspace, name: str, column: int, why: str) -> None:
    """Tell the run that a column's checkpoint, counted from 1, is its best: it is starred there."""
    click.echo(Grid.open(workspace, name).choose_best(column - 1, why))


def _cell(opened: Grid, row: int, column: int) -> Cell:
    cells = opened.look().cells
    if not (1 <= row <= len(cells) and 1 <= column <= len(cells[0])):
        raise ConfigError(f"the grid has {len(cells)} rows and {len(cells[0])} columns: count both from 1")
    return cells[row - 1][column - 1]


# ---- drawing and printing


def _draw(opened: Grid, wait: bool) -> int:
    """Ask for what is missing and follow it; the exit code says whether all is there."""
    try:
        asked = opened.ask()
    except WorkbenchError:
        click.echo(f"the grid is kept: workbench grid extend {opened.name} draws what is missing", err=True)
        raise
    view = opened.look()
    known = view.count(CellState.DONE)
    click.echo(f"{len(view.all)} videos, {known} there, {asked} to be drawn")
    if wait and (asked or view.going):
        _watch(opened)
    view = opened.look()
    if wait and view.count(CellState.DONE):
        opened.measure()
        jobs.wait(opened.folder / ".numbers")
        view = opened.look()
    _print(opened, view)
    return int(ExitCode.BUG) if wait and not view.complete else 0


def _watch(opened: Grid) -> None:
    """Until nothing is drawn or waits any more; a line that changes on a terminal, one now and then elsewhere."""
    live, told = sys.stderr.isatty(), ""
    try:
        while (view := opened.look()).going:
            opened.follow(view)
            left = "" if view.seconds_left is None else f", about {duration(view.seconds_left)} left"
            now = next((cell for cell in view.all if cell.state is CellState.DRAWING), None)
            doing = "" if now is None else f", {now.message or f'step {now.step} of {now.total}'}"
            line = f"{view.count(CellState.DONE)} of {len(view.all)} done{doing}{left}"
            if live and line != told:
                click.echo(f"\r\x1b[K{line}", nl=False, err=True)
            told = line
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        click.echo(f"\nthe drawing goes on: workbench grid show {opened.name}", err=True)
        raise
    if live:
        click.echo("\r\x1b[K", nl=False, err=True)


def _print(opened: Grid, view: GridState) -> None:
    rows = []
    for line, cells in enumerate(view.cells, 1):
        for place, cell in enumerate(cells, 1):
            said = {one.name: one for one in measurements.in_words(cell.numbers)}
            mark = "star" if cell.starred else "reject" if cell.rejected else ""
            rows.append(
                [
                    f"{line},{place}", view.rows[line - 1].prompt[:40] if place == 1 else "",
                    view.columns[place - 1].name, WORDS[cell.state] + (" (older LoRA file)" if cell.outdated else ""),
                    *(said[name].value if name in said else "" for name in ("distance", "motion", "sharpness")),
                    said["nearest"].words if "nearest" in said else "", mark,
                    str(_short(cell.video, opened)) if cell.video else cell.message,
                ]
            )  # fmt: skip
    heads = ("", "prompt", "column", "", "from base", "motion", "sharpness", "training clips", "mark", "file")
    print_table(heads, rows, right=("from base", "motion", "sharpness"))
    if opened.marked.votes:
        _print_votes(opened, view)
    if view.seconds_left is not None:
        click.echo(f"about {duration(view.seconds_left)} left")
    click.echo(f"{view.count(CellState.DONE)} of {len(view.all)} videos in {opened.folder}")


def _print_votes(opened: Grid, view: GridState) -> None:
    tallies = marks.tallies(view.plan, opened.marked.votes)
    rows = [
        [column.name, f"{one.won}", f"{one.votes}", one.word]
        for column, one in zip(view.columns, tallies, strict=True)
    ]  # fmt: skip
    print_table(("column", "won", "votes", ""), rows, right=("won", "votes"))


def _short(video: Path, opened: Grid) -> Path:
    return video.relative_to(opened.folder)
