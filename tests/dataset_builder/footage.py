"""Footage with the faults that the dataset check looks for: a textured ground before a camera, made by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from workbench.clips import media
from workbench.clips.records import Clip, DatasetInfo, file_sha256, write_clips, write_info

WIDTH, HEIGHT, FRAMES, FPS = 160, 112, 24, 8


def ground(seed: int) -> np.ndarray:
    """uint8 [2 H, 2 W, 3]: coarse and fine blotches, sharp."""
    random = np.random.default_rng(seed)
    layers = []
    for rows, columns in ((5, 7), (28, 40), (56, 80)):
        blotches = Image.fromarray(random.integers(0, 256, (rows, columns, 3), dtype=np.uint8))
        layers.append(np.asarray(blotches.resize((2 * WIDTH, 2 * HEIGHT), Image.Resampling.NEAREST)))
    return np.mean(layers, axis=0).astype(np.uint8)


def filmed(seed: int, places: Sequence[tuple[int, int]]) -> np.ndarray:
    """uint8 [F, H, W, 3]: the ground seen with its (left, top) corner at each place."""
    whole = ground(seed)
    return np.stack([whole[top : top + HEIGHT, left : left + WIDTH] for left, top in places])


def pan(seed: int, frames: int = FRAMES) -> np.ndarray:
    """An even movement of the camera: nothing is wrong with it."""
    return filmed(seed, [(number, 20) for number in range(frames)])


def still(seed: int) -> np.ndarray:
    """One picture with a camera's grain."""
    grain = np.random.default_rng(seed).normal(0, 4, (FRAMES, HEIGHT, WIDTH, 3))
    return np.clip(filmed(seed, [(30, 30)] * FRAMES) + grain, 0, 255).astype(np.uint8)


def shaky(seed: int) -> np.ndarray:
    jerks = np.random.default_rng(seed).integers(-5, 6, (FRAMES, 2))
    return filmed(seed, [(60 + number + int(x), 40 + int(y)) for number, (x, y) in enumerate(jerks)])


def crowd(seed: int, jerk: int = 0) -> np.ndarray:
    """A pan over the ground, two fifths of it hidden by things that each move their own way; jerk: pixels of shake."""
    random = np.random.default_rng(seed)
    jerks = random.integers(-jerk, jerk + 1, (FRAMES, 2))
    video = filmed(seed, [(60 + number + int(x), 40 + int(y)) for number, (x, y) in enumerate(jerks)])
    cloth = ground(seed + 100)
    for row in range(10, HEIGHT - 20, 33):
        for column in range(10, WIDTH - 20, 36):
            place, step = np.array([row, column], float), random.uniform(-1.2, 1.2, 2)
            for number in range(FRAMES):
                top, left = (int(side) for side in np.clip(place + number * step, 0, (HEIGHT - 22, WIDTH - 22)))
                video[number, top : top + 22, left : left + 22] = cloth[row : row + 22, column : column + 22]
    return video


def flashing(seed: int) -> np.ndarray:
    video = pan(seed).astype(np.int16)
    video[10:12] += 80
    return np.clip(video, 0, 255).astype(np.uint8)


def cut(*seeds: int) -> np.ndarray:
    """Twelve frames of each scene."""
    return np.concatenate([pan(seed, 12) for seed in seeds])


def blurred(seed: int) -> np.ndarray:
    return np.stack([np.asarray(Image.fromarray(f).filter(ImageFilter.GaussianBlur(8))) for f in pan(seed)])


def barred(seed: int) -> np.ndarray:
    video = pan(seed)
    video[:, :16], video[:, -16:] = 0, 0
    return video


def write_footage(folder: Path, videos: dict[str, np.ndarray], captions: dict[str, str], trigger: str = "") -> Path:
    """A dataset of those videos; those without a caption get a short one of their own."""
    clips = []
    for number, (name, video) in enumerate(videos.items()):
        path = folder / "clips" / f"{name}.mp4"
        media.encode(video, path, FPS)
        own = f"{'a red square moves up ' * (1 + number % 2)}{number // 2}"
        clips.append(
            Clip(
                file_name=f"clips/{name}.mp4",
                text=captions.get(name, own),
                fps=FPS,
                frames=len(video),
                width=video.shape[2],
                height=video.shape[1],
                sha256=file_sha256(path),
                source=f"{name}.mov",
            )
        )
    write_clips(folder, clips)
    write_info(folder, DatasetInfo(title=folder.name, trigger_word=trigger))
    return folder
