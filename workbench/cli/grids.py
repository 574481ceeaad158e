"""`workbench grid`: grids of videos in a shell: make, extend, show, mark, export, delete.

Ctrl-C stops watching, not the generation; `grid stop` cancels what is not generated yet. Not covered: grids themselves
(workbench.compare).
"""

from __future__ import annotations

import sys
from typing import Any

import click

from workbench import jobs
from workbench.cli.options import (
    SettingsCommand,
    json_flag,
    print_json,
    settings_flags,
    settings_from,
    with_opened,
    with_workspace,
    yes_flag,
)
from workbench.cli.tables import print_table
from workbench.compare import CellState, Grid, GridSettings, GridState
from workbench.compare.export import FORMATS, export_cell, export_page
from workbench.compare.grid import MEASURING
from workbench.compare.snapshot import snapshot
from workbench.compare.suggestions import base_of
from workbench.errors import ConfigError, ExitCode, WorkbenchError
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

# Settings of a sample that belong to rows and columns.
OWN = ("prompt", "image", "seed", "loras", "guidance_scale", "steps", "scheduler", "video", "strength", "continue_from")
EXTENDED = ("prompts", "seeds", "checkpoints", "scales", "loras", "guidance", "steps", "schedulers", "column_seeds")
WORDS = {CellState.MISSING: "not generated"}
with_grid = with_opened(Grid.open)
wait_flag = click.option(
    "--wait/--no-wait", default=True, help="Wait until all is generated; else the worker goes on alone."
)


@click.group()
def grid() -> None:
    """Compare videos of the same prompts: checkpoints, LoRA scales, guidance, LoRAs ... in columns.

    workbench grid make --run cats --checkpoints base,150,300,450 --scales 0.5,0.75,1
    """


@grid.command("list")
@json_flag
@with_workspace
def list_(workspace: Workspace, as_json: bool) -> None:
    """All grids, newest first."""
    grids = Grid.all(workspace)
    if as_json:
        states = [(one, one.state()) for one in grids]
        print_json(
            [
                {
                    "name": one.name,
                    "folder": str(one.folder),
                    "done": state.count(CellState.DONE),
                    "videos": len(state.all),
                }
                for one, state in states
            ]
        )
        return
    if not grids:
        click.echo("no grid yet: workbench grid make --run NAME")
    for one in grids:
        state = one.state()
        click.echo(f"{one.name}  {state.count(CellState.DONE)} of {len(state.all)} videos  {one.folder}")


@grid.command(cls=SettingsCommand)
@wait_flag
@settings_flags(GridSettings)
@settings_flags(SampleSettings, leave_out=OWN)
@with_workspace
def make(workspace: Workspace, wait: bool, **flags: Any) -> int:
    """Make a grid and generate its videos; a run alone gives its preview prompts by base model and last checkpoints.

    Values of one axis stand with commas between them; at most two things may have several values.
    """
    own = {name: flags.pop(name) for name in GridSettings.model_fields}  # some of a sample's have the same name
    settings = settings_from(GridSettings, None, own)
    base = settings_from(SampleSettings, None, flags, base=base_of(workspace, settings))
    made = Grid.create(workspace, settings, base)
    click.echo(f"grid {made.name}: {made.folder}")
    return _generate(made, wait)


@grid.command(cls=SettingsCommand)
@with_grid
@wait_flag
@settings_flags(GridSettings, only=EXTENDED)
def extend(opened: Grid, wait: bool, **flags: Any) -> int:
    """Add columns or rows; only their videos are generated. Without any: generate what is missing."""
    more = {axis: values for axis, values in flags.items() if values}
    if more:
        opened.extend(**more)
    return _generate(opened, wait)


@grid.command()
@with_grid
@json_flag
def show(opened: Grid, as_json: bool) -> None:
    """The videos of a grid: a line each, with its measurements, its mark and its file."""
    state = opened.state()
    opened.maintain(state)
    if as_json:
        print_json(snapshot(opened, state, details=True))
    else:
        _print(opened, state)


@grid.command()
@with_grid
@click.option("--cell", nargs=2, type=int, metavar="ROW COLUMN", help="Only this video, counted from 1.")
@click.option("--format", type=click.Choice(FORMATS), default="mp4", help="Of a single video.")
def export(opened: Grid, cell: tuple[int, int] | None, format: str) -> None:
    """Write the grid as a page that needs nothing else, or one of its videos; prints where it is."""
    click.echo(str(export_cell(opened, _key(opened, *cell), format) if cell else export_page(opened)))


@grid.command()
@with_grid
def stop(opened: Grid) -> None:
    """Cancel what is not generated yet; `grid extend NAME` requests it again."""
    opened.cancel()
    click.echo("what was not generated yet is cancelled")


@grid.command()
@with_grid
@yes_flag
def delete(opened: Grid, yes: bool) -> None:
    """Remove a grid; its folder moves to grids/.removed."""
    if yes or click.confirm(f"Remove the grid {opened.name} with {opened.state().count(CellState.DONE)} videos?"):
        opened.delete()
        click.echo(f"moved to {opened.folder.parent / '.removed'}")


