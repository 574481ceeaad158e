"""Pictures that tests put into their clips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

MakeClip = Callable[..., Path]
COLORS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (40, 60, 220), "yellow": (230, 210, 40)}


def draw(
    frames: int = 9, size: tuple[int, int] = (64, 64), color: str = "red", ground: tuple[int, int, int] = (90, 90, 90)
) -> np.ndarray:
    """uint8 [F, H, W, 3]: a square of the color that moves to the right over a plain ground; size: (width, height)."""
    width, height = size
    video = np.full((frames, height, width, 3), ground, np.uint8)
    side = max(4, min(width, height) // 3)
    for number in range(frames):
        left = round((width - side) * number / max(1, frames - 1))
        video[number, (height - side) // 2 : (height + side) // 2, left : left + side] = COLORS[color]
    return video
