"""What lies beside a clip: control clip, reference, mask, last frame. Attach, make, detach; paint and track masks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from workbench import jobs
from workbench.clips import made, mask_tracking, media, records
from workbench.clips.records import COMPANION_NAMES
from workbench.dataset_builder import clip_list, masking
from workbench.dataset_builder import companions as beside
from workbench.dataset_builder.checks.findings import Finding, read_findings
from workbench.dataset_builder.cuts.painted import MaskInfo, info_of, painted_frames
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import MakeSettings, MaskEdges, TrackSettings
from workbench.dataset_builder.sources.files import inbox
from workbench.errors import ConfigError, DataError
from workbench.operations.clips import Clip, ClipCard, OrAll, clip_card
from workbench.operations.dataset_tasks import DatasetTask, NamedDataset, job, start_task, task_of
from workbench.operations.registry import Shown, Snapshot, operation
from workbench.settings import specs
from workbench.vision import segmenting
from workbench.vision.local_models import KnownModel
from workbench.workspace import Workspace, confined, named_paths
from workbench.workspace.records import Kept

BESIDE = "Beside a clip"
Kind = Annotated[
    Literal["control", "reference", "mask", "last_frame"], Field(description="What the file is to the clip.")
]
Frame = Annotated[int, Field(ge=0, description="Which frame, from 0.")]
File = Annotated[str, Field(description="Path of the file.", json_schema_extra={"path": True})]


class Partner(Snapshot):
    """A file beside a clip."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "kind", "frames", "width", "height", "state")

    clip: str
    """Id of the clip."""

    name: str
    """Name of the clip."""

    kind: str
    """`control`, `reference`, `mask` or `last_frame`."""

    title: str
    """The same in words."""

    file: str
    """Its path."""

    image: bool
    """Whether it is a picture."""

    frames: Annotated[int, Shown(right=True)]
    """How many it has; 0 where it cannot be read."""

    width: Annotated[int, Shown(right=True)]
    """Pixels."""

    height: Annotated[int, Shown(right=True)]
    """Pixels."""

    fits: bool
    """Whether it fits the clip: a control clip and a mask have its frames, size and rate."""

    state: str
    """How it fits, in words."""

    finding: str = ""
    """What the last check found, as `fix` takes it; "" for nothing."""

    fixes: dict[str, str] = {}
    """What can be done about that: what `fix` takes as `how` -> for a button, the best first."""


class Paired(Snapshot):
    """A clip, and what lies beside it."""

    clip: ClipCard
    """The clip."""

    partners: dict[str, Partner]
    """`control`, `reference`, `mask`, `last_frame` -> the file, of those that it has."""


class Pairs(Snapshot):
    """Some clips of a dataset, each with what lies beside it."""

    role: str
    """Whose partners are counted: `control`, `reference`, `mask`, `last_frame`, or `every`."""

    pairs: tuple[Paired, ...]
    """The clips on this page."""

    first: int
    """Position of the first of them among those that were found."""

    found: int
    """How many were found."""

    has: dict[str, int]
    """Role -> how many clips of the dataset have such a partner."""

    all: int
    """How many clips may have partners: all but those that are latents."""

    lacking: int
    """How many of them lack one."""

    unfit: int
    """How many have one that does not fit."""


class VisionModel(Snapshot):
    """A model that is known to see depth, poses or masks."""

    id: str
    """What the setting `model` takes."""

    title: str
    """For people."""

    memory_gb: float
    """Memory that it needs, about, in GB."""

    download_gb: float
    """What is downloaded once, with what it needs beside it, in GB."""

    license: str
    """Its license."""

    at_hand: bool
    """Whether all of it was downloaded already."""


class MakerNumber(Snapshot):
    """A number that changes what a maker makes."""

    setting: str
    """Of `clips/make`."""

    title: str
    """For people, with its unit."""

    start: float
    """Without one."""

    low: float
    """The lowest that it may be."""

    high: float
    """The highest that it may be."""


class MakerInfo(Snapshot):
    """Something that is made of a clip."""

    id: str
    """What the setting `maker` takes."""

    title: str
    """For people."""

    does: str
    """What it is, and what for."""

    kinds: tuple[str, ...]
    """What it can be to a clip, the usual one first."""

    numbers: tuple[MakerNumber, ...]
    """What can be said about it."""

    models: tuple[VisionModel, ...]
    """Models that are known to make it, the usual one first; [] where none is needed."""


