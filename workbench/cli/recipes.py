"""`workbench recipes`: settings for what is to be trained, with reasons and sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from workbench.cli.options import json_flag, with_workspace
from workbench.cli.printing import print_json, say
from workbench.cli.tables import print_table
from workbench.families import default_model
from workbench.fit import levels
from workbench.fit.gpus import HERE
from workbench.fit.levels import suggest
from workbench.operations import settings as operations
from workbench.runs.run import as_flags
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

RECIPE_HELP = "The settings that workbench recipes suggests for this subject. Flags win over them."
gpu_flag = click.option("--gpu-memory", "gpu", default=HERE, metavar="GB", help=operations.GPU_HELP)
recipe_flag = click.option("--recipe", metavar="SUBJECT", help=RECIPE_HELP)


@click.command()
@click.argument("subject", required=False)
@click.option("--model", default=default_model, help="The model to train on.")
@click.option("--dataset", help="Steps for the clips of this dataset.")
@click.option("--clips", type=click.IntRange(0), help="Steps for so many clips.")
@gpu_flag
@json_flag
@with_workspace
def recipes(
    workspace: Workspace,
    subject: str | None,
    model: str,
    dataset: str | None,
    clips: int | None,
    gpu: str,
    as_json: bool,
) -> None:
    """Say which settings suit SUBJECT: style, character, object, motion, camera or effect; without it, all of them.

    Each value has its reason, and names the published runs and papers that it comes from. Memory settings, frames and
    size are what fits the GPU.
    """
    found = operations.recipes(
        workspace, subject or "", model=model, dataset=dataset or "", clips=clips, gpu_memory=gpu
    )
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
    elif subject:
        _show(found[0])
    else:
        print_table(
            ("subject", "steps", "rank", "rate", "evidence"),
            [(one.subject, *_short(one.settings), one.evidence) for one in found],
        )


def with_recipe(
    workspace: Workspace,
    subject: str | None,
    settings: TrainSettings,
    flags: Mapping[str, Any],
    gpu: str | None = HERE,
    quiet: bool = False,
) -> TrainSettings:
    """The settings with those of a recipe, if one is named, but for what a flag says. Raises ConfigError.

    gpu: as in fit.levels.suggest; a flag of a memory setting leaves all of them to the person;  quiet: print nothing
    """
    if subject is None:
        return settings
    given = {name for name, value in flags.items() if value is not None and value != ()}
    found = suggest(workspace, subject, settings, None if given & {*levels.NAMES} else gpu)
    taken = {name: value for name, value in found.settings.items() if name not in given}
    if not quiet:
        say(f"recipe {subject}: {found.evidence}{as_flags(taken)}")
        if found.warning:
            say(found.warning)
    return settings.changed(**taken)


def _short(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(settings.get(name, "")) for name in ("steps", "rank", "learning_rate"))


def _show(found: operations.Recipe) -> None:
    say(f"{found.subject} on {found.model}: {found.evidence}")
    if found.warning:
        say(found.warning)
    reasons = [(one["title"], str(one["value"]), one["reason"]) for one in found.reasons]
    print_table(("", "value", "reason"), reasons)
    say("sources:")
    sources = [(source["title"], source["url"]) for one in found.reasons for source in one["sources"]]
    for title, url in dict.fromkeys(sources):
        say(f"  {title}{f'  {url}' if url else ''}")
    if found.settings:
        say(f"start: workbench train --recipe {found.subject} --dataset NAME")
