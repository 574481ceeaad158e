"""Painted masks follow what they were painted on, and the confidence falls where they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest

from workbench.clips.mask_tracking import SURE, overlap, track
from workbench.errors import ConfigError

WIDTH, HEIGHT, FRAMES = 160, 120, 13
Place = Callable[[int], tuple[int, int, int]]


def texture(seed: int, color: tuple[float, float, float]) -> np.ndarray:
    """Blurred noise of a color, which optical flow can follow."""
    noise = cv2.GaussianBlur(np.random.default_rng(seed).random((HEIGHT, 3 * WIDTH)).astype(np.float32), (0, 0), 2.0)
    noise = 60 + 150 * (noise - noise.min()) / (noise.max() - noise.min())
    return (noise[..., None] * np.array(color, np.float32)).astype(np.uint8)


def moving(place: Place, hidden: range = range(0)) -> tuple[np.ndarray, np.ndarray]:
    """A textured disc over a textured ground: frames [F, H, W, 3] and its true masks. place: frame -> x, y, radius"""
    ground, skin = texture(1, (0.5, 0.8, 0.4)), texture(2, (1.0, 0.3, 0.2))
    frames, masks = [], []
    for number in range(FRAMES):
        x, y, radius = place(number)
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        if number not in hidden:
            cv2.circle(mask, (x, y), radius, 255, -1)
        picture = ground[:, number : number + WIDTH].copy()
        picture[mask > 0] = skin[:, 2 * WIDTH - x : 3 * WIDTH - x][mask > 0]
        frames.append(picture)
        masks.append(mask)
    return np.stack(frames), np.stack(masks)


def overlaps(found: Any, truth: np.ndarray) -> np.ndarray:
    return np.array([overlap(one > 127, other > 127) for one, other in zip(found.masks, truth, strict=True)])


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda n: (40 + 4 * n, 60, 22), id="moves"),
        pytest.param(lambda n: (80, 60, 14 + 2 * n), id="grows"),
        pytest.param(lambda n: (80 - 3 * n, 40 + 2 * n, 24 - n // 2), id="shrinks on its way"),
    ],
)
def test_a_mask_follows_its_shape_and_is_sure_of_it(place: Place) -> None:
    frames, truth = moving(place)
    found = track(frames, {0: truth[0]})
    assert found.masks.shape == truth.shape
    assert overlaps(found, truth).min() > 0.8
    assert found.confidence.min() > SURE
    assert found.confidence[0] == 1.0


def test_a_painted_frame_in_the_middle_reaches_both_ends_and_stays_as_it_was_painted() -> None:
    frames, truth = moving(lambda n: (40 + 4 * n, 60, 22))
    said: list[tuple[int, int]] = []
    found = track(frames, {6: truth[6]}, lambda *step: said.append(step))
    assert (found.masks[6] == truth[6]).all()
    assert overlaps(found, truth).min() > 0.8
    assert said == [(step, FRAMES - 1) for step in range(1, FRAMES)]


def test_where_the_shape_is_hidden_the_confidence_says_so_and_a_second_painted_frame_finds_it_again() -> None:
    frames, truth = moving(lambda n: (40 + 4 * n, 60, 20), hidden=range(5, 9))
    found = track(frames, {0: truth[0]})
    assert found.confidence[1:5].min() > SURE > found.confidence[5:].max()
    corrected = track(frames, {0: truth[0], 6: truth[6], 10: truth[10]})
    assert overlaps(corrected, truth)[[9, 11, 12]].min() > 0.8
    assert corrected.confidence[11:].min() > SURE


def test_the_confidence_orders_good_frames_before_bad_ones() -> None:
    """Over easy and hard clips: each frame that covers the shape is trusted more than nearly each that does not."""
    pairs = []
    ways: list[tuple[Place, range]] = [
        (lambda n: (40 + 4 * n, 60, 22), range(0)),
        (lambda n: (30 + 8 * n, 60, 16), range(4, 8)),
        (lambda n: (80 + round(60 * np.sin(2.5 * n)), 60, 15), range(0)),  # faster than the flow can follow
        (lambda n: (80 + 12 * n, 60, 20), range(0)),  # leaves the picture
    ]
    for place, hidden in ways:
        frames, truth = moving(place, hidden)
        found = track(frames, {0: truth[0]})
        pairs += list(zip(overlaps(found, truth)[1:], found.confidence[1:], strict=True))
    values = np.array(pairs)
    good = values[values[:, 0] > 0.5, 1]
    bad = values[values[:, 0] <= 0.5, 1]
    assert len(bad) > 5
    assert np.mean([(one > bad).mean() for one in good]) > 0.9


def test_thin_parts_stay_where_the_picture_says_little_about_them() -> None:
    """A leg before a ground of nearly its color does not get shorter with each frame."""
    frames, masks = [], []
    for number in range(FRAMES):
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        cv2.rectangle(mask, (50 + number, 20), (80 + number, 60), 255, -1)
        cv2.rectangle(mask, (60 + number, 60), (68 + number, 105), 255, -1)
        picture = texture(3, (0.9, 0.9, 0.6))[:, :WIDTH].copy()
        picture[80:] = picture[80:] // 6
        dark = texture(4, (0.2, 0.2, 0.2))[:, WIDTH - number : 2 * WIDTH - number]
        picture[mask > 0] = dark[mask > 0]
        frames.append(picture)
        masks.append(mask)
    found = track(np.stack(frames), {0: masks[0]})
    leg = found.masks[-1][80:105, 60 + FRAMES - 1 : 69 + FRAMES - 1] > 127
    assert leg.mean() > 0.7


def test_an_empty_painted_frame_says_that_nothing_is_there() -> None:
    frames, truth = moving(lambda n: (40, 60, 22), hidden=range(6, FRAMES))
    found = track(frames, {0: truth[0], 6: truth[6]})
    assert (found.masks[6:] == 0).all()
    assert (found.confidence[6:] == 1.0).all()


@pytest.mark.parametrize(
    ("painted", "sentence"),
    [
        ({}, "no mask is painted"),
        ({99: (HEIGHT, WIDTH)}, "frame 99 is painted, but the clip has frames 0 to 12"),
        ({0: (8, 16)}, "the mask of frame 0 is 16×8, but the clip's frames are 160×120"),
    ],
)
def test_what_cannot_be_tracked_is_a_sentence(painted: dict[int, tuple[int, int]], sentence: str) -> None:
    frames, _ = moving(lambda n: (40, 60, 22))
    with pytest.raises(ConfigError, match=sentence):
        track(frames, {number: np.zeros(size, np.uint8) for number, size in painted.items()})
