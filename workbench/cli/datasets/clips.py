"""`workbench dataset list|show|rename|note|group|remove|restore|history|undo|redo`: a dataset and its changes."""

from __future__ import annotations

from dataclasses import asdict

import click

from workbench import dataset_library
from workbench.cli import json_values
from workbench.cli.datasets.tasks import with_dataset
from workbench.cli.notes import print_or_set_group, print_or_write
from workbench.cli.options import json_flag, with_workspace
from workbench.cli.printing import print_json, say, say_lines
from workbench.clips.frame_plan import shape_for
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import DatasetSnapshot
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.quantities import duration, moment
from workbench.workspace import Workspace

whole_flag = click.option("--whole-dataset", "whole", is_flag=True, help="The dataset itself, not clips of it.")


@click.command("list")
@click.option("--search", default="", metavar="TEXT", help="Only with these words in name, title, group or notes.")
@click.option("--group", metavar="GROUP", help='Only those of this group; "" for those without one.')
@click.option("--removed", is_flag=True, help="The datasets that were removed, by name.")
@json_flag
@with_workspace
def list_(workspace: Workspace, search: str, group: str | None, removed: bool, as_json: bool) -> None:
    """Every dataset of the workspace, a line each."""
    if removed:
        names = dataset_library.removed(workspace)
        if as_json:
            print_json(names)
            return
        for name in names or ["no dataset is removed"]:
            say(name)
        return
    found = dataset_library.search(workspace, search, group)
    if as_json:
        print_json(json_values.dataset_list(found))
        return
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        trigger = f", trigger word {one.info.trigger_word!r}" if one.info.trigger_word else ""
        grouped = f", group {one.group!r}" if one.group else ""
        say(f"{one.name:<{width}}  {one.summary.sentence}{trigger}{grouped}")
        for sentence in one.damage:
            say(f"{'':<{width}}  {sentence}")
    if not found:
        say(_none(search, group))


@click.command()
@with_dataset
@click.option("--model", help="Show the input of this model for each clip.")
@json_flag
def show(dataset: Dataset, model: str | None, as_json: bool) -> None:
    """The clips with their captions, and the files that were refused."""
    shape = shape_for(find_model(Workspace.of(dataset.folder).model(model)).model) if model else None
    if as_json:
        print_json({**asdict(dataset.snapshot(shape)), "damage": dataset.damage, **json_values.dataset_clips(dataset)})
        return
    say_lines([f"{dataset.name}: {dataset.summary.sentence}", dataset.folder, *dataset.damage])
    say(_dates(dataset.snapshot()))
    if dataset.group:
        say(f"group {dataset.group}")
    for line in dataset.notes.split("\n"):
        say(f"  {line}")
    plans = {plan.clip.file_name: plan for plan in dataset.plans(shape)} if shape else {}
    captions = dataset.captions
    for clip in dataset.clips:
        say_lines(["", about(clip)])
        say(f"  {captions[clip.file_name] or '(no caption)'}")
        if clip.tags:
            say(f"  tags: {', '.join(clip.tags)}")
        if plan := plans.get(clip.file_name):
            say(f"  {plan.sentence}")
    for result in dataset.import_results:
        if not result.usable:
            say_lines(["", result.sentence])


def _none(search: str, group: str | None) -> str:
    if search:
        return f"no dataset has {search!r} in its name, title, group or notes"
    return f"no dataset is in {group!r}" if group else "no datasets yet: workbench dataset import NAME PATHS..."


def _dates(seen: DatasetSnapshot) -> str:
    named = (("created", seen.created_at), ("last changed", seen.changed_at))
    return ", ".join(f"{name} {moment(time)}" for name, time in named if time)


