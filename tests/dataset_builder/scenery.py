"""Generated pictures that look and compress like filmed ones: clouds of color at every scale, a moving camera."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image


def scenery(seed: int, frames: int, size: tuple[int, int] = (128, 96), speed: float = 2.0) -> np.ndarray:
    """uint8 [F, H, W, 3]: a camera panning over a textured scene, with a little grain; size: (width, height)."""
    width, height = size
    chance = np.random.default_rng(seed)
    wide = (width + int(abs(speed) * frames) + 1, height)
    scene = np.zeros((wide[1], wide[0], 3))
    for scale in (2, 4, 8, 16, 32):
        cells = chance.uniform(-1, 1, (3, max(2, wide[1] * scale // 64), max(2, wide[0] * scale // 64)))
        cells = 0.7 * cells[:1] + 0.3 * cells  # more light and dark than color
        planes = [Image.fromarray(one.astype(np.float32)).resize(wide, Image.Resampling.BICUBIC) for one in cells]
        scene += np.stack([np.asarray(plane) for plane in planes], -1) / scale**0.7
    scene = 128 + 45 * scene / scene.std() + chance.uniform(-40, 40, 3)
    starts = [int(speed * number) for number in range(frames)]
    video = np.stack([scene[:, start : start + width] for start in starts])
    return (video + chance.normal(0, 1.5, video.shape)).clip(0, 255).astype(np.uint8)


def joined(lengths: Sequence[int], size: tuple[int, int] = (128, 96), seed: int = 0) -> tuple[np.ndarray, list[int]]:
    """Scenes of so many frames with hard cuts between them, and the frames at which they cut."""
    shots = [scenery(seed + n, length, size, speed=1.0 + n % 4) for n, length in enumerate(lengths)]
    return np.concatenate(shots), [int(place) for place in np.cumsum(lengths)[:-1]]
