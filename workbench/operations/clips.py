"""The clips of a dataset: look at them, write and edit captions, cut, remove and restore.

Each change is one entry of the dataset's history, which `undo` takes back. Seconds and pixels are those of the whole
source video, from which every part is cut, so that each can be made wider again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field, Strict

from workbench.captioners import captioners
from workbench.clips import frame_plan, records
from workbench.clips.frame_plan import shape_for
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
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.errors import ConfigError, Unknown
from workbench.families import find_model
from workbench.operations.dataset_tasks import DatasetTask, NamedDataset, job, start_task
from workbench.operations.datasets import NAMING, ClipEntry, clip_entry
from workbench.operations.registry import Shown, Snapshot, operation
from workbench.workspace import Workspace

CAPTIONS, CUTTING = "Captions", "Cutting"
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


class ClipCard(ClipEntry):
    """One clip, as a page of them shows it."""

    file: str
    """Path of its video, picture or latents."""

    picture: str
    """Path of its thumbnail; "" if there is none yet."""

    first_frame: str
    """Path of the picture that came with it as its first frame; "" for none."""

    beside: dict[str, str]
    """What lies beside it: `control`, `reference`, `mask`, `last_frame` -> path, of those that it has."""

    image: bool
    """Whether it is a picture."""

    caption_by: str
    """`hand`, `file`, or the model that wrote the caption; "" without one."""

    marks: tuple[str, ...]
    """What the last check found in it, in a few words each."""


class ClipCards(Snapshot):
    """Some of the clips that a search found, in their order."""

    clips: tuple[ClipCard, ...]
    """The clips on this page."""

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
    """Position of the next found clip without a caption after this page, else of the first; null if there is none."""

    ids: tuple[str, ...]
    """Ids of all clips that were found, if requested."""


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
    """Id of the next clip without a caption; "" if there is none."""

    trigger_word: str
    """The dataset's trigger word."""

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
    """Number of frames in the source video."""

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
    """Cut times in seconds of the source video, as `split-at` takes them."""


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
    """Name of the clip."""

    before: str
    """The caption as it is."""

    after: str
    """The caption as it would be."""


class Trigger(Snapshot):
    """The trigger word of a dataset, as it is now."""

    name: str
    """Name of the dataset."""

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


# ---- looking


SearchWords = Annotated[str, Field(description="Words that the caption or the name must have.", max_length=1000)]


