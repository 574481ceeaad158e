"""The clips of a dataset: write and edit captions, cut, look at what a model gets, remove and restore.

Each change is one entry of the dataset's history, which `undo` takes back. Seconds and pixels are those of the whole
source video, from which every part is cut, so that each can be made wider again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, Strict

from workbench import policy
from workbench.clips import buckets as buckets_of
from workbench.clips import records
from workbench.clips.frame_plan import Shape, shape_of
from workbench.dataset_builder.captions import editing
from workbench.dataset_builder.captions.editing import Search
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import CaptionSettings, SplitTask
from workbench.dataset_builder.snapshot import plan_sentence
from workbench.errors import ConfigError, Unknown
from workbench.families import find_model
from workbench.families.model import Model
from workbench.operations.datasets import LOOKING, NAMING, ClipEntry, DatasetTask, Name, clip_entry, job, start_task
from workbench.operations.registry import Fields, JobSnapshot, Shown, Snapshot, operation
from workbench.runs.settings import TrainSettings
from workbench.sampler import vae_reconstruction
from workbench.workspace import Workspace, is_slug

CAPTIONS, CUTTING = "Captions", "Cutting"
SHAPE = ("model", "frames", "height", "width", "fps")
EACH = "Ids or names of clips"

Clip = Annotated[str, Field(description="Id or name of the clip.")]
Clips = Annotated[tuple[str, ...], Field(description=f"{EACH}.", min_length=1)]
OrAll = Annotated[tuple[str, ...], Field(description=f"{EACH}; all without one.")]
Caption = Annotated[str, Field(description="The text.")]
Find = Annotated[str, Field(description="What to find.")]
Replacement = Annotated[str, Field(description="What takes its place.")]
Expression = Annotated[bool, Field(description="FIND is a regular expression; REPLACEMENT may use its groups (\\1).")]
MatchCase = Annotated[bool, Field(description="Tell small letters from capitals.")]
WholeWord = Annotated[bool, Field(description="Only where FIND is a word of its own.")]
ShapeOf = Annotated[TrainSettings, Fields(only=SHAPE)]


class Edited(Snapshot):
    """What an edit of captions did."""

    changed: Annotated[int, Shown("captions changed", "{:,}".format)]
    """How many captions it changed."""


class Rewritten(Snapshot):
    """What an edit would make of one caption."""

    name: str
    """Of the clip."""

    before: str
    """The caption as it is."""

    after: str
    """The caption as it would be."""


class Trigger(Snapshot):
    """The trigger word of a dataset, as it is now."""

    name: str
    """Of the dataset."""

    trigger_word: Annotated[str, Shown("trigger word")]
    """Added to every caption without it; "" for none."""

    changed: Annotated[int, Shown("captions changed", "{:,}".format)]
    """Captions that `write` or `remove` changed."""


class Tag(Snapshot):
    """A comma-separated tag of the captions."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("clips", "tag")

    tag: str
    """As it is written first."""

    clips: Annotated[int, Shown(right=True)]
    """In how many captions it stands."""


class Plan(Snapshot):
    """What a model gets of each clip."""

    sentence: str
    """In words."""

    frames: int
    """Of each clip."""

    height: int
    """Pixels."""

    width: int
    """Pixels."""

    fps: float
    """Frames per second."""

    clips: tuple[dict[str, Any], ...]
    """file_name, name, sentence, indices, resize, crop, fps, use, warnings, dropped (why it is left out, or null) of
    each; with `buckets` file_name, name, bucket, dropped."""

    buckets: dict[str, int]
    """With `buckets`: the chosen ones -> how many clips each has; else {}."""

    written: tuple[str, ...]
    """The videos that `write-plan` has written; else []."""

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


class Reconstruction(JobSnapshot):
    """What a model's VAE gives back of a clip, beside the original."""

    video: str | None
    """Path of what comes back; null until it has finished, as are the following."""

    beside: str | None
    """Path of a video with both: left what the model is given, right what comes back."""

    psnr: float | None
    """dB over all frames."""

    psnr_worst: float | None
    """dB of the worst frame, 100 at most."""

    ssim: float | None
    """Mean structural similarity of the brightness, 1 for equal pictures."""

    def outcome(self) -> Iterable[str]:
        yield f"{self.psnr:.1f} dB, the worst frame {self.psnr_worst:.1f} dB: {vae_reconstruction.MEANING}"
        yield f"left what the model is given, right what comes back: {self.beside}"

    @property
    def goes_on(self) -> str:
        stop = Path(self.folder) / "control" / "stop"
        return f"It goes on in the background; the same command shows it again. Stop it: touch {stop}"


