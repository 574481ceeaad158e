"""`workbench loras`: list LoRAs, run operations on them, remove and restore them.

An operation is a background job, as on the page; the shell follows it. Not covered: the operations (workbench.loras).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from workbench import jobs
from workbench.cli import json_values
from workbench.cli.follow import follow_job
from workbench.cli.options import (
    SettingsCommand,
    json_flag,
    settings_flags,
    settings_from,
    with_workspace,
    workspace_flag,
    yes_flag,
)
from workbench.cli.printing import ask, print_json, say
from workbench.cli.tables import print_table
from workbench.loras import library, removal, tasks, view
from workbench.loras.removal import CleaningSettings, PlannedRemoval
from workbench.loras.settings import ConvertSettings
from workbench.quantities import byte_size
from workbench.sampler.loras import split_scale
from workbench.settings import Settings, specs
from workbench.workspace import Workspace

# Command -> its argument, which is the first of the operation's settings.
OPERATIONS = {
    "merge": "NAME=WEIGHT...",
    "resize": "NAME",
    "extract": "RUN_OR_FOLDER",
    "fuse": "NAME=SCALE...",
    "import": "FILE_OR_REPOSITORY",
}


@click.group()
@workspace_flag
def loras(workspace: str | None) -> None:
    """LoRAs: list, merge, extract, resize, fuse, import, convert, star, remove."""


# ---- listing


@loras.command("list")
@click.option("--checkpoints", is_flag=True, help="Also the LoRAs in runs' checkpoints.")
@json_flag
@with_workspace
def list_(workspace: Workspace, checkpoints: bool, as_json: bool) -> None:
    """Every LoRA of the workspace, newest first."""
    found = library.all_loras(workspace, checkpoints)
    if as_json:
        print_json([json_values.lora(one) for one in found])
        return
    if not found:
        say("no LoRA yet: train one (workbench train) or import one (workbench loras import)")
        return
    rows = [
        [
            one.name,
            one.base_model,
            view.strength(one),
            one.trigger,
            "" if one.steps is None else str(one.steps),
            byte_size(one.bytes),
            ", ".join(sorted(one.flags)) or ("damaged" if one.sound else ""),
        ]
        for one in found
    ]
    print_table(("name", "base model", "rank", "trigger", "steps", "size", ""), rows, right=("steps", "size"))


@loras.command()
@click.argument("name")
@json_flag
@with_workspace
def show(workspace: Workspace, name: str, as_json: bool) -> None:
    """Print the facts of a LoRA: NAME is runs/RUN, runs/RUN@STEP or loras/NAME."""
    one = library.find(workspace, name)
    if as_json:
        print_json(json_values.lora(one))
        return
    marks = [("marks", ", ".join(sorted(one.flags))), ("published", view.link(one)), ("damaged", one.sound)]
    identity = [("name", one.name), ("title", one.title), ("file", str(one.path)), ("origin", one.origin)]
    for label, value in [*identity, *view.facts(one), *marks]:
        if value:
            say(f"{label:<14}{value}")
    for label, value in view.match(one):
        say(f"{label:<16}{value}")
    for weight, source, sha256 in view.sources(one):
        say(f"{'made of':<14}{weight} x {source}  {sha256}")


@loras.command()
@json_flag
def formats(as_json: bool) -> None:
    """What LoRAs can be converted to."""
    from workbench.loras.converting import formats as known

    if as_json:
        print_json([asdict(one) for one in known()])
        return
    for one in known():
        say(f"{one.id:<14}{one.title}: {one.help}")


# ---- operations


def _do(workspace: Workspace, settings: Settings, as_json: bool = False) -> int:
    """Run an operation as a job and follow it; Ctrl-C does not stop it."""
    folder = tasks.start(workspace, settings)
    if as_json and jobs.wait(folder).state is jobs.State.FINISHED:
        print_json(json_values.lora_task(tasks.read_task(folder)))
        return 0

    def outcome() -> tuple[str, ...]:
        done = tasks.read_task(folder)
        matches = (f"{label:<16}{value}" for label, value in view.task_view(done).matches)
        return done.message, *(done.files or (done.made,)), *matches

    return follow_job(lambda: jobs.status(folder), outcome, f"it goes on in the background: {folder}")


def _add(name: str, metavar: str) -> None:
    """Add the command of an operation; its help is the settings'."""
    cls = tasks.TASKS[name][0]
    source = specs(cls)[0]

    @loras.command(name, cls=SettingsCommand, help=f"{cls.__doc__}\n\n{metavar}: {source.help}")
    @click.argument(source.name, nargs=-1 if metavar.endswith("...") else 1, required=True, metavar=metavar)
    @settings_flags(cls, leave_out=(source.name,))
    @with_workspace
    def command(workspace: Workspace, as_json: bool = False, **flags: Any) -> int:
        return _do(workspace, settings_from(cls, (), flags), as_json)

    if name == "import":
        json_flag(command)


