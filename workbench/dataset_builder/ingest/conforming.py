"""Bring a foreign file to the clip that it lies beside: a control clip, a mask, a reference, a last frame.

A control clip and a mask get exactly the clip's frames, size and rate. One of the whole source video, where the clip is
a part of it, is cut as the clip is, and kept whole, too. A picture as a mask stands still. Nothing is stretched and
nothing is made up: what is shorter or of other proportions is refused.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import COMPANION_NAMES, Clip, clip_file
from workbench.dataset_builder.cuts.cutting import (
    MASTERS,
    Box,
    Cut,
    Master,
    cut_of,
    keep_beside,
    last_frame_png,
    master_of,
    sampled_frames,
    scratch_file,
    write_frames,
)
from workbench.dataset_builder.ingest.canonical import CanonicalClip, convert
from workbench.dataset_builder.ingest.pictures import alike, fitted_picture, read_picture
from workbench.errors import DataError
from workbench.workspace import write_bytes

SAME_RATE = 0.01  # share by which rates that count as one may differ
NEUTRAL = 2  # levels by which a gray picture's colors may differ from none


@dataclass(frozen=True)
class Conformed:
    """A file beside a clip, below the dataset's folder. whole: that of the source video, "" when it was not given

    notes: what was changed about it, in words
    """

    name: str
    whole: str = ""
    notes: tuple[str, ...] = ()


def conform(
    dataset: Path, clip: Clip, kind: str, source: Path, on_frame: Callable[[], None] = lambda: None
) -> Conformed:
    """Write the file that lies beside a clip.

    Args:
        clip: The record of a clip of the dataset, or of latents with the size and length that they decode to.
        kind: One of COMPANIONS.
        source: A checked file of any kind that an import takes.
        on_frame: Called after each frame read: a sign of life.

    Raises:
        DataError: The file cannot be read, or does not fit the clip.
        CannotWrite: The disk is full.
    """
    if kind == "last_frame" or (kind == "reference" and media.is_picture(source) and _is_still(source)):
        return _picture(dataset, clip, kind, source, on_frame)
    made = scratch_file(dataset, ".mp4")
    try:
        about = convert(source, made, None, on_frame)
        notes = list(about.changes)
        if kind == "reference":
            return Conformed(keep_beside(dataset, made, clip.id, kind), notes=tuple(notes))
        master = None if clip.is_latents or not clip.master else master_of(dataset, clip)
        cut = cut_of(clip, master) if master else Cut(0, clip.frames)
        place = _place(about, clip, kind, cut, master)
        notes += place.notes
        video: Clip | Master = master if place.whole and master else clip
        gray = kind == "mask" and not _is_gray(made)
        notes += ["its colors are left out"] if gray else []
        fps = video.fps or about.fps
        as_it_is = place.wanted == list(range(about.frames)) and abs(about.fps / fps - 1) < 1e-6
        if gray or place.scale or place.box or not as_it_is:
            other = scratch_file(dataset, ".fit.mp4")
            write_frames(made, place.wanted, other, fps, scale=place.scale, box=place.box, gray=gray, tick=on_frame)
            other.replace(made)
        if not (place.whole and master):
            return Conformed(keep_beside(dataset, made, clip.id, kind), notes=tuple(notes))
        whole = keep_beside(dataset, made, Path(master.name).stem, kind, MASTERS)
        wanted = sampled_frames(cut, cut.fps or master.fps, master)
        write_frames(dataset / whole, wanted, made, clip.fps, box=cut.crop, tick=on_frame)
        return Conformed(keep_beside(dataset, made, clip.id, kind), whole, (*notes, "cut as the clip is"))
    finally:
        made.unlink(missing_ok=True)


def _is_still(source: Path) -> bool:
    """Whether a picture file holds one picture. Raises DataError where it is damaged."""
    try:
        read_picture(source)
    except DataError:
        return False  # an animation, or a picture that the conversion then refuses
    return True


def _picture(dataset: Path, clip: Clip, kind: str, source: Path, on_frame: Callable[[], None]) -> Conformed:
    """A last frame as large as its clip, or one picture as a reference, as a PNG."""
    from PIL import Image

    notes = list[str]()
    if media.is_picture(source):
        picture, _, notes = read_picture(source)
    else:  # the last frame of a video
        video = scratch_file(dataset, ".mp4")
        try:
            about = convert(source, video, None, on_frame)
            picture = Image.open(io.BytesIO(last_frame_png(video, about.frames))).convert("RGB")
        finally:
            video.unlink(missing_ok=True)
        notes = ["the last frame of a video"]
    if kind == "last_frame":
        picture, cut = fitted_picture(picture, clip.width, clip.height)
        notes = [*notes, *cut]
    data = io.BytesIO()
    Image.fromarray(_pixels(picture)).save(data, "PNG")  # the pixels alone, so that the same ones are the same file
    made = scratch_file(dataset, ".png")
    write_bytes(made, data.getvalue())
    return Conformed(keep_beside(dataset, made, clip.id, kind), notes=tuple(notes))


def _pixels(picture: Any) -> Any:
    import numpy as np

    return np.asarray(picture)


@dataclass(frozen=True)
class _Place:
    """How a control clip or mask fits. wanted: its frames in order; whole: it is that of the whole source video."""

    wanted: list[int]
    scale: tuple[int, int] | None
    box: Box | None
    whole: bool
    notes: tuple[str, ...] = ()


def _place(about: CanonicalClip, clip: Clip, kind: str, cut: Cut, master: Master | None) -> _Place:
    """Find out what a control clip or mask goes with. Raises DataError with what it lacks."""
    size = (about.width, about.height)
    of_part = _frames_for(about, clip.frames, clip.fps, kind)
    of_whole = _frames_for(about, master.frames, master.fps, kind) if master else None
    found = of_part or of_whole
    if found is None:
        named = f"the clip {clip.frames} ({clip.seconds:.2f} s)"
        if master:
            named += f", its source video {master.frames} ({master.frames / master.fps:.2f} s)"
        raise DataError(
            f"it has {about.frames} frames ({about.frames / about.fps:.2f} s), {named}: give one that is as long"
        )
    if master and of_whole and alike(size, (master.width, master.height)):
        scale = None if size == (master.width, master.height) else (master.width, master.height)
        return _Place(of_whole[0], scale, None, True, (*of_whole[1], *_scaled(size, scale)))
    if of_part and alike(size, (clip.width, clip.height)):
        scale = None if size == (clip.width, clip.height) else (clip.width, clip.height)
        return _Place(of_part[0], scale, None, False, (*of_part[1], *_scaled(size, scale)))
    if of_part and master and cut.crop and alike(size, (master.width, master.height)):
        scale = None if size == (master.width, master.height) else (master.width, master.height)
        return _Place(of_part[0], scale, cut.crop, False, (*of_part[1], "cropped as the clip is"))
    wide = (master.width, master.height) if master and not of_part else (clip.width, clip.height)
    raise DataError(
        f"its picture is {size[0]}x{size[1]}, that of the clip {wide[0]}x{wide[1]}: give one of the same proportions"
    )


def _scaled(size: tuple[int, int], scale: tuple[int, int] | None) -> list[str]:
    return [f"scaled from {size[0]}x{size[1]} to {scale[0]}x{scale[1]}"] if scale else []


def _frames_for(about: CanonicalClip, frames: int, fps: float, kind: str) -> tuple[list[int], list[str]] | None:
    """(a frame of the file for each of the video's, what is changed by that); None where it is not as long."""
    if about.frames == frames:
        return list(range(frames)), []
    if about.frames == 1 and kind == "mask":
        return [0] * frames, ["one picture: it stands still"]
    if not fps or abs(about.fps / fps - 1) < SAME_RATE or about.frames == 1:
        return None
    if abs(about.frames / about.fps - frames / fps) > 1 / min(about.fps, fps):
        return None
    step = about.fps / fps
    wanted = [min(about.frames - 1, int((number + 0.5) * step)) for number in range(frames)]
    return wanted, [f"{about.fps:.4g} fps brought to the clip's {fps:.4g}"]


def _is_gray(path: Path) -> bool:
    """Whether none of a video's pictures has a color."""
    import numpy as np

    for _, frame in media.raw_frames(path):
        colors = frame.to_ndarray()[frame.height :].astype(np.int16)
        if np.abs(colors - 128).max() > NEUTRAL:
            return False
    return True


def sentence_of(kind: str, conformed: Conformed) -> str:
    """What became of a file that came with a clip, in words."""
    changes = f" ({', '.join(conformed.notes)})" if conformed.notes else ""
    return f"its {COMPANION_NAMES[kind]} is kept beside it{changes}"


def left_out(kind: str, error: object) -> str:
    """Why a file that came with a clip was not taken, in words."""
    return f"its {COMPANION_NAMES[kind]} is left out: {error}"


def is_there(dataset: Path, name: str) -> bool:
    """Whether a companion's file can be read. Raises DataError for a link out of the dataset."""
    return clip_file(dataset, name).is_file()