# ---- captions


@operation(changes=True, visitors="own session", section=CAPTIONS)
def caption(workspace: Workspace, name: Name, clip: Clip, text: Caption) -> ClipEntry:
    """Write the caption of a clip."""
    return clip_entry(Dataset.open(workspace, name).set_caption(clip, text))


@operation(arguments="name [chosen]", changes=True, visitors="own session", job=job, section=CAPTIONS)
def auto_caption(workspace: Workspace, name: Name, settings: CaptionSettings) -> DatasetTask:
    """Let a model say what the chosen clips show, or those without a caption.

    What you wrote by hand stays. The captioner `endpoint` sends the clips' frames to the address you give; the key
    comes from the environment or the system's keyring.
    """
    chosen = settings.changed(which="chosen") if settings.chosen else settings
    return start_task(Dataset.open(workspace, name), "caption", chosen)


@operation(visitors="own session", none="no caption would change", section=CAPTIONS)
def to_replace(
    workspace: Workspace,
    name: Name,
    find: Find,
    replacement: Replacement,
    clips: OrAll = (),
    *,
    expression: Expression = False,
    match_case: MatchCase = False,
    whole_word: WholeWord = False,
) -> list[Rewritten]:
    """List the captions that `replace` would change, and change nothing."""
    search = Search(find, expression, match_case, whole_word)
    found = editing.preview_replace(Dataset.open(workspace, name).folder, search, replacement, clips or None)
    return [Rewritten.model_validate(one) for one in found]


@operation(changes=True, visitors="own session", section=CAPTIONS)
def replace(
    workspace: Workspace,
    name: Name,
    find: Find,
    replacement: Replacement,
    clips: OrAll = (),
    *,
    expression: Expression = False,
    match_case: MatchCase = False,
    whole_word: WholeWord = False,
) -> Edited:
    """Replace a text in all captions, or in those of some clips."""
    search = Search(find, expression, match_case, whole_word)
    return Edited(changed=editing.replace(Dataset.open(workspace, name).folder, search, replacement, clips or None))


@operation(changes=True, visitors="own session", section=CAPTIONS)
def prefix(workspace: Workspace, name: Name, text: Caption, clips: OrAll = ()) -> Edited:
    """Prepend a text to captions that do not begin with it."""
    return Edited(changed=editing.add_prefix(Dataset.open(workspace, name).folder, text, clips or None))


@operation(changes=True, visitors="own session", section=CAPTIONS)
def suffix(workspace: Workspace, name: Name, text: Caption, clips: OrAll = ()) -> Edited:
    """Append a text to captions that do not end with it."""
    return Edited(changed=editing.add_suffix(Dataset.open(workspace, name).folder, text, clips or None))


@operation(changes=True, visitors="own session", section=CAPTIONS)
def trigger(
    workspace: Workspace,
    name: Name,
    word: Annotated[
        str | None, Field(description='The new trigger word, "" for none. Without it the word stays.')
    ] = None,
    *,
    write: Annotated[bool, Field(description="Write it into the captions, too, for tools that do not add it.")] = False,
    remove: Annotated[bool, Field(description="Remove it from the captions; training still adds it.")] = False,
) -> Trigger:
    """Show the trigger word, or set it."""
    if write and remove:
        raise ConfigError("write and remove contradict one another: give one of them")
    dataset = Dataset.open(workspace, name)
    if word is not None:
        dataset.set_trigger_word(word)
    changed = editing.add_trigger_word(dataset.folder) if write else 0
    changed += editing.remove_trigger_word(dataset.folder) if remove else 0
    return Trigger(name=dataset.name, trigger_word=dataset.info.trigger_word, changed=changed)


@operation(visitors="own session", none="no captions yet", section=CAPTIONS)
def tags(
    workspace: Workspace,
    name: Name,
    *,
    most: Annotated[int, Field(ge=1, description="How many to list.")] = 50,
) -> list[Tag]:
    """Count the comma-separated tags of the captions, the most frequent first."""
    counts = editing.tag_counts(Dataset.open(workspace, name).clips)
    return [Tag(tag=tag, clips=count) for tag, count in counts.most_common(most)]


@operation(changes=True, visitors="own session", section=CAPTIONS)
def remove_tag(
    workspace: Workspace, name: Name, tag: Annotated[str, Field(description="The tag.")], clips: OrAll = ()
) -> Edited:
    """Remove a tag from comma-separated captions."""
    return Edited(changed=editing.remove_tag(Dataset.open(workspace, name).folder, tag, clips or None))


# ---- cutting


