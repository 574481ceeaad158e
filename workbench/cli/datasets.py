"""`workbench dataset`: import clips, list datasets, look at one, write captions.

Not covered: importing in the background (the page does), removing clips.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from workbench.cli.follow import duration
from workbench.cli.options import with_workspace
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.verdicts import Verdict
from workbench.families import find_model
from workbench.frame_plan import shape_for
from workbench.workspace import Workspace


@click.group()
@click.option("--workspace", metavar="FOLDER", help="The workspace's folder. Else $WORKBENCH_HOME, else ./workspace.")
def dataset(workspace: str | None) -> None:
    """Build datasets of captioned clips."""


@dataset.command("import")
@click.argument("name")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--trigger-word", default="", metavar="WORD", help="Put in front of every caption that lacks it.")
@with_workspace
def import_(workspace: Workspace, name: str, paths: tuple[Path, ...], trigger_word: str) -> None:
    """Take video files or folders of them into the dataset NAME, which is made if need be.

    Captions come from a .txt file beside each video, or from metadata.jsonl or metadata.csv in its folder. Every file
    gets a verdict: taken, mended (how) or refused (why). Importing the same files again changes nothing.
    """
    target = Dataset.ensure(workspace, name, trigger_word)
    with click.progressbar(length=0, label="reading clips", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:

        def progress(done: int, total: int, verdict: Verdict | None) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        verdicts = target.import_files(paths, progress)
    for verdict in verdicts:
        click.echo(verdict.sentence)
    click.echo(f"{target.name}: {target.summary.sentence}")
    click.echo(f"train on it: workbench train --dataset {target.name}")


@dataset.command("list")
@with_workspace
def list_(workspace: Workspace) -> None:
    """Every dataset of the workspace, a line each."""
    found = Dataset.all(workspace)
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        trigger = f", trigger word {one.info.trigger_word!r}" if one.info.trigger_word else ""
        click.echo(f"{one.name:<{width}}  {one.summary.sentence}{trigger}")
    if not found:
        click.echo("no datasets yet: workbench dataset import NAME PATHS...")


@dataset.command()
@click.argument("name")
@click.option("--model", help="Say what this model would see of each clip.")
@with_workspace
def show(workspace: Workspace, name: str, model: str | None) -> None:
    """The clips of a dataset with their captions, and the files that were refused."""
    found = Dataset.open(workspace, name)
    click.echo(f"{found.name}: {found.summary.sentence}\n{found.folder}")
    plans = {plan.clip.file_name: plan for plan in found.plans(shape_for(find_model(model)[1]))} if model else {}
    captions = found.captions
    for clip in found.clips:
        size = f"{clip.width}x{clip.height}, {clip.frames} frames at {clip.fps:g} fps, {duration(clip.seconds)}"
        click.echo(f"\n{clip.file_name}  ({size}, from {clip.source})")
        click.echo(f"  {captions[clip.file_name] or '(no caption)'}")
        if plan := plans.get(clip.file_name):
            click.echo(f"  {plan.sentence}")
    refused: list[Verdict] = [verdict for verdict in found.verdicts if not verdict.usable]
    for verdict in refused:
        click.echo(f"\n{verdict.sentence}")


@dataset.command()
@click.argument("name")
@click.argument("clip")
@click.argument("text")
@with_workspace
def caption(workspace: Workspace, name: str, clip: str, text: str) -> None:
    """Write the caption TEXT for CLIP (its file name or id) of the dataset NAME."""
    changed = Dataset.open(workspace, name).set_caption(clip, text)
    click.echo(f"{changed.file_name}: {changed.text}")
