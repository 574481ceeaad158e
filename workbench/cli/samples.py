"""`workbench sample`, `samples decode` and `samples export`: request videos and wait, or write them to files."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

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
from workbench.cli.printing import print_json, say, say_lines
from workbench.errors import ConfigError, ExitCode
from workbench.form_rules import needless
from workbench.operations import samples as operations
from workbench.operations.samples import request_of
from workbench.sampler import queue
from workbench.sampler.inputs import kept
from workbench.sampler.samples import SUFFIXES, Samples, joins_scenes, settings_of, write_samples
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.sampler.view import report, request_view
from workbench.workspace import Workspace, read_json, writing

CONFIG_HELP = "Settings and prompt from a video made here, the JSON beside one, or a JSON file of settings"
JOIN_HELP = "With --scenes: also copy the video that joins them to this file."
POLL_SECONDS = 0.1


@click.command(cls=SettingsCommand)
@click.argument("prompt", required=False)
@settings_flags(BatchSettings)
@settings_flags(SampleSettings, leave_out=("prompt",))
@config_flag(CONFIG_HELP)
@click.option("--join", type=click.Path(path_type=Path), metavar="FILE", help=JOIN_HELP)
@click.option("--verbose", "-v", is_flag=True, help="Print on stderr how each LoRA fitted, seed and steps.")
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
    """Generate videos of PROMPT and print the path of each. PROMPT - reads it from stdin, @FILE a prompt a line.

    The first one loads the model; the worker keeps it warm for the next. --seed random gives another video each time.
    --config VIDEO.mp4 generates a video again, with the flags that are given changed.
    """
    if prompt is None and not config:
        raise click.UsageError("Missing argument 'PROMPT': describe the video, or give --config FILE.")
    known = BatchSettings(scenes=any(map(joins_scenes, config)), each_line=(prompt or "").startswith("@"))
    prompt = _read(prompt)
    batch = settings_from(BatchSettings, (), flags, known)
    if join is not None:
        if not batch.scenes or batch.videos > 1:
            raise click.UsageError("--join makes one video of scenes: give --scenes, and --videos 1.")
        if join.suffix.lower() != ".mp4":
            raise ConfigError(f"join is {str(join)!r}, which is no mp4: give a name that ends in .mp4")
        if join.exists():
            raise ConfigError(f"join is {str(join)!r}, which exists: name a new file")
    if flags.get("seed") == "random":
        flags["seed"] = ""  # as in the form: an empty one
    base = _base(workspace, config) if config else None
    fixed = {} if prompt is None else {"prompt": prompt.strip()}
    settings = settings_from(SampleSettings, (), flags, base, **fixed)
    for sentence in needless(settings, given_flags(flags)):
        say(sentence, err=True)
    many = kept(workspace, expand(settings, batch))
    every = generate_all(workspace, many, chains=batch.chains)
    code = _report(every, as_json, verbose)
    whole = every[-1].video  # what joins the scenes comes after them; one scene is all there is
    if join is not None and code == 0 and whole is not None:
        with writing(join):
            shutil.copyfile(whole, join)
        if not as_json:
            say(join)
    return code


def _report(every: Sequence[queue.Progress], as_json: bool, verbose: bool) -> int:
    """Print what was generated; returns the exit code of the first sample that failed, else 0."""
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


def _read(prompt: str | None) -> str | None:
    """The prompt, read from stdin for "-", and for @FILE from the file: one a line."""
    if prompt == "-":
        return sys.stdin.read()
    return "\n".join(file_lines("prompt", prompt)) if prompt else prompt


def _base(workspace: Workspace, config: Sequence[Path]) -> SampleSettings:
    """The settings of videos and files, those of a later one over those of an earlier one."""
    base = SampleSettings()
    for path in config:
        base = base.changed(**settings_of(path, workspace).model_dump(mode="json", exclude_unset=True))
    return base


def generate_all(workspace: Workspace, many: Sequence[SampleSettings], chains: int = 0) -> list[queue.Progress]:
    """Generate samples, with progress on a terminal's stderr; returns how each ended. Ctrl-C cancels those not done.

    chains: see `queue.submit_all`
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


# ---- samples that there are

several = click.argument("ids", nargs=-1, required=True, metavar="ID...")


@click.command()
@several
@with_workspace
def decode(workspace: Workspace, ids: tuple[str, ...]) -> int:
    """Make the videos of samples that were kept as latents (--latents-only), and print the path of each."""
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
    """Write samples to TARGET, a new file. A .zip has each video by a readable name, with its settings beside it. A
    .gif shows them side by side, a row for each prompt; a .png does the same with samples of one frame. A name without
    an ending becomes a folder with a GIF for each prompt, or a PNG where its samples are pictures."""
    if target.suffix not in ("", *SUFFIXES) or target.exists():
        rule = f"a new file that ends in {', '.join(SUFFIXES)}, or a new folder"
        raise ConfigError(f"target is {target.name}, must be {rule}: choose another name")
    found = [Samples(workspace).get(name) for name in dict.fromkeys(ids)]
    write_samples(found, target.absolute(), workspace.root)
    say(target)
