"""The clips of a dataset: view, caption, cut, remove and restore them.

Each change is one entry in the dataset's history, which `undo` reverts. Times and pixels refer to the whole source
video. Every part is cut from it, so a clip can also be made longer or larger again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, Strict

from workbench.captioners import captioners
from workbench.clips import frame_plan, records, sound
from workbench.clips.frame_plan import shape_for
from workbench.dataset_builder.captions import editing
from workbench.dataset_builder.captions.editing import Rewritten, Search
from workbench.dataset_builder.cuts import cutting, scenes
from workbench.dataset_builder.cuts.cutting import cut_of, master_of
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.history import thumbnail_name
from workbench.dataset_builder.settings import CaptionSettings, SplitTask
from workbench.dataset_builder.snapshot import FILTERS, ORDERS, Filter, Order, clip_list
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.errors import ConfigError, DataError, Unknown
from workbench.families import find_model
from workbench.operations.dataset_tasks import DatasetTask, NamedDataset, job, start_task
from workbench.operations.datasets import NAMING, ClipEntry, Frames, clip_entry
from workbench.operations.registry import operation
from workbench.snapshots import Shown, Snapshot
from workbench.workspace import Workspace
from workbench.workspace.records import read_once

CAPTIONS, CUTTING = "Captions", "Cutting"
WAVE_STEPS = 600  # levels in a waveform
LONGEST_SEARCHED = 300.0  # seconds of source video that `find_cuts` searches at most, since the caller waits

Clip = Annotated[str, Field(description="Id or name of the clip.")]
Clips = Annotated[tuple[str, ...], Field(description="Ids or names of clips.", min_length=1)]
OrAll = Annotated[tuple[str, ...], Field(description="Ids or names of clips. Default: all.")]
Added = Annotated[str, Field(description="The text to add.")]
Find = Annotated[str, Field(description="The text to find.")]
Replacement = Annotated[str, Field(description="The text to replace it with.")]
Expression = Annotated[
    bool, Field(description="Treat FIND as a regular expression. REPLACEMENT can use its groups (\\1).")
]
MatchCase = Annotated[bool, Field(description="Match uppercase and lowercase exactly.")]
WholeWord = Annotated[bool, Field(description="Match whole words only.")]


class ClipCard(ClipEntry):
    """A clip as a card on the page."""

    file: str
    """Path of its video, image or latents."""

    picture: str
    """Path of its thumbnail; "" if there is none yet."""

    first_frame: str
    """Path of the image that was imported as its first frame; "" for none."""

    beside: dict[str, str]
    """Its companion files: `control`, `reference`, `mask` or `last_frame` -> path."""

    image: bool
    """Whether it is an image."""

    caption_by: str
    """Who wrote the caption: `hand`, `file`, or a model; "" without a caption."""

    marks: tuple[str, ...]
    """What the last check found in it, in a few words each."""


class ClipCards(Snapshot):
    """One page of the clips that match a search."""

    clips: tuple[ClipCard, ...]
    """The clips on this page."""

    first: int
    """Position of the first clip on this page, from 0."""

    found: int
    """Number of clips that match."""

    all: int
    """Number of clips in the dataset."""

    filters: dict[str, dict[str, Any]]
    """Filter -> title, clips (the number of clips that pass it)."""

    orders: dict[str, str]
    """Sort order -> title."""

    missing: int | None
    """Position of the next matching clip without a caption: after this page, or else from the start; null if there is
    none."""

    ids: tuple[str, ...]
    """Ids of all matching clips, if requested."""


class Neighbors(Snapshot):
    """The position of a clip in its dataset."""

    number: int
    """Position of the clip in the dataset, from 1."""

    of: int
    """Number of clips in the dataset."""

    previous: str
    """Id of the previous clip; "" for the first one."""

    next: str
    """Id of the next clip; "" for the last one."""


def neighbors(clips: Sequence[records.Clip], one: records.Clip) -> Neighbors:
    """Return where a clip stands among these."""
    at = clips.index(one)
    before, after = clips[:at][-1:], clips[at + 1 :][:1]
    previous, next = (found[0].id if found else "" for found in (before, after))
    return Neighbors(number=at + 1, of=len(clips), previous=previous, next=next)


class ClipView(Neighbors, ClipCard):
    """A clip in detail, with its neighbors and what a model uses of it."""

    missing: str
    """Id of the next clip without a caption; "" if there is none."""

    trigger_word: str
    """The dataset's trigger word."""

    cuttable: bool
    """Whether it can be cut: false for images and latents."""

    cut: bool
    """Whether it is a part of its source video."""

    use: str
    """How much of it the chosen model uses, in words; "" without a model."""

    warnings: tuple[str, ...]
    """One sentence for each kind of loss when the model uses it."""


