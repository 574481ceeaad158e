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
    settings_flags,
    settings_from,
    with_opened,
    with_workspace,
    yes_flag,
)
from workbench.cli.printing import ask, print_json, say, say_lines, say_over
from workbench.cli.tables import print_table
from workbench.compare import CellState, Grid, GridSettings, GridState
from workbench.compare.export import FORMATS, export_cell, export_page, export_tiles
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
    states = [_state_or_problem(one) for one in grids]
    if as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "folder": str(one.folder),
                    "done": state and state.count(CellState.DONE),
                    "videos": state and len(state.all),
                    "problem": problem,
                }
                for one, (state, problem) in zip(grids, states, strict=True)
            ]
        )
        return
    if not grids:
        say("no grid yet: workbench grid make --run NAME")
    for one, (state, problem) in zip(grids, states, strict=True):
        done = f"{state.count(CellState.DONE)} of {len(state.all)} videos  {one.folder}" if state else problem
        say(f"{one.name}  {done}")


def _state_or_problem(grid: Grid) -> tuple[GridState | None, str]:
    """A grid's state, or why it cannot be read: one damaged grid costs the list none of the others."""
    try:
        return grid.state(), ""
    except WorkbenchError as error:
        return None, str(error)


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
    settings = settings_from(GridSettings, (), own)
    base = settings_from(SampleSettings, (), flags, base=base_of(workspace, settings))
    made = Grid.create(workspace, settings, base)
    say(f"grid {made.name}: {made.folder}")
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
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Of a single video, else mp4; without --cell gif or png: all videos side by side, as one file.",
)
def export(opened: Grid, cell: tuple[int, int] | None, format: str | None) -> None:
    """Write the grid as a page that needs nothing else, as one GIF or PNG, or one of its videos; prints where it is."""
    if format == "mp4" and not cell:
        raise ConfigError("format is mp4, of a single video: give --cell, or choose gif or png")
    if cell:
        path = export_cell(opened, _key(opened, *cell), format or "mp4")
    else:
        path = export_tiles(opened, format) if format else export_page(opened)
    say(path)


@grid.command()
@with_grid
def stop(opened: Grid) -> None:
    """Cancel what is not generated yet; `grid extend NAME` requests it again."""
    opened.cancel()
    say("what was not generated yet is cancelled")


@grid.command()
@with_grid
@yes_flag
def delete(opened: Grid, yes: bool) -> None:
    """Remove a grid; its folder moves to grids/.removed."""
    if yes or ask(f"Remove the grid {opened.name} with {opened.state().count(CellState.DONE)} videos?"):
        opened.delete()
        say(f"moved to {opened.folder.parent / '.removed'}")


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
        say(f"not {mark} any more" if off else mark)


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
    say(opened.choose_best(column - 1, why))


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
        say(f"the grid is kept: workbench grid extend {opened.name} generates what is missing", err=True)
        raise
    state = opened.state()
    done = state.count(CellState.DONE)
    say(f"{len(state.all)} videos, {done} there, {requested} to be generated")
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
        say_over(f"{snapshot(opened, state)['progress']['text']}{doing}", err=True)

    try:
        opened.wait(each=line)
    except KeyboardInterrupt:
        say_lines(["", f"the generation goes on: workbench grid show {opened.name}"], err=True)
        raise
    say_over(err=True)


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
    say(f"{data['progress']['text']} in {opened.folder}")


def _print_votes(data: dict[str, Any]) -> None:
    rows = [[one["name"], str(one["won"]), str(one["votes"]), one["confidence"]] for one in data["columns"]]
    print_table(("column", "won", "votes", ""), rows, right=("won", "votes"))