@operation(arguments="name [clips]", changes=True, visitors="own session", job=job, section=CUTTING)
def split(workspace: Workspace, name: Name, settings: SplitTask) -> DatasetTask:
    """Cut some clips, or all, between shots or after so many seconds.

    With `preview`: say what would be cut, and change nothing.
    """
    return start_task(Dataset.open(workspace, name), "split", settings)


@operation(changes=True, visitors="own session", section=CUTTING)
def split_at(
    workspace: Workspace,
    name: Name,
    clip: Clip,
    seconds: Annotated[
        tuple[Annotated[float, Strict(False)], ...],
        Field(description="Where to cut, in seconds of the source video.", min_length=1),
    ],
) -> list[ClipEntry]:
    """Cut a clip at these seconds."""
    return _entries(Dataset.open(workspace, name).split_at(clip, seconds))


def _entries(found: Iterable[records.Clip]) -> list[ClipEntry]:
    return [clip_entry(one) for one in found]


@operation(changes=True, visitors="own session", section=CUTTING)
def trim(
    workspace: Workspace,
    name: Name,
    clip: Clip,
    start: Annotated[float, Field(description="Its first second.")],
    end: Annotated[float, Field(description="Its last second.")],
) -> ClipEntry:
    """Let a clip be its source video from one second to another.

    The part may be wider than the clip is now.
    """
    return clip_entry(Dataset.open(workspace, name).trim(clip, start, end))


@operation(changes=True, visitors="own session", section=CUTTING)
def crop(
    workspace: Workspace,
    name: Name,
    clip: Clip,
    left: Annotated[int, Field(description="The left edge, in pixels.")],
    top: Annotated[int, Field(description="The top edge, in pixels.")],
    width: Annotated[int, Field(description="Pixels.")],
    height: Annotated[int, Field(description="Pixels.")],
) -> ClipEntry:
    """Keep this part of the picture."""
    return clip_entry(Dataset.open(workspace, name).crop(clip, (left, top, width, height)))


@operation(changes=True, visitors="own session", section=CUTTING)
def crop_bars(workspace: Workspace, name: Name, clip: Clip) -> ClipEntry:
    """Cut off the black bars around the picture, which are found by themselves."""
    return clip_entry(Dataset.open(workspace, name).crop_bars(clip))


@operation(changes=True, visitors="own session", section=CUTTING)
def uncrop(workspace: Workspace, name: Name, clip: Clip) -> ClipEntry:
    """Go back to the whole picture."""
    return clip_entry(Dataset.open(workspace, name).crop(clip, None))


@operation(changes=True, visitors="own session", section=CUTTING)
def set_fps(
    workspace: Workspace,
    name: Name,
    clips: Clips,
    *,
    fps: Annotated[
        float | None, Field(description="Frames a second to keep. Without it the source video's own again.")
    ] = None,
) -> list[ClipEntry]:
    """Lower the frame rate of clips by leaving frames out."""
    return _entries(Dataset.open(workspace, name).set_fps(fps, *clips))


@operation(changes=True, visitors="own session", section=CUTTING)
def reset_cut(workspace: Workspace, name: Name, clips: Clips) -> list[ClipEntry]:
    """Reset clips to their whole source videos.

    Of several parts of one, the first becomes the whole and the others are removed.
    """
    return _entries(Dataset.open(workspace, name).reset_cut(*clips))


# ---- what a model gets


def _wanted(workspace: Workspace, settings: TrainSettings) -> tuple[Model, Shape]:
    """Return the model and the shape that the settings ask for. Raises ConfigError."""
    _, model = find_model(workspace.model(settings.model))
    return model, shape_of(settings, model)


@operation(visitors="own session", section=LOOKING)
def plan(
    workspace: Workspace,
    name: Name,
    clips: OrAll = (),
    *,
    settings: ShapeOf,
    buckets: Annotated[
        int | None, Field(ge=1, description="The so many buckets that lose least, and which clip goes where.")
    ] = None,
) -> Plan:
    """Show what a model gets of each clip: frames, crop, buckets."""
    dataset = Dataset.open(workspace, name)
    model, shape = _wanted(workspace, settings)
    if buckets is None:
        return _plan(dataset, clips, shape)
    chosen = records.clips_named(dataset.clips, clips or None)
    found = buckets_of.choose(chosen, model, buckets, shape.fps, [(shape.height, shape.width)])
    table = buckets_of.assign(chosen, found, shape.fps)
    return Plan(
        sentence=table.sentence,
        **_numbers(shape),
        clips=tuple(
            {**_named(one.clip), "bucket": str(one.bucket) if one.bucket else None, "dropped": one.dropped}
            for one in table.assignments
        ),
        buckets={str(bucket): count for bucket, count in table.clips_per_bucket.items()},
        written=(),
    )


