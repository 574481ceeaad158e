"""Depth and pose models: real transformers classes on miniatures with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import tiny_vision
from tests.drawing import draw
from workbench.clips import made, media
from workbench.errors import ConfigError
from workbench.vision import depth_and_pose as pose
from workbench.vision.depth_and_pose import Depth, Pose

FRAMES, HEIGHT, WIDTH = 4, 48, 64
VIDEO = draw(FRAMES, (WIDTH, HEIGHT))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    folder = tmp_path_factory.mktemp("models")
    makers = {
        "depth": tiny_vision.make_depth,
        "metric": lambda path: tiny_vision.make_depth(path, "metric"),
        "pose": tiny_vision.make_pose,
        "detector": tiny_vision.make_detector,
        "cats": lambda path: tiny_vision.make_detector(path, "cat"),
    }

    def made_once(name: str) -> str:
        if not (folder / name).exists():
            makers[name](folder / name)
        return str(folder / name)

    return made_once


def shades(video: np.ndarray, model: str) -> np.ndarray:
    with Depth(model, "cpu") as depth:
        return np.stack(list(depth.pictures(iter(video))))


# ---- depth


def test_depth_is_gray_and_normalized_over_the_whole_clip(tiny: Callable[[str], str]) -> None:
    video = np.concatenate([VIDEO, np.full_like(VIDEO[:1], 128)])
    found = shades(video, tiny("depth"))
    assert (found.shape, found.dtype) == (video.shape, np.uint8)
    assert (found == found[..., :1]).all()
    assert (found.min(), found.max()) == (0, 255)
    with Depth(tiny("depth"), "cpu") as depth:
        near = np.stack([depth._inverse_depth(frame) for frame in video]).astype(float)
    # Shades are one linear function of inverse depth in all frames, and the nearest is white.
    middle = (near > np.percentile(near, 5)) & (near < np.percentile(near, 95))
    small = np.stack([_resized(one[..., 0], near.shape[1:]) for one in found])
    assert np.corrcoef(near[middle], small[middle])[0, 1] > 0.9


def _resized(picture: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    import cv2

    return np.asarray(cv2.resize(picture, (size[1], size[0]), interpolation=cv2.INTER_AREA)).astype(float)


def test_near_is_white_for_metric_models_too(tiny: Callable[[str], str]) -> None:
    near, meters = shades(VIDEO, tiny("depth")), shades(VIDEO, tiny("metric"))
    assert np.corrcoef(near.ravel(), meters.ravel())[0, 1] < -0.5, "the same weights tell the opposite"


def test_a_depth_companion_has_the_frames_of_its_clip(tiny: Callable[[str], str], tmp_path: Path) -> None:
    media.encode(VIDEO, tmp_path / "clip.mp4", 8)
    looked = []
    with made.opened("depth", tiny("depth"), device="cpu") as model:
        path = made.make(
            "depth", "", tmp_path / "clip.mp4", tmp_path / "made", fps=8, model=model, tick=lambda: looked.append(1)
        )
    about = media.probe(path)
    assert (about.frames, about.height, about.width, about.fps) == (FRAMES, HEIGHT, WIDTH, 8)
    assert len(looked) == FRAMES


# ---- poses


def test_people_are_found_and_drawn_on_black(tiny: Callable[[str], str]) -> None:
    with Pose(tiny("pose"), "cpu", tiny("detector")) as model:
        people = model.people(VIDEO[0])
        drawn = list(model.pictures(iter(VIDEO)))
    assert 1 <= len(people) <= 3
    assert all(places.shape == (17, 2) and scores.shape == (17,) for places, scores in people)
    assert len(drawn) == FRAMES
    assert all(one.shape == VIDEO[0].shape and one.dtype == np.uint8 for one in drawn)


def test_detectors_without_people_and_other_joints_are_rejected(tiny: Callable[[str], str]) -> None:
    with pytest.raises(ConfigError, match=r"detector is .*, which has no class person: choose PekingU/rtdetr"):
        Pose(tiny("pose"), "cpu", tiny("cats"))
    with pytest.raises(ConfigError, match=r"a depth_anything, must be a vitpose: choose usyd"):
        Pose(tiny("depth"), "cpu", tiny("detector"))


def test_a_skeleton_has_the_colors_of_openpose() -> None:
    places = np.zeros((17, 2), np.float32)
    places[5], places[6], places[0] = (
        (150, 60),
        (50, 60),
        (100, 20),
    )  # left and right shoulder, nose
    scores = np.zeros(17, np.float32)
    scores[[0, 5, 6]] = 0.9
    canvas = np.zeros((200, 200, 3), np.uint8)
    pose.draw(canvas, places, scores)
    assert tuple(canvas[20, 100]) == (255, 0, 0)  # nose
    assert tuple(canvas[60, 100]) == (255, 85, 0)  # neck, between the shoulders
    assert tuple(canvas[60, 50]) == (255, 170, 0)  # right shoulder
    assert tuple(canvas[60, 150]) == (85, 255, 0)  # left shoulder
    assert tuple(canvas[60, 75]) == (153, 0, 0)  # from the neck to the right shoulder
    assert tuple(canvas[60, 125]) == (153, 51, 0)  # and to the left one
    assert not canvas[100:].any()
    scores[5] = 0.1
    canvas[:] = 0
    pose.draw(canvas, places, scores)
    assert not canvas[60, 100].any(), "no neck without both shoulders"
