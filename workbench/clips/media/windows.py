"""Frames of our own clips as training takes them: with decord where it is measured to be faster, else with PyAV.

Both give the same pixels, bit for bit (tests/clips/test_media_windows.py). benchmarks/clip_reading.py measures which is
the faster for which way of reading; `suits_decord` is its table.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from workbench.clips.media.opening import THREADS
from workbench.clips.media.reading import Pixels, fitted, read_frames

SMALLEST_SIDE = 128  # pixels; of narrower clips (16, 24, 48, 72) decord gives other shapes or fails
LARGEST = 256 * 256  # pixels; of larger pictures PyAV decodes fewer in vain
LONGEST = 600  # frames; decord looks at all packets of a clip before it reads the first
FEWEST = 8  # frames


def suits_decord(shape: tuple[int, int, int], indices: Sequence[int]) -> bool:
    """Whether decord reads these frames of a clip [F, H, W] faster: many in a row of a small, short clip."""
    frames, height, width = shape
    close = len(indices) >= FEWEST and max(indices) - min(indices) < 1.5 * len(indices)
    return close and frames <= LONGEST and height * width <= LARGEST and min(height, width) >= SMALLEST_SIDE


def read_own_clip(
    path: Path,
    shape: tuple[int, int, int],
    indices: Sequence[int],
    resize: tuple[int, int] | None = None,
    crop: tuple[int, int, int, int] | None = None,
) -> Pixels:
    """The same as `read_frames`, of a clip of ours [F, H, W] whose content has the checksum it was written with.

    Raises DataError.
    """
    frames = _read(path, shape, indices) if suits_decord(shape, indices) and _installed() else None
    return read_frames(path, indices, resize, crop) if frames is None else fitted(frames, resize, crop)


@cache
def _installed() -> bool:
    """Whether there is a decord for this machine: it has no wheel for macOS or ARM."""
    return importlib.util.find_spec("decord") is not None


def _read(path: Path, shape: tuple[int, int, int], indices: Sequence[int]) -> Any:
    """The frames as decord reads them; None where it cannot, or sees another clip than its record says."""
    import decord

    try:
        reader = decord.VideoReader(str(path), num_threads=THREADS)
        if len(reader) != shape[0]:
            return None
        frames = reader.get_batch(list(indices)).asnumpy()
    except (decord.DECORDError, OSError):
        return None
    return frames if frames.shape[1:] == (*shape[1:], 3) else None
