"""`workbench encode`: encode a dataset ahead of training, by many processes, and by every machine that sees the disk.

Not covered: what is encoded and how it is shared (workbench.trainer.inputs.encoding_job).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench.cli.follow import watch
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.errors import ExitCode
from workbench.jobs import State
from workbench.remote.slurm import submit_encoding
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.trainer.inputs.encoding_job import EncodeSettings, Encoding
from workbench.workspace import Workspace

CONFIG_HELP = "The settings of the run that is to train on it, such as a run's config.json. Flags win over it."
TARGET_HELP = "Let nodes of a cluster do it (workbench targets); give --nodes, too."
HOW = tuple(spec.name for spec in specs(EncodeSettings))
# What decides which tensors there are; nothing else of a run matters here.
WHAT = (
    "dataset",
    "more_datasets",
    "regularization_dataset",
    "model",
    "condition",
    "low_resolution_scale",
    "frames",
    "height",
    "width",
    "fps",
    "frame_sampling",
    "skip_start",
    "skip_end",
    "crop",
    "horizontal_flip",
    "held_out",
    "validation_dataset",
    "buckets",
    "bucket_limit",
    "preview_prompts",
    "preservation_prompts",
    "device",
    "precision",
    "seed",
)


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings, only=WHAT)
@settings_flags(EncodeSettings)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help=CONFIG_HELP)
@click.option("--target", metavar="NAME", help=TARGET_HELP)
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="With --target: how many nodes.")
@click.option("--detach", is_flag=True, help="Start it and return at once.")
@with_workspace
def encode(
    workspace: Workspace, config: Path | None, target: str | None, nodes: int, detach: bool, **flags: Any
) -> int:
    """Encode a dataset's clips and captions ahead of training, a shard a worker at a time.

    Every machine that sees the workspace may be given the same command: they share the work, and no clip is encoded
    twice. What is done stays; the same command goes on after a stop. A run with these settings finds its tensors.
    """
    how = settings_from(EncodeSettings, None, {name: flags.pop(name) for name in HOW})
    encoding = Encoding.create(workspace, settings_from(TrainSettings, config, flags), how)
    if target:
        for number in submit_encoding(workspace, target, encoding, nodes):
            click.echo(f"submitted job {number} to {target}")
        click.echo(f"the nodes share the work in {encoding.folder.parent}")
        return 0
    encoding.start()
    if detach:
        click.echo(f"it goes on in the background; the same command shows it: {encoding.folder}")
        return 0
    status = watch(lambda: encoding.status)
    if status is None:
        click.echo(f"\nIt goes on. The same command shows it; end it: touch {encoding.folder / 'control' / 'stop'}")
        return 0
    click.echo(status.message or f"{status.step} of {status.total} clips and captions are encoded")
    return 0 if status.state is State.FINISHED else int(status.exit_code or ExitCode.BUG)
