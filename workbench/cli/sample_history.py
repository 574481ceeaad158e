"""`workbench samples`: earlier samples, listed, searched, starred, moved to the bin and back, exported.

Not covered: generating (samples), what is known of a sample (workbench.sampler.samples).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import click

from workbench.cli.options import json_flag, with_workspace
from workbench.cli.printing import print_json, say
from workbench.cli.tables import print_table
from workbench.errors import ConfigError, ExitCode
from workbench.quantities import counted, moment
from workbench.sampler import queue
from workbench.sampler.downloads import SUFFIXES, write_samples
from workbench.sampler.samples import SampleQuery, Samples
from workbench.sampler.view import LATENTS_ONLY, line
from workbench.workspace import Workspace

HEADS = ("id", "generated", "", "prompt", "LoRAs", "seed")
MOST = 20
DAY = click.DateTime(["%Y-%m-%d"])


@click.group(invoke_without_command=True)
@click.option("--search", default="", metavar="WORDS", help="Words that all occur in prompt, model, LoRAs or seed.")
@click.option("--starred", "show", flag_value="starred", default=None, help="Only starred ones.")
@click.option("--removed", "show", flag_value="removed", help="Those in the bin.")
@click.option("--since", type=DAY, metavar="YYYY-MM-DD", help="Generated on this day or later.")
@click.option("--until", type=DAY, metavar="YYYY-MM-DD", help="Generated on this day or before.")
@click.option("--limit", type=click.IntRange(1), default=MOST, show_default=True, metavar="N", help="How many at most.")
@json_flag
@with_workspace
@click.pass_context
def samples(
    context: click.Context,
    workspace: Workspace,
    search: str,
    show: Literal["starred", "removed"] | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """Earlier samples: list, search, star, remove, restore, export; cancel those that wait.

    Without a command: list them, newest first.
    """
    if context.invoked_subcommand is not None:
        return
    query = SampleQuery(
        search=search[:1000],
        show=show or "all",
        since=since.timestamp() if since else None,
        until=(until + timedelta(days=1)).timestamp() if until else None,
    )
    found = [line(one) for one in Samples(workspace).history(limit, query)]
    if as_json:
        print_json(found)
    elif found:
        print_table(HEADS, [_row(one) for one in found], ("seed",))
    else:
        say("no sample: workbench sample PROMPT generates one")


def _row(one: dict[str, object]) -> tuple[str, ...]:
    when = moment(float(str(one["created"])))
    loras = ", ".join(map(str, one["loras"] if isinstance(one["loras"], list) else ()))
    prompt = " ".join(str(one["problem"] or one["prompt"]).split())
    prompt += f" ({LATENTS_ONLY})" if one["latents"] else ""
    return (str(one["id"]), when, "★" if one["starred"] else "", prompt, loras, str(one["seed"]))


several = click.argument("ids", nargs=-1, required=True, metavar="ID...")


def _known(workspace: Workspace, ids: Sequence[str]) -> tuple[Samples, list[str]]:
    """The ids, each once, when all of them are in the history. Raises ConfigError before anything is changed."""
    found, names = Samples(workspace), list(dict.fromkeys(ids))
    for name in names:
        found.get(name)
    return found, names


@samples.command()
@several
@with_workspace
def star(workspace: Workspace, ids: tuple[str, ...]) -> None:
    """Star samples."""
    _star(workspace, ids, True)


@samples.command()
@several
@with_workspace
def unstar(workspace: Workspace, ids: tuple[str, ...]) -> None:
    """Take the stars of samples away."""
    _star(workspace, ids, False)


def _star(workspace: Workspace, ids: Sequence[str], starred: bool) -> None:
    found, names = _known(workspace, ids)
    for name in names:
        found.star(name, starred)


@samples.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--all", "every", is_flag=True, help="All that wait or are being generated, but for those of grids.")
@with_workspace
def cancel(workspace: Workspace, ids: tuple[str, ...], every: bool) -> None:
    """Cancel samples that are not done: those of these ids, or all of them."""
    if bool(ids) == every:
        raise click.UsageError("Name the samples to cancel, or give --all.")
    for name in ids:
        queue.progress(workspace, name)  # raises for an unknown id, before anything is changed
    names = queue.pending_samples(workspace) if every else list(dict.fromkeys(ids))
    queue.cancel_all(workspace, names)
    say(f"{counted(len(names), 'sample')} cancelled" if names else "no sample waits")


@samples.command()
@several
@with_workspace
def decode(workspace: Workspace, ids: tuple[str, ...]) -> int:
    """Make the videos of samples that were kept as latents (--latents-only), and print the path of each."""
    code, names = 0, _known(workspace, ids)[1]
    for name in names:
        queue.decode(workspace, name)
    for done in [queue.wait(workspace, name) for name in names]:
        say(str(done.video) if done.video else f"Error: {done.message}", err=done.video is None)
        code = code or (0 if done.video else int(done.exit_code or ExitCode.BUG))
    return code


@samples.command()
@several
@with_workspace
def remove(workspace: Workspace, ids: tuple[str, ...]) -> None:
    """Move samples to the bin. `restore` brings them back."""
    found, names = _known(workspace, ids)
    for name in names:
        found.remove(name)
        say(f"{name} is in the bin. To restore it: workbench samples restore {name}")


@samples.command()
@several
@with_workspace
def restore(workspace: Workspace, ids: tuple[str, ...]) -> None:
    """Move samples back from the bin; `workbench samples --removed` lists it."""
    found = Samples(workspace)
    for name in dict.fromkeys(ids):
        say(str(found.restore(name).path))


@samples.command()
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
    found, names = _known(workspace, ids)
    write_samples([found.get(name) for name in names], target.absolute(), workspace.root)
    say(target)
