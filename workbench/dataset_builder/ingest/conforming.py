"""Conform a companion file to its clip: a control clip, mask, reference or last frame.

Control clips and masks get exactly the clip's frames, size and rate. If the clip is part of a source video and the file
covers all of it, the file is cut like the clip and also kept whole. A picture used as a mask applies to every frame.
Nothing is stretched or invented: files that are too short or have another aspect ratio are refused.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.clips import media
from workbench.clips.records import Clip
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
from workbench.dataset_builder.ingest.pictures import fitted_picture, png_bytes, read_picture, same_aspect
from workbench.errors import DataError
from workbench.workspace import write_bytes

SAME_RATE = 0.01  # relative difference of equal rates
NEUTRAL = 2  # levels by which the chroma of a gray picture may differ from neutral


@dataclass(frozen=True)
class Conformed:
    """A written companion's path in the dataset, that of the whole source video or "", and the changes in words."""

    name: str
    whole: str = ""
    notes: tuple[str, ...] = ()


def conform(
    dataset: Path,
    clip: Clip,
    kind: str,
    source: Path,
    on_frame: Callable[[], None] = lambda: None,
    *,
    fit: bool = False,
    invert: bool = False,
) -> Conformed:
    """Write a clip's companion file.

    Args:
        clip: The clip's record; for latents, with the size and length they decode to.
        kind: One of COMPANIONS.
        source: A checked file of any kind that can be imported.
        on_frame: Called after each frame read, as a heartbeat.
        fit: Use the first frames of a longer file, and crop one with another aspect ratio to its center.
        invert: Swap black and white in a mask.

    Raises:
        DataError: The file cannot be read or does not fit the clip.
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
        placement = _placement(about, clip, kind, cut, master, fit)
        notes += placement.notes
        video: Clip | Master = master if placement.whole and master else clip
        invert = invert and kind == "mask"
        gray = kind == "mask" and not _is_gray(made)
        notes += ["colors removed"] * gray + ["inverted"] * invert
        fps = video.fps or about.fps
        unchanged = placement.wanted == list(range(about.frames)) and abs(about.fps / fps - 1) < 1e-6
        if gray or invert or placement.scale or placement.box or not unchanged:
            other, (scale, box) = scratch_file(dataset, ".fit.mp4"), (placement.scale, placement.box)
            colors: Literal["kept", "gray", "inverted"] = "inverted" if invert else "gray" if gray else "kept"
            write_frames(made, placement.wanted, other, fps, scale=scale, box=box, colors=colors, tick=on_frame)
            other.replace(made)
        if not (placement.whole and master):
            return Conformed(keep_beside(dataset, made, clip.id, kind), notes=tuple(notes))
        whole = keep_beside(dataset, made, Path(master.name).stem, kind, MASTERS)
        wanted = sampled_frames(cut, cut.fps or master.fps, master)
        write_frames(dataset / whole, wanted, made, clip.fps, box=cut.crop, tick=on_frame)
        return Conformed(keep_beside(dataset, made, clip.id, kind), whole, (*notes, "cut like the clip"))
    finally:
        made.unlink(missing_ok=True)


def _is_still(source: Path) -> bool:
    """Whether a picture file is a single still picture."""
    try:
        read_picture(source)
    except DataError:
        return False  # an animation, or a damaged picture, which the conversion will refuse
    return True


def _picture(dataset: Path, clip: Clip, kind: str, source: Path, on_frame: Callable[[], None]) -> Conformed:
    """Write a still reference, or a last frame at its clip's size, as a PNG."""
    from PIL import Image

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
    made = scratch_file(dataset, ".png")
    write_bytes(made, png_bytes(picture))
    return Conformed(keep_beside(dataset, made, clip.id, kind), notes=tuple(notes))


@dataclass(frozen=True)
class _Placement:
    """How a control clip or mask fits: its frames to use, in order, then scaling and cropping.

    whole: whether it covers the whole source video.
    """

    wanted: list[int]
    scale: tuple[int, int] | None
    box: Box | None
    whole: bool
    notes: tuple[str, ...] = ()


