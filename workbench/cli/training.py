"""`workbench train`: start a run, or several, and watch them. From flags, a file, another run, or its checkpoint.

Not covered: what is started (workbench.runs.run, sweeps), commands to a run that is there (runs).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench.cli.fit import fitted, in_one_line
from workbench.cli.follow import follow
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.cli.targets import TARGET_HELP
from workbench.errors import ConfigError
from workbench.fit import rows
from workbench.fit.estimate import estimate
from workbench.fit.gpu_offer import offer
from workbench.remote.backends import choose_target, resolve_target
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import parse_values, sweep
from workbench.workspace import Workspace

CONFIG_HELP = "Settings from a JSON file, such as an earlier run's config.json. Flags win over it."
CLONE_HELP = "Settings of that run, in a run that begins anew. Flags win over them."
FORK_HELP = "Go on from that run's checkpoint in a new run, with its settings. Flags win over them."
MOST_DIGITS = 12  # of a step
SWEEP_HELP = "A run for every value, as in learning_rate=1e-4,3e-4; given again, for every combination."


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings)
@click.option("--name", help="The run's name. Else the dataset's, or the other run's, numbered.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help=CONFIG_HELP)
@click.option("--clone", metavar="RUN", help=CLONE_HELP)
@click.option("--fork", metavar="RUN@STEP", help=FORK_HELP)
@click.option("--sweep", "swept", metavar="SETTING=VALUE,VALUE", multiple=True, help=SWEEP_HELP)
@click.option("--target", metavar="NAME", help=TARGET_HELP)
@click.option("--make-it-fit", is_flag=True, help=rows.MAKE_HELP)
@click.option("--detach", is_flag=True, help="Start the run and return at once.")
@with_workspace
def train(
    workspace: Workspace,
    name: str | None,
    config: Path | None,
    clone: str | None,
    fork: str | None,
    swept: tuple[str, ...],
    target: str | None,
    make_it_fit: bool,
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
    title = name or (parent.name if parent else None)
    if target and make_it_fit:
        raise ConfigError("--make-it-fit measures this machine: with --target, use workbench fit --gpu-memory")
    if make_it_fit:
        settings = fitted(workspace, settings)
    if swept:
        runs = sweep(workspace, settings, parse_values(swept), title)
    elif parent and fork:
        runs = [parent.fork(workspace, step, settings, title)]
    else:
        runs = [Run.create(workspace, settings, title)]
    for run in runs:
        if target:
            choose_target(workspace, run, target)
    if not target:
        click.echo(in_one_line(estimate(workspace, settings)))
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
    names = " ".join(run.name for run in runs)
    click.echo("watch it: workbench runs follow " + names if len(runs) == 1 else "watch them: workbench runs")
    return 0


def _begin(runs: list[Run]) -> None:
    for run in runs:
        run.start()
        click.echo(f"started {run.name}: {run.folder}")
        for sentence in run.parent.get("dropped", ()):
            click.echo(f"not taken along: {sentence}")
    names = " ".join(run.name for run in runs)
    if len(runs) > 1:
        click.echo(f"they train one after another; compare them at any time: workbench runs compare {names}")