# ---- what people think


def _mark(name: str, mark: str, help: str) -> None:
    """A command that sets or takes back a mark of a video."""

    @grid.command(name, help=f"{help} the video in a row and a column, counted from 1.")
    @with_grid
    @click.argument("row", type=int)
    @click.argument("column", type=int)
    @click.option("--off", is_flag=True, help="Take it back.")
    def command(opened: Grid, row: int, column: int, off: bool) -> None:
        opened.mark(_key(opened, row, column), **{mark: not off})
        click.echo(f"not {mark} any more" if off else mark)


_mark("star", "starred", "Star")
_mark("reject", "rejected", "Reject")


@grid.command()
@with_grid
@click.argument("row", type=int)
@click.argument("better", type=int)
@click.argument("other", type=int)
@click.option("--tie", is_flag=True, help="Neither is better.")
def vote(opened: Grid, row: int, better: int, other: int, tie: bool) -> None:
    """Note that in a row the video of column BETTER beats that of column OTHER, counted from 1; prints the votes."""
    first, second = _key(opened, row, better), _key(opened, row, other)
    opened.vote(first, second, "" if tie else first)
    _print_votes(snapshot(opened))


@grid.command()
@with_grid
@click.argument("column", type=int)
@click.option("--why", default="", metavar="TEXT", help="Why, for the run's page.")
def best(opened: Grid, column: int, why: str) -> None:
    """Make a column's checkpoint, counted from 1, the best of its run, which stars it."""
    click.echo(opened.choose_best(column - 1, why))


def _key(opened: Grid, row: int, column: int) -> str:
    keys = opened.plan.keys
    if not (1 <= row <= len(keys) and 1 <= column <= len(keys[0])):
        raise ConfigError(f"the grid has {len(keys)} rows and {len(keys[0])} columns: count both from 1")
    return keys[row - 1][column - 1]


# ---- generating and printing


def _generate(opened: Grid, wait: bool) -> int:
    """Request what is missing and follow it; the exit code says whether all is there."""
    try:
        requested = opened.generate()
    except WorkbenchError:
        click.echo(f"the grid is kept: workbench grid extend {opened.name} generates what is missing", err=True)
        raise
    state = opened.state()
    done = state.count(CellState.DONE)
    click.echo(f"{len(state.all)} videos, {done} there, {requested} to be generated")
    if wait:
        _watch(opened)
        if opened.state().count(CellState.DONE):
            opened.measure()
            jobs.wait(opened.folder / MEASURING)
        state = opened.state()
    _print(opened, state)
    return int(ExitCode.BUG) if wait and not state.complete else 0


def _watch(opened: Grid) -> None:
    """Wait until nothing is pending; a terminal has a line that changes meanwhile."""
    if not sys.stderr.isatty():
        opened.wait()
        return

    def line(state: GridState) -> None:
        now = next((cell for cell in state.all if cell.state is CellState.GENERATING), None)
        doing = "" if now is None else f" · {now.message or f'step {now.step} of {now.total}'}"
        click.echo(f"\r\x1b[K{snapshot(opened, state)['progress']['text']}{doing}", nl=False, err=True)

    try:
        opened.wait(each=line)
    except KeyboardInterrupt:
        click.echo(f"\nthe generation goes on: workbench grid show {opened.name}", err=True)
        raise
    click.echo("\r\x1b[K", nl=False, err=True)


def _print(opened: Grid, state: GridState) -> None:
    data = snapshot(opened, state)
    rows = []
    for row, cells in enumerate(data["cells"]):
        for column, cell in enumerate(cells):
            found = {one["name"]: one for one in cell.get("measurements", ())}
            values = [found[name]["value"] if name in found else "" for name in ("distance", "motion", "sharpness")]
            rows.append(
                [
                    f"{row + 1},{column + 1}",
                    "" if column else data["rows"][row]["prompt"][:40],
                    data["columns"][column]["name"],
                    WORDS.get(cell["state"], cell["state"]) + (" (older LoRA file)" if cell["outdated"] else ""),
                    *values,
                    found["nearest"]["words"] if "nearest" in found else "",
                    "star" if cell["starred"] else "reject" if cell["rejected"] else "",
                    cell["url"].removeprefix(f"{opened.folder}/") if "url" in cell else cell["message"],
                ]
            )
    heads = ("", "prompt", "column", "", "from base", "motion", "sharpness", "training clips", "mark", "file")
    print_table(heads, rows, right=("from base", "motion", "sharpness"))
    if data["votes"]:
        _print_votes(data)
    click.echo(f"{data['progress']['text']} in {opened.folder}")


def _print_votes(data: dict[str, Any]) -> None:
    rows = [[one["name"], str(one["won"]), str(one["votes"]), one["confidence"]] for one in data["columns"]]
    print_table(("column", "won", "votes", ""), rows, right=("won", "votes"))
