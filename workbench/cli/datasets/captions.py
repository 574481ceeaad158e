"""Captions in the shell: one by hand, by a model, and edits of many at once, each of which `undo` takes back.

Not covered: captioners and their instruction (workbench.dataset_builder.captions.captioning).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from workbench.cli.datasets.tasks import run_task, task_flags, with_dataset
from workbench.cli.options import SettingsCommand, json_flag, settings_flags, settings_from
from workbench.cli.printing import print_json, say, say_lines
from workbench.dataset_builder.captions import editing
from workbench.dataset_builder.captions.editing import Search
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.quantities import counted

Edit = Callable[[Path, str, Sequence[str] | None], int]
some_clips = click.argument("clips", nargs=-1)


@click.command()
@with_dataset
@click.argument("clip")
@click.argument("text")
def caption(dataset: Dataset, clip: str, text: str) -> None:
    """Write the caption TEXT for CLIP."""
    changed = dataset.set_caption(clip, text)
    say(f"{changed.name}: {changed.text}")


@click.command("auto-caption", cls=SettingsCommand)
@with_dataset
@some_clips
@settings_flags(CaptionSettings, leave_out=("chosen",))
@task_flags
def auto_caption(dataset: Dataset, clips: tuple[str, ...], config: tuple[Path, ...], detach: bool, **flags: Any) -> int:
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
        say_lines([one.name, f"  - {one.before}", f"  + {one.after}"])
    say(f"{counted(len(found), 'caption')} would change")


def _edit(name: str, argument: str, change: Edit, help: str) -> click.Command:
    """A command that changes all captions, or those of the clips that it names."""

    @click.command(name, help=help)
    @with_dataset
    @click.argument("text", metavar=argument)
    @some_clips
    def command(dataset: Dataset, text: str, clips: tuple[str, ...]) -> None:
        _echo_changed(change(dataset.folder, text, clips or None))

    return command


prefix = _edit("prefix", "TEXT", editing.add_prefix, "Prepend TEXT to captions that do not begin with it.")
suffix = _edit("suffix", "TEXT", editing.add_suffix, "Append TEXT to captions that do not end with it.")
remove_tag = _edit("remove-tag", "TAG", editing.remove_tag, "Remove TAG from comma-separated captions.")


@click.command()
@with_dataset
@click.argument("word", required=False)
@click.option("--write", is_flag=True, help="Write it into the captions, too, for tools that do not add it.")
@click.option("--remove", is_flag=True, help="Remove it from the captions; training still adds it.")
@json_flag
def trigger(dataset: Dataset, word: str | None, write: bool, remove: bool, as_json: bool) -> None:
    """Show the trigger word, or make it WORD (\"\" for none)."""
    if write and remove:
        raise ConfigError("--write and --remove contradict one another: give one of them")
    if word is not None:
        dataset.set_trigger_word(word)
    changed = editing.add_trigger_word(dataset.folder) if write else 0
    if remove:
        changed = editing.remove_trigger_word(dataset.folder)
    now = dataset.info.trigger_word
    if as_json:
        print_json({"name": dataset.name, "trigger_word": now, "changed": changed})
        return
    if write or remove:
        _echo_changed(changed)
    say(f"trigger word {now!r}, added to every caption without it" if now else "no trigger word")


@click.command()
@with_dataset
@click.option("--most", type=int, default=50, show_default=True, metavar="N", help="How many to list.")
@json_flag
def tags(dataset: Dataset, most: int, as_json: bool) -> None:
    """Count the comma-separated tags of the captions."""
    counts = editing.tag_counts(dataset.clips).most_common(most)
    if as_json:
        print_json([{"tag": tag, "clips": count} for tag, count in counts])
        return
    for tag, count in counts:
        say(f"{count:>6}  {tag}")


def _echo_changed(count: int) -> None:
    say(f"{counted(count, 'caption')} changed")
