"""What a model uses of a dataset's clips: frames, crop, buckets, also as videos; and what its VAE reconstructs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from workbench.clips import buckets as buckets_of
from workbench.clips import records
from workbench.clips.frame_plan import Shape, shape_of
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import plan_sentence
from workbench.errors import ConfigError, Unknown
from workbench.families import find_model
from workbench.families.model import Model
from workbench.operations.clips import Clip, OrAll
from workbench.operations.dataset_tasks import NamedDataset
from workbench.operations.datasets import LOOKING
from workbench.operations.registry import Fields, operation
from workbench.runs.settings import TrainSettings
from workbench.sampler import vae_reconstruction
from workbench.sampler.vae_reconstruction import Reconstruction
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, is_slug, named_paths

SHAPE = ("model", "frames", "height", "width", "fps")
ShapeOf = Annotated[TrainSettings, Fields(only=SHAPE)]


class Plan(Snapshot):
    """What a model uses of each clip."""

    sentence: str
    """A summary in words."""

    frames: int
    """Number of frames taken from each clip."""

    height: int
    """Height in pixels."""

    width: int
    """Width in pixels."""

    fps: float
    """Frames per second."""

    clips: tuple[dict[str, Any], ...]
    """For each clip: file_name, name, sentence, indices, resize, crop, fps, use, warnings, dropped (why it is left
    out, or null); with `buckets`: file_name, name, bucket, dropped."""

    buckets: dict[str, int]
    """With `buckets`: chosen bucket -> number of clips in it; otherwise {}."""

    written: tuple[str, ...]
    """Paths of the videos that `write-plan` wrote; otherwise []."""

    def text(self) -> Iterator[str]:
        yield from (f"{count:>6}  {bucket}" for bucket, count in self.buckets.items())
        for one in self.clips:
            if "sentence" in one:
                yield f"{one['name']}: {one['sentence']}" + (f" ({one['use']})" if one["use"] else "")
                yield from (f"  {warning}" for warning in one["warnings"])
            else:
                yield f"{one['name']}: {one['bucket'] or 'left out: ' + one['dropped']}"
        yield self.sentence
        yield from self.written


class Video(Snapshot):
    """A clip as a model sees it."""

    file: str
    """Path of the video."""

    sentence: str
    """What it shows."""


@operation(shell=False)
def planned(workspace: Workspace, dataset: NamedDataset, clip: Clip, settings: ShapeOf) -> Video:
    """Render a clip exactly as a model sees it."""
    _, shape = _wanted(workspace, settings)
    made = dataset.planned_video(dataset.clip(clip), shape)
    return Video(file=str(made.path), sentence=made.plan.sentence)


def _wanted(workspace: Workspace, settings: TrainSettings) -> tuple[Model, Shape]:
    """Return the model and the shape that the settings ask for. Raises ConfigError."""
    _, model = find_model(workspace.model(settings.model))
    return model, shape_of(settings, model)


@operation(section=LOOKING)
def plan(
    workspace: Workspace,
    dataset: NamedDataset,
    clips: OrAll = (),
    *,
    settings: ShapeOf,
    buckets: Annotated[
        int | None, Field(ge=1, description="Choose this many buckets that lose the least, and show each clip's.")
    ] = None,
) -> Plan:
    """Show what a model uses of each clip: frames, crop, buckets."""
    model, shape = _wanted(workspace, settings)
    if buckets is None:
        return _plan(dataset, clips, shape)
    chosen = records.clips_named(dataset.clips, clips or None)
    found = buckets_of.choose(chosen, model, buckets, shape.fps, [(shape.height, shape.width)])
    table = buckets_of.assign(chosen, found, shape.fps)
    return Plan.from_objects(
        shape,
        sentence=table.sentence,
        clips=tuple(
            {**_named(one.clip), "bucket": str(one.bucket) if one.bucket else None, "dropped": one.dropped}
            for one in table.assignments
        ),
        buckets={str(bucket): count for bucket, count in table.clips_per_bucket.items()},
        written=(),
    )


def _plan(dataset: Dataset, clips: tuple[str, ...], shape: Shape) -> Plan:
    wanted = {clip.file_name for clip in records.clips_named(dataset.clips, clips or None)}
    plans = [one for one in dataset.plans(shape) if one.clip.file_name in wanted]
    plain = ("sentence", "indices", "resize", "crop", "fps", "use", "warnings", "dropped")
    return Plan.from_objects(
        shape,
        sentence=plan_sentence(shape, plans),
        clips=tuple({**_named(one.clip), **{name: getattr(one, name) for name in plain}} for one in plans),
        buckets={},
        written=(),
    )


def _named(clip: records.Clip) -> dict[str, str]:
    return {"file_name": clip.file_name, "name": clip.name}


@operation(changes=True, visitors="never", section=LOOKING)
def write_plan(
    workspace: Workspace,
    dataset: NamedDataset,
    target: Annotated[str, Field(description="Path of a new folder.", json_schema_extra={"path": True})],
    clips: OrAll = (),
    *,
    settings: ShapeOf,
) -> Plan:
    """Write each clip as a model sees it to a new folder, as ID.mp4."""
    folder = named_paths.checked(target, "target")
    _, shape = _wanted(workspace, settings)
    if folder.exists():
        raise ConfigError(f"target is {target}, which already exists: choose a new folder")
    planned = _plan(dataset, clips, shape)
    used = [dataset.clip(one["file_name"]) for one in planned.clips if not one["dropped"]]
    written = [dataset.planned_video(clip, shape, folder / f"{clip.id}.mp4").path for clip in used]
    return planned.model_copy(update={"written": tuple(map(str, written))})


@operation(path="/reconstructions/{id}", shell=False)
def reconstruction(
    workspace: Workspace, id: Annotated[str, Field(description="Id of the job, as `reconstruct` returned it.")]
) -> Reconstruction:
    """Show the progress of a reconstruction, or its result."""
    folder = workspace.cache / vae_reconstruction.FOLDER / id
    if not is_slug(id) or not folder.is_dir():
        raise Unknown(f"there is no reconstruction {id[:80]!r}: request it again")
    return vae_reconstruction.read(folder)


@operation(changes=True, job=reconstruction, section=LOOKING)
def reconstruct(
    workspace: Workspace,
    dataset: NamedDataset,
    clip: Clip,
    settings: Annotated[TrainSettings, Fields(only=(*SHAPE, "device"))],
) -> Reconstruction:
    """Encode and decode a clip with a model's VAE, and show the result beside the original."""
    _, shape = _wanted(workspace, settings)
    wanted = workspace.model(settings.model)
    one = dataset.clip(clip)
    return vae_reconstruction.request(workspace, dataset.folder, one, wanted, shape, settings.device)