class Detached(Snapshot):
    """From how many clips something was taken away."""

    changed: Annotated[int, Shown("clips changed", "{:,}".format)]
    """How many clips had it."""


class PaintedFrame(Snapshot):
    """A frame on which a mask was painted."""

    frame: int
    """Which, from 0."""

    file: str
    """Path of the picture, white inside."""


class MaskView(Snapshot):
    """The mask of a clip: what was painted, what was tracked, and how sure each frame is."""

    clip: str
    """Id of the clip."""

    name: str
    """Name of the clip."""

    file: str
    """Path of the clip's video."""

    mask: str
    """Path of its mask, a gray video; "" for none."""

    frames: int
    """How many frames the clip has."""

    fps: float
    """Frames per second."""

    width: int
    """Pixels."""

    height: int
    """Pixels."""

    painted: tuple[PaintedFrame, ...]
    """Frames that were painted, in order."""

    by: str
    """Title of the model that tracked it; "" for optical flow, or a mask from elsewhere."""

    used: tuple[int, ...]
    """Painted frames that the mask was tracked from; [] of a mask from elsewhere."""

    confidence: tuple[float, ...]
    """How sure each frame is, 0 to 1; [] of a mask that was not tracked here."""

    sure: float
    """Below this a frame is worth a look."""

    doubtful: tuple[int, ...]
    """Frames below it, the least sure first."""

    soften: Annotated[float, Shown("soft edge", "{:g} pixels".format)]
    """How far its edge fades out, in pixels."""

    invert: bool
    """Whether it masks everything but what was painted."""

    seconds: Annotated[float, Shown("tracking takes about", "{:.0f} s".format)]
    """About how long tracking takes."""

    activity: str
    """What the tracking is doing; "" unless it is running."""

    share: float | None
    """The share of its work that is done; null while unknown."""

    problem: str
    """Why the last tracking of this clip failed; "" if it did not."""

    number: int
    """The clip's place in the dataset, from 1."""

    of: int
    """How many clips there are."""

    previous: str
    """Id of the clip before it; "" for the first."""

    next: str
    """Id of the clip after it; "" for the last."""

    def text(self) -> Iterator[str]:
        yield f"{self.name}: {self.frames} frames, {self.width}x{self.height}"
        yield f"painted: {', '.join(str(one.frame) for one in self.painted) or 'no frame'}"
        yield f"mask: {self.mask or 'none'}" + ("" if not self.soften else f", edge softened by {self.soften:g} pixels")
        if self.confidence:
            yield f"tracked by: {self.by or 'optical flow'}"
            yield f"confidence: {' '.join(f'{one:.2f}' for one in self.confidence)}"
            unsure = ", ".join(f"{one} ({self.confidence[one]:.2f})" for one in self.doubtful)
            yield f"unsure, the worst first: {unsure or 'none'}"


# ---- what lies beside


@operation(none="these clips have no companion files", section=BESIDE)
def companions(dataset: NamedDataset, clips: OrAll = ()) -> list[Partner]:
    """List what lies beside clips: control clips, references, masks, last frames."""
    chosen = records.clips_named(dataset.clips, clips or None)
    return [_partner(dataset, one, kind) for one in chosen for kind in one.companions]


def _watch_pairs(workspace: Workspace, name: str, **asked: Any) -> Callable[[], Pairs]:
    kept = Kept[Pairs]()

    def read() -> Pairs:
        dataset = Dataset.open(workspace, name)
        return kept.of(name, dataset.version, lambda: pairs(dataset, **asked))

    return read