for operation, argument in OPERATIONS.items():
    _add(operation, argument)


@loras.command()
@click.argument("lora", metavar="NAME")
@click.argument("format")
@click.argument("target", required=False, default="")
@click.option("--low-noise", default="", metavar="NAME", help="The low-noise expert's LoRA, for a file of each.")
@json_flag
@with_workspace
def convert(workspace: Workspace, lora: str, format: str, target: str, low_noise: str, as_json: bool) -> int:
    """Write a LoRA as TARGET for another program; `workbench loras formats` lists the formats."""
    split_scale(lora)
    settings = ConvertSettings(lora=lora, low_noise=low_noise, format=format, target=target)
    return _do(workspace, settings, as_json)


# ---- keeping and removing


@loras.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="Remove the star.")
@with_workspace
def star(workspace: Workspace, name: str, off: bool) -> None:
    """Keep a LoRA: nothing removes it while it is starred."""
    library.star(workspace, name, on=not off)
    say(f"{name} is {'no longer ' if off else ''}starred")


@loras.command()
@click.argument("names", nargs=-1, required=True)
@yes_flag
@with_workspace
def delete(workspace: Workspace, names: Sequence[str], yes: bool) -> None:
    """Remove LoRAs after listing them and asking. `restore` brings them back."""
    if _confirmed(removal.preview(workspace, names), yes):
        removal.remove(workspace, names)


@loras.command(cls=SettingsCommand)
@settings_flags(CleaningSettings)
@yes_flag
@with_workspace
def clean(workspace: Workspace, yes: bool, **flags: Any) -> None:
    """Remove old checkpoints, and other LoRAs with --made, after listing them and asking.

    What is starred, best or published stays, and so do runs' exports.
    """
    settings = settings_from(CleaningSettings, (), flags)
    planned = removal.to_remove(workspace, settings)
    if not planned:
        say("nothing to remove")
    elif _confirmed(planned, yes):
        removal.clean(workspace, settings)


def _confirmed(planned: Sequence[PlannedRemoval], yes: bool) -> bool:
    """List what would be removed and ask; then print how to restore it."""
    for one in planned:
        say(f"{one.lora.name}  {byte_size(one.bytes)}")
    total = view.total_size(planned)
    if not yes and not ask(f"Remove {len(planned)} LoRAs, {total}?"):
        say("nothing was removed")
        return False
    say(f"removed, {total}: `workbench loras restore` lists and brings back, --empty deletes them for good")
    return True


@loras.command()
@click.argument("id", required=False)
@click.option("--empty", is_flag=True, help="Delete for good what was removed.")
@json_flag
@with_workspace
def restore(workspace: Workspace, id: str | None, empty: bool, as_json: bool) -> None:
    """Restore a removed LoRA; without ID, list the removed ones."""
    if empty:
        say(f"{byte_size(removal.empty(workspace))} freed")
    elif id:
        say(f"{removal.restore(workspace, id)} is restored")
    elif as_json:
        print_json([asdict(one) for one in removal.removed(workspace)])
    else:
        for lora in removal.removed(workspace):
            say(f"{lora.id}  {lora.title}  {byte_size(lora.bytes)}")
