"""Painted masks: paint some frames of a clip, track the mask through the rest, attach it to the clip.

Tracking, softening and inverting each write a new mask file (`companions`) as a change that can be undone. Facts about
a mask file are stored under its name (`cuts.painted`), so an undo restores them, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench import jobs
from workbench.clips import mask_tracking, media
from workbench.clips.records import Clip, clip_file, clips_named, read_clips
from workbench.dataset_builder.companions import attach_all, companion_path
from workbench.dataset_builder.cuts import painted
from workbench.dataset_builder.cuts.cutting import named, scratch_file
from workbench.dataset_builder.settings import MaskEdges, TrackSettings
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.jobs import queue
from workbench.jobs.devices import Device, gpus_of
from workbench.vision import local_models, segmenting
from workbench.vision.segmenting import Segmenter
from workbench.workspace import Workspace, write_bytes, writing

FORMATS = ("PNG", "WEBP", "BMP", "GIF", "JPEG")  # for painted pictures: those that Pillow reads without another program
MOST_FRAMES = 3000  # per clip with optical flow: at 384 pixels, one gigabyte of memory
MOST_FRAMES_OF_MODEL = 1000  # per clip with a model: at 1024 pixels, two gigabytes
FRAME_SECONDS = 0.1  # estimated time per frame on one core, for display


# ---- painting --------------------------------------------------------------------------------------------------------


def paint(dataset: Path, clip: Clip, frame: int, mask: painted.Mask | None) -> None:
    """Store the painted mask of a frame, replacing the previous one; None deletes it. Raises ConfigError, CannotWrite.

    frame: from 0. mask: [H, W] at the clip's size, 0 (outside) to 255 (inside).
    """
    if clip.is_latents:
        raise ConfigError(f"{clip.name} is latents: there is no picture to paint on")
    if not 0 <= frame < clip.frames:
        raise ConfigError(f"frame is {frame}, but {clip.name} has frames 0 to {clip.frames - 1}")
    path = painted.folder_of(dataset, clip) / painted.PAINTED / f"{frame}.png"
    if mask is None:
        with writing(path):
            path.unlink(missing_ok=True)
    elif mask.shape == (clip.height, clip.width):
        write_bytes(path, media.png(mask))
    else:
        raise ConfigError(
            f"the mask is {mask.shape[1]}×{mask.shape[0]}, but the clip is {clip.width}×{clip.height}: "
            "paint it at that size"
        )


def from_runs(clip: Clip, runs: Sequence[int]) -> painted.Mask:
    """Decode a run-length encoded mask: row by row, outside, inside, outside ... Raises ConfigError."""
    size = clip.width * clip.height
    if any(length < 0 for length in runs) or sum(runs) != size:
        raise ConfigError(
            f"runs add up to {sum(runs):,} pixels, but the clip has {size:,} ({clip.width}×{clip.height}): "
            "give the lengths of outside, inside, outside ... row by row"
        )
    values = np.zeros(len(runs), np.uint8)
    values[1::2] = 255
    return np.repeat(values, runs).reshape(clip.height, clip.width)


def from_picture(clip: Clip, path: Path) -> painted.Mask:
    """Read a mask from a picture file: its alpha channel if it has one, else its brightness.

    Raises DataError if it cannot be read, ConfigError if it is much larger than the clip.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=FORMATS) as picture:
            if picture.width * picture.height > 4 * max(1, clip.width * clip.height):
                raise ConfigError(
                    f"{path.name} is {picture.width}×{picture.height}, but the clip is {clip.width}×{clip.height}"
                )
            gray = picture.getchannel("A") if "A" in picture.getbands() else picture.convert("L")
            return np.array(gray, np.uint8)
    except (OSError, UnidentifiedImageError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path.name} is not a readable picture: save it as PNG") from error


# ---- tracking, as a job ----------------------------------------------------------------------------------------------


def check(dataset: Path, settings: TrackSettings) -> list[Clip]:
    """Return the clips to track.

    Raises ConfigError if there are none, a clip is too long or has no painted frame, or the model is unknown.
    """
    if settings.model:
        local_models.check(settings.model, segmenting.MODELS, any_of_hub=True)
    clips = clips_named(read_clips(dataset), settings.clips or None)
    if settings.clips:
        if bare := [clip for clip in clips if not painted.painted_frames(dataset, clip)]:
            raise ConfigError(f"{bare[0].name} has no painted frame: paint one that shows the whole subject")
    else:
        clips = [clip for clip in clips if painted.painted_frames(dataset, clip)]
    if not clips:
        raise ConfigError("no clip has a painted frame: paint one that shows the whole subject")
    most = MOST_FRAMES_OF_MODEL if settings.model else MOST_FRAMES
    if long := [clip for clip in clips if clip.frames > most]:
        how = " with a model" if settings.model else ""
        raise ConfigError(
            f"{long[0].name} has {long[0].frames:,} frames, but at most {most:,} can be tracked{how}: split it first"
        )
    return clips


