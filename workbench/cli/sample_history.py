"""The commands of `workbench samples` that wait for videos or write files; the others are operations."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.options import with_workspace
from workbench.cli.printing import say
from workbench.errors import ConfigError, ExitCode
from workbench.operations import samples as operations
from workbench.sampler import queue
from workbench.sampler.samples import SUFFIXES, Samples, write_samples
from workbench.workspace import Workspace

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


SECTION, COMMANDS = "", (decode, export)
