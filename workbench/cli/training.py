"""`workbench train`: start a run, or several, and watch them. From flags, a file, another run, or its checkpoint.

Not covered: what is started (workbench.runs.run, sweeps), commands to a run that is there (runs).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench.cli.fit import clone_flag, fitted
from workbench.cli.follow import follow
from workbench.cli.options import (
    SettingsCommand,
    config_flag,
    detach_flag,
    settings_flags,
    settings_from,
    with_workspace,
)
from workbench.cli.recipes import recipe_flag, with_recipe
from workbench.cli.targets import target_flag
from workbench.errors import ConfigError
from workbench.fit.estimate import estimate
from workbench.fit.gpus import HERE
from workbench.fit.levels import HELP, offer
from workbench.remote.targets import choose_target, resolve_target
from workbench.run_warnings import run_warnings
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import created, parse_values
from workbench.workspace import Workspace

FORK_HELP = "Go on from that run's checkpoint in a new run, with its settings. Flags win over them."
MOST_DIGITS = 12  # of a step
SWEEP_HELP = (
    "A run for every value, as in learning_rate=1e-4,3e-4 or, by a field's label, 'Learning rate=1e-4,3e-4'; given "
    "again, for every combination."
)


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings)
@recipe_flag
@click.option("--name", help="The run's name. Else the dataset's, or the other run's, numbered.")
@config_flag("Settings from a JSON file, such as an earlier run's config.json. Flags win over it.")
@clone_flag
@click.option("--fork", metavar="RUN@STEP", help=FORK_HELP)
@click.option("--sweep", "swept", metavar="SETTING=VALUE,VALUE", multiple=True, help=SWEEP_HELP)
@target_flag
@click.option("--fit-to-gpu", is_flag=True, help=HELP)
@detach_flag
@with_workspace
def train(
    workspace: Workspace,
    recipe: str | None,
    name: str | None,
    config: Path | None,
    clone: str | None,
    fork: str | None,
    swept: tuple[str, ...],
    target: str | None,
    fit_to_gpu: bool,
    detach: bool,
    **flags: Any,
) -> int:
    """Train a LoRA on a dataset and watch it. Ctrl-C stops watching; the run goes on.

    Runs that are started while another one trains wait for their turn. Ends with the run's exit code: 0 finished, 90
    stopped on request, others in docs/file_formats.md.
    """
    if target:
        resolve_target(workspace, target)  # before there is a run
    given = [flag for flag, value in (("--config", config), ("--clone", clone), ("--fork", fork)) if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} both say where the settings come from: give one of them")
    if fork and swept:
        raise ConfigError("--fork goes on with one run, --sweep begins several anew: give one of them")
    parent, step = _checkpoint(workspace, fork) if fork else (Run.open(workspace, clone) if clone else None, 0)
    settings = settings_from(TrainSettings, config, flags, parent.settings if parent else None)
    settings = with_recipe(workspace, recipe, settings, flags, None if target else HERE)
    title = name or (parent.name if parent else None)
    if target and fit_to_gpu:
        raise ConfigError("--fit-to-gpu measures this machine: with --target, use workbench fit --gpu-memory")
    if fit_to_gpu:
        settings = fitted(workspace, settings)
    if parent and fork:
        runs = [parent.fork(workspace, step, settings, title)]
    else:
        runs = created(workspace, settings, parse_values(swept), title)
    for run in runs:
        if target:
            choose_target(workspace, run, target)
    for sentence in run_warnings(workspace, settings):
        click.echo(sentence)
    if not target:
        click.echo(estimate(workspace, settings).summary)
        if (more := offer(settings)) is not None:
            click.echo(f"this machine has {more.count} GPUs, all of which could share the steps: {more.flags}")
    return _start(runs, detach)


def _checkpoint(workspace: Workspace, text: str) -> tuple[Run, int]:
    """The run and the step that RUN@STEP names. Raises ConfigError."""
    name, _, step = text.rpartition("@")
    if not name or not step.isdecimal() or len(step) > MOST_DIGITS:
        raise ConfigError(f"fork is {text!r}, must be RUN@STEP: write it as in cats@200")
    return Run.open(workspace, name), int(step)


def _start(runs: list[Run], detach: bool) -> int:
    if not detach:
        return follow(*runs, begin=lambda: _begin(runs))
    _begin(runs)
    click.echo(f"watch it: workbench runs follow {runs[0].name}" if len(runs) == 1 else "watch them: workbench runs")
    return 0


def _begin(runs: list[Run]) -> None:
    for run in runs:
        run.start()
        click.echo(f"started {run.name}: {run.folder}")
        for sentence in run.parent.get("dropped", ()):
            click.echo(f"not taken along: {sentence}")
    if len(runs) > 1:
        names = " ".join(run.name for run in runs)
        click.echo(f"they train one after another; compare them at any time: workbench runs compare {names}")
