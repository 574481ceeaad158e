"""How much two videos differ, pixel by pixel."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from workbench.clips.media.reading import decode

SAME = 99.0  # dB for equal videos
SEEN = 6.0  # levels from which people see a difference
ANOTHER = 25.0  # levels from which it is another video
WORDS = {1: "the same", SEEN: "nearly the same", ANOTHER: "clearly different", math.inf: "another video"}
"""Below so many levels two videos are this to the eye."""


class Difference(NamedTuple):
    """levels: the mean difference of the pixels, of 255;  psnr: dB"""

    levels: float
    psnr: float


def difference(one: Path, other: Path) -> Difference | None:
    """Of two videos, as far as the shorter one goes; None when their sizes differ. Raises DataError."""
    import numpy as np

    total = squares = count = 0.0
    for (_, left), (_, right) in zip(decode(one), decode(other), strict=False):
        if left.shape != right.shape:
            return None
        apart = left.astype(np.float32) - right
        total += float(np.abs(apart).sum())
        squares += float((apart**2).sum())
        count += apart.size
    if not count:
        return None
    psnr = 10 * math.log10(255**2 * count / squares) if squares else SAME
    return Difference(round(total / count, 2), round(min(psnr, SAME), 1))


def in_words(levels: float) -> str:
    """What so many levels are to the eye: "nearly the same"."""
    return next(words for limit, words in WORDS.items() if levels < limit)