@operation(watch=_watch_pairs, shell=False)
def pairs(
    dataset: NamedDataset,
    *,
    role: Annotated[
        Literal["", "every", "control", "reference", "mask", "last_frame"],
        Field(description="Whose partners are counted; without it what the dataset has, all of several."),
    ] = "",
    only: Annotated[
        Literal["all", "lacking", "unfit"], Field(description="Clips without a partner, or with one that does not fit.")
    ] = "all",
    first: Annotated[int, Field(ge=0, description="Position of the first clip.")] = 0,
    most: Annotated[int, Field(ge=1, le=100, description="How many clips at most.")] = 24,
    clips: OrAll = (),
) -> Pairs:
    """Show clips beside their control clips, references, masks and last frames, and what is missing or does not fit."""
    listed = clip_list.listed(dataset.folder)
    every = [one for one in listed.clips if not one.is_latents]
    has = {kind: sum(kind in one.companions for one in every) for kind in COMPANION_NAMES}
    used = [kind for kind, count in has.items() if count]
    chosen: str = role or ("every" if len(used) > 1 else used[0] if used else "control")
    kinds = [chosen] if chosen != "every" else used or ["control"]
    lacking = [one for one in every if any(kind not in one.companions for kind in kinds)]
    unfit = [one for one in every if any(why.kind in kinds for why in beside.problems(dataset.folder, one))]
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
                clip=ClipCard(**clip_card(dataset, one, listed.marks)),
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
    problems = [one.short for one in beside.problems(dataset.folder, clip) if one.kind == kind]
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
        pass  # `problems` says it
    title = COMPANION_NAMES[kind]
    if problems:
        words = problems[0]
    elif finding:
        words = finding.title.lower()
    elif image:
        words = "a picture"
    elif kind == "reference":
        words = f"{frames} frames of its own"
    else:
        info = info_of(dataset.folder, clip) if kind == "mask" else MaskInfo()
        words = f"same {frames} frames"
        if info.confidence:
            sure = len(info.confidence) - len(info.doubtful)
            words = f"tracked, {sure} of {len(info.confidence)} frames sure"
    return Partner(
        clip=clip.id,
        name=clip.name,
        kind=kind,
        title=title,
        file=str(path),
        image=image,
        frames=frames,
        width=width,
        height=height,
        fits=not problems,
        state=words,
        finding=finding.kind if finding else "",
        fixes={fix.replace("_", "-"): label for fix, label in finding.buttons.items()} if finding else {},
    )


@operation(changes=True, section=BESIDE)
def attach(dataset: NamedDataset, clip: Clip, kind: Kind, file: File) -> Partner:
    """Put a file beside a clip: a control clip, a reference, a mask or a last frame.

    A control clip and a mask are brought to the clip's frames, size and rate; one of the whole source video is cut as
    the clip is. `undo` takes it back.
    """
    made_of = beside.attach(dataset.folder, dataset.clip(clip), kind, _given(file))
    return _partner(dataset, made_of, kind)


def _given(file: str) -> Path:
    """A file that was uploaded to the page, or one of this machine that is open here. Raises ConfigError."""
    if os.environ.get("GRADIO_TEMP_DIR") and Path(file).is_absolute():
        try:
            path = confined(inbox(), file)
        except ConfigError:
            pass  # no upload: a file of this machine
        else:
            if not path.is_file():
                raise ConfigError(f"{path.name} is no longer on the server: drop it again")
            return path
    path = named_paths.checked(file, "file")
    if not path.is_file():
        raise ConfigError(f"file is {file[:200]!r}, which is not there: check its spelling")
    return path


@operation(changes=True, section=BESIDE)
def detach(dataset: NamedDataset, kind: Kind, clips: OrAll = ()) -> Detached:
    """Take the files of a kind away from some clips, or from all. They stay for an `undo`."""
    chosen = records.clips_named(dataset.clips, clips or None)
    return Detached(changed=beside.detach(dataset.folder, chosen, kind))


@operation(path="/makers", shell=False)
def list_makers() -> list[MakerInfo]:
    """List what can be made of clips, and the models that some of it needs."""
    return [
        MakerInfo(
            id=name,
            title=one.title,
            does=one.does,
            kinds=one.kinds,
            numbers=_numbers(name),
            models=tuple(_model(model, *one.helpers[:1]) for model in one.models),
        )
        for name, one in made.ABOUT.items()
    ]


def _numbers(maker: made.Maker) -> tuple[MakerNumber, ...]:
    """The numbers of a maker: its amount, or the place of its box."""
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
    return (MakerNumber(setting="amount", title=title, start=amount.start, low=amount.low, high=amount.high),)


