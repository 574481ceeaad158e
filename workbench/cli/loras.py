"""`workbench loras`: the shelf in the shell: what there is, what can be made of it, what goes.

Heavy work is a job, as on the page; the shell watches it. Not covered: how it is done (workbench.loras).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import watch
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.cli.tables import print_table
from workbench.errors import ExitCode
from workbench.loras import library, removal, tasks
from workbench.loras.library import ShelfLora
from workbench.loras.removal import CleaningSettings, Going
from workbench.loras.settings import (
    BakeSettings,
    ConvertSettings,
    ExtractSettings,
    LoraImportSettings,
    MergeSettings,
    ResizeSettings,
)
from workbench.sampler.loras import split_scale
from workbench.settings import Settings
from workbench.workspace import Workspace


@click.group()
@click.option("--workspace", metavar="FOLDER", help="The workspace's folder. Else $WORKBENCH_HOME, else ./workspace.")
def loras(workspace: str | None) -> None:
    """LoRAs: list, merge, extract, resize, bake, import, convert, star, remove."""


# ---- looking


@loras.command("list")
@click.option("--checkpoints", is_flag=True, help="Also the LoRAs in runs' checkpoints.")
@with_workspace
def list_(workspace: Workspace, checkpoints: bool) -> None:
    """Every LoRA of the workspace, newest first."""
    found = library.shelf(workspace, checkpoints)
    if not found:
        click.echo("no LoRA yet: train one (workbench train), or bring one (workbench loras import)")
        return
    rows = [
        [one.name, one.base_model, _strength(one), one.trigger, "" if one.steps is None else str(one.steps),
         _size(one.bytes), ", ".join(sorted(one.flags)) or ("damaged" if one.sound else "")]
        for one in found
    ]  # fmt: skip
    print_table(("name", "base model", "rank/alpha", "trigger", "steps", "size", ""), rows, right=("steps", "size"))


@loras.command()
@click.argument("name")
@with_workspace
def show(workspace: Workspace, name: str) -> None:
    """What is known of a LoRA: NAME is runs/RUN, runs/RUN@STEP or loras/NAME."""
    one = library.find(workspace, name)
    facts = [
        ("name", one.name), ("title", one.title), ("file", str(one.path)), ("base model", one.base_model),
        ("trigger", one.trigger), ("rank/alpha", _strength(one)),
        ("steps", "" if one.steps is None else str(one.steps)), ("size", _size(one.bytes)), ("origin", one.origin),
        ("made", time.strftime("%Y-%m-%d %H:%M", time.localtime(one.created))),
        ("previews", str(len(one.previews))), ("marks", ", ".join(sorted(one.flags))),
        ("published", str(one.published.get("url", ""))), ("wrong with it", one.sound),
    ]  # fmt: skip
    for title, text in facts:
        if text:
            click.echo(f"{title:<14}{text}")
    for source in library.notes(one).get("made_of", []):
        click.echo(
            f"{'made of':<14}{source.get('weight', 1):g} x {source.get('name')}  {source.get('sha256', '')[:16]}"
        )


@loras.command()
def formats() -> None:
    """What LoRAs can be converted to."""
    from workbench.loras.converting import formats as known

    for one in known():
        click.echo(f"{one.id:<14}{one.title}: {one.help}")


def _strength(one: ShelfLora) -> str:
    alpha = "" if one.alpha is None else f"/{one.alpha:g}"
    return f"{'up to ' if one.mixed else ''}{one.rank}{alpha}{' DoRA' if one.dora else ''}"


def _size(count: float) -> str:
    return f"{count / 1e6:.1f} MB"


# ---- making


def _do(workspace: Workspace, settings: Settings) -> int:
    """Run an operation as a job and watch it; Ctrl-C leaves it alone."""
    place = tasks.start(workspace, settings)
    ended = watch(lambda: jobs.status(place))
    if ended is None:
        click.echo(f"\nit goes on: see {place}")
        return 0
    if ended.state is not jobs.State.FINISHED:
        click.echo(f"Error: {ended.message}", err=True)
        return int(ended.exit_code or ExitCode.BUG)
    done = tasks.look(place)
    click.echo(done.said)
    click.echo(done.made)
    return 0


@loras.command(cls=SettingsCommand)
@click.argument("loras", nargs=-1, required=True, metavar="NAME=WEIGHT...")
@settings_flags(MergeSettings, leave_out=("loras",))
@with_workspace
def merge(workspace: Workspace, loras: Sequence[str], **flags: Any) -> int:
    """Add LoRAs up: exactly, or to a rank. NAME is runs/RUN, runs/RUN@STEP, loras/NAME or a file."""
    return _do(workspace, settings_from(MergeSettings, None, flags, loras=list(loras)))


@loras.command(cls=SettingsCommand)
@click.argument("lora", metavar="NAME")
@settings_flags(ResizeSettings, leave_out=("lora",))
@with_workspace
def resize(workspace: Workspace, lora: str, **flags: Any) -> int:
    """Bring a LoRA to another rank; says how much of its change is lost."""
    return _do(workspace, settings_from(ResizeSettings, None, flags, lora=lora))


@loras.command(cls=SettingsCommand)
@click.argument("source", metavar="RUN_OR_FOLDER")
@settings_flags(ExtractSettings, leave_out=("source",))
@with_workspace
def extract(workspace: Workspace, source: str, **flags: Any) -> int:
    """Make a LoRA of a full fine-tune: a run that trained all weights, or a folder in diffusers' layout."""
    return _do(workspace, settings_from(ExtractSettings, None, flags, source=source))