@operation(shell=False)
def cards(
    dataset: NamedDataset,
    *,
    search: SearchWords = "",
    only: Annotated[Filter, Field(description="Which clips.")] = "all",
    order: Annotated[Order, Field(description="In which order.")] = "given",
    first: Annotated[int, Field(ge=0, description="Position of the first clip.")] = 0,
    most: Annotated[int, Field(ge=1, le=200, description="How many clips at most.")] = 48,
    ids: Annotated[bool, Field(description="Whether to list the ids of all that were found.")] = False,
) -> ClipCards:
    """Show a page of the clips of a dataset."""
    found = clip_list.listed(dataset.folder, search, only, order)
    first = min(first, max(0, (len(found.clips) - 1) // most * most))
    return ClipCards(
        clips=tuple(ClipCard(**clip_card(dataset, one, found.marks)) for one in found.clips[first : first + most]),
        first=first,
        found=len(found.clips),
        all=found.all,
        filters={one: {"title": FILTERS[one][0], "clips": count} for one, count in found.counts.items()},
        orders={one: title for one, (title, _) in ORDERS.items()},
        missing=found.next_without_caption(first + most - 1),
        ids=tuple(one.id for one in found.clips) if ids else (),
    )


def clip_card(dataset: Dataset, clip: records.Clip, marks: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the fields of a clip's card. marks: of each file name what the last check found"""
    thumbnail = dataset.folder / thumbnail_name(clip)
    return {
        **dict(clip_entry(clip)),
        "file": str(dataset.folder / clip.file_name),
        "picture": str(thumbnail) if thumbnail.exists() else "",
        "first_frame": str(dataset.folder / clip.first_frame) if clip.first_frame else "",
        "beside": {kind: str(dataset.folder / name) for kind, name in clip.companions.items()},
        "image": clip.is_image,
        "caption_by": clip.caption_by,
        "marks": tuple(marks.get(clip.file_name, ())),
    }


@operation(shell=False)
def view(
    workspace: Workspace,
    dataset: NamedDataset,
    clip: Clip,
    *,
    model: Annotated[str, Field(description="Say what this model gets of it.", json_schema_extra={"path": True})] = "",
    frames: Annotated[int | None, Field(ge=1, description="Frames to train with; the model's own without it.")] = None,
) -> ClipView:
    """Show one clip. One that was cut is found by its former id."""
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
        **clip_card(dataset, one, found.marks)
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


@operation(shell=False)
def source(workspace: Workspace, dataset: NamedDataset, clip: Clip) -> Source:
    """Show the source video of a clip as a row of frames, and what the clip takes of it."""
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


@operation(shell=False)
def find_cuts(
    dataset: NamedDataset,
    clip: Clip,
    threshold: Annotated[float, Field(gt=1, le=20, description="Lower finds more cuts.")] = scenes.DETECTORS[
        "adaptive"
    ].threshold,
) -> Cuts:
    """Find where new shots begin in a clip."""
    one = dataset.clip(clip)
    master = master_of(dataset.folder, one)
    if master.frames / master.fps > LONGEST_LOOK:
        raise ConfigError(f"{one.name} is longer than five minutes: split it as a task, with Cut clips")
    cut = cut_of(one, master)
    found = scenes.cuts(scenes.scores(master.path, "adaptive", dataset.folder / SCORES), threshold)
    return Cuts(seconds=tuple(frame / master.fps for frame in found if cut.start < frame < cut.end))


# ---- captions


@operation(changes=True, section=CAPTIONS)
def caption(
    dataset: NamedDataset,
    clip: Clip,
    text: Caption,
    *,
    over: Annotated[str | None, Field(description="Write only if the caption still is this one.")] = None,
) -> ClipEntry:
    """Write the caption of a clip."""
    made = dataset.set_caption(clip, text, over=over)
    if over is not None and made.text != clean_caption(text):
        sentence = f"Someone wrote another caption meanwhile: {made.text!r}"
        raise ConfigError(sentence, {"text": sentence})
    return clip_entry(made)


@operation(arguments="name [chosen]", changes=True, job=job, section=CAPTIONS)
def auto_caption(dataset: NamedDataset, settings: CaptionSettings) -> DatasetTask:
    """Let a model say what the chosen clips show, or those without a caption.

    What you wrote by hand stays. The captioner `endpoint` sends the clips' frames to the address you give; the key
    comes from the environment or the system's keyring.
    """
    chosen = settings.changed(which="chosen") if settings.chosen else settings
    return start_task(dataset, "caption", chosen)


@operation(path="/captioners", shell=False)
def list_captioners(workspace: Workspace) -> list[CaptionerInfo]:
    """List what can write captions, and what each needs."""
    return [CaptionerInfo(id=one.id, title=one.title, needs=one.needs) for one in captioners().values()]


@operation(none="no caption would change", section=CAPTIONS)
def to_replace(
    dataset: NamedDataset,
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
    found = editing.preview_replace(dataset.folder, search, replacement, clips or None)
    return [Rewritten.model_validate(one) for one in found]


@operation(changes=True, section=CAPTIONS)
def replace(
    dataset: NamedDataset,
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
    return Edited(changed=editing.replace(dataset.folder, search, replacement, clips or None))


@operation(changes=True, section=CAPTIONS)
def prefix(dataset: NamedDataset, text: Caption, clips: OrAll = ()) -> Edited:
    """Prepend a text to captions that do not begin with it."""
    return Edited(changed=editing.add_prefix(dataset.folder, text, clips or None))


@operation(changes=True, section=CAPTIONS)
def suffix(dataset: NamedDataset, text: Caption, clips: OrAll = ()) -> Edited:
    """Append a text to captions that do not end with it."""
    return Edited(changed=editing.add_suffix(dataset.folder, text, clips or None))


@operation(changes=True, section=CAPTIONS)
def trigger(
    dataset: NamedDataset,
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
    if word is not None:
        dataset.set_trigger_word(word)
    changed = editing.add_trigger_word(dataset.folder) if write else 0
    changed += editing.remove_trigger_word(dataset.folder) if remove else 0
    return Trigger(name=dataset.name, trigger_word=dataset.info.trigger_word, changed=changed)


@operation(none="no captions yet", section=CAPTIONS)
def tags(
    dataset: NamedDataset, *, most: Annotated[int, Field(ge=1, description="How many to list.")] = 50
) -> list[Tag]:
    """Count the comma-separated tags of the captions, the most frequent first."""
    counts = editing.tag_counts(dataset.clips)
    return [Tag(tag=tag, clips=count) for tag, count in counts.most_common(most)]


@operation(changes=True, shell=False)
def mark(dataset: NamedDataset, clips: Clips, word: Annotated[str, Field(description="Such as night.")]) -> Edited:
    """Mark clips with a word of your own, which captions do not get."""
    return Edited(changed=dataset.tag(word, *clips))


@operation(changes=True, section=CAPTIONS)
def remove_tag(dataset: NamedDataset, tag: Annotated[str, Field(description="The tag.")], clips: OrAll = ()) -> Edited:
    """Remove a tag from comma-separated captions."""
    return Edited(changed=editing.remove_tag(dataset.folder, tag, clips or None))


# ---- cutting


@operation(arguments="name [clips]", changes=True, job=job, section=CUTTING)
def split(dataset: NamedDataset, settings: SplitTask) -> DatasetTask:
    """Cut some clips, or all, between shots or after so many seconds.

    With `preview`: say what would be cut, and change nothing.
    """
    return start_task(dataset, "split", settings)


@operation(changes=True, section=CUTTING)
def split_at(
    dataset: NamedDataset,
    clip: Clip,
    seconds: Annotated[
        tuple[Annotated[float, Strict(False)], ...],
        Field(description="Where to cut, in seconds of the source video.", min_length=1),
    ],
) -> list[ClipEntry]:
    """Cut a clip at these seconds."""
    return _entries(dataset.split_at(clip, seconds))


def _entries(found: Iterable[records.Clip]) -> list[ClipEntry]:
    return [clip_entry(one) for one in found]


@operation(changes=True, shell=False)
def recut(
    dataset: NamedDataset,
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
    one = dataset.clip(clip)
    master = master_of(dataset.folder, one)
    cut = cut_of(one, master)
    span = None if (start, end) == (cut.start, cut.end) else (start / master.fps, end / master.fps)
    if span is None and crop == cut.crop:
        return clip_entry(one)
    return clip_entry(cutting.trim_and_crop(dataset.folder, one, span, crop != cut.crop, crop))


@operation(changes=True, section=CUTTING)
def trim(
    dataset: NamedDataset,
    clip: Clip,
    start: Annotated[float, Field(description="Its first second.")],
    end: Annotated[float, Field(description="Its last second.")],
) -> ClipEntry:
    """Let a clip be its source video from one second to another.

    The part may be wider than the clip is now.
    """
    return clip_entry(dataset.trim(clip, start, end))


@operation(changes=True, section=CUTTING)
def crop(
    dataset: NamedDataset,
    clip: Clip,
    left: Annotated[int, Field(description="The left edge, in pixels.")],
    top: Annotated[int, Field(description="The top edge, in pixels.")],
    width: Annotated[int, Field(description="Pixels.")],
    height: Annotated[int, Field(description="Pixels.")],
) -> ClipEntry:
    """Keep this part of the picture."""
    return clip_entry(dataset.crop(clip, (left, top, width, height)))


@operation(changes=True, section=CUTTING)
def crop_bars(dataset: NamedDataset, clip: Clip) -> ClipEntry:
    """Cut off the black bars around the picture, which are found by themselves."""
    return clip_entry(dataset.crop_bars(clip))


@operation(changes=True, section=CUTTING)
def uncrop(dataset: NamedDataset, clip: Clip) -> ClipEntry:
    """Go back to the whole picture."""
    return clip_entry(dataset.crop(clip, None))


@operation(changes=True, section=CUTTING)
def set_fps(
    dataset: NamedDataset,
    clips: Clips,
    *,
    fps: Annotated[
        float | None, Field(description="Frames a second to keep. Without it the source video's own again.")
    ] = None,
) -> list[ClipEntry]:
    """Lower the frame rate of clips by leaving frames out."""
    return _entries(dataset.set_fps(fps, *clips))


@operation(changes=True, section=CUTTING)
def reset_cut(dataset: NamedDataset, clips: Clips) -> list[ClipEntry]:
    """Reset clips to their whole source videos.

    Of several parts of one, the first becomes the whole and the others are removed.
    """
    return _entries(dataset.reset_cut(*clips))


# ---- removing


@operation(changes=True, section=NAMING)
def remove_clips(dataset: NamedDataset, clips: Clips) -> list[ClipEntry]:
    """Remove clips from a dataset; `restore-clips` brings them back."""
    found = [dataset.clip(one) for one in clips]
    dataset.remove(*clips)
    return _entries(found)


@operation(none="no clip is removed", section=NAMING)
def removed_clips(dataset: NamedDataset) -> list[ClipEntry]:
    """List the clips that were removed from a dataset."""
    return _entries(dataset.removed)


@operation(changes=True, section=NAMING)
def restore_clips(dataset: NamedDataset, clips: Clips) -> list[ClipEntry]:
    """Bring removed clips back."""
    found = [records.find_clip(dataset.removed, one) for one in clips]
    dataset.restore(*clips)
    return _entries(found)
