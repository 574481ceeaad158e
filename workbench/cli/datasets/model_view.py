"""`workbench dataset plan|reconstruct`: the model input of each clip, and what the VAE keeps of it.

Not covered: how frames and buckets are chosen (clips.frame_plan, clips.buckets), the VAE (sampler).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli import json_values
from workbench.cli.datasets.tasks import with_dataset
from workbench.cli.follow import follow_job
from workbench.cli.options import SettingsCommand, json_flag, settings_flags, settings_from, with_workspace
from workbench.cli.printing import print_json, say
from workbench.clips import buckets
from workbench.clips.frame_plan import FramePlan, Shape, shape_of
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import plan_sentence
from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.runs.settings import TrainSettings
from workbench.sampler import vae_reconstruction
from workbench.workspace import Workspace

SHAPE = ("model", "frames", "height", "width", "fps")


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
@json_flag
def plan(
    dataset: Dataset, clips: tuple[str, ...], most: int | None, write: Path | None, as_json: bool, **flags: Any
) -> None:
    """The model input of CLIPS, or of all: frames, crop, buckets."""
    _, model, shape = _wanted(flags)
    if write is not None and write.exists():
        raise ConfigError(f"--write is {write}, which is there already: choose a new folder")
    chosen = [dataset.clip(name) for name in clips] or dataset.clips
    if most is not None:
        _buckets(chosen, model, shape, most, as_json)
        return
    wanted = {clip.file_name for clip in chosen}
    plans = [one for one in dataset.plans(shape) if one.clip.file_name in wanted]
    written = _write(dataset, plans, shape, write) if write is not None else []
    if as_json:
        print_json(json_values.plans(shape, plans, written))
        return
    for one in plans:
        use = f" ({one.use})" if one.use else ""
        say(f"{one.clip.name}: {one.sentence}{use}")
        for warning in one.warnings:
            say(f"  {warning}")
    say(plan_sentence(shape, plans))
    if write is not None:
        say(f"{len(written)} videos written: {write}")


def _write(dataset: Dataset, plans: Sequence[FramePlan], shape: Shape, folder: Path) -> list[Path]:
    """The model input of each clip as a video in a new folder."""
    used = [one.clip for one in plans if not one.dropped]
    return [dataset.planned_video(clip, shape, folder / f"{clip.id}.mp4").path for clip in used]


def _wanted(flags: dict[str, Any]) -> tuple[TrainSettings, Model, Shape]:
    """The settings that flags are, and the model and the shape that they ask for. Raises ConfigError."""
    settings = settings_from(TrainSettings, (), flags)
    model = settings.resolved.model
    return settings, model, shape_of(settings, model)


def _buckets(clips: list[Clip], model: Model, shape: Shape, most: int, as_json: bool) -> None:
    if most < 1:
        raise ConfigError(f"--buckets is {most}, must be 1 or more")
    found = buckets.choose(clips, model, most, shape.fps, [(shape.height, shape.width)])
    table = buckets.assign(clips, found, shape.fps)
    if as_json:
        print_json(json_values.bucket_table(shape, table))
        return
    for bucket, count in table.clips_per_bucket.items():
        say(f"{count:>6}  {bucket}")
    for one in table.assignments:
        where = f"left out: {one.dropped}" if one.bucket is None else str(one.bucket)
        say(f"{one.clip.name}: {where}")
    say(table.sentence)


@click.command(cls=SettingsCommand)
@with_workspace
@click.argument("name")
@click.argument("clip")
@settings_flags(TrainSettings, only=(*SHAPE, "device"))
def reconstruct(workspace: Workspace, name: str, clip: str, **flags: Any) -> int:
    """What a model's VAE gives back of CLIP, beside the original."""
    dataset = Dataset.open(workspace, name)
    settings, model, shape = _wanted(flags)
    wanted = flags["model"] or model.id
    requested = vae_reconstruction.request(
        workspace, dataset.folder, dataset.clip(clip), wanted, shape, settings.device
    )
    folder = requested.folder

    def outcome() -> Iterator[str]:
        found = vae_reconstruction.read(folder)
        yield f"{found.psnr:.1f} dB, the worst frame {found.psnr_worst:.1f} dB: {vae_reconstruction.MEANING}"
        yield f"left what the model is given, right what comes back: {found.beside}"

    goes_on = "It goes on in the background; the same command shows it again. Stop it: touch "
    return follow_job(lambda: jobs.status(folder), outcome, goes_on + str(folder / "control" / "stop"))
