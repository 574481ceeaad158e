"""`workbench encode`: encode a dataset ahead of training, on every machine that shares the workspace."""

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

CONFIG_HELP = "Settings of the run that will train on the dataset, such as its config.json. Flags win over it."
TARGET_HELP = "Encode on nodes of a cluster (workbench targets). Set --nodes, too."
# The settings that change the cached tensors.
WEIGHTS = {"dataset_weights", "regularization_share", "regularization_target", "regularization_weight"}
OTHERS = {"preview_prompts", "model", "condition", "low_resolution_scale", "device", "precision", "seed"}
OTHERS |= {"loss_mask", "mask_soften"}
CACHED = DataSettings.model_fields.keys() - WEIGHTS | ToldSettings.model_fields.keys() | OTHERS


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings, only=CACHED)
@settings_flags(EncodeSettings)
@config_flag(CONFIG_HELP)
@click.option("--target", metavar="NAME", help=TARGET_HELP)
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
