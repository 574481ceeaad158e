"""Masks by brush: frames of a clip are painted, the rest is tracked, and the mask becomes a file beside the clip.

The mask that a clip has is in its record (`companions`): each tracking, softening and inverting writes another file and
is a change of the history, which can be undone; the way back also brings back what is known of that file
(`cuts.painted`).
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
from workbench.dataset_builder.cuts.cutting import named, scratch_file
from workbench.dataset_builder.cuts.painted import (
    PAINTED,
    Mask,
    MaskInfo,
    folder_of,
    gray_png,
    info_of,
    keep_info,
    next_tracked,
    painted_frames,
    read_painted,
)
from workbench.dataset_builder.settings import MaskEdges, TrackSettings
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.jobs import queue
from workbench.jobs.devices import Device, gpus_of
from workbench.vision import local_models, segmenting
from workbench.vision.segmenting import Segmenter
from workbench.workspace import Workspace, disk, write_bytes, writing

FORMATS = ("PNG", "WEBP", "BMP", "GIF", "JPEG")  # of painted pictures; none that a program beside Pillow has to read
MOST_FRAMES = 3000  # that are tracked at once: 384 pixels wide, a gigabyte of memory
MOST_FRAMES_OF_MODEL = 1000  # 1024 pixels wide, two gigabytes
FRAME_SECONDS = 0.1  # a frame takes about, on one core; an estimate for a button


# ---- painting --------------------------------------------------------------------------------------------------------


def paint(dataset: Path, clip: Clip, frame: int, mask: Mask | None) -> None:
    """Keep what was painted on a frame, in place of what was there; None takes it away.

    Args:
        frame: From 0.
        mask: [H, W] as large as the clip, 0 outside to 255 inside.

    Raises:
        ConfigError: The clip has no such frame or is of another size, or it is latents.
        CannotWrite: The disk is full.
    """
    _check_frame(clip, frame)
    path = folder_of(dataset, clip) / PAINTED / f"{frame}.png"
    if mask is None:
        with writing(path):
            path.unlink(missing_ok=True)
        return
    if mask.shape != (clip.height, clip.width):
        raise ConfigError(
            f"the mask is {mask.shape[1]}×{mask.shape[0]}, the clip {clip.width}×{clip.height}: paint it at that size"
        )
    write_bytes(path, gray_png(mask))


def _check_frame(clip: Clip, frame: int) -> None:
    if clip.is_latents:
        raise ConfigError(f"{clip.name} is latents: there is no picture to paint on")
    if not 0 <= frame < clip.frames:
        raise ConfigError(f"frame is {frame}, {clip.name} has 0 to {clip.frames - 1}")


def from_runs(clip: Clip, runs: Sequence[int]) -> Mask:
    """A mask from the lengths of its runs, row by row: outside, inside, outside ... Raises ConfigError."""
    size = clip.width * clip.height
    if any(length < 0 for length in runs) or sum(runs) != size:
        raise ConfigError(
            f"runs has lengths that make {sum(runs):,} pixels, the clip has {size:,} ({clip.width}×{clip.height}): "
            "give the lengths of outside, inside, outside ... row by row"
        )
    values = np.zeros(len(runs), np.uint8)
    values[1::2] = 255
    return np.repeat(values, runs).reshape(clip.height, clip.width)


def from_picture(clip: Clip, path: Path) -> Mask:
    """A mask from a picture file of the clip's size: gray as it is, of one with transparency what is opaque.

    Raises DataError where it cannot be read.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=FORMATS) as picture:
            if picture.width * picture.height > 4 * max(1, clip.width * clip.height):
                raise ConfigError(
                    f"{path.name} is {picture.width}×{picture.height}, the clip {clip.width}×{clip.height}"
                )
            gray = picture.getchannel("A") if "A" in picture.getbands() else picture.convert("L")
            return np.array(gray, np.uint8)
    except (OSError, UnidentifiedImageError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path.name} is no picture that can be read: save it as PNG") from error


# ---- tracking, as a job ----------------------------------------------------------------------------------------------


def check(dataset: Path, settings: TrackSettings) -> list[Clip]:
    """Return the clips to track.

    Raises ConfigError for one without a painted frame, for too long ones, for none, and for what is no model.
    """
    if settings.model:
        local_models.check(settings.model, segmenting.MODELS, any_of_hub=True)
    clips = clips_named(read_clips(dataset), settings.clips or None)
    if settings.clips:
        if bare := [clip for clip in clips if not painted_frames(dataset, clip)]:
            raise ConfigError(f"{bare[0].name} has no painted frame: paint one that shows the whole subject")
    else:
        clips = [clip for clip in clips if painted_frames(dataset, clip)]
    if not clips:
        raise ConfigError("no clip has a painted frame: paint one that shows the whole subject")
    most = MOST_FRAMES_OF_MODEL if settings.model else MOST_FRAMES
    if long := [clip for clip in clips if clip.frames > most]:
        how = " with a model" if settings.model else ""
        raise ConfigError(
            f"{long[0].name} has {long[0].frames:,} frames, at most {most:,} are tracked{how}: split it first"
        )
    return clips