def _plan(dataset: Dataset, clips: tuple[str, ...], shape: Shape, written: tuple[str, ...] = ()) -> Plan:
    wanted = {clip.file_name for clip in records.clips_named(dataset.clips, clips or None)}
    plans = [one for one in dataset.plans(shape) if one.clip.file_name in wanted]
    plain = ("sentence", "indices", "resize", "crop", "fps", "use", "warnings", "dropped")
    return Plan(
        sentence=plan_sentence(shape, plans),
        **_numbers(shape),
        clips=tuple({**_named(one.clip), **{name: getattr(one, name) for name in plain}} for one in plans),
        buckets={},
        written=written,
    )


def _numbers(shape: Shape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in ("frames", "height", "width", "fps")}


def _named(clip: records.Clip) -> dict[str, str]:
    return {"file_name": clip.file_name, "name": clip.name}


@operation(changes=True, section=LOOKING)
def write_plan(
    workspace: Workspace,
    name: Name,
    target: Annotated[str, Field(description="A new folder.", json_schema_extra={"path": True})],
    clips: OrAll = (),
    *,
    settings: ShapeOf,
) -> Plan:
    """Write what a model gets of each clip into a new folder, as ID.mp4."""
    dataset, folder = Dataset.open(workspace, name), policy.checked(target, "target")
    _, shape = _wanted(workspace, settings)
    if folder.exists():
        raise ConfigError(f"target is {target}, which is there already: choose a new folder")
    planned = _plan(dataset, clips, shape)
    used = [dataset.clip(one["file_name"]) for one in planned.clips if not one["dropped"]]
    written = [dataset.planned_video(clip, shape, folder / f"{clip.id}.mp4").path for clip in used]
    return planned.model_copy(update={"written": tuple(map(str, written))})


@operation(path="/reconstructions/{id}", visitors="own session", shell=False)
def reconstruction(
    workspace: Workspace, id: Annotated[str, Field(description="As `reconstruct` answered it.")]
) -> Reconstruction:
    """Show how far a reconstruction is, or what came of it."""
    folder = workspace.cache / vae_reconstruction.FOLDER / id
    if not is_slug(id) or not folder.is_dir():
        raise Unknown(f"there is no reconstruction {id[:80]!r}: request it again")
    return _reconstruction(vae_reconstruction.read(folder))


def _reconstruction(found: vae_reconstruction.Reconstruction) -> Reconstruction:
    return Reconstruction(
        id=found.folder.name,
        folder=str(found.folder),
        state=found.status.state.value,
        message="" if found.status.state.alive else found.status.message,
        video=str(found.path) if found.path else None,
        beside=str(found.beside) if found.beside else None,
        psnr=found.psnr,
        psnr_worst=found.psnr_worst,
        ssim=found.ssim,
    )


@operation(changes=True, visitors="own session", job=reconstruction, section=LOOKING)
def reconstruct(
    workspace: Workspace,
    name: Name,
    clip: Clip,
    settings: Annotated[TrainSettings, Fields(only=(*SHAPE, "device"))],
) -> Reconstruction:
    """Show what a model's VAE gives back of a clip, beside the original."""
    dataset = Dataset.open(workspace, name)
    _, shape = _wanted(workspace, settings)
    wanted = workspace.model(settings.model)
    one = dataset.clip(clip)
    found = vae_reconstruction.request(workspace, dataset.folder, one, wanted, shape, settings.device)
    return _reconstruction(found)


# ---- removing


@operation(changes=True, visitors="own session", section=NAMING)
def remove_clips(workspace: Workspace, name: Name, clips: Clips) -> list[ClipEntry]:
    """Remove clips from a dataset; `restore-clips` brings them back."""
    dataset = Dataset.open(workspace, name)
    found = [dataset.clip(one) for one in clips]
    dataset.remove(*clips)
    return _entries(found)


@operation(visitors="own session", none="no clip is removed", section=NAMING)
def removed_clips(workspace: Workspace, name: Name) -> list[ClipEntry]:
    """List the clips that were removed from a dataset."""
    return _entries(Dataset.open(workspace, name).removed)


@operation(changes=True, visitors="own session", section=NAMING)
def restore_clips(workspace: Workspace, name: Name, clips: Clips) -> list[ClipEntry]:
    """Bring removed clips back."""
    dataset = Dataset.open(workspace, name)
    found = [records.find_clip(dataset.removed, one) for one in clips]
    dataset.restore(*clips)
    return _entries(found)
