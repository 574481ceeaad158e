"""`workbench publish lora|model|space|dataset`: push to the Hugging Face Hub. Ctrl-C stops watching, not the upload.

The token comes from the Hub's login (`hf auth login`); no command takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from workbench.cli.follow import follow_operation
from workbench.cli.options import (
    Command,
    SettingsCommand,
    detach_flag,
    settings_flags,
    settings_from,
    with_workspace,
)
from workbench.cli.printing import say, say_lines
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import ExportSettings
from workbench.display.quantities import byte_size
from workbench.errors import ConfigError
from workbench.operations import publishing as operations
from workbench.operations.dataset_tasks import start_task, task_of
from workbench.publishing import push
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.publishing.upload_plan import UploadPlan
from workbench.workspace import Workspace

TO = {"repo_id": "--to"}
dry_run = click.option(
    "--dry-run", is_flag=True, help="Show the upload plan (every file, the README) without uploading."
)


@click.group()
def publish() -> None:
    """Push a LoRA, a model, a demo or a dataset to the Hub.

    Repositories are private unless you give --no-private. Log in once with `hf auth login` and a write token.
    """


def _push_flags(settings: type[LoraPush | SpacePush]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for add in (with_workspace, detach_flag, dry_run, settings_flags(settings, short=TO), click.argument("name")):
            command = add(command)
        return command

    return decorate


@publish.command(cls=SettingsCommand)
@_push_flags(LoraPush)
def lora(workspace: Workspace, name: str, dry_run: bool, detach: bool, **flags: Any) -> int:
    """Push the LoRA NAME: weights, model card, previews.

    NAME is a run, RUN@STEP for a checkpoint, or loras/NAME for the library. Pushing the same files again makes no new
    commit; repeat an interrupted push to continue it.
    """
    return _push(workspace, name, settings_from(LoraPush, (), flags), dry_run, detach)


@publish.command(cls=SettingsCommand)
@_push_flags(LoraPush)
def model(workspace: Workspace, name: str, dry_run: bool, detach: bool, **flags: Any) -> int:
    """Push the model NAME, a run that trained all weights: the trained part, model card, previews."""
    workspace.model(name if "/" in name else f"runs/{name}")  # raises if it is not a model
    return _push(workspace, name, settings_from(LoraPush, (), flags), dry_run, detach)


@publish.command(cls=SettingsCommand)
@_push_flags(SpacePush)
def space(workspace: Workspace, name: str, dry_run: bool, detach: bool, **flags: Any) -> int:
    """Push a Space that generates videos with the LoRA NAME, which must be on the Hub already."""
    return _push(workspace, name, settings_from(SpacePush, (), flags), dry_run, detach)


@publish.command(cls=SettingsCommand)
@click.argument("name")
@with_workspace
@settings_flags(ExportSettings, only=("repo_id", "private", "license", "trigger_word"), short=TO)
@dry_run
@detach_flag
def dataset(workspace: Workspace, name: str, dry_run: bool, detach: bool, **flags: Any) -> int:
    """Push the dataset NAME in the Hub's VideoFolder layout, with a card."""
    dataset = Dataset.open(workspace, name)
    settings = settings_from(ExportSettings, (), flags)
    if not settings.repo_id:
        raise ConfigError("repo_id is empty: give it with --to OWNER/NAME")
    if dry_run:
        from workbench.dataset_builder import export

        files = export.contents(dataset.folder, settings)
        _show(UploadPlan("dataset", settings.repo_id, settings.private, "", files), readme=True)
        return 0
    started = start_task(dataset, "export", settings)
    return follow_operation(started, lambda: task_of(dataset, "export"), detach)


def _push(workspace: Workspace, name: str, settings: LoraPush | SpacePush, dry: bool, detached: bool) -> int:
    name = name if "/" in name else f"runs/{name}"
    chosen = operations.chosen(workspace, name, settings)
    _show(push.plan_upload(workspace, name, chosen), readme=dry)
    if dry:
        return 0
    started = operations.start(workspace, name, chosen)
    return follow_operation(started, lambda: operations.job(workspace, started.id), detached)


def _show(plan: UploadPlan, readme: bool) -> None:
    """Print the plan's files and notes, and the README on request."""
    say(plan.sentence)
    for name, size in plan.sizes.items():
        say(f"  {byte_size(size):>12}  {name}")
    for note in plan.notes:
        say(f"Note: {note}")
    if readme and plan.readme:
        say_lines(f"\nREADME.md:\n{plan.readme}")