class Source(Frames):
    """A clip's source video, and the part of it that the clip covers."""

    file: str
    """Path of the source video."""

    strip: str
    """Path of its filmstrip: an image with some of its frames in a row."""

    tiles: int
    """Number of frames in the filmstrip."""

    start: int
    """The clip's first frame."""

    end: int
    """The frame after the clip's last one."""

    crop: tuple[int, int, int, int] | None
    """Left, top, width and height of the clip's crop, in pixels; null for the whole frame."""

    waveform: tuple[int, ...]
    """The loudest moment in each of many equal parts of the source video, 0 to 100; empty without a sound."""

    taken: tuple[tuple[int, int], ...]
    """Parts that are other clips already: first frame, frame after the last one."""


class Cuts(Snapshot):
    """The shot boundaries in a clip."""

    seconds: tuple[float, ...]
    """Where new shots begin, in seconds of the source video, as `split-at` takes them."""


class CaptionerInfo(Snapshot):
    """A captioner."""

    id: str
    """Id of the captioner, as the setting `captioner` takes it."""

    title: str
    """Display name."""

    needs: str
    """What it needs, such as memory and a download, in one sentence."""


class Edited(Snapshot):
    """The result of an edit."""

    changed: Annotated[int, Shown("captions changed", "{:,}".format)]
    """Number of captions that changed."""


class Trigger(Snapshot):
    """The trigger word of a dataset."""

    name: str
    """Name of the dataset."""

    trigger_word: Annotated[str, Shown("trigger word")]
    """The trigger word, which is added to every caption that lacks it; "" for none."""

    changed: Annotated[int, Shown("captions changed", "{:,}".format)]
    """Number of captions that `write` or `remove` changed."""


