"""The clips of a dataset: write and edit captions, cut, look at what a model gets, remove and restore.

Each change is one entry of the dataset's history, which `undo` takes back. Seconds and pixels are those of the whole
source video, from which every part is cut, so that each can be made wider again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, Strict

from workbench.captioners import captioners
from workbench.clips import buckets as buckets_of
from workbench.clips import frame_plan, records
from workbench.clips.frame_plan import Shape, shape_for, shape_of
from workbench.dataset_builder import clip_list
from workbench.dataset_builder.captions import editing
from workbench.dataset_builder.captions.editing import Search
from workbench.dataset_builder.clip_list import FILTERS, ORDERS, Filter, Order
from workbench.dataset_builder.cuts import cutting, scenes
from workbench.dataset_builder.cuts.cutting import cut_of, master_of
from workbench.dataset_builder.cuts.splitting import SCORES
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.history import thumbnail_name
from workbench.dataset_builder.settings import CaptionSettings, SplitTask
from workbench.dataset_builder.snapshot import plan_sentence
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.errors import ConfigError, Unknown
from workbench.families import find_model
from workbench.families.model import Model
from workbench.operations.datasets import LOOKING, NAMING, ClipEntry, DatasetTask, Name, clip_entry, job, start_task
from workbench.operations.registry import Fields, JobSnapshot, Shown, Snapshot, operation
from workbench.runs.settings import TrainSettings
from workbench.sampler import vae_reconstruction
from workbench.workspace import Workspace, is_slug, named_paths

CAPTIONS, CUTTING = "Captions", "Cutting"
SHAPE = ("model", "frames", "height", "width", "fps")
EACH = "Ids or names of clips"
LONGEST_LOOK = 300.0  # seconds of source video that are searched for cuts while a person waits

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


class ClipCard(ClipEntry):
    """One clip, as a page of them shows it."""

    file: str
    """Path of its video, picture or latents."""

    picture: str
    """Path of its thumbnail; "" where there is none yet."""

    first_frame: str
    """Path of the picture that came with it as its first frame; "" for none."""

    image: bool
    """Whether it is a picture."""

    caption_by: str
    """`hand`, `file`, or the model that wrote the caption; "" without one."""

    marks: tuple[str, ...]
    """What the last check found in it, in a few words each."""


class ClipCards(Snapshot):
    """Some of the clips that a search found, in their order."""

    clips: tuple[ClipCard, ...]
    """Those of the page."""

    first: int
    """Position of the first of them among those that were found."""

    found: int
    """How many were found."""

    all: int
    """How many the dataset has."""

    filters: dict[str, dict[str, Any]]
    """Filter -> title, clips (how many of the dataset pass it)."""

    orders: dict[str, str]
    """Order -> its title."""

    missing: int | None
    """Position of the next found clip without a caption after this page, else of the first; null where none is."""

    ids: tuple[str, ...]
    """Of all that were found, where that was asked for."""


class ClipView(ClipCard):
    """One clip, where it stands among all, and what a model gets of it."""

    number: int
    """Its place, from 1."""

    of: int
    """How many clips there are."""

    previous: str
    """Id of the clip before it; "" for the first."""

    next: str
    """Id of the clip after it; "" for the last."""

    missing: str
    """Id of the next clip without a caption; "" where there is none."""

    trigger_word: str
    """Of the dataset."""

    cuttable: bool
    """Whether it can be cut: it is a video, and its source video is there."""

    cut: bool
    """Whether it is a part of its source video."""

    use: str
    """How much of it the chosen model gets, in words; "" without a model."""

    warnings: tuple[str, ...]
    """What is lost of it, a sentence each."""


class Source(Snapshot):
    """The source video of a clip, and what the clip takes of it."""

    file: str
    """Path of the source video."""

    strip: str
    """Path of a picture with frames of it in a row."""

    tiles: int
    """How many."""

    frames: int
    """Of the source video."""

    fps: float
    """Frames per second."""

    width: int
    """Pixels."""

    height: int
    """Pixels."""

    start: int
    """The clip's first frame."""

    end: int
    """The frame after its last."""

    crop: tuple[int, int, int, int] | None
    """Left, top, width and height of what the clip keeps of the picture; null for all of it."""

    taken: tuple[tuple[int, int], ...]
    """Parts that are clips already: first frame, frame after the last."""


class Cuts(Snapshot):
    """Where new shots begin in a clip."""

    seconds: tuple[float, ...]
    """Of the source video, as `split-at` takes them."""


class Video(Snapshot):
    """A video that was made to be looked at."""

    file: str
    """Its path."""

    sentence: str
    """What it shows."""


