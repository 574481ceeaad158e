"""`workbench fit`: does a run fit the GPU? Memory by phase, disk and time, before anything starts.

Not covered: how the figures come about (workbench.fit), starting the run (training).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import watch
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.cli.tables import print_table
from workbench.errors import ConfigError, ExitCode
from workbench.families import settle
from workbench.fit import levels, measurement, rows
from workbench.fit.estimate import Fit, estimate
from workbench.fit.gpus import HERE
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

GPU_HELP = "Memory of the GPU to estimate for, in GB, as in 24. Else this machine's."


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings from a JSON file.")
@click.option("--clone", metavar="RUN", help="Settings of that run. Flags win over them.")
@click.option("--gpu-memory", "gpu", default=HERE, metavar="GB", help=GPU_HELP)
@click.option("--measure", is_flag=True, help=rows.MEASURE_HELP)
@click.option("--make-it-fit", is_flag=True, help=f"{rows.MAKE_HELP} Prints the flags that set them.")
@with_workspace
def fit(
    workspace: Workspace,
    config: Path | None,
    clone: str | None,
    gpu: str,
    measure: bool,
    make_it_fit: bool,
    **flags: Any,
) -> int:
    """Say what a run would need, with the flags of `workbench train`. Starts nothing.

    Ends with 0 when it fits, with 91 when it does not.
    """
    if config and clone:
        raise ConfigError("--config and --clone both say where the settings come from: give one of them")
    parent = Run.open(workspace, clone) if clone else None
    settings = settings_from(TrainSettings, config, flags, parent.settings if parent else None)
    settings = settings.changed(model=settle(settings.model))
    if make_it_fit:
        settings = fitted(workspace, settings, gpu)
    if measure:
        if gpu != HERE:
            raise ConfigError(f"GPU is {gpu!r}, but only this machine's can be measured: leave out --gpu-memory")
        _measure(workspace, settings)
    found = estimate(workspace, settings, gpu)
    show(found)
    return 0 if found.fits else int(ExitCode.OUT_OF_MEMORY)


def fitted(workspace: Workspace, settings: TrainSettings, gpu: str = HERE) -> TrainSettings:
    """The settings with which it fits, printed in a line. Raises ConfigError where none do."""
    found = levels.make_it_fit(workspace, settings, gpu)
    if found.settings is None:
        raise ConfigError(found.why)
    click.echo(found.why)
    if found.changed:
        click.echo("  " + " ".join(_flag(name, value) for name, value in found.changed.items()))
    return found.settings


def _flag(name: str, value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) and " " in value else value
    return f"--{name.replace('_', '-')} {text}"


def _measure(workspace: Workspace, settings: TrainSettings) -> None:
    """Measure, and show how far it is. Ctrl-C stops the measurement. Raises ConfigError when it fails."""
    folder = measurement.start(workspace, settings)
    status = watch(lambda: jobs.status(folder))
    if status is None:
        jobs.stop(folder)
        raise click.Abort
    if status.state is not jobs.State.FINISHED:
        raise ConfigError(rows.progress(status))


def show(found: Fit) -> None:
    """The line, the phases as a table, and what is needed beside the GPU."""
    click.echo(in_one_line(found))
    table = [
        (
            row.name,
            rows.size(row.gb),
            f"{row.share:.0%}" + ("" if row.fits else ", too much"),
            "measured" if row.measured else "estimated",
            row.made_of,
        )
        for row in rows.rows(found)
    ]
    print_table(("phase", "memory", "of the GPU", "", "made of"), table, right=("memory",))
    for name, words_of in rows.other_needs(found):
        click.echo(f"{name}: {words_of}")


def in_one_line(found: Fit) -> str:
    """The fit in one line."""
    return " ".join(filter(None, (found.sentence, found.advice)))
