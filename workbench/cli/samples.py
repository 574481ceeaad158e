"""The commands that generate videos and wait for them: `sample`, `samples decode`, `grid make` and `grid extend`.

Also `samples export`, which writes them to files. Ctrl-C cancels samples, but only stops watching a grid; `grid stop`
cancels its videos.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import Bar
from workbench.cli.options import (
    SettingsCommand,
    config_flag,
    file_lines,
    given_flags,
    json_flag,
    settings_flags,
    settings_from,
    with_workspace,
)
from workbench.cli.printing import print_json, print_table, say, say_lines, say_over
from workbench.compare import CellState, Grid, GridSettings, GridState
from workbench.compare.grid import MEASURING
from workbench.compare.snapshot import snapshot
from workbench.compare.suggestions import base_of
from workbench.errors import ConfigError, ExitCode, WorkbenchError
from workbench.form_rules import needless
from workbench.operations import samples as operations
from workbench.operations.grids import AXES, OWN
from workbench.operations.grids import view as view_of_grid
from workbench.operations.samples import request_of
from workbench.sampler import queue
from workbench.sampler.inputs import kept
from workbench.sampler.samples import SUFFIXES, Samples, joins_scenes, settings_of, write_samples
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.sampler.view import report, request_view
from workbench.workspace import Workspace, read_json, writing

CONFIG_HELP = "Settings and prompt from a generated video, the JSON beside it, or a JSON file of settings"
JOIN_HELP = "With --scenes, copy the joined video to this file."
POLL_SECONDS = 0.1


@click.command(cls=SettingsCommand)
@click.argument("prompt", required=False)
@settings_flags(BatchSettings)
@settings_flags(SampleSettings, leave_out=("prompt",))
@config_flag(CONFIG_HELP)
@click.option("--join", type=click.Path(path_type=Path), metavar="FILE", help=JOIN_HELP)
@click.option("--verbose", "-v", is_flag=True, help="Print seed, steps and LoRA matches on stderr.")
@json_flag
@with_workspace
def sample(
    workspace: Workspace,
    prompt: str | None,
    config: tuple[Path, ...],
    join: Path | None,
    verbose: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Generate videos of PROMPT and print their paths. "-" reads the prompt from stdin, @FILE one prompt per line.

    The worker keeps the model loaded for the next call. --seed random gives a different video each time. --config
    VIDEO.mp4 repeats a video with its settings; flags change them.
    """
    if prompt is None and not config:
        raise click.UsageError("Missing argument 'PROMPT': describe the video, or give --config FILE.")
    known = BatchSettings(scenes=any(map(joins_scenes, config)), each_line=(prompt or "").startswith("@"))
    if prompt == "-":
        prompt = sys.stdin.read()
    elif prompt:
        prompt = "\n".join(file_lines("prompt", prompt))
    batch = settings_from(BatchSettings, (), flags, known)
    if join is not None:
        if not batch.scenes or batch.videos > 1:
            raise click.UsageError("--join writes one video of scenes: give --scenes, and --videos 1.")
        if join.suffix.lower() != ".mp4":
            raise ConfigError(f"join is {str(join)!r}, must end in .mp4: choose another name")
        if join.exists():
            raise ConfigError(f"join is {str(join)!r}, which exists: name a new file")
    if flags.get("seed") == "random":
        flags["seed"] = ""  # an empty seed is random, as in the form
    base = _settings_of_files(workspace, config) if config else None
    fixed = {} if prompt is None else {"prompt": prompt.strip()}
    settings = settings_from(SampleSettings, (), flags, base, **fixed)
    for sentence in needless(settings, given_flags(flags)):
        say(sentence, err=True)
    many = kept(workspace, expand(settings, batch))
    every = generate_all(workspace, many, chains=batch.chains)
    code = _report(every, as_json, verbose)
    whole = every[-1].video  # the joined video follows its scenes
    if join is not None and code == 0 and whole is not None:
        with writing(join):
            shutil.copyfile(whole, join)
        if not as_json:
            say(join)
    return code


