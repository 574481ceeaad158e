"""`workbench train`: start runs from flags, a file, another run or its checkpoint, and watch them.

Also `workbench encode`, which encodes a dataset ahead on every machine that shares the workspace, and `targets add`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.fit import clone_flag, fitted, recipe_flag, with_length, with_recipe
from workbench.cli.follow import follow, follow_job
from workbench.cli.options import (
    Command,
    SettingsCommand,
    config_flag,
    detach_flag,
    given_flags,
    settings_flags,
    settings_from,
    target_flag,
    with_workspace,
)
from workbench.cli.printing import say
from workbench.errors import ConfigError
from workbench.fit.estimate import estimate
from workbench.fit.gpus import HERE
from workbench.fit.levels import HELP, offer
from workbench.fit.warnings import run_warnings
from workbench.form_rules import needless
from workbench.jobs import queue
from workbench.operations.runs import checkpoint_of
from workbench.remote.targets import KINDS, choose_target, resolve_target
from workbench.remote.targets import save as save_target
from workbench.runs.from_scratch import families_from_scratch, new_model
from workbench.runs.run import Run
from workbench.runs.settings import DataSettings, ToldSettings, TrainSettings
from workbench.runs.sweeps import created, parse_values
from workbench.settings import Settings, specs
from workbench.trainer.encoding_job import MODULE, EncodeSettings, plan_encoding
from workbench.workspace import Workspace, read_object

FORK_HELP = "Continue from that checkpoint in a new run, with its settings. Flags win over them."
SWEEP_HELP = (
    "Start a run for every value, as in learning_rate=1e-4,3e-4 or, with a field's label, 'Learning rate=1e-4,3e-4'. "
    "Repeat it for every combination."
)
SCRATCH_HELP = (
    "Start from a new model with random weights. --model then names its family: phenaki. Train its tokenizer first, "
    "then all weights of its transformer."
)
SIZES = {spec.name for one in families_from_scratch().values() if one.new_model for spec in specs(one.new_model)}


def new_model_flags(command: Command) -> Command:
    """Add --from-scratch, and a flag for each size of a new model."""
    for family in families_from_scratch().values():
        assert family.new_model is not None
        command = settings_flags(family.new_model)(command)
    return click.option("--from-scratch", is_flag=True, help=SCRATCH_HELP)(command)


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings)
@new_model_flags
@recipe_flag
@click.option("--name", help="Name of the run. Default: the dataset or the other run, numbered.")
@config_flag("Settings from a JSON file, such as an earlier run's config.json")
@clone_flag
@click.option("--fork", metavar="RUN@STEP", help=FORK_HELP)
@click.option("--sweep", "swept", metavar="SETTING=VALUE,VALUE", multiple=True, help=SWEEP_HELP)
@target_flag
@click.option("--fit-to-gpu", is_flag=True, help=HELP)
@detach_flag
@with_workspace
def train(
    workspace: Workspace,
    from_scratch: bool,
    recipe: str | None,
    name: str | None,
    config: tuple[Path, ...],
    clone: str | None,
    fork: str | None,
    swept: tuple[str, ...],
    target: str | None,
    fit_to_gpu: bool,
    detach: bool,
    **flags: Any,
) -> int:
    """Train a LoRA on a dataset and watch it. Ctrl-C stops watching, not the run.

    Runs wait for their turn while another one trains. Exits with the run's code: 0 finished, 90 stopped on request,
    others in docs/file_formats.md.
    """
    if target:
        resolve_target(workspace, target)  # fail before a run exists
    if target and fit_to_gpu:
        raise ConfigError("--fit-to-gpu measures this machine: with --target, use workbench fit --gpu-memory")
    if fork and swept:
        raise ConfigError("--fork continues one run, --sweep starts several: give one of them")
    sources = [flag for flag, value in (("--config", config), ("--clone", clone), ("--fork", fork)) if value]
    if len(sources) > 1:
        raise ConfigError(f"{' and '.join(sources)} both say where the settings come from: give one of them")
    parent, step = checkpoint_of(workspace, fork) if fork else (Run.open(workspace, clone) if clone else None, 0)
    settings = settings_from(TrainSettings, config, with_length(flags), parent.settings if parent else None)
    title = name or (parent.name if parent else None)
    with _of_new_model(workspace, from_scratch, settings, flags, config, parent, title) as settings:
        settings = with_recipe(workspace, recipe, settings, flags, None if target else HERE)
        if fit_to_gpu:
            settings = fitted(workspace, settings)
        if parent and fork:
            runs = [parent.fork(workspace, step, settings, title)]
        else:
            runs = created(workspace, settings, parse_values(swept), title)
    for run in runs:
        if target:
            choose_target(workspace, run, target)
    for sentence in [*needless(settings, given_flags(flags)), *run_warnings(workspace, runs[0].settings)]:
        say(sentence)
    if not target:
        say(estimate(workspace, settings).summary)
        if (more := offer(settings)) is not None:
            say(f"this machine has {more.count} GPUs that could share the steps: {more.flags}")
    return _start(runs, detach)


def _of_new_model(
    workspace: Workspace,
    from_scratch: bool,
    settings: TrainSettings,
    flags: dict[str, Any],
    config: tuple[Path, ...],
    parent: Run | None,
    name: str | None,
) -> contextlib.AbstractContextManager[TrainSettings]:
    """Return a context with the settings, with --from-scratch those of a new model.

    The model is removed if the block fails. Raises ConfigError, ModelUnavailable, CannotWrite.
    """
    given = set(given_flags(flags))
    if not from_scratch:
        if settings.model in families_from_scratch():
            sentence = f"model is {settings.model}, a family without published weights: add --from-scratch"
            raise ConfigError(sentence, {"model": sentence})
        if sizes := sorted(SIZES & given):
            flag = f"--{sizes[0].replace('_', '-')}"
            raise ConfigError(f"{flag} is for a model that is trained from scratch: add --from-scratch")
        return contextlib.nullcontext(settings)
    if parent is not None:
        raise ConfigError(
            f"--from-scratch makes a new model, but {parent.name} already has one: leave out --clone and --fork"
        )
    for path in config:
        given |= read_object(path).keys()
    family = families_from_scratch().get(settings.model)
    new = settings_from(family.new_model, (), flags) if family and family.new_model else None
    return new_model(workspace, settings, new, name, given)


def _start(runs: list[Run], detach: bool) -> int:
    if not detach:
        return follow(*runs, begin=lambda: _begin(runs))
    _begin(runs)
    say(f"watch it: workbench runs follow {runs[0].name}" if len(runs) == 1 else "watch them: workbench runs")
    return 0


def _begin(runs: list[Run]) -> None:
    for run in runs:
        run.start()
        before = "" if run.target else queue.waits_for(Workspace.of(run.folder), run.name)
        say(f"{f'queued after {before}:' if before else 'started'} {run.name}: {run.folder}")
        for sentence in run.parent.get("dropped", ()):
            say(f"not carried over: {sentence}")
    if len(runs) > 1:
        names = " ".join(run.name for run in runs)
        say(f"they train one after another. Compare them at any time: workbench runs compare {names}")


# ---- encoding ahead of training

CONFIG_HELP = "Settings of the run that will train on the dataset, such as its config.json. Flags win over it."
NODES_HELP = "Encode on nodes of a cluster (workbench targets). Set --nodes, too."
# The settings that change the cached tensors.
WEIGHTS = {"dataset_weights", "regularization_share", "regularization_target", "regularization_weight"}
OTHERS = {"preview_prompts", "model", "condition", "low_resolution_scale", "device", "precision", "seed"}
OTHERS |= {"loss_mask", "mask_soften"}
CACHED = DataSettings.model_fields.keys() - WEIGHTS | ToldSettings.model_fields.keys() | OTHERS


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings, only=CACHED)
@settings_flags(EncodeSettings)
@config_flag(CONFIG_HELP)
@click.option("--target", metavar="NAME", help=NODES_HELP)
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Number of nodes, with --target.")
@detach_flag
@with_workspace
def encode(
    workspace: Workspace, config: tuple[Path, ...], target: str | None, nodes: int, detach: bool, **flags: Any
) -> int:
    """Encode a dataset's clips and captions ahead of training.

    Run the same command on every machine that sees the workspace: they share the work, and no clip is encoded twice.
    After a stop, the same command continues. A run with the same settings uses the result.
    """
    settings = settings_from(TrainSettings, config, flags)
    folder = plan_encoding(workspace, settings, settings_from(EncodeSettings, (), flags))
    if target:
        from workbench.remote.slurm import submit_encoding

        for number in submit_encoding(workspace, target, folder, nodes):
            say(f"submitted job {number} to {target}")
        say(f"the nodes share the work in {folder.parent}")
        return 0
    queue.submit(workspace, folder, MODULE)

    def outcome() -> list[str]:
        status = jobs.status(folder)
        return [status.message or f"{status.step} of {status.total} clips and captions are encoded"]

    goes_on = f"Encoding continues. The same command shows it; to stop it: touch {folder / 'control' / 'stop'}"
    return follow_job(lambda: jobs.status(folder), outcome, goes_on, detach=detach)


# ---- targets: a command for each kind, with its settings


@click.group()
def add() -> None:
    """Add or replace a target: give its kind, then its name."""


def _add(kind: str, cls: type[Settings]) -> None:
    @add.command(kind, cls=SettingsCommand, help=cls.__doc__)
    @click.argument("name")
    @settings_flags(cls, leave_out=("kind",))
    @with_workspace
    def command(workspace: Workspace, name: str, **flags: Any) -> None:
        save_target(workspace, name, settings_from(cls, (), flags))
        say(f"saved the target {name}. Check it: workbench targets check {name}")


for kind, settings in KINDS.items():
    _add(kind, settings)
