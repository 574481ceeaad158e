"""`workbench fit`: does a run fit the GPU? Memory by phase, disk and time, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import watch
from workbench.cli.options import SettingsCommand, config_flag, json_flag, settings_flags, settings_from, with_workspace
from workbench.cli.printing import print_json, say
from workbench.cli.recipes import gpu_flag, recipe_flag, with_recipe
from workbench.cli.tables import print_table
from workbench.errors import ConfigError, ExitCode
from workbench.fit import levels, measurement
from workbench.fit.estimate import Fit, estimate, sized_model
from workbench.fit.gpus import HERE
from workbench.fit.memory import gb_text
from workbench.fit.warnings import run_warnings
from workbench.operations.machine import fit_view
from workbench.runs.run import Run, as_flags
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

clone_flag = click.option("--clone", metavar="RUN", help="Settings of that run, as of a new one. Flags win over them.")


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings)
@recipe_flag
@config_flag()
@clone_flag
@gpu_flag
@click.option("--measure", is_flag=True, help=measurement.HELP)
@click.option("--fit-to-gpu", is_flag=True, help=f"{levels.HELP} Prints the flags that set them.")
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
    """Say what a run would need, with the flags of `workbench train`. Starts nothing.

    Ends with 0 when it fits, with 91 when it does not.
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
    """The flags of a run whose length is said once. A flag for steps takes away the epochs of a file or another run.

    Raises ConfigError for both flags.
    """
    found = dict(flags)
    if found.get("steps") is not None:
        if found.get("epochs"):
            raise ConfigError("--steps and --epochs both say how long the run is: give one of them")
        found["epochs"] = ""
    return found


def fitted(workspace: Workspace, settings: TrainSettings, gpu: str = HERE, quiet: bool = False) -> TrainSettings:
    """The settings with which it fits, printed in a line unless quiet. Raises ConfigError where none do."""
    found = levels.fit_to_gpu(workspace, settings, gpu)
    if found.settings is None:
        raise ConfigError(found.why)
    if not quiet:
        say(found.why)
        if found.changed:
            say(f" {as_flags(found.changed)}")
    return found.settings


def _measure(workspace: Workspace, settings: TrainSettings) -> None:
    """Measure, with progress. Ctrl-C stops the measurement. Raises ConfigError when it fails."""
    folder = measurement.start(workspace, settings)
    status = watch(lambda: jobs.status(folder))
    if status is None:
        jobs.stop(folder)
        raise click.Abort
    if status.state is not jobs.State.FINISHED:
        raise ConfigError(measurement.progress(status))


def show(found: Fit) -> None:
    """The line, the phases as a table, and what is needed beside the GPU."""
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
    for name, words_of in found.beside:
        say(f"{name}: {words_of}")
