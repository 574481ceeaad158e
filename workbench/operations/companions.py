"""Companion files of a clip: control clip, reference, mask, last frame. Attach, make and detach them; paint masks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from workbench import jobs
from workbench.clips import made, mask_tracking, media, records
from workbench.clips.records import COMPANION_NAMES
from workbench.dataset_builder import companions as beside
from workbench.dataset_builder import masking
from workbench.dataset_builder.checks.findings import Finding, read_findings
from workbench.dataset_builder.cuts.painted import MaskInfo, info_of, painted_frames
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import MakeSettings, MaskEdges, TrackSettings
from workbench.dataset_builder.snapshot import clip_list
from workbench.dataset_builder.sources.files import inbox
from workbench.errors import ConfigError, DataError
from workbench.operations.clips import Clip, ClipCard, Neighbors, OrAll, clip_card, neighbors
from workbench.operations.dataset_tasks import DatasetTask, NamedDataset, job, start_task, task_of, while_same
from workbench.operations.datasets import Frames
from workbench.operations.registry import operation
from workbench.settings import specs
from workbench.snapshots import Shown, Snapshot
from workbench.vision import segmenting
from workbench.vision.local_models import KnownModel
from workbench.workspace import Workspace, confined, named_paths

BESIDE = "Beside a clip"
Kind = Annotated[Literal["control", "reference", "mask", "last_frame"], Field(description="Kind of companion.")]
Frame = Annotated[int, Field(ge=0, description="Number of the frame, from 0.")]
File = Annotated[str, Field(description="Path of the file.", json_schema_extra={"path": True})]


class Partner(Snapshot):
    """A companion file of a clip."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("clip", "name", "kind", "frames", "width", "height", "state", "file")

    clip: str
    """Id of the clip."""

    name: str
    """Name of the clip."""

    kind: str
    """`control`, `reference`, `mask` or `last_frame`."""

    title: str
    """The kind in words."""

    file: str
    """Path of the file."""

    image: bool
    """Whether it is an image."""

    frames: Annotated[int, Shown(right=True)]
    """Number of frames; 0 if the file cannot be read."""

    width: Annotated[int, Shown(right=True)]
    """Width in pixels."""

    height: Annotated[int, Shown(right=True)]
    """Height in pixels."""

    fits: bool
    """Whether it fits the clip. Control clips and masks need the clip's frame count, size and frame rate."""

    state: str
    """How it fits, in words."""

    finding: str = ""
    """Kind of finding of the last check, as `fix` takes it; "" for none."""

    fixes: dict[str, str] = {}
    """Possible fixes, best first: fix, as `fix` takes it for `how` -> label for a button."""


class Paired(Snapshot):
    """A clip and its companion files."""

    clip: ClipCard
    """The clip."""

    partners: dict[str, Partner]
    """`control`, `reference`, `mask` or `last_frame` -> the file."""


class Pairs(Snapshot):
    """One page of a dataset's clips with their companion files."""

    role: str
    """The kind of companion that is counted: `control`, `reference`, `mask`, `last_frame`, or `every`."""

    pairs: tuple[Paired, ...]
    """The clips on this page."""

    first: int
    """Position of the first clip on this page, from 0."""

    found: int
    """Number of clips that match."""

    has: dict[str, int]
    """Kind of companion -> number of clips that have one."""

    all: int
    """Number of clips that can have companions: all except latents."""

    lacking: int
    """Number of clips without one."""

    unfit: int
    """Number of clips with one that does not fit."""


class VisionModel(Snapshot):
    """A supported model for depth, poses or masks."""

    id: str
    """Id of the model, as the setting `model` takes it."""

    title: str
    """Display name."""

    memory_gb: float
    """Approximate memory that it needs, in GB."""

    download_gb: float
    """Size of its one-time download with everything it needs, in GB."""

    license: str
    """Its license."""

    at_hand: bool
    """Whether it is fully downloaded."""


class MakerNumber(Snapshot):
    """A numeric setting of a maker."""

    setting: str
    """Name of the setting, as `clips/make` takes it."""

    title: str
    """Display name with the unit."""

    start: float
    """Its default."""

    low: float
    """Its minimum."""

    high: float
    """Its maximum."""


class MakerInfo(Snapshot):
    """A kind of companion file that can be made from a clip."""

    id: str
    """Id, as the setting `maker` takes it."""

    title: str
    """Display name."""

    does: str
    """What it makes and what that is for."""

    kinds: tuple[str, ...]
    """Kinds of companion that the result can be, the usual one first."""

    numbers: tuple[MakerNumber, ...]
    """Its numeric settings."""

    models: tuple[VisionModel, ...]
    """Supported models, the usual one first; [] if it needs none."""


