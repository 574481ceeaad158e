"""Masks beside a dataset's clips, for tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.clips import media
from workbench.clips.records import Clip, file_sha256, read_clips, write_clips
from workbench.dataset_builder import Dataset


def right_half(clip: Clip) -> np.ndarray:
    """White over a half whose border moves to the right by two pixels a frame: [F, H, W], 0 to 1."""
    border = clip.width // 4 + 2 * np.arange(clip.frames)[:, None, None]
    return np.broadcast_to(np.arange(clip.width) >= border, (clip.frames, clip.height, clip.width)).astype(np.float32)


def add_masks(dataset: Dataset, made: Callable[[Clip], np.ndarray | None] = right_half) -> None:
    """Give each clip the mask that `made` makes of its record; None: no mask."""
    clips = []
    for clip in read_clips(dataset.folder):
        mask = made(clip)
        if mask is not None:
            path = dataset.folder / "clips" / f"{clip.id}.mask.mp4"
            levels = (mask * 255).round().astype(np.uint8)
            media.encode(np.repeat(levels[..., None], 3, axis=-1), path, clip.fps or 8, crf=None)
            named = path.rename(path.with_name(f"{clip.id}.mask-{file_sha256(path)[:8]}.mp4"))
            clip = clip.changed(mask=f"clips/{named.name}")
        clips.append(clip)
    write_clips(dataset.folder, clips)