def _placement(about: CanonicalClip, clip: Clip, kind: str, cut: Cut, master: Master | None, fit: bool) -> _Placement:
    """Match a control clip or mask to the clip or its source video. Raises DataError if it fits neither."""
    size = (about.width, about.height)
    of_part = _frames_for(about, clip.frames, clip.fps, kind)
    of_whole = _frames_for(about, master.frames, master.fps, kind) if master else None
    if fit and not of_part and not of_whole and about.frames > clip.frames:
        of_part = list(range(clip.frames)), [f"its first {clip.frames} of {about.frames} frames"]
    found = of_part or of_whole
    if found is None:
        named = f"the clip {clip.frames} ({clip.seconds:.2f} s)"
        if master:
            named += f", its source video {master.frames} ({master.frames / master.fps:.2f} s)"
        raise DataError(
            f"it has {about.frames} frames ({about.frames / about.fps:.2f} s), {named}: use one of the same length"
        )
    if master and of_whole and same_aspect(size, (master.width, master.height)):
        return _scaled(size, (master.width, master.height), *of_whole, whole=True)
    if of_part and same_aspect(size, (clip.width, clip.height)):
        return _scaled(size, (clip.width, clip.height), *of_part, whole=False)
    if of_part and master and cut.crop and same_aspect(size, (master.width, master.height)):
        scale = None if size == (master.width, master.height) else (master.width, master.height)
        return _Placement(of_part[0], scale, cut.crop, False, (*of_part[1], "cropped like the clip"))
    if fit and of_part:
        share = max(clip.width / size[0], clip.height / size[1])
        cover = (max(clip.width, _even(size[0] * share)), max(clip.height, _even(size[1] * share)))
        box = (_even((cover[0] - clip.width) / 2), _even((cover[1] - clip.height) / 2), clip.width, clip.height)
        return _Placement(of_part[0], cover, box, False, (*of_part[1], f"the center of its {size[0]}x{size[1]}"))
    wide = (master.width, master.height) if master and not of_part else (clip.width, clip.height)
    raise DataError(
        f"it is {size[0]}x{size[1]} and the clip is {wide[0]}x{wide[1]}: use one with the same aspect ratio"
    )


def _even(length: float) -> int:
    return int(length / 2) * 2


def _scaled(size: tuple[int, int], to: tuple[int, int], wanted: list[int], notes: list[str], whole: bool) -> _Placement:
    if size == to:
        return _Placement(wanted, None, None, whole, tuple(notes))
    return _Placement(wanted, to, None, whole, (*notes, f"scaled from {size[0]}x{size[1]} to {to[0]}x{to[1]}"))


def _frames_for(about: CanonicalClip, frames: int, fps: float, kind: str) -> tuple[list[int], list[str]] | None:
    """Choose a frame of the file for each frame of the video; return them and the changes in words.

    Return None if the file does not have the video's length.
    """
    if about.frames == frames:
        return list(range(frames)), []
    if about.frames == 1 and kind == "mask":
        return [0] * frames, ["one picture for all frames"]
    if not fps or abs(about.fps / fps - 1) < SAME_RATE or about.frames == 1:
        return None
    if abs(about.frames / about.fps - frames / fps) > 1 / min(about.fps, fps):
        return None
    step = about.fps / fps
    wanted = [min(about.frames - 1, int((number + 0.5) * step)) for number in range(frames)]
    return wanted, [f"{about.fps:.4g} fps converted to the clip's {fps:.4g}"]


def _is_gray(path: Path) -> bool:
    """Whether a video has no colors."""
    import numpy as np

    for _, frame in media.raw_frames(path):
        chroma = frame.to_ndarray()[frame.height :].astype(np.int16)
        if np.abs(chroma - 128).max() > NEUTRAL:
            return False
    return True