class Detached(Snapshot):
    """The result of detaching companion files."""

    changed: Annotated[int, Shown("clips changed", "{:,}".format)]
    """Number of clips that had one."""


class PaintedFrame(Snapshot):
    """A frame with a painted mask."""

    frame: int
    """Number of the frame, from 0."""

    file: str
    """Path of the mask image, white inside."""


class MaskView(Neighbors, Frames):
    """The mask of a clip: painted frames, tracking result and confidence."""

    clip: str
    """Id of the clip."""

    name: str
    """Name of the clip."""

    file: str
    """Path of the clip's video."""

    mask: str
    """Path of its mask, a grayscale video; "" for none."""

    painted: tuple[PaintedFrame, ...]
    """Painted frames, in order."""

    by: str
    """Title of the model that tracked it; "" for optical flow or a mask from elsewhere."""

    used: tuple[int, ...]
    """Painted frames that the mask was tracked from; [] for a mask from elsewhere."""

    confidence: tuple[float, ...]
    """Confidence in each frame, 0 to 1; [] for a mask that was not tracked here."""

    sure: float
    """Confidence threshold. Frames below it need a look."""

    doubtful: tuple[int, ...]
    """Frames below the threshold, least confident first."""

    soften: Annotated[float, Shown("soft edge", "{:g} pixels".format)]
    """Width of its soft edge in pixels."""

    invert: bool
    """Whether it masks everything except what was painted."""

    seconds: Annotated[float, Shown("tracking takes about", "{:.0f} s".format)]
    """Estimated duration of tracking in seconds."""

    activity: str
    """What the tracking is doing; "" unless it is running."""

    share: float | None
    """Share of the tracking that is done, 0 to 1; null while unknown."""

    problem: str
    """Why the last tracking of this clip failed; "" if it did not."""

    def text(self) -> Iterator[str]:
        yield f"{self.name}: {self.frames} frames, {self.width}x{self.height}"
        yield f"painted: {', '.join(str(one.frame) for one in self.painted) or 'no frame'}"
        yield f"mask: {self.mask or 'none'}" + (f", edge softened by {self.soften:g} pixels" if self.soften else "")
        if self.confidence:
            yield f"tracked by: {self.by or 'optical flow'}"
            yield f"confidence: {' '.join(f'{one:.2f}' for one in self.confidence)}"
            unsure = ", ".join(f"{one} ({self.confidence[one]:.2f})" for one in self.doubtful)
            yield f"unsure, worst first: {unsure or 'none'}"


# ---- companion files


@operation(none="these clips have no companion files", section=BESIDE)
def companions(dataset: NamedDataset, clips: OrAll = ()) -> list[Partner]:
    """List the companion files of clips: control clips, references, masks, last frames."""
    chosen = records.clips_named(dataset.clips, clips or None)
    return [_partner(dataset, one, kind) for one in chosen for kind in one.companions]


def _watch_pairs(workspace: Workspace, name: str, **asked: Any) -> Callable[[], Pairs]:
    return while_same(workspace, name, partial(pairs, **asked))