def _report(every: Sequence[queue.Progress], as_json: bool, verbose: bool) -> int:
    """Print the results and return the exit code of the first sample that failed, else 0."""
    code = 0
    if as_json:
        print_json([request_of(done).model_dump(mode="json") for done in every])
    for done in every:
        if done.video is None:
            say(f"Error: {done.message}", err=True)
            code = code or int(done.exit_code or ExitCode.BUG)
            continue
        if not as_json:
            say(done.video)
        if verbose:
            say_lines(report(read_json(done.video.with_suffix(".json"))), err=True)
    return code


def _settings_of_files(workspace: Workspace, config: Sequence[Path]) -> SampleSettings:
    """Return the settings of videos and JSON files. Later files win."""
    base = SampleSettings()
    for path in config:
        base = base.changed(**settings_of(path, workspace).model_dump(mode="json", exclude_unset=True))
    return base


def generate_all(workspace: Workspace, many: Sequence[SampleSettings], chains: int = 0) -> list[queue.Progress]:
    """Generate samples with progress on stderr, and return how each ended. Ctrl-C cancels the unfinished ones.

    chains: see `queue.submit_all`.
    """
    ids = queue.submit_all(workspace, many, chains=chains)
    ended: list[queue.Progress] = []
    bar = Bar(on_stderr=True) if sys.stderr.isatty() else None
    try:
        for number, sample_id in enumerate(ids, 1):
            which = f"video {number} of {len(ids)}: " if len(ids) > 1 else ""
            while not (now := queue.progress(workspace, sample_id)).state.over:
                if bar is not None:
                    view = request_view(now)
                    bar.show(which + view.status, now.step, now.total, view.message)
                queue.revive(workspace)
                time.sleep(POLL_SECONDS)
            ended.append(now)
    except KeyboardInterrupt:
        queue.cancel_all(workspace, ids)
        raise
    finally:
        if bar is not None:
            bar.close()
    return ended


# ---- existing samples

several = click.argument("ids", nargs=-1, required=True, metavar="ID...")


@click.command()
@several
@with_workspace
def decode(workspace: Workspace, ids: tuple[str, ...]) -> int:
    """Decode samples that were generated with --latents-only, and print the path of each video."""
    code = 0
    for one in operations.decode(workspace, ids):
        done = queue.wait(workspace, one.id)
        say(str(done.video) if done.video else f"Error: {done.message}", err=done.video is None)
        code = code or (0 if done.video else int(done.exit_code or ExitCode.BUG))
    return code


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@several
@with_workspace
def export(workspace: Workspace, target: Path, ids: tuple[str, ...]) -> None:
    """Write samples to TARGET, a new file or folder.

    A .zip holds the videos under readable names, with their settings. A .gif shows them side by side, with a row per
    prompt; a .png does the same for pictures. Without a suffix, TARGET is a folder with a GIF or PNG per prompt.
    """
    if target.suffix not in ("", *SUFFIXES) or target.exists():
        rule = f"a new file that ends in {', '.join(SUFFIXES)}, or a new folder"
        raise ConfigError(f"target is {target.name}, must be {rule}: choose another name")
    found = [Samples(workspace).get(name) for name in dict.fromkeys(ids)]
    write_samples(found, target.absolute(), workspace.root)
    say(target)


# ---- grids

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
    return _fill(made, wait)


@click.command(cls=SettingsCommand)
@click.argument("name")
@with_workspace
@wait_flag
@settings_flags(GridSettings, only=AXES)
def extend(workspace: Workspace, name: str, wait: bool, **flags: Any) -> int:
    """Add columns or rows and generate only their videos. Without flags, generate the missing ones."""
    opened = Grid.open(workspace, name)
    more = {axis: values for axis, values in flags.items() if values}
    if more:
        opened.extend(**more)
    return _fill(opened, wait)


def _fill(opened: Grid, wait: bool) -> int:
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
        _wait_for(opened)
        if opened.state().count(CellState.DONE):
            opened.measure()
            jobs.wait(opened.folder / MEASURING)
        state = opened.state()
    seen = view_of_grid(opened)
    print_table(*seen.table())
    say_lines([*seen.text(), opened.folder])
    return int(ExitCode.BUG) if wait and not state.complete else 0


def _wait_for(opened: Grid) -> None:
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
