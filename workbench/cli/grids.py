"""The commands of `workbench grid` that wait for videos; the others are operations.

Ctrl-C stops watching, not the generation; `grid stop` cancels what is not generated yet.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from workbench import jobs
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_opened, with_workspace
from workbench.cli.printing import print_table, say, say_lines, say_over
from workbench.compare import CellState, Grid, GridSettings, GridState
from workbench.compare.grid import MEASURING
from workbench.compare.snapshot import snapshot
from workbench.compare.suggestions import base_of
from workbench.errors import ExitCode, WorkbenchError
from workbench.operations.grids import AXES, OWN, view
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

wait_flag = click.option(
    "--wait/--no-wait", default=True, help="Wait until all is generated; else the worker goes on alone."
)


@click.command(cls=SettingsCommand)
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


@click.command(cls=SettingsCommand)
@with_opened(Grid.open)
@wait_flag
@settings_flags(GridSettings, only=AXES)
def extend(opened: Grid, wait: bool, **flags: Any) -> int:
    """Add columns or rows; only their videos are generated. Without any: generate what is missing."""
    more = {axis: values for axis, values in flags.items() if values}
    if more:
        opened.extend(**more)
    return _generate(opened, wait)


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
    seen = view(opened)
    print_table(*seen.table())
    say_lines([*seen.text(), opened.folder])
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
