"""`workbench encode`: encode a dataset ahead of training, by many processes and every machine that sees the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import follow_job
from workbench.cli.options import (
    SettingsCommand,
    config_flag,
    detach_flag,
    settings_flags,
    settings_from,
    with_workspace,
)
from workbench.cli.printing import say
from workbench.jobs import queue
from workbench.remote.slurm import submit_encoding
from workbench.runs.settings import DataSettings, ToldSettings, TrainSettings
from workbench.trainer.encoding_job import MODULE, EncodeSettings, plan_encoding
from workbench.workspace import Workspace

CONFIG_HELP = "The settings of the run that is to train on it, such as a run's config.json. Flags win over it."
TARGET_HELP = "Let nodes of a cluster do it (workbench targets); give --nodes, too."
# What decides which tensors there are; nothing else of a run matters here.
WEIGHTS = {"dataset_weights", "regularization_share", "regularization_target", "regularization_weight"}
BESIDE = {"preview_prompts", "model", "condition", "low_resolution_scale", "device", "precision", "seed"}
BESIDE |= {"loss_mask", "mask_soften"}
WHAT = DataSettings.model_fields.keys() - WEIGHTS | ToldSettings.model_fields.keys() | BESIDE


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings, only=WHAT)
@settings_flags(EncodeSettings)
@config_flag(CONFIG_HELP)
@click.option("--target", metavar="NAME", help=TARGET_HELP)
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="With --target: how many nodes.")
@detach_flag
@with_workspace
def encode(
    workspace: Workspace, config: tuple[Path, ...], target: str | None, nodes: int, detach: bool, **flags: Any
) -> int:
    """Encode a dataset's clips and captions ahead of training, a shard a worker at a time.

    Every machine that sees the workspace may be given the same command: they share the work, and no clip is encoded
    twice. What is done stays; the same command goes on after a stop. A run with these settings finds its tensors.
    """
    settings = settings_from(TrainSettings, config, flags)
    folder = plan_encoding(workspace, settings, settings_from(EncodeSettings, (), flags))
    if target:
        for number in submit_encoding(workspace, target, folder, nodes):
            say(f"submitted job {number} to {target}")
        say(f"the nodes share the work in {folder.parent}")
        return 0
    queue.submit(workspace, folder, MODULE)

    def outcome() -> list[str]:
        status = jobs.status(folder)
        return [status.message or f"{status.step} of {status.total} clips and captions are encoded"]

    goes_on = f"It goes on. The same command shows it; end it: touch {folder / 'control' / 'stop'}"
    return follow_job(lambda: jobs.status(folder), outcome, goes_on, detach=detach)