@loras.command(cls=SettingsCommand)
@click.argument("loras", nargs=-1, required=True, metavar="NAME=SCALE...")
@settings_flags(BakeSettings, leave_out=("loras",))
@with_workspace
def bake(workspace: Workspace, loras: Sequence[str], **flags: Any) -> int:
    """Work LoRAs into a model: writes a folder that is used as a model itself."""
    return _do(workspace, settings_from(BakeSettings, None, flags, loras=list(loras)))


@loras.command("import", cls=SettingsCommand)
@click.argument("source", metavar="FILE_OR_REPOSITORY")
@settings_flags(LoraImportSettings, leave_out=("source",))
@with_workspace
def import_(workspace: Workspace, source: str, **flags: Any) -> int:
    """Bring a LoRA of another trainer, or of the Hub, onto the shelf."""
    return _do(workspace, settings_from(LoraImportSettings, None, flags, source=source))


@loras.command()
@click.argument("lora", metavar="NAME")
@click.argument("format")
@click.argument("target", required=False, default="")
@with_workspace
def convert(workspace: Workspace, lora: str, format: str, target: str) -> int:
    """Write a LoRA as TARGET for another program; `workbench loras formats` says which there are."""
    split_scale(lora)
    return _do(workspace, ConvertSettings(lora=lora, format=format, target=target))


# ---- keeping and removing


@loras.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="Take the star off.")
@with_workspace
def star(workspace: Workspace, name: str, off: bool) -> None:
    """Keep a LoRA: nothing removes it while it is starred."""
    library.star(workspace, name, on=not off)
    click.echo(f"{name} is {'no longer ' if off else ''}starred")


@loras.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_workspace
def delete(workspace: Workspace, names: Sequence[str], yes: bool) -> None:
    """Take LoRAs away; says what goes, and asks. `restore` brings them back."""
    if _agreed(removal.preview(workspace, names), yes):
        removal.remove(workspace, names)


@loras.command(cls=SettingsCommand)
@settings_flags(CleaningSettings)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_workspace
def clean(workspace: Workspace, yes: bool, **flags: Any) -> None:
    """Take old checkpoints away, and other LoRAs if asked; says what goes, and asks.

    What is starred, best or published stays, and so do exports.
    """
    settings = settings_from(CleaningSettings, None, flags)
    going = removal.doomed(workspace, settings)
    if not going:
        click.echo("nothing goes")
    elif _agreed(going, yes):
        removal.clean(workspace, settings)


def _agreed(going: Sequence[Going], yes: bool) -> bool:
    """Show what goes and ask; says afterwards how to get it back."""
    for one in going:
        click.echo(f"{one.lora.name}  {_size(one.bytes)}")
    total = _size(sum(one.bytes for one in going))
    if not yes and not click.confirm(f"Remove {len(going)} LoRAs, {total}?"):
        click.echo("nothing was removed")
        return False
    click.echo(f"removed, {total}: `workbench loras restore` lists and brings back, --empty frees the space")
    return True


@loras.command()
@click.argument("id", required=False)
@click.option("--empty", is_flag=True, help="Delete for good what was removed.")
@with_workspace
def restore(workspace: Workspace, id: str | None, empty: bool) -> None:
    """Bring back what was removed; without ID, list it."""
    if empty:
        click.echo(f"{_size(removal.empty(workspace))} are free")
    elif id:
        click.echo(f"{removal.bring_back(workspace, id)} is back")
    else:
        for gone in removal.removed(workspace):
            click.echo(f"{gone.id}  {gone.title}  {_size(gone.bytes)}")
