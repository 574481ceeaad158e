"""`workbench dataset plan|reconstruct`: the model input of each clip, and what the VAE keeps of it.

Not covered: how frames and buckets are chosen (clips.frame_plan, clips.buckets), the VAE (sampler).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench.cli.datasets.tasks import with_dataset
from workbench.cli.follow import watch
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.clips import buckets
from workbench.clips.frame_plan import Shape, shape_for
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import plan_sentence
from workbench.errors import ConfigError, ExitCode
from workbench.families import find_model
from workbench.families.base import Model
from workbench.runs.settings import TrainSettings
from workbench.sampler import vae_reconstruction
from workbench.sampler.vae_reconstruction import ReconstructionSettings
from workbench.workspace import Workspace

SHAPE = ("model", "frames", "height", "width", "fps")
ALIKE = "30 dB and more look alike; under 25 dB the VAE loses what a LoRA could have learnt"


@click.command(cls=SettingsCommand)
@with_dataset
@click.argument("clips", nargs=-1)
@settings_flags(TrainSettings, only=SHAPE)
@click.option("--buckets", "most", type=int, metavar="N", help="The N buckets that lose least, and who goes where.")
@click.option(
    "--write",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the model input of each clip into a new folder, as ID.mp4.",
)
def plan(dataset: Dataset, clips: tuple[str, ...], most: int | None, write: Path | None, **flags: Any) -> None:
    """The model input of CLIPS, or of all: frames, crop, buckets."""
    model, shape = _wanted(flags)
    if write is not None and write.exists():
        raise ConfigError(f"--write is {write}, which is there already: choose a new folder")
    chosen = [dataset.clip(name) for name in clips] or dataset.clips
    if most is not None:
        _buckets(chosen, model, shape, most)
        return
    wanted = {clip.file_name for clip in chosen}
    plans = [one for one in dataset.plans(shape) if one.clip.file_name in wanted]
    for one in plans:
        use = f" ({one.use})" if one.use else ""
        click.echo(f"{one.clip.file_name}  {one.clip.source}: {one.sentence}{use}")
        for warning in one.warnings:
            click.echo(f"  {warning}")
        if write is not None and not one.dropped:
            dataset.plan_preview(one.clip, shape, write / f"{one.clip.id}.mp4")
    click.echo(plan_sentence(shape, plans))
    if write is not None:
        click.echo(f"{sum(one.dropped is None for one in plans)} videos written: {write}")


def _wanted(flags: dict[str, Any]) -> tuple[Model, Shape]:
    """The model and the shape that flags ask for. Raises ConfigError."""
    settings = settings_from(TrainSettings, None, flags)
    _, model = find_model(settings.model)
    return model, shape_for(model, settings.frames, settings.height, settings.width, settings.fps)


def _buckets(clips: list[Clip], model: Model, shape: Shape, most: int) -> None:
    if most < 1:
        raise ConfigError(f"--buckets is {most}, must be 1 or more")
    found = buckets.choose(clips, model, most, shape.fps, [(shape.height, shape.width)])
    table = buckets.assign(clips, found, shape.fps)
    for bucket, count in table.clips_per_bucket.items():
        click.echo(f"{count:>6}  {bucket}")
    for one in table.assignments:
        where = f"left out: {one.dropped}" if one.bucket is None else str(one.bucket)
        click.echo(f"{one.clip.file_name}  {one.clip.source}: {where}")
    click.echo(table.sentence)


@click.command(cls=SettingsCommand)
@with_workspace
@click.argument("name")
@click.argument("clip")
@settings_flags(TrainSettings, only=SHAPE)
@settings_flags(ReconstructionSettings, only=("device",))
def reconstruct(workspace: Workspace, name: str, clip: str, device: str | None, **flags: Any) -> int:
    """What a model's VAE gives back of CLIP, beside the original."""
    dataset = Dataset.open(workspace, name)
    model, shape = _wanted(flags)
    where = settings_from(ReconstructionSettings, None, {"device": device}).device
    wanted = flags["model"] or model.id
    requested = vae_reconstruction.request(workspace, dataset.folder, dataset.clip(clip), wanted, shape, where)
    if watch(lambda: vae_reconstruction.read(requested.folder).status) is None:
        click.echo(
            f"\nIt goes on in the background; the same command shows it again. Stop it: touch "
            f"{requested.folder / 'control' / 'stop'}"
        )
        return 0
    found = vae_reconstruction.read(requested.folder)
    if found.beside is None:
        click.echo(f"Error: {found.status.message}", err=True)
        return int(found.status.exit_code or ExitCode.BUG)
    click.echo(f"{found.psnr:.1f} dB, the worst frame {found.psnr_worst:.1f} dB: {ALIKE}")
    click.echo(f"left what the model is given, right what comes back: {found.beside}")
    return 0
