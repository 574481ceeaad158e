"""Captions in the shell: one by hand, by a model, and edits of many at once, each of which `undo` takes back.

Not covered: captioners and their instruction (workbench.dataset_builder.captions.captioning).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench.cli.datasets.tasks import run_task, task_flags, with_dataset
from workbench.cli.options import SettingsCommand, settings_flags, settings_from
from workbench.dataset_builder.captions import editing
from workbench.dataset_builder.captions.editing import Search
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError

some_clips = click.argument("clips", nargs=-1)


@click.command()
@with_dataset
@click.argument("clip")
@click.argument("text")
def caption(dataset: Dataset, clip: str, text: str) -> None:
    """Write the caption TEXT for CLIP."""
    changed = dataset.set_caption(clip, text)
    click.echo(f"{changed.file_name}: {changed.text}")


@click.command("auto-caption", cls=SettingsCommand)
@with_dataset
@some_clips
@settings_flags(CaptionSettings, leave_out=("chosen",))
@task_flags
def auto_caption(dataset: Dataset, clips: tuple[str, ...], config: Path | None, detach: bool, **flags: Any) -> int:
    """Let a model say what CLIPS show, or those without a caption.

    What you wrote by hand stays. --captioner endpoint sends the clips' frames to the address you give; the key comes
    from the environment or the system's keyring.
    """
    named: dict[str, Any] = {"which": "chosen", "chosen": clips} if clips else {}
    return run_task(dataset, "caption", settings_from(CaptionSettings, config, flags, **named), detach)


@click.command()
@with_dataset
@click.argument("find")
@click.argument("replacement")
@some_clips
@click.option("--expression", is_flag=True, help="FIND is a regular expression; REPLACEMENT may use its groups (\\1).")
@click.option("--match-case", is_flag=True, help="Tell small letters from capitals.")
@click.option("--whole-word", is_flag=True, help="Only where FIND is a word of its own.")
@click.option("--preview", is_flag=True, help="Show each caption before and after, and change nothing.")
def replace(
    dataset: Dataset,
    find: str,
    replacement: str,
    clips: tuple[str, ...],
    expression: bool,
    match_case: bool,
    whole_word: bool,
    preview: bool,
) -> None:
    """Replace FIND in all captions, or in those of CLIPS."""
    search = Search(find, expression, match_case, whole_word)
    if not preview:
        _echo_changed(editing.replace(dataset.folder, search, replacement, clips or None))
        return
    found = editing.preview_replace(dataset.folder, search, replacement, clips or None)
    for one in found:
        click.echo(f"{one.file_name}  ({one.source})\n  - {one.before}\n  + {one.after}")
    click.echo(f"{_captions(len(found))} would change")


@click.command()
@with_dataset
@click.argument("text")
@some_clips
def prefix(dataset: Dataset, text: str, clips: tuple[str, ...]) -> None:
    """Prepend TEXT to captions that do not begin with it."""
    _echo_changed(editing.add_prefix(dataset.folder, text, clips or None))


@click.command()
@with_dataset
@click.argument("text")
@some_clips
def suffix(dataset: Dataset, text: str, clips: tuple[str, ...]) -> None:
    """Append TEXT to captions that do not end with it."""
    _echo_changed(editing.add_suffix(dataset.folder, text, clips or None))


@click.command()
@with_dataset
@click.argument("word", required=False)
@click.option("--write", is_flag=True, help="Write it into the captions, too, for tools that do not add it.")
@click.option("--remove", is_flag=True, help="Remove it from the captions; training still adds it.")
def trigger(dataset: Dataset, word: str | None, write: bool, remove: bool) -> None:
    """Show the trigger word, or make it WORD (\"\" for none)."""
    if write and remove:
        raise ConfigError("--write and --remove contradict one another: give one of them")
    if word is not None:
        dataset.set_trigger_word(word)
    if write:
        _echo_changed(editing.add_trigger_word(dataset.folder))
    if remove:
        _echo_changed(editing.remove_trigger_word(dataset.folder))
    now = dataset.info.trigger_word
    click.echo(f"trigger word {now!r}, added to every caption without it" if now else "no trigger word")


@click.command()
@with_dataset
@click.option("--most", type=int, default=50, show_default=True, metavar="N", help="How many to list.")
def tags(dataset: Dataset, most: int) -> None:
    """Count the comma-separated tags of the captions."""
    for tag, count in editing.tag_counts(dataset.clips).most_common(most):
        click.echo(f"{count:>6}  {tag}")


@click.command("remove-tag")
@with_dataset
@click.argument("tag")
@some_clips
def remove_tag(dataset: Dataset, tag: str, clips: tuple[str, ...]) -> None:
    """Remove TAG from comma-separated captions."""
    _echo_changed(editing.remove_tag(dataset.folder, tag, clips or None))


def _echo_changed(count: int) -> None:
    click.echo(f"{_captions(count)} changed")


def _captions(count: int) -> str:
    return f"{count} caption{'' if count == 1 else 's'}"