@operation(watch=_watch_pairs, shell=False)
def pairs(
    dataset: NamedDataset,
    *,
    role: Annotated[
        Literal["", "every", "control", "reference", "mask", "last_frame"],
        Field(description="Kind of companion to count. Default: every kind that the dataset has."),
    ] = "",
    only: Annotated[
        Literal["all", "lacking", "unfit"],
        Field(description="All clips, only those without a companion, or only those with one that does not fit."),
    ] = "all",
    first: Annotated[int, Field(ge=0, description="Position of the first clip on the page, from 0.")] = 0,
    most: Annotated[int, Field(ge=1, le=100, description="Maximum number of clips on the page.")] = 24,
    clips: OrAll = (),
) -> Pairs:
    """Show clips with their control clips, references, masks and last frames, and which are missing or do not fit."""
    listed = clip_list(dataset.folder)
    every = [one for one in listed.clips if not one.is_latents]
    has = {kind: sum(kind in one.companions for one in every) for kind in COMPANION_NAMES}
    used = [kind for kind, count in has.items() if count] or ["control"]
    chosen: str = role or (used[0] if len(used) == 1 else "every")
    kinds = used if chosen == "every" else [chosen]
    lacking = [one for one in every if any(kind not in one.companions for kind in kinds)]
    unfit = [one for one in every if beside.problems(dataset.folder, one).keys() & {*kinds}]
    found = {"all": every, "lacking": lacking, "unfit": unfit}[only]
    if clips:
        found = records.clips_named(found, clips)
    first = min(first, max(0, (len(found) - 1) // most * most))
    findings: dict[tuple[str, str], Finding] = {}
    for finding in read_findings(dataset.folder):
        if finding.holds_beside is not None:
            findings.setdefault((finding.clips[0], finding.holds_beside[0]), finding)
    return Pairs(
        role=chosen,
        pairs=tuple(
            Paired(
                clip=clip_card(dataset, one, listed.marks),
                partners={
                    kind: _partner(dataset, one, kind, findings.get((one.file_name, kind))) for kind in one.companions
                },
            )
            for one in found[first : first + most]
        ),
        first=first,
        found=len(found),
        has=has,
        all=len(every),
        lacking=len(lacking),
        unfit=len(unfit),
    )


def _partner(dataset: Dataset, clip: records.Clip, kind: str, finding: Finding | None = None) -> Partner:
    path = dataset.folder / clip.companions[kind]
    image = path.suffix == ".png"
    problem = beside.problems(dataset.folder, clip).get(kind, "")
    frames, width, height = 0, 0, 0
    try:
        if image:
            from PIL import Image

            with Image.open(path, formats=["PNG"]) as picture:
                frames, (width, height) = 1, picture.size
        else:
            about = media.probe(path)
            frames, width, height = about.frames, about.width, about.height
    except (DataError, OSError):
        pass  # `problem` says it
    if problem:
        state = problem
    elif finding:
        state = finding.title.lower()
    elif image:
        state = "a picture"
    elif kind == "reference":
        state = f"{frames} frames of its own"
    else:
        info = info_of(dataset.folder, clip) if kind == "mask" else MaskInfo()
        state = f"same {frames} frames"
        if info.confidence:
            sure = len(info.confidence) - len(info.doubtful)
            state = f"tracked, {sure} of {len(info.confidence)} frames sure"
    return Partner(
        clip=clip.id,
        name=clip.name,
        kind=kind,
        title=COMPANION_NAMES[kind],
        file=str(path),
        image=image,
        frames=frames,
        width=width,
        height=height,
        fits=not problem,
        state=state,
        finding=finding.kind if finding else "",
        fixes={fix.replace("_", "-"): label for fix, label in finding.buttons.items()} if finding else {},
    )


@operation(changes=True, section=BESIDE)
def attach(dataset: NamedDataset, clip: Clip, kind: Kind, file: File) -> Partner:
    """Attach a file to a clip: a control clip, a reference, a mask or a last frame.

    A control clip or a mask is converted to the clip's frame count, size and frame rate. If it covers the whole source
    video, it is cut like the clip. `undo` reverts this.
    """
    changed = beside.attach(dataset.folder, dataset.clip(clip), kind, _given(file))
    return _partner(dataset, changed, kind)


def _given(file: str) -> Path:
    """Return the path of an uploaded file, or of a file on this machine that may be read. Raises ConfigError."""
    if os.environ.get("GRADIO_TEMP_DIR") and Path(file).is_absolute():
        try:
            path = confined(inbox(), file)
        except ConfigError:
            pass  # not an upload
        else:
            if not path.is_file():
                raise ConfigError(f"{path.name} is no longer on the server: drop it again")
            return path
    path = named_paths.checked(file, "file")
    if not path.is_file():
        raise ConfigError(f"file is {file[:200]!r}, which does not exist: check the path")
    return path


@operation(changes=True, section=BESIDE)
def detach(dataset: NamedDataset, kind: Kind, clips: OrAll = ()) -> Detached:
    """Detach all companion files of one kind from clips. `undo` brings them back."""
    chosen = records.clips_named(dataset.clips, clips or None)
    return Detached(changed=beside.detach(dataset.folder, chosen, kind))


@operation(path="/makers", shell=False)
def list_makers() -> list[MakerInfo]:
    """List the companion files that can be made from clips, and the models that some of them need."""
    return [
        MakerInfo.from_objects(
            one,
            id=name,
            numbers=_numbers(name),
            models=tuple(_model(model, *one.helpers[:1]) for model in one.models),
        )
        for name, one in made.ABOUT.items()
    ]


def _numbers(maker: made.Maker) -> tuple[MakerNumber, ...]:
    """Return the numeric settings of a maker: its amount, or the position of its box."""
    if maker == "box":
        known = {spec.name: spec for spec in specs(MakeSettings)}
        sides = zip(("left", "top", "width", "height"), made.MIDDLE, strict=True)
        return tuple(
            MakerNumber(
                setting=name,
                title=f"{known[name].title}, in percent of the picture",
                start=start,
                low=float(known[name].low or 0),
                high=float(known[name].high or 100),
            )
            for name, start in sides
        )
    amount = made.ABOUT[maker].amount
    if amount is None:
        return ()
    title = f"{amount.title[0].upper()}{amount.title[1:]}"
    return (MakerNumber.from_objects(amount, setting="amount", title=title),)


@operation(path="/trackers", shell=False)
def list_trackers() -> list[VisionModel]:
    """List the models that can track painted masks through clips. Without a model, optical flow is used."""
    return [_model(one) for one in segmenting.MODELS]


def _model(model: KnownModel, *helpers: KnownModel) -> VisionModel:
    every = (model, *helpers)
    return VisionModel.from_objects(
        model,
        memory_gb=sum(one.memory_gb for one in every),
        download_gb=round(sum(one.download_gb for one in every), 2),
        license=", ".join(dict.fromkeys(one.license for one in every)),
        at_hand=all(one.at_hand for one in every),
    )


@operation(arguments="name [clips]", changes=True, job=job, section=BESIDE)
def make(dataset: NamedDataset, settings: MakeSettings) -> DatasetTask:
    """Make companion files from the clips themselves: edges, gray, blur, depth, poses, box masks, end frames ...

    Depth and poses need a model, which is downloaded once and waits for its turn on the GPU.
    """
    return start_task(dataset, "make", settings)


# ---- masks


@operation(watch=True, section=BESIDE)
def mask(dataset: NamedDataset, clip: Clip) -> MaskView:
    """Show a clip's mask: painted frames, the confidence in each tracked frame, and frames that need a look."""
    clips = dataset.clips
    one = records.find_clip(clips, clip)
    info = info_of(dataset.folder, one)
    task = task_of(dataset, "track")
    running = task.state in ("starting", "running")
    failed = task.state in ("failed", "died")
    if failed:  # only if this clip was among those tracked
        tracked = TrackSettings.load(dataset.task("track").folder / jobs.CONFIG).clips
        failed = not tracked or bool({one.id, one.name, one.file_name} & set(tracked))
    return MaskView.from_objects(
        info,
        neighbors(clips, one),
        one,
        clip=one.id,
        file=str(dataset.folder / one.file_name),
        mask=str(dataset.folder / one.mask) if one.mask else "",
        painted=tuple(
            PaintedFrame(frame=frame, file=str(path)) for frame, path in painted_frames(dataset.folder, one).items()
        ),
        used=tuple(info.painted),
        sure=mask_tracking.SURE,
        seconds=one.frames * masking.FRAME_SECONDS,
        activity=task.activity if running else "",
        share=task.share if running else None,
        problem=task.sentence if failed else "",
    )


@operation(changes=True, section=BESIDE)
def paint(
    dataset: NamedDataset,
    clip: Clip,
    frame: Frame,
    file: Annotated[
        str, Field(description="Path of an image of the clip's size, white inside.", json_schema_extra={"path": True})
    ] = "",
    *,
    runs: Annotated[
        tuple[int, ...],
        Field(description="Instead of an image: run lengths of pixels outside, inside, outside ..., row by row."),
    ] = (),
) -> MaskView:
    """Save the mask painted on a frame; without an image, delete it."""
    one = dataset.clip(clip)
    if file and runs:
        raise ConfigError("file and runs are both given: give only one of them")
    painted = masking.from_picture(one, _given(file)) if file else masking.from_runs(one, runs) if runs else None
    masking.paint(dataset.folder, one, frame, painted)
    return mask(dataset, one.id)


@operation(arguments="name [clips]", changes=True, job=job, section=BESIDE)
def track(dataset: NamedDataset, settings: TrackSettings) -> DatasetTask:
    """Track painted masks through their clips, with optical flow or a SAM 2 model (`model`).

    The result becomes the clip's mask. `mask` shows how confident each frame is.
    """
    return start_task(dataset, "track", settings)


@operation(changes=True, section=BESIDE)
def mask_edge(dataset: NamedDataset, clip: Clip, *, edges: MaskEdges) -> MaskView:
    """Soften the edge of a clip's mask, or invert it."""
    masking.refine(dataset.folder, dataset.clip(clip), edges)
    return mask(dataset, clip)