class Tag(Snapshot):
    """A comma-separated tag in captions."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("clips", "tag")

    tag: str
    """The tag, spelled as in its first occurrence."""

    clips: Annotated[int, Shown(right=True)]
    """Number of captions that contain it."""


# ---- looking


SearchWords = Annotated[str, Field(description="Words that the caption or the name must contain.", max_length=1000)]


@operation(shell=False)
def cards(
    dataset: NamedDataset,
    *,
    search: SearchWords = "",
    only: Annotated[Filter, Field(description="Which clips to show.")] = "all",
    order: Annotated[Order, Field(description="The sort order.")] = "given",
    first: Annotated[int, Field(ge=0, description="Position of the first clip on the page, from 0.")] = 0,
    most: Annotated[int, Field(ge=1, le=200, description="Maximum number of clips on the page.")] = 48,
    ids: Annotated[bool, Field(description="Also list the ids of all matching clips.")] = False,
) -> ClipCards:
    """Show one page of a dataset's clips."""
    found = clip_list(dataset.folder, search, only, order)
    first = min(first, max(0, (len(found.clips) - 1) // most * most))
    return ClipCards(
        clips=tuple(clip_card(dataset, one, found.marks) for one in found.clips[first : first + most]),
        first=first,
        found=len(found.clips),
        all=found.all,
        filters={one: {"title": FILTERS[one][0], "clips": count} for one, count in found.counts.items()},
        orders={one: title for one, (title, _) in ORDERS.items()},
        missing=found.next_without_caption(first + most - 1),
        ids=tuple(one.id for one in found.clips) if ids else (),
    )


def clip_card(dataset: Dataset, clip: records.Clip, marks: Mapping[str, Sequence[str]]) -> ClipCard:
    """Return a clip's card.

    Args:
        marks: File name -> what the last check found in that clip.
    """
    thumbnail = dataset.folder / thumbnail_name(clip)
    return ClipCard.from_objects(
        clip_entry(clip),
        file=str(dataset.folder / clip.file_name),
        picture=str(thumbnail) if thumbnail.exists() else "",
        first_frame=str(dataset.folder / clip.first_frame) if clip.first_frame else "",
        beside={kind: str(dataset.folder / name) for kind, name in clip.companions.items()},
        image=clip.is_image,
        caption_by=clip.caption_by,
        marks=tuple(marks.get(clip.file_name, ())),
    )


@operation(shell=False)
def view(
    workspace: Workspace,
    dataset: NamedDataset,
    clip: Clip,
    *,
    model: Annotated[str, Field(description="Show what this model uses of it.", json_schema_extra={"path": True})] = "",
    frames: Annotated[int | None, Field(ge=1, description="Frames to train on. Default: the model's own.")] = None,
) -> ClipView:
    """Show a clip. After a cut, its previous id still finds it."""
    clips, found = dataset.clips, clip_list(dataset.folder)
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
    return ClipView.from_objects(
        clip_card(dataset, one, found.marks),
        neighbors(clips, one),
        plan=planned.sentence if planned else "",
        missing=clips[missing].id if missing is not None and missing != at else "",
        trigger_word=dataset.info.trigger_word,
        cuttable=not (one.is_image or one.is_latents),
        cut=bool(one.master),
        use=planned.use if planned else "",
        warnings=tuple(planned.warnings) if planned else (),
    )


@operation(shell=False)
def source(workspace: Workspace, dataset: NamedDataset, clip: Clip) -> Source:
    """Show a clip's source video as a filmstrip, and the part of it that the clip covers."""
    one = dataset.clip(clip)
    master = master_of(dataset.folder, one)
    strip = scenes.filmstrip(master.path, workspace.cache / scenes.STRIPS, scenes.TILES, scenes.TILE_HEIGHT)
    cut = cut_of(one, master)
    others = [cut_of(other, master) for other in dataset.clips if one.master and other.master == one.master]
    return Source.from_objects(
        master,
        cut,
        file=str(master.path),
        strip=str(strip.path),
        tiles=len(strip.times),
        waveform=tuple(read_once(master.path, waveform_of)),
        taken=tuple((other.start, other.end) for other in others if (other.start, other.end) != (cut.start, cut.end)),
    )


def waveform_of(path: Path) -> list[int]:
    """Return a video's waveform for the clip editor; [] if its sound cannot be read, which the dataset check says."""
    try:
        return sound.waveform(path, WAVE_STEPS)
    except DataError:
        return []


@operation(shell=False)
def find_cuts(
    dataset: NamedDataset,
    clip: Clip,
    threshold: Annotated[float, Field(gt=1, le=20, description="Lower finds more cuts.")] = scenes.DETECTORS[
        "adaptive"
    ].threshold,
) -> Cuts:
    """Find where new shots begin in a clip, without cutting it."""
    one = dataset.clip(clip)
    master = master_of(dataset.folder, one)
    if master.frames / master.fps > LONGEST_SEARCHED:
        raise ConfigError(
            f"the source video of {one.name} is longer than five minutes: use Cut clips, which runs as a task"
        )
    cut = cut_of(one, master)
    found = scenes.cuts(scenes.scores(master.path, "adaptive", dataset.folder / scenes.SCORES), threshold)
    return Cuts(seconds=tuple(frame / master.fps for frame in found if cut.start < frame < cut.end))


# ---- captions


@operation(changes=True, section=CAPTIONS)
def caption(
    dataset: NamedDataset,
    clip: Clip,
    text: Annotated[str, Field(description="The new caption.")],
    *,
    over: Annotated[str | None, Field(description="Write it only if this is still the current caption.")] = None,
) -> ClipEntry:
    """Write a clip's caption."""
    made = dataset.set_caption(clip, text, over=over)
    if over is not None and made.text != clean_caption(text):
        sentence = f"Someone else changed this caption in the meantime: {made.text!r}"
        raise ConfigError(sentence, {"text": sentence})
    return clip_entry(made)


@operation(arguments="name [chosen]", changes=True, job=job, section=CAPTIONS)
def auto_caption(dataset: NamedDataset, settings: CaptionSettings) -> DatasetTask:
    """Caption clips with a model: the chosen ones, or all that have no caption.

    Captions that you wrote by hand are kept. The captioner `endpoint` sends frames of the clips to the address you
    give; its API key comes from the environment or the system keyring.
    """
    chosen = settings.changed(which="chosen") if settings.chosen else settings
    return start_task(dataset, "caption", chosen)


@operation(path="/captioners", shell=False)
def list_captioners(workspace: Workspace) -> list[CaptionerInfo]:
    """List the captioners and what each of them needs."""
    return [CaptionerInfo.model_validate(one) for one in captioners().values()]


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
    """List the captions that `replace` would change, without changing them."""
    search = Search(find, expression, match_case, whole_word)
    return editing.preview_replace(dataset.folder, search, replacement, clips or None)


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
    """Replace a text in the captions of all clips, or of some."""
    search = Search(find, expression, match_case, whole_word)
    return Edited(changed=editing.replace(dataset.folder, search, replacement, clips or None))


@operation(changes=True, section=CAPTIONS)
def prefix(dataset: NamedDataset, text: Added, clips: OrAll = ()) -> Edited:
    """Add a text before every caption that does not start with it."""
    return Edited(changed=editing.add_prefix(dataset.folder, text, clips or None))


@operation(changes=True, section=CAPTIONS)
def suffix(dataset: NamedDataset, text: Added, clips: OrAll = ()) -> Edited:
    """Add a text after every caption that does not end with it."""
    return Edited(changed=editing.add_suffix(dataset.folder, text, clips or None))


@operation(changes=True, section=CAPTIONS)
def trigger(
    dataset: NamedDataset,
    word: Annotated[
        str | None, Field(description='The new trigger word; "" for none. Omit it to leave the word unchanged.')
    ] = None,
    *,
    write: Annotated[bool, Field(description="Also write it into the captions, for tools that do not add it.")] = False,
    remove: Annotated[bool, Field(description="Remove it from the captions. Training still adds it.")] = False,
) -> Trigger:
    """Show or set a dataset's trigger word."""
    if write and remove:
        raise ConfigError("write and remove contradict each other: give only one of them")
    if word is not None:
        dataset.set_trigger_word(word)
    changed = editing.add_trigger_word(dataset.folder) if write else 0
    changed += editing.remove_trigger_word(dataset.folder) if remove else 0
    return Trigger(name=dataset.name, trigger_word=dataset.info.trigger_word, changed=changed)


@operation(none="no captions yet", section=CAPTIONS)
def tags(
    dataset: NamedDataset, *, most: Annotated[int, Field(ge=1, description="Maximum number of tags to list.")] = 50
) -> list[Tag]:
    """Count the comma-separated tags in the captions, most frequent first."""
    counts = editing.tag_counts(dataset.clips)
    return [Tag(tag=tag, clips=count) for tag, count in counts.most_common(most)]


@operation(changes=True, shell=False)
def mark(
    dataset: NamedDataset, clips: Clips, word: Annotated[str, Field(description="The mark, such as night.")]
) -> Edited:
    """Mark clips with a word for your own use. Captions do not include it."""
    return Edited(changed=dataset.tag(word, *clips))


@operation(changes=True, section=CAPTIONS)
def remove_tag(
    dataset: NamedDataset, tag: Annotated[str, Field(description="The tag to remove.")], clips: OrAll = ()
) -> Edited:
    """Remove a tag from comma-separated captions."""
    return Edited(changed=editing.remove_tag(dataset.folder, tag, clips or None))


# ---- cutting


@operation(arguments="name [clips]", changes=True, job=job, section=CUTTING)
def split(dataset: NamedDataset, settings: SplitTask) -> DatasetTask:
    """Split clips at shot boundaries, or into parts of equal length.

    With `preview`, only report what would be cut.
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
    """Split a clip at the given times."""
    return _entries(dataset.split_at(clip, seconds))


def _entries(found: Iterable[records.Clip]) -> list[ClipEntry]:
    return [clip_entry(one) for one in found]


@operation(changes=True, shell=False)
def recut(
    dataset: NamedDataset,
    clip: Clip,
    *,
    start: Annotated[int, Field(ge=0, description="First frame in the source video.")],
    end: Annotated[int, Field(ge=1, description="The frame after the last one.")],
    crop: Annotated[
        tuple[int, int, int, int] | None,
        Field(description="Left, top, width and height in the source video, in pixels; null for the whole frame."),
    ] = None,
) -> ClipEntry:
    """Set which frames and which area of its source video a clip covers, as one change."""
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
    start: Annotated[float, Field(description="Start in the source video, in seconds.")],
    end: Annotated[float, Field(description="End in the source video, in seconds.")],
) -> ClipEntry:
    """Set which part of its source video a clip covers.

    The new part may be longer than the clip is now.
    """
    return clip_entry(dataset.trim(clip, start, end))


@operation(changes=True, section=CUTTING)
def crop(
    dataset: NamedDataset,
    clip: Clip,
    left: Annotated[int, Field(description="Left edge in the source video, in pixels.")],
    top: Annotated[int, Field(description="Top edge in the source video, in pixels.")],
    width: Annotated[int, Field(description="Width in pixels.")],
    height: Annotated[int, Field(description="Height in pixels.")],
) -> ClipEntry:
    """Crop a clip to this area of its source video."""
    return clip_entry(dataset.crop(clip, (left, top, width, height)))


@operation(changes=True, section=CUTTING)
def crop_bars(dataset: NamedDataset, clip: Clip) -> ClipEntry:
    """Detect the black bars around a clip and crop them off."""
    return clip_entry(dataset.crop_bars(clip))


@operation(changes=True, section=CUTTING)
def uncrop(dataset: NamedDataset, clip: Clip) -> ClipEntry:
    """Remove a clip's crop."""
    return clip_entry(dataset.crop(clip, None))


@operation(changes=True, section=CUTTING)
def set_fps(
    dataset: NamedDataset,
    clips: Clips,
    *,
    fps: Annotated[
        float | None, Field(description="Frames per second. Omit it to restore the source video's frame rate.")
    ] = None,
) -> list[ClipEntry]:
    """Lower the frame rate of clips by dropping frames."""
    return _entries(dataset.set_fps(fps, *clips))


@operation(changes=True, section=CUTTING)
def reset_cut(dataset: NamedDataset, clips: Clips) -> list[ClipEntry]:
    """Reset clips to their whole source videos.

    If several clips come from the same source video, the first one becomes the whole video and the others are removed.
    """
    return _entries(dataset.reset_cut(*clips))


# ---- removing


@operation(changes=True, section=NAMING)
def remove_clips(dataset: NamedDataset, clips: Clips) -> list[ClipEntry]:
    """Remove clips from a dataset. `restore-clips` brings them back."""
    found = [dataset.clip(one) for one in clips]
    dataset.remove(*clips)
    return _entries(found)


@operation(none="no clips were removed", section=NAMING)
def removed_clips(dataset: NamedDataset) -> list[ClipEntry]:
    """List the clips that were removed from a dataset."""
    return _entries(dataset.removed)


@operation(changes=True, section=NAMING)
def restore_clips(dataset: NamedDataset, clips: Clips) -> list[ClipEntry]:
    """Restore removed clips."""
    found = [records.find_clip(dataset.removed, one) for one in clips]
    dataset.restore(*clips)
    return _entries(found)