def devices(config: Path) -> list[Device]:
    """Return the GPU of a model that tracks. Raises ConfigError."""
    settings = TrackSettings.load(config)
    return gpus_of(settings.device)[:1] if settings.model else []


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Track the clips that the settings name. The outcome: {clips, done (a sentence), failed (a sentence each)}.

    Raises ConfigError, DataError when no clip could be tracked, CannotWrite, jobs.Stop, and of a model
    ModelUnavailable, OutOfMemory.
    """
    settings = TrackSettings.load(config)
    clips = check(dataset, settings)
    total, done = sum(clip.frames for clip in clips), 0
    failed, files, known = [], [], {}
    try:
        with (
            queue.acquired(Workspace.of(dataset), devices(config), job, f"track of {dataset.name}"),
            _segmenter(settings, job, total) as segmenter,
        ):
            for number, clip in enumerate(clips, 1):

                def said(step: int, steps: int, before: int = done, one: Clip = clip, number: int = number) -> None:
                    share = before + one.frames * step / max(1, steps)
                    job.beat("tracking", round(share), total, message=f"{one.name}, {number} of {len(clips)}")
                    job.check_stop("stopped: start it again to go on")

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
        sentence += f" {counted(unsure, 'clip')} {'has' if unsure == 1 else 'have'} frames that are unsure."
    job.outcome = {"clips": len(files), "done": sentence, "failed": failed}


def _segmenter(
    settings: TrackSettings, job: jobs.Job, total: int
) -> contextlib.AbstractContextManager[Segmenter | None]:
    """The model that tracks, loaded; None for optical flow."""
    if not settings.model:
        return contextlib.nullcontext()
    job.beat("loading", 0, total, message=local_models.opening(settings.model, segmenting.MODELS))
    return Segmenter(settings.model, settings.device)


def track_clip(
    dataset: Path,
    clip: Clip,
    settings: TrackSettings,
    said: Callable[[int, int], None] = lambda step, steps: None,
    segmenter: Segmenter | None = None,
) -> tuple[Path, MaskInfo]:
    """Track a clip from its painted frames; return the mask's file, which has no name yet, and how it was made.

    segmenter: The model that the settings name; None for optical flow.

    Raises ConfigError, DataError where the clip or a painted frame is damaged, CannotWrite, and what `said` raises.
    """
    import cv2

    keys = {frame: read_painted(path) for frame, path in painted_frames(dataset, clip).items() if frame < clip.frames}
    side = segmenting.SIDE if segmenter else mask_tracking.SIDE
    scale = min(1.0, side / max(clip.width, clip.height))
    size = (max(8, round(clip.width * scale)), max(8, round(clip.height * scale)))
    source = clip_file(dataset, clip.file_name)
    resized = [cv2.resize(one, size, interpolation=cv2.INTER_AREA) for _, one in media.decode(source)]
    frames = np.stack(resized).astype(np.uint8)
    small: Any = {frame: cv2.resize(mask, size, interpolation=cv2.INTER_AREA) for frame, mask in keys.items()}
    if segmenter is not None:
        found, trust = segmenter.track(frames, small, said)
    else:
        tracked = mask_tracking.track(frames, small, said)
        found, trust = tracked.masks, tracked.confidence

    def masks() -> Iterator[Mask]:
        for frame, mask in enumerate(found):
            whole: Any = keys.get(frame)
            yield cv2.resize(mask, (clip.width, clip.height)) if whole is None else whole

    raw = next_tracked(dataset, clip)
    _write(raw, clip, masks())
    made = scratch_file(dataset, ".mp4")
    _write(made, clip, _edged(masks(), settings))
    info = MaskInfo(
        painted=sorted(keys),
        confidence=[round(float(one), 3) for one in trust],
        tracked=raw.name,
        by=local_models.title_of(settings.model, segmenting.MODELS) if segmenter else "",
        soften=settings.soften,
        invert=settings.invert,
    )
    return made, info


def refine(dataset: Path, clip: Clip, edges: MaskEdges) -> Clip:
    """Soften the edge of the mask that a clip has, or invert it, from how it was tracked; return the clip's record.

    A mask that came from elsewhere is taken as it is: softened once, it stays softened.

    Raises ConfigError where the clip has no mask, DataError, CannotWrite.
    """
    if (now := companion_path(dataset, clip, "mask")) is None:
        raise ConfigError(f"{clip.name} has no mask: paint one, or attach a file")
    info = info_of(dataset, clip)
    raw = folder_of(dataset, clip) / info.tracked if info.tracked else now
    if not raw.is_file():
        raw = now
    made = scratch_file(dataset, ".mp4")
    try:
        _write(made, clip, _edged((picture[..., 0] for _, picture in media.decode(raw)), edges))
        known = info.model_copy(update={"soften": edges.soften, "invert": edges.invert})
        return _attach(dataset, [(clip, "mask", made)], {clip.file_name: known}, f"edge of the mask of {clip.name}")[0]
    finally:
        made.unlink(missing_ok=True)


def _edged(masks: Iterable[Mask], edges: MaskEdges) -> Iterator[Mask]:
    import cv2

    for mask in masks:
        changed: Any = mask
        if edges.soften:
            changed = cv2.GaussianBlur(changed, (0, 0), edges.soften / 2)
        yield 255 - changed if edges.invert else changed


def _write(path: Path, clip: Clip, masks: Iterable[Mask]) -> None:
    """Write masks as a gray video of the clip's size and rate, whole or not at all."""
    made = path.with_name(f"{path.stem}.part.mp4")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with media.VideoWriter(made, clip.width, clip.height, clip.fps) as writer:
        for mask in masks:
            writer.write(media.bt709_frame(np.repeat(mask[..., None], 3, axis=2)))
    with writing(path):
        disk.replace(made, path)


def _attach(
    dataset: Path, files: Sequence[tuple[Clip, str, Path]], known: Mapping[str, MaskInfo], what: str
) -> list[Clip]:
    """Put masks beside their clips as one change, and keep how each was made."""
    records = attach_all(dataset, files, what, made=True)
    for clip in records:
        keep_info(dataset, clip, known[clip.file_name])
    return records