class CaptionerInfo(Snapshot):
    """Something that writes captions."""

    id: str
    """What the setting `captioner` takes."""

    title: str
    """For people."""

    needs: str
    """Memory, download and what else, in a sentence."""


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


# ---- looking


SearchWords = Annotated[str, Field(description="Words that the caption or the name must have.", max_length=1000)]


@operation(path="/datasets/{name}/cards", visitors="own session", shell=False)
def cards(
    workspace: Workspace,
    name: Name,
    *,
    search: SearchWords = "",
    only: Annotated[Filter, Field(description="Which clips.")] = "all",
    order: Annotated[Order, Field(description="In which order.")] = "given",
    first: Annotated[int, Field(ge=0, description="Position of the first clip.")] = 0,
    most: Annotated[int, Field(ge=1, le=200, description="How many clips at most.")] = 48,
    ids: Annotated[bool, Field(description="Whether to list the ids of all that were found.")] = False,
) -> ClipCards:
    """Show a page of the clips of a dataset."""
    dataset = Dataset.open(workspace, name)
    found = clip_list.listed(dataset.folder, search, only, order)
    first = min(first, max(0, (len(found.clips) - 1) // most * most))
    return ClipCards(
        clips=tuple(ClipCard(**_card(dataset, one, found.marks)) for one in found.clips[first : first + most]),
        first=first,
        found=len(found.clips),
        all=found.all,
        filters={one: {"title": FILTERS[one][0], "clips": count} for one, count in found.counts.items()},
        orders={one: title for one, (title, _) in ORDERS.items()},
        missing=found.next_without_caption(first + most - 1),
        ids=tuple(one.id for one in found.clips) if ids else (),
    )


def _card(dataset: Dataset, clip: records.Clip, marks: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    thumbnail = dataset.folder / thumbnail_name(clip)
    return {
        **dict(clip_entry(clip)),
        "file": str(dataset.folder / clip.file_name),
        "picture": str(thumbnail) if thumbnail.exists() else "",
        "first_frame": str(dataset.folder / clip.first_frame) if clip.first_frame else "",
        "image": clip.is_image,
        "caption_by": clip.caption_by,
        "marks": tuple(marks.get(clip.file_name, ())),
    }


@operation(path="/datasets/{name}/view", visitors="own session", shell=False)
def view(
    workspace: Workspace,
    name: Name,
    clip: Clip,
    *,
    model: Annotated[str, Field(description="Say what this model gets of it.", json_schema_extra={"path": True})] = "",
    frames: Annotated[int | None, Field(ge=1, description="Frames to train with; the model's own without it.")] = None,
) -> ClipView:
    """Show one clip. One that was cut is found by its former id."""
    dataset = Dataset.open(workspace, name)
    clips, found = dataset.clips, clip_list.listed(dataset.folder)
    try:
        one = dataset.clip(clip)
    except Unknown:
        if (later := dataset.successor(f"clips/{clip}.mp4")) is None:
            raise
        one = later
    at = clips.index(one)
    missing = found.next_without_caption(at)
    shape = shape_for(find_model(workspace.model(model)).model, frames) if model else None
    planned = frame_plan.plan(one, shape) if shape else None
    return ClipView(
        **_card(dataset, one, found.marks)
        | {"plan": (planned.dropped and f"left out: {planned.dropped}") or planned.sentence if planned else ""},
        number=at + 1,
        of=len(clips),
        previous=clips[at - 1].id if at else "",
        next=clips[at + 1].id if at + 1 < len(clips) else "",
        missing=clips[missing].id if missing is not None and missing != at else "",
        trigger_word=dataset.info.trigger_word,
        cuttable=not (one.is_image or one.is_latents),
        cut=bool(one.master),
        use=planned.use if planned and not planned.dropped else "",
        warnings=tuple(planned.warnings) if planned else (),
    )


@operation(path="/datasets/{name}/source", visitors="own session", shell=False)
def source(workspace: Workspace, name: Name, clip: Clip) -> Source:
    """Show the source video of a clip as a row of frames, and what the clip takes of it."""
    dataset = Dataset.open(workspace, name)
    one = dataset.clip(clip)
    master = master_of(dataset.folder, one)
    strip = scenes.filmstrip(master.path, workspace.cache / scenes.STRIPS, scenes.TILES, scenes.TILE_HEIGHT)
    cut = cut_of(one, master)
    others = [cut_of(other, master) for other in dataset.clips if one.master and other.master == one.master]
    plain = {name: getattr(master, name) for name in ("frames", "fps", "width", "height")}
    return Source(
        **plain,
        file=str(master.path),
        strip=str(strip.path),
        tiles=len(strip.times),
        start=cut.start,
        end=cut.end,
        crop=cut.crop,
        taken=tuple((other.start, other.end) for other in others if (other.start, other.end) != (cut.start, cut.end)),
    )


@operation(path="/datasets/{name}/find-cuts", visitors="own session", shell=False)
def find_cuts(
    workspace: Workspace,
    name: Name,
    clip: Clip,
    threshold: Annotated[float, Field(gt=1, le=20, description="Lower finds more cuts.")] = scenes.DETECTORS[
        "adaptive"
    ].threshold,
) -> Cuts:
    """Find where new shots begin in a clip."""
    dataset = Dataset.open(workspace, name)
    one = dataset.clip(clip)
    master = master_of(dataset.folder, one)
    if master.frames / master.fps > LONGEST_LOOK:
        raise ConfigError(f"{one.name} is longer than five minutes: split it as a task, with Cut clips")
    cut = cut_of(one, master)
    found = scenes.cuts(scenes.scores(master.path, "adaptive", dataset.folder / SCORES), threshold)
    return Cuts(seconds=tuple(frame / master.fps for frame in found if cut.start < frame < cut.end))


@operation(path="/datasets/{name}/planned", visitors="own session", shell=False)
def planned(workspace: Workspace, name: Name, clip: Clip, settings: ShapeOf) -> Video:
    """Write exactly what a model gets of a clip as a video."""
    dataset = Dataset.open(workspace, name)
    _, shape = _wanted(workspace, settings)
    made = dataset.planned_video(dataset.clip(clip), shape)
    return Video(file=str(made.path), sentence=made.plan.sentence)


# ---- captions


@operation(changes=True, visitors="own session", section=CAPTIONS)
def caption(
    workspace: Workspace,
    name: Name,
    clip: Clip,
    text: Caption,
    *,
    over: Annotated[str | None, Field(description="Write only if the caption still is this one.")] = None,
) -> ClipEntry:
    """Write the caption of a clip."""
    made = Dataset.open(workspace, name).set_caption(clip, text, over=over)
    if over is not None and made.text != clean_caption(text):
        sentence = f"Someone wrote another caption meanwhile: {made.text!r}"
        raise ConfigError(sentence, {"text": sentence})
    return clip_entry(made)


@operation(arguments="name [chosen]", changes=True, visitors="own session", job=job, section=CAPTIONS)
def auto_caption(workspace: Workspace, name: Name, settings: CaptionSettings) -> DatasetTask:
    """Let a model say what the chosen clips show, or those without a caption.

    What you wrote by hand stays. The captioner `endpoint` sends the clips' frames to the address you give; the key
    comes from the environment or the system's keyring.
    """
    chosen = settings.changed(which="chosen") if settings.chosen else settings
    return start_task(Dataset.open(workspace, name), "caption", chosen)


@operation(path="/captioners", visitors="own session", shell=False)
def list_captioners(workspace: Workspace) -> list[CaptionerInfo]:
    """List what can write captions, and what each needs."""
    return [CaptionerInfo(id=one.id, title=one.title, needs=one.needs) for one in captioners().values()]


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


@operation(path="/datasets/{name}/mark", changes=True, visitors="own session", shell=False)
def mark(
    workspace: Workspace, name: Name, clips: Clips, word: Annotated[str, Field(description="Such as night.")]
) -> Edited:
    """Mark clips with a word of your own, which captions do not get."""
    return Edited(changed=Dataset.open(workspace, name).tag(word, *clips))


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


@operation(path="/datasets/{name}/recut", changes=True, visitors="own session", shell=False)
def recut(
    workspace: Workspace,
    name: Name,
    clip: Clip,
    *,
    start: Annotated[int, Field(ge=0, description="Its first frame in the source video.")],
    end: Annotated[int, Field(ge=1, description="The frame after its last.")],
    crop: Annotated[
        tuple[int, int, int, int] | None,
        Field(description="Left, top, width and height in the source video; null for the whole picture."),
    ] = None,
) -> ClipEntry:
    """Let a clip be these frames and this part of the picture of its source video, as one change."""
    dataset = Dataset.open(workspace, name)
    one = dataset.clip(clip)
    master = master_of(dataset.folder, one)
    cut = cut_of(one, master)
    span = None if (start, end) == (cut.start, cut.end) else (start / master.fps, end / master.fps)
    if span is None and crop == cut.crop:
        return clip_entry(one)
    return clip_entry(cutting.trim_and_crop(dataset.folder, one, span, crop != cut.crop, crop))


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
    dataset, folder = Dataset.open(workspace, name), named_paths.checked(target, "target")
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
