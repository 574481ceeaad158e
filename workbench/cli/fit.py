"""`workbench recipes` and `workbench fit`: settings for a subject, and whether a run fits the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import watch
from workbench.cli.options import (
    SettingsCommand,
    config_flag,
    given_flags,
    json_flag,
    settings_flags,
    settings_from,
    with_workspace,
)
from workbench.cli.printing import print_json, print_table, say
from workbench.errors import ConfigError, ExitCode
from workbench.families import default_model
from workbench.fit import levels, measurement
from workbench.fit.estimate import Fit, estimate, sized_model
from workbench.fit.gpus import HERE
from workbench.fit.levels import suggest
from workbench.fit.memory import gb_text
from workbench.fit.warnings import run_warnings
from workbench.operations import settings as operations
from workbench.operations.machine import fit_view
from workbench.runs.recipes import Recipe
from workbench.runs.run import Run, as_flags
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

RECIPE_HELP = "Use the settings that workbench recipes suggests for this subject. Flags win over them."
gpu_flag = click.option("--gpu-memory", "gpu", default=HERE, metavar="GB", help=operations.GPU_HELP)
recipe_flag = click.option("--recipe", metavar="SUBJECT", help=RECIPE_HELP)


@click.command()
@click.argument("subject", required=False)
@click.option("--model", default=default_model, help="The model to train on.")
@click.option("--dataset", help="Suggest steps for this dataset.")
@click.option("--clips", type=click.IntRange(0), help="Suggest steps for this many clips.")
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
    """Suggest settings for SUBJECT: style, character, object, motion, camera or effect. Without it, list them all.

    Each value comes with a reason and the published runs and papers behind it. Memory settings, frames and size are
    chosen to fit the GPU.
    """
    found = operations.recipes(
        workspace, subject or "", model=model, dataset=dataset or "", clips=clips, gpu_memory=gpu
    )
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
    elif subject:
        _show(found[0], f"--dataset {dataset or 'NAME'}{f' --model {model}' if model else ''}")
    else:
        main = ("steps", "rank", "learning_rate")
        rows = [(one.subject, *(str(one.settings.get(name, "")) for name in main), one.evidence) for one in found]
        print_table(("subject", "steps", "rank", "rate", "evidence"), rows)


def with_recipe(
    workspace: Workspace,
    subject: str | None,
    settings: TrainSettings,
    flags: Mapping[str, Any],
    gpu: str | None = HERE,
    quiet: bool = False,
) -> TrainSettings:
    """Return the settings with a recipe's values, except where a flag was given, and say so unless `quiet`.

    gpu: see `fit.levels.suggest`; a flag for any memory setting turns off its suggestions. Raises ConfigError if there
    is no such recipe.
    """
    if subject is None:
        return settings
    given = set(given_flags(flags))
    found = suggest(workspace, subject, settings, None if given & {*levels.NAMES} else gpu)
    taken = {name: value for name, value in found.settings.items() if name not in given}
    if not quiet:
        say(f"recipe {subject}: {found.evidence}{as_flags(taken)}")
        if found.warning:
            say(found.warning)
    return settings.changed(**taken)


def _show(found: Recipe, flags: str) -> None:
    say(f"{found.subject} on {found.model}: {found.evidence}")
    if found.warning:
        say(found.warning)
    reasons = [(one.title, str(one.value), one.reason) for one in found.reasons]
    print_table(("", "value", "reason"), reasons)
    say("sources:")
    sources = [(source.title, source.url) for one in found.reasons for source in one.sources]
    for title, url in dict.fromkeys(sources):
        say(f"  {title}{f'  {url}' if url else ''}")
    if found.settings:
        say(f"start: workbench train --recipe {found.subject} {flags}")


clone_flag = click.option(
    "--clone", metavar="RUN", help="Start a new run with the settings of RUN. Flags win over them."
)


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings)
@recipe_flag
@config_flag()
@clone_flag
@gpu_flag
@click.option("--measure", is_flag=True, help=measurement.HELP)
@click.option("--fit-to-gpu", is_flag=True, help=f"{levels.HELP} Prints the flags for them.")
@json_flag
@with_workspace
def fit(
    workspace: Workspace,
    recipe: str | None,
    config: tuple[Path, ...],
    clone: str | None,
    gpu: str,
    measure: bool,
    fit_to_gpu: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Estimate what a run needs, without starting it. Takes the flags of `workbench train`.

    Exits with 0 if it fits and 91 if it does not.
    """
    if config and clone:
        raise ConfigError("--config and --clone both say where the settings come from: give one of them")
    parent = Run.open(workspace, clone) if clone else None
    settings = settings_from(TrainSettings, config, with_length(flags), parent.settings if parent else None)
    settings = with_recipe(workspace, recipe, settings, flags, gpu, quiet=as_json)
    settings = settings.changed(model=sized_model(settings.model)[1].id)
    if fit_to_gpu:
        settings = fitted(workspace, settings, gpu, quiet=as_json)
    if measure:
        if as_json:
            raise ConfigError("--measure shows its progress: measure first, then ask with --json")
        if gpu != HERE:
            raise ConfigError(f"GPU is {gpu!r}, but only this machine's can be measured: leave out --gpu-memory")
        _measure(workspace, settings)
    found, warnings = estimate(workspace, settings, gpu), run_warnings(workspace, settings)
    if as_json:
        print_json(fit_view(found, settings, warnings).model_dump(mode="json"))
    else:
        show(found)
        for sentence in warnings:
            say(sentence)
    return 0 if found.fits else int(ExitCode.OUT_OF_MEMORY)


def with_length(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags, where --steps clears the epochs of a config file or another run.

    Raises ConfigError for --steps with --epochs.
    """
    found = dict(flags)
    if found.get("steps") is not None:
        if found.get("epochs"):
            raise ConfigError("--steps and --epochs both set the length of the run: give one of them")
        found["epochs"] = ""
    return found


def fitted(workspace: Workspace, settings: TrainSettings, gpu: str = HERE, quiet: bool = False) -> TrainSettings:
    """Return settings that fit the GPU, and print what changed. Raises ConfigError if none fit."""
    found = levels.fit_to_gpu(workspace, settings, gpu)
    if found.settings is None:
        raise ConfigError(found.why)
    if not quiet:
        say(found.why)
        if found.changed:
            say(f" {as_flags(found.changed)}")
    return found.settings


def _measure(workspace: Workspace, settings: TrainSettings) -> None:
    """Measure with progress. Ctrl-C stops the measurement. Raises ConfigError when it fails."""
    folder = measurement.start(workspace, settings)
    status = watch(lambda: jobs.status(folder))
    if status is None:
        jobs.stop(folder)
        raise click.Abort
    if status.state is not jobs.State.FINISHED:
        raise ConfigError(measurement.progress(status))


def show(found: Fit) -> None:
    """Print the summary, the phases as a table, and what else the run needs."""
    say(found.summary)
    table = [
        (
            phase.name,
            gb_text(phase.gb),
            f"{found.share(phase):.0%}" + ("" if found.phase_fits(phase) else ", too much"),
            "estimated" if phase.measured is None else "measured",
            phase.made_of,
        )
        for phase in found.phases
    ]
    print_table(("phase", "memory", "of all", "", "made of"), table, right=("memory",))
    for name, text in found.beside:
        say(f"{name}: {text}")