@operation(path="/trackers", shell=False)
def list_trackers() -> list[VisionModel]:
    """List the models that are known to carry painted masks through clips. Without one, optical flow does it."""
    return [_model(one) for one in segmenting.MODELS]


def _model(model: KnownModel, *helpers: KnownModel) -> VisionModel:
    every = (model, *helpers)
    return VisionModel(
        id=model.id,
        title=model.title,
        memory_gb=sum(one.memory_gb for one in every),
        download_gb=round(sum(one.download_gb for one in every), 2),
        license=", ".join(dict.fromkeys(one.license for one in every)),
        at_hand=all(one.at_hand for one in every),
    )


@operation(arguments="name [clips]", changes=True, job=job, section=BESIDE)
def make(dataset: NamedDataset, settings: MakeSettings) -> DatasetTask:
    """Make what lies beside clips from the clips: edges, gray, blur, depth, poses, masks of a box, end frames ...

    Depth and poses need a model, which is downloaded once and takes its turn on the GPU.
    """
    return start_task(dataset, "make", settings)


# ---- masks


@operation(watch=True, section=BESIDE)
def mask(dataset: NamedDataset, clip: Clip) -> MaskView:
    """Show the mask of a clip: painted frames, how sure each tracked frame is, the frames that are worth a look."""
    clips = dataset.clips
    one = records.find_clip(clips, clip)
    at = clips.index(one)
    info = info_of(dataset.folder, one)
    task = task_of(dataset, "track")
    mine = task.state in ("starting", "running")
    failed = task.state in ("failed", "died")
    if failed:  # of another clip, it is said there
        asked = TrackSettings.load(dataset.task("track").folder / jobs.CONFIG).clips
        failed = not asked or bool({one.id, one.name, one.file_name} & set(asked))
    return MaskView(
        clip=one.id,
        name=one.name,
        file=str(dataset.folder / one.file_name),
        mask=str(dataset.folder / one.mask) if one.mask else "",
        frames=one.frames,
        fps=one.fps,
        width=one.width,
        height=one.height,
        painted=tuple(
            PaintedFrame(frame=frame, file=str(path)) for frame, path in painted_frames(dataset.folder, one).items()
        ),
        by=info.by,
        used=tuple(info.painted),
        confidence=tuple(info.confidence),
        sure=mask_tracking.SURE,
        doubtful=tuple(info.doubtful),
        soften=info.soften,
        invert=info.invert,
        seconds=one.frames * masking.FRAME_SECONDS,
        activity=task.activity if mine else "",
        share=task.share if mine else None,
        problem=task.sentence if failed else "",
        number=at + 1,
        of=len(clips),
        previous=clips[at - 1].id if at else "",
        next=clips[at + 1].id if at + 1 < len(clips) else "",
    )


@operation(changes=True, section=BESIDE)
def paint(
    dataset: NamedDataset,
    clip: Clip,
    frame: Frame,
    file: Annotated[
        str, Field(description="A picture as large as the clip, white inside.", json_schema_extra={"path": True})
    ] = "",
    *,
    runs: Annotated[
        tuple[int, ...],
        Field(description="Instead of a picture: lengths of outside, inside, outside ... pixels, row by row."),
    ] = (),
) -> MaskView:
    """Keep a mask that was painted on a frame; without a picture, forget the one that was."""
    one = dataset.clip(clip)
    if file and runs:
        raise ConfigError("file and runs are both given: give one of them")
    painted: Any = masking.from_runs(one, runs) if runs else None
    if file:
        painted = masking.from_picture(one, _given(file))
    masking.paint(dataset.folder, one, frame, painted)
    return mask(dataset, one.id)


@operation(arguments="name [clips]", changes=True, job=job, section=BESIDE)
def track(dataset: NamedDataset, settings: TrackSettings) -> DatasetTask:
    """Carry painted masks through their clips, as their masks, by optical flow or a SAM 2 (`model`).

    `mask` then shows how sure each frame is.
    """
    return start_task(dataset, "track", settings)


@operation(changes=True, section=BESIDE)
def mask_edge(dataset: NamedDataset, clip: Clip, *, edges: MaskEdges) -> MaskView:
    """Soften the edge of a clip's mask, or invert it."""
    masking.refine(dataset.folder, dataset.clip(clip), edges)
    return mask(dataset, clip)
