"""Bars are found to the pixel where they are, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder.scenery import scenery
from workbench.clips import media
from workbench.dataset_builder.checks.letterbox import Box, find_letterbox

SIZE = (192, 128)


def barred(left: int, top: int, right: int, bottom: int, colour: int = 0) -> np.ndarray:
    """A scene of 10 frames behind bars that are so thick."""
    video = scenery(3, 10, SIZE, speed=4)
    inside = video[:, top : SIZE[1] - bottom, left : SIZE[0] - right].copy()
    video[:] = colour
    video[:, top : SIZE[1] - bottom, left : SIZE[0] - right] = inside
    return video


def found(video: np.ndarray, tmp_path: Path, crf: int = 18) -> Box | None:
    media.encode(video, tmp_path / "clip.mp4", 8, crf=crf)
    return find_letterbox(tmp_path / "clip.mp4")


@pytest.mark.parametrize(
    ("bars", "colour", "box"),
    [
        ((0, 16, 0, 16), 0, (0, 16, 192, 96)),  # letterbox
        ((56, 0, 56, 0), 0, (56, 0, 80, 128)),  # pillarbox
        ((24, 12, 24, 12), 0, (24, 12, 144, 104)),  # both
        ((0, 16, 0, 18), 0, (0, 16, 192, 94)),  # not quite in the middle
        ((0, 16, 0, 16), 255, None),  # white: may be the ground
        ((0, 0, 0, 0), 0, None),
        ((0, 16, 0, 0), 0, None),  # on one side alone: may be the scene
    ],
)
def test_bars(tmp_path: Path, bars: tuple[int, int, int, int], colour: int, box: Box | None) -> None:
    assert found(barred(*bars, colour), tmp_path) == box


def test_noise_and_a_logo_in_the_bars(tmp_path: Path) -> None:
    video = barred(0, 20, 0, 20, 16)
    video[:, 4:14, 160:184] = 230
    noisy = video + np.random.default_rng(0).normal(0, 6, video.shape)
    box = found(noisy.clip(0, 255).astype(np.uint8), tmp_path, crf=28)
    assert box == (0, 20, 192, 88)


def test_an_odd_edge_is_cut_to_even_pixels_inside(tmp_path: Path) -> None:
    left, top, width, height = found(barred(0, 15, 0, 17), tmp_path) or (0, 0, 0, 0)
    assert (left, width) == (0, 192)
    assert top == 16
    assert top + height in (108, 110)


def test_the_demo_has_no_bars() -> None:
    """Broad stripes, and shapes that move over a black ground."""
    clips = sorted((Path(__file__).parents[3] / "assets" / "demo_clips").rglob("*.mp4"))
    assert len(clips) == 88
    assert [clip.name for clip in clips if find_letterbox(clip) is not None] == []


def test_broad_black_stripes_are_no_bars(tmp_path: Path) -> None:
    video = scenery(3, 10, SIZE, speed=4)
    for left in range(0, SIZE[0], 64):
        video[:, :, left : left + 32] = 0
    assert found(video[:, :, : 192 - 32], tmp_path) is None


@pytest.mark.parametrize("bars", [(0, 16, 0, 16), (40, 0, 40, 0)])
def test_bars_around_a_dark_scene(tmp_path: Path, bars: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = bars
    assert found(barred(*bars) // 3, tmp_path) == (left, top, SIZE[0] - left - right, SIZE[1] - top - bottom)


@pytest.mark.parametrize("dark", ["night", "stage", "backdrop", "black"])
def test_dark_and_plain_scenes_have_no_bars(tmp_path: Path, dark: str) -> None:
    video = np.zeros((10, 128, 192, 3), np.uint8)
    rows, columns = np.mgrid[:128, :192]
    for number, picture in enumerate(video):
        if dark == "night":  # a lamp that fades into the dark
            glow = 200 * np.exp(-((rows - 64) ** 2 + (columns - 60 - 6 * number) ** 2) / 900)
            picture[:] = glow[..., None]
        elif dark in ("stage", "backdrop"):  # a round thing in the middle
            picture[:] = 12 if dark == "stage" else 240
            picture[(rows - 64) ** 2 + (columns - 70 - 4 * number) ** 2 < 1200] = (180, 90, 60)
    assert found(video, tmp_path) is None
