"""`workbench dataset list|show|remove|restore|history|undo|redo`: what is in a dataset, and what was done to it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import click

from workbench.cli.datasets.tasks import with_dataset
from workbench.cli.options import with_workspace
from workbench.clips.frame_plan import shape_for
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.families import find_model
from workbench.jobs import duration
from workbench.workspace import Workspace


@click.command("list")
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


@click.command()
@with_dataset
@click.option("--model", help="Show the input of this model for each clip.")
@click.option("--json", "as_json", is_flag=True, help="For programs: numbers, next steps and tasks as JSON.")
def show(dataset: Dataset, model: str | None, as_json: bool) -> None:
    """The clips with their captions, and the files that were refused."""
    if as_json:
        shape = shape_for(find_model(model)[1]) if model else None
        click.echo(json.dumps(asdict(dataset.snapshot(shape)), indent=2, ensure_ascii=False))
        return
    click.echo(f"{dataset.name}: {dataset.summary.sentence}\n{dataset.folder}")
    plans = {plan.clip.file_name: plan for plan in dataset.plans(shape_for(find_model(model)[1]))} if model else {}
    captions = dataset.captions
    for clip in dataset.clips:
        click.echo(f"\n{clip.file_name}  ({about(clip)})")
        click.echo(f"  {captions[clip.file_name] or '(no caption)'}")
        if clip.tags:
            click.echo(f"  tags: {', '.join(clip.tags)}")
        if plan := plans.get(clip.file_name):
            click.echo(f"  {plan.sentence}")
    for result in dataset.import_results:
        if not result.usable:
            click.echo(f"\n{result.sentence}")


def about(clip: Clip) -> str:
    """Size, length and origin of a clip."""
    words = f"{clip.width}x{clip.height}, {clip.frames} frames at {clip.fps:g} fps, {duration(clip.seconds)}"
    if clip.span:
        words += f", {clip.span[0]:.2f} to {clip.span[1]:.2f} s"
    if clip.crop:
        words += f", cropped to {', '.join(map(str, clip.crop))}"
    return f"{words}, from {clip.source}"


@click.command()
@with_dataset
@click.argument("clips", nargs=-1, required=True)
def remove(dataset: Dataset, clips: tuple[str, ...]) -> None:
    """Remove CLIPS from the dataset; `restore` brings them back."""
    dataset.remove(*clips)
    click.echo(f"{dataset.name}: {dataset.summary.sentence}")


@click.command()
@with_dataset
@click.argument("clips", nargs=-1)
def restore(dataset: Dataset, clips: tuple[str, ...]) -> None:
    """Restore CLIPS, or list those that were removed."""
    if clips:
        dataset.restore(*clips)
        click.echo(f"{dataset.name}: {dataset.summary.sentence}")
        return
    for clip in dataset.removed:
        click.echo(f"{clip.file_name}  ({about(clip)})")


@click.command()
@with_dataset
def history(dataset: Dataset) -> None:
    """What was done to the dataset, with the numbers that `undo` takes."""
    for entry in dataset.history:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.time))
        click.echo(f"{entry.number:>4}  {when}  {entry.sentence}")
    click.echo(f"content {dataset.content_hash[:16]}")


@click.command()
@with_dataset
@click.argument("number", type=int, required=False)
def undo(dataset: Dataset, number: int | None) -> None:
    """Take back the newest change, or the one with that NUMBER."""
    click.echo(f"undone: {dataset.undo(number).what}")


@click.command()
@with_dataset
@click.argument("number", type=int, required=False)
def redo(dataset: Dataset, number: int | None) -> None:
    """Redo what was undone last, or the undoing with that NUMBER."""
    click.echo(f"redone: {dataset.redo(number).what}")
