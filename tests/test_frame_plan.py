"""Which frames and which part of the picture a model sees."""

from __future__ import annotations

import pytest

from workbench.clips import Clip
from workbench.frame_plan import Shape, plan


def clip(frames: int = 100, fps: float = 24, width: int = 720, height: int = 480) -> Clip:
    return Clip(file_name="clips/a.mp4", frames=frames, fps=fps, width=width, height=height)


def test_frames_come_from_the_middle_at_the_models_rate() -> None:
    found = plan(clip(), Shape(9, 480, 720, 8))
    assert found.dropped is None
    assert found.indices == tuple(range(37, 62, 3))
    assert found.sentence == "frames 37 to 61: 9 at 8 fps (1.1 s), 720x480"


def test_whole_clip_when_it_is_just_long_enough() -> None:
    assert plan(clip(9, 8), Shape(9, 64, 64, 8)).indices == tuple(range(9))


@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (1080, 1920), (100, 37), (720, 480), (721, 479)])
def test_picture_covers_the_wanted_size_and_is_cut_from_its_centre(width: int, height: int) -> None:
    found = plan(clip(width=width, height=height), Shape(9, 480, 720, 8))
    top, left, cut_height, cut_width = found.crop
    assert (cut_height, cut_width) == (480, 720)
    assert found.resize[0] >= 480
    assert found.resize[1] >= 720
    assert abs(2 * top + 480 - found.resize[0]) <= 1
    assert abs(2 * left + 720 - found.resize[1]) <= 1
    assert found.resize[0] / height == pytest.approx(found.resize[1] / width, abs=1.01 / min(width, height))


@pytest.mark.parametrize(("frames", "fps"), [(2, 8), (8, 8), (24, 24), (9, 30), (3, 2)])
def test_indices_are_always_inside_the_clip_and_in_order(frames: int, fps: float) -> None:
    for wanted in (2, 5, 9):
        found = plan(clip(frames, fps), Shape(wanted, 64, 64, 8))
        assert found.dropped or len(found.indices) == wanted
        assert list(found.indices) == sorted(found.indices)
        assert all(0 <= index < frames for index in found.indices)


def test_too_short_says_what_there_is_and_what_to_do() -> None:
    found = plan(clip(24, 24), Shape(49, 480, 720, 8))
    assert found.indices == ()
    assert found.sentence == (
        "left out: too short: 1.00 s give 8 frames at 8 fps, 49 are needed: lower frames or raise the frame rate"
    )


def test_unknown_length_is_not_guessed() -> None:
    assert "import it again" in plan(Clip(file_name="a.mp4"), Shape(9, 64, 64, 8)).sentence