def about(clip: Clip) -> str:
    """A clip's name, size and length, and the id by which commands take it where names are not unique."""
    words = f"{clip.width}x{clip.height}, {clip.frames} frames at {clip.fps:g} fps, {duration(clip.seconds)}"
    if clip.is_latents:
        words += f", latents of {clip.latents_model or 'an unknown model'}"
    if clip.span:
        words += f", {clip.span[0]:.2f} to {clip.span[1]:.2f} s"
    if clip.crop:
        words += f", cropped to {', '.join(map(str, clip.crop))}"
    return f"{clip.name}  ({words}, id {clip.id})"


@click.command()
@with_workspace
@click.argument("name")
@click.argument("clips", nargs=-1)
@whole_flag
def remove(workspace: Workspace, name: str, clips: tuple[str, ...], whole: bool) -> None:
    """Remove CLIPS, or the dataset itself.

    `restore` brings them back.
    """
    dataset = Dataset.open(workspace, name)
    _one_of(clips, whole)
    if whole:
        say(dataset_library.remove(workspace, dataset))
        return
    dataset.remove(*clips)
    say(f"{dataset.name}: {dataset.summary.sentence}")


@click.command()
@with_workspace
@click.argument("name")
@click.argument("clips", nargs=-1)
@whole_flag
@json_flag
def restore(workspace: Workspace, name: str, clips: tuple[str, ...], whole: bool, as_json: bool) -> None:
    """Restore CLIPS, or list those that were removed.

    Removed datasets are listed by `list --removed`.
    """
    if clips or whole:
        _one_of(clips, whole)
    if whole:
        say(f"{dataset_library.restore(workspace, name).name} is restored")
        return
    dataset = Dataset.open(workspace, name)
    if clips:
        dataset.restore(*clips)
        say(f"{dataset.name}: {dataset.summary.sentence}")
        return
    if as_json:
        print_json(json_values.clip_list(dataset.removed))
        return
    for clip in dataset.removed:
        say(about(clip))


def _one_of(clips: tuple[str, ...], whole: bool) -> None:
    """Raises ConfigError unless either clips or the whole dataset is named."""
    if bool(clips) == whole:
        raise ConfigError("name CLIPS, or give --whole-dataset: one of them, not both")


@click.command()
@with_workspace
@click.argument("name")
@click.argument("title")
def rename(workspace: Workspace, name: str, title: str) -> None:
    """Give a dataset another TITLE, and the name made from it.

    Runs that were trained on it still find it by its former name.
    """
    renamed = dataset_library.rename(workspace, Dataset.open(workspace, name), title)
    say(f"{name} is now called {renamed.name}")


@click.command()
@with_dataset
@click.argument("text", required=False)
@json_flag
def note(dataset: Dataset, text: str | None, as_json: bool) -> None:
    """Write TEXT as the notes on a dataset; without it, print them. "" removes them."""
    print_or_write(dataset, text, "dataset note", as_json)


@click.command()
@with_dataset
@click.argument("label", metavar="GROUP", required=False)
@json_flag
def group(dataset: Dataset, label: str | None, as_json: bool) -> None:
    """Put a dataset into a GROUP of the lists, "" into none; or print it."""
    print_or_set_group(dataset, label, "dataset group", as_json)


@click.command()
@with_dataset
@json_flag
def history(dataset: Dataset, as_json: bool) -> None:
    """What was done to the dataset, with the numbers that `undo` takes."""
    if as_json:
        print_json(
            [{**one.model_dump(mode="json", exclude={"task"}), "sentence": one.sentence} for one in dataset.history]
        )
        return
    for entry in dataset.history:
        say(f"{entry.number:>4}  {moment(entry.time)}  {entry.sentence}")
    say(f"content {dataset.content_hash[:16]}")


@click.command()
@with_dataset
@click.argument("number", type=int, required=False)
def undo(dataset: Dataset, number: int | None) -> None:
    """Take back the newest change, or the one with that NUMBER."""
    say(f"undone: {dataset.undo(number).what}")


@click.command()
@with_dataset
@click.argument("number", type=int, required=False)
def redo(dataset: Dataset, number: int | None) -> None:
    """Redo what was undone last, or the undoing with that NUMBER."""
    say(f"redone: {dataset.redo(number).what}")
