"""The commands of `workbench grid` that wait for videos; the others are operations.

Ctrl-C stops watching, not the generation; `grid stop` cancels the videos that are still pending.
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
    "--wait/--no-wait", default=True, help="Wait for the videos, or leave them to the background worker."
)


@click.command(cls=SettingsCommand)
@wait_flag
@settings_flags(GridSettings)
@settings_flags(SampleSettings, leave_out=OWN)
@with_workspace
def make(workspace: Workspace, wait: bool, **flags: Any) -> int:
    """Make a grid and generate its videos.

    A run without axes compares its preview prompts across the base model and the last checkpoints. Separate the values
    of an axis with commas; at most two axes may have several values.
    """
    own = {name: flags.pop(name) for name in GridSettings.model_fields}  # samples have some of the same names
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
    """Add columns or rows and generate only their videos. Without flags, generate the missing ones."""
    more = {axis: values for axis, values in flags.items() if values}
    if more:
        opened.extend(**more)
    return _generate(opened, wait)


def _generate(opened: Grid, wait: bool) -> int:
    """Request the missing videos and wait for them. Exit code 0 means that the grid is complete."""
    try:
        requested = opened.generate()
    except WorkbenchError:
        say(f"the grid is kept. Generate its missing videos: workbench grid extend {opened.name}", err=True)
        raise
    state = opened.state()
    done = state.count(CellState.DONE)
    say(f"{len(state.all)} videos, {done} ready, {requested} to generate")
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
    """Wait until no video is pending, with a progress line on a terminal."""
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
        say_lines(["", f"Generation continues: workbench grid show {opened.name}"], err=True)
        raise
    say_over(err=True)
