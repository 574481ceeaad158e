"""A source video of half an hour is shown, planned and cut without decoding half an hour."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.clips import media
from workbench.clips.records import Clip, write_clips
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.cuts import scenes
from workbench.dataset_builder.cuts.scenes import filmstrip
from workbench.dataset_builder.cuts.splitting import plan_split
from workbench.dataset_builder.settings import SplitSettings
from workbench.errors import ConfigError
from workbench.workspace import Workspace

FPS, MINUTES = 1, 30
FRAMES = FPS * 60 * MINUTES


@pytest.fixture(scope="module")
def half_an_hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of one clip, 1,800 frames of 32x32: gray that grows lighter, so that a picture tells its time."""
    folder = tmp_path_factory.mktemp("long") / "long"
    levels = (20 + np.arange(FRAMES) * 200 / FRAMES).astype(np.uint8)
    media.encode(np.broadcast_to(levels[:, None, None, None], (FRAMES, 32, 32, 3)), folder / "clips/long.mp4", FPS)
    write_clips(
        folder, [Clip(file_name="clips/long.mp4", source="long.mov", frames=FRAMES, fps=FPS, width=32, height=32)]
    )
    return folder


@pytest.fixture
def dataset(half_an_hour: Path, workspace: Workspace) -> Dataset:
    return Dataset(Path(shutil.copytree(half_an_hour, workspace.dataset("long"))))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the frames that are decoded from now on."""
    numbers: list[int] = []
    onward = scenes.frames_onward

    def counting(*arguments: Any) -> Iterator[tuple[int, Any]]:
        for number, frame in onward(*arguments):
            numbers.append(number)
            yield number, frame

    monkeypatch.setattr(scenes, "frames_onward", counting)
    return numbers


def brightness(number: int) -> float:
    return 20 + number * 200 / FRAMES


def test_its_filmstrip_looks_at_few_frames_all_over_it(dataset: Dataset, tmp_path: Path, decoded: list[int]) -> None:
    path = dataset.path_of(dataset.clips[0])
    strip = filmstrip(path, tmp_path, 24, 74)
    share = 60 * MINUTES / 24
    assert [int(seconds // share) for seconds in strip.times] == list(range(24))
    assert len(decoded) <= 24 * 31, "from keyframe to keyframe, never the whole source video"
    count = len(decoded)
    assert filmstrip(path, tmp_path, 24, 74) == strip
    assert len(decoded) == count, "the second time it is read from the cache"


def test_a_part_of_its_end_is_exact_and_costs_its_own_frames(dataset: Dataset, decoded: list[int]) -> None:
    end = 60.0 * MINUTES
    part = dataset.trim(dataset.clips[0].id, end - 10, end - 2)
    assert (part.frames, part.span) == (8 * FPS, (end - 10, end - 2))
    assert len(decoded) <= 8 * FPS + 31
    first, last = media.read_frames(dataset.path_of(part), [0, 8 * FPS - 1])
    assert first.mean() == pytest.approx(brightness(FRAMES - 10 * FPS), abs=2)
    assert last.mean() == pytest.approx(brightness(FRAMES - 2 * FPS - 1), abs=2)
    wide = dataset.trim(part.id, 0, end)
    assert (wide.frames, wide.master) == (FRAMES, "")


def test_windows_are_planned_without_a_look_at_it(dataset: Dataset, decoded: list[int]) -> None:
    settings = SplitSettings(mode="windows", window_seconds=7, min_seconds=2)
    (plan,) = plan_split(dataset.folder, settings)
    assert len(plan.spans) == 257
    assert plan.dropped == ((257 * 7, FRAMES),)
    assert decoded == []
    with pytest.raises(ConfigError, match="the span is 1790 to 1810 s, must lie in the source video's 0 to 1800 s"):
        dataset.trim(dataset.clips[0].id, 1790, 1810)