def devices(config: Path) -> list[Device]:
    """Return the GPU that the tracking model needs. Raises ConfigError."""
    settings = TrackSettings.load(config)
    return gpus_of(settings.device)[:1] if settings.model else []


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Track masks through clips. The outcome: {clips, done (a sentence), failed (a sentence each)}.

    Raises ConfigError, DataError if every clip failed, CannotWrite, jobs.Stop; with a model also ModelUnavailable,
    OutOfMemory.
    """
    settings = TrackSettings.load(config)
    clips = check(dataset, settings)
    total, done = sum(clip.frames for clip in clips), 0
    failed, files, known = [], [], {}
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(queue.acquired(Workspace.of(dataset), devices(config), job, f"track of {dataset.name}"))
            segmenter = None
            if settings.model:
                job.beat("loading", 0, total, message=local_models.opening(settings.model, segmenting.MODELS))
                segmenter = stack.enter_context(Segmenter(settings.model, settings.device))
            for number, clip in enumerate(clips, 1):

                def said(step: int, steps: int, before: int = done, one: Clip = clip, number: int = number) -> None:
                    share = before + one.frames * step / max(1, steps)
                    job.beat("tracking", round(share), total, message=f"{one.name}, {number:,} of {len(clips):,} clips")
                    job.check_stop("stopped: start it again to resume")

                try:
                    path, info = track_clip(dataset, clip, settings, said, segmenter)
                except DataError as error:
                    failed.append(f"{clip.name}: {error}")
                else:
                    files.append((clip, "mask", path))
                    known[clip.file_name] = info
                done += clip.frames
        if not files:
            raise DataError(failed[0])
        _attach(dataset, files, known, f"mask of {named([clip for clip, _, _ in files])} tracked")
    finally:
        for _, _, path in files:
            path.unlink(missing_ok=True)
    unsure = sum(bool(info.doubtful) for info in known.values())
    frames = sum(clip.frames for clip, _, _ in files)
    sentence = f"{counted(len(files), 'mask')} tracked through {counted(frames, 'frame')}."
    if unsure:
        sentence += f" {counted(unsure, 'clip')} {'has' if unsure == 1 else 'have'} uncertain frames."
    job.outcome = {"clips": len(files), "done": sentence, "failed": failed}


def track_clip(
    dataset: Path,
    clip: Clip,
    settings: TrackSettings,
    said: Callable[[int, int], None] = lambda step, steps: None,
    segmenter: Segmenter | None = None,
) -> tuple[Path, painted.MaskInfo]:
    """Track the painted frames of a clip; return a temporary mask file, and how it was made.

    said: called with the steps done and their total; may raise to stop.
    segmenter: the model from the settings; None for optical flow.

    Raises ConfigError, DataError if the clip or a painted frame is damaged, CannotWrite.
    """
    import cv2

    keys = {
        frame: painted.read_painted(path)
        for frame, path in painted.painted_frames(dataset, clip).items()
        if frame < clip.frames
    }
    side = segmenting.SIDE if segmenter else mask_tracking.SIDE
    scale = min(1.0, side / max(clip.width, clip.height))
    size = (max(8, round(clip.width * scale)), max(8, round(clip.height * scale)))
    source = clip_file(dataset, clip.file_name)
    resized = [cv2.resize(one, size, interpolation=cv2.INTER_AREA) for _, one in media.decode(source)]
    frames = np.stack(resized).astype(np.uint8)
    small: Any = {frame: cv2.resize(mask, size, interpolation=cv2.INTER_AREA) for frame, mask in keys.items()}
    found, trust = (segmenter or mask_tracking).track(frames, small, said)

    def masks() -> Iterator[painted.Mask]:
        for frame, mask in enumerate(found):
            whole: Any = keys.get(frame)
            yield cv2.resize(mask, (clip.width, clip.height)) if whole is None else whole

    raw = painted.next_tracked(dataset, clip)
    _write(raw, clip, masks())
    made = scratch_file(dataset, ".mp4")
    _write(made, clip, _edged(masks(), settings))
    info = painted.MaskInfo(
        painted=sorted(keys),
        confidence=[round(float(one), 3) for one in trust],
        tracked=raw.name,
        by=local_models.title_of(settings.model, segmenting.MODELS) if segmenter else "",
        soften=settings.soften,
        invert=settings.invert,
    )
    return made, info


def refine(dataset: Path, clip: Clip, edges: MaskEdges) -> Clip:
    """Soften or invert a clip's mask, starting from the tracked original; return the clip's record.

    A mask from elsewhere has no original, so each softening adds to the previous ones.

    Raises ConfigError if the clip has no mask, DataError, CannotWrite.
    """
    if (now := companion_path(dataset, clip, "mask")) is None:
        raise ConfigError(f"{clip.name} has no mask: paint one, or attach a file")
    info = painted.info_of(dataset, clip)
    raw = painted.folder_of(dataset, clip) / info.tracked if info.tracked else now
    if not raw.is_file():
        raw = now
    made = scratch_file(dataset, ".mp4")
    try:
        _write(made, clip, _edged((picture[..., 0] for _, picture in media.decode(raw)), edges))
        known = info.model_copy(update={"soften": edges.soften, "invert": edges.invert})
        return _attach(dataset, [(clip, "mask", made)], {clip.file_name: known}, f"edge of the mask of {clip.name}")[0]
    finally:
        made.unlink(missing_ok=True)


def _edged(masks: Iterable[painted.Mask], edges: MaskEdges) -> Iterator[painted.Mask]:
    import cv2

    for mask in masks:
        changed: Any = mask
        if edges.soften:
            changed = cv2.GaussianBlur(changed, (0, 0), edges.soften / 2)
        yield 255 - changed if edges.invert else changed


def _write(path: Path, clip: Clip, masks: Iterable[painted.Mask]) -> None:
    """Write masks as a gray video with the clip's size and rate."""
    with media.VideoWriter(path, clip.width, clip.height, clip.fps) as writer:
        for mask in masks:
            writer.write(media.bt709_frame(np.repeat(mask[..., None], 3, axis=2)))


def _attach(
    dataset: Path, files: Sequence[tuple[Clip, str, Path]], known: Mapping[str, painted.MaskInfo], what: str
) -> list[Clip]:
    """Attach masks to their clips as one change, and store how each was made."""
    records = attach_all(dataset, files, what, made=True)
    for clip in records:
        painted.keep_info(dataset, clip, known[clip.file_name])
    return records
