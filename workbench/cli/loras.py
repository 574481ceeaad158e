"""`workbench loras`: list LoRAs, run operations on them, remove and restore them.

An operation is a background job, as on the page; the shell follows it. Not covered: the operations (workbench.loras).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import watch
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.cli.tables import print_table
from workbench.errors import ExitCode
from workbench.loras import library, removal, tasks, view
from workbench.loras.removal import CleaningSettings, PlannedRemoval
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
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
    """LoRAs: list, merge, extract, resize, fuse, import, convert, star, remove."""


# ---- listing


@loras.command("list")
@click.option("--checkpoints", is_flag=True, help="Also the LoRAs in runs' checkpoints.")
@with_workspace
def list_(workspace: Workspace, checkpoints: bool) -> None:
    """Every LoRA of the workspace, newest first."""
    found = library.all_loras(workspace, checkpoints)
    if not found:
        click.echo("no LoRA yet: train one (workbench train) or import one (workbench loras import)")
        return
    rows = [
        [
            one.name,
            one.base_model,
            view.strength(one),
            one.trigger,
            "" if one.steps is None else str(one.steps),
            view.size(one.bytes),
            ", ".join(sorted(one.flags)) or ("damaged" if one.sound else ""),
        ]
        for one in found
    ]
    print_table(("name", "base model", "rank", "trigger", "steps", "size", ""), rows, right=("steps", "size"))


@loras.command()
@click.argument("name")
@with_workspace
def show(workspace: Workspace, name: str) -> None:
    """Print the facts of a LoRA: NAME is runs/RUN, runs/RUN@STEP or loras/NAME."""
    one = library.find(workspace, name)
    marks = [("marks", ", ".join(sorted(one.flags))), ("published", view.link(one)), ("damaged", one.sound)]
    identity = [("name", one.name), ("title", one.title), ("file", str(one.path)), ("origin", one.origin)]
    for label, value in [*identity, *view.facts(one), *marks]:
        if value:
            click.echo(f"{label:<14}{value}")
    for weight, source, sha256 in view.sources(one):
        click.echo(f"{'made of':<14}{weight} x {source}  {sha256}")


@loras.command()
def formats() -> None:
    """What LoRAs can be converted to."""
    from workbench.loras.converting import formats as known

    for one in known():
        click.echo(f"{one.id:<14}{one.title}: {one.help}")


# ---- operations


def _do(workspace: Workspace, settings: Settings) -> int:
    """Run an operation as a job and follow it; Ctrl-C does not stop it."""
    folder = tasks.start(workspace, settings)
    ended = watch(lambda: jobs.status(folder))
    if ended is None:
        click.echo(f"\nit goes on in the background: {folder}")
        return 0
    if ended.state is not jobs.State.FINISHED:
        click.echo(f"Error: {ended.message}", err=True)
        return int(ended.exit_code or ExitCode.BUG)
    done = tasks.read_task(folder)
    click.echo(done.message)
    click.echo(done.made)
    return 0


@loras.command(cls=SettingsCommand)
@click.argument("loras", nargs=-1, required=True, metavar="NAME=WEIGHT...")
@settings_flags(MergeSettings, leave_out=("loras",))
@with_workspace
def merge(workspace: Workspace, loras: Sequence[str], **flags: Any) -> int:
    """Merge LoRAs into one: exactly, or to a rank. NAME is runs/RUN, runs/RUN@STEP, loras/NAME or a file."""
    return _do(workspace, settings_from(MergeSettings, None, flags, loras=list(loras)))


@loras.command(cls=SettingsCommand)
@click.argument("lora", metavar="NAME")
@settings_flags(ResizeSettings, leave_out=("lora",))
@with_workspace
def resize(workspace: Workspace, lora: str, **flags: Any) -> int:
    """Resize a LoRA to another rank; prints how much of its change is lost."""
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
@settings_flags(FuseSettings, leave_out=("loras",))
@with_workspace
def fuse(workspace: Workspace, loras: Sequence[str], **flags: Any) -> int:
    """Fuse LoRAs into a model: writes a folder that can be used as a model."""
    return _do(workspace, settings_from(FuseSettings, None, flags, loras=list(loras)))


@loras.command("import", cls=SettingsCommand)
@click.argument("source", metavar="FILE_OR_REPOSITORY")
@settings_flags(LoraImportSettings, leave_out=("source",))
@with_workspace
def import_(workspace: Workspace, source: str, **flags: Any) -> int:
    """Add a LoRA of another trainer, or of the Hub, to the library."""
    return _do(workspace, settings_from(LoraImportSettings, None, flags, source=source))


@loras.command()
@click.argument("lora", metavar="NAME")
@click.argument("format")
@click.argument("target", required=False, default="")
@with_workspace
def convert(workspace: Workspace, lora: str, format: str, target: str) -> int:
    """Write a LoRA as TARGET for another program; `workbench loras formats` lists the formats."""
    split_scale(lora)
    return _do(workspace, ConvertSettings(lora=lora, format=format, target=target))


# ---- keeping and removing


@loras.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="Remove the star.")
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
    """Remove LoRAs after listing them and asking. `restore` brings them back."""
    if _confirmed(removal.preview(workspace, names), yes):
        removal.remove(workspace, names)


@loras.command(cls=SettingsCommand)
@settings_flags(CleaningSettings)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_workspace
def clean(workspace: Workspace, yes: bool, **flags: Any) -> None:
    """Remove old checkpoints, and other LoRAs with --made, after listing them and asking.

    What is starred, best or published stays, and so do runs' exports.
    """
    settings = settings_from(CleaningSettings, None, flags)
    planned = removal.to_remove(workspace, settings)
    if not planned:
        click.echo("nothing to remove")
    elif _confirmed(planned, yes):
        removal.clean(workspace, settings)


def _confirmed(planned: Sequence[PlannedRemoval], yes: bool) -> bool:
    """List what would be removed and ask; then print how to restore it."""
    for one in planned:
        click.echo(f"{one.lora.name}  {view.size(one.bytes)}")
    total = view.total_size(planned)
    if not yes and not click.confirm(f"Remove {len(planned)} LoRAs, {total}?"):
        click.echo("nothing was removed")
        return False
    click.echo(f"removed, {total}: `workbench loras restore` lists and brings back, --empty deletes them for good")
    return True


@loras.command()
@click.argument("id", required=False)
@click.option("--empty", is_flag=True, help="Delete for good what was removed.")
@with_workspace
def restore(workspace: Workspace, id: str | None, empty: bool) -> None:
    """Restore a removed LoRA; without ID, list the removed ones."""
    if empty:
        click.echo(f"{view.size(removal.empty(workspace))} freed")
    elif id:
        click.echo(f"{removal.restore(workspace, id)} is restored")
    else:
        for lora in removal.removed(workspace):
            click.echo(f"{lora.id}  {lora.title}  {view.size(lora.bytes)}")
