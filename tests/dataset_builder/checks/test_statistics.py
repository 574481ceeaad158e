"""The numbers behind the pictures, counted by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

from workbench.clips.records import Clip, DatasetInfo
from workbench.dataset_builder.checks.statistics import of_clips, statistics


def clip(
    number: int, text: str, frames: int = 16, size: tuple[int, int] = (1280, 720), tags: tuple[str, ...] = ()
) -> Clip:
    return Clip(
        file_name=f"clips/{number}.mp4",
        text=text,
        fps=8,
        frames=frames,
        width=size[0],
        height=size[1],
        sha256=str(number),
        tags=tags,
    )


def test_numbers_of_a_few_records() -> None:
    clips = [
        clip(0, "A red fox in the snow", 16, tags=("animal",)),
        clip(1, "zwx, the red fox runs", 20),
        clip(2, "a fox's den", 40, (720, 1280), ("animal", "home")),
        clip(3, "", 1, (300, 300)),
    ]
    found = of_clips(clips, DatasetInfo(trigger_word="zwx"), {"0": 1.5, "1": 2.25})
    assert (found.clips, found.images, found.seconds, found.measured) == (4, 1, 9.5, 2 / 3)
    assert found.aspects == {"16:9": 2, "9:16": 1, "1:1": 1}
    assert found.sizes == {"1280x720": 2, "720x1280": 1, "300x300": 1}
    assert found.fps == {8: 3}
    assert found.words[:2] == (("red", 2), ("fox", 2))
    assert "the" not in dict(found.words)
    assert found.tags == (("animal", 2), ("home", 1))
    assert found.with_trigger == 1 / 3
    assert set(found.histograms) == {"duration", "motion", "words"}
    words = found.histograms["words"]
    assert (words.edges, words.counts) == ((3, 4, 5, 6, 7), (1, 0, 1, 1))
    assert sum(found.histograms["duration"].counts) == 3


def test_an_empty_dataset_has_empty_statistics(tmp_path: Path) -> None:
    found = statistics(tmp_path)
    assert (found.clips, found.histograms, found.with_trigger, found.measured) == (0, {}, None, 0)


def test_bins_are_round_and_few() -> None:
    found = of_clips([clip(n, " ".join(["word"] * (n % 57 + 1)), n + 2) for n in range(1000)], DatasetInfo(), {})
    for histogram in found.histograms.values():
        assert sum(histogram.counts) == 1000
        assert len(histogram.counts) <= 21
        assert len(histogram.edges) == len(histogram.counts) + 1
    assert found.histograms["words"].edges[:2] == (0, 5)


def test_a_check_leaves_motion_and_tokens(checked: Path, tmp_path: Path) -> None:
    shutil.copytree(checked, tmp_path / "it")
    found = statistics(tmp_path / "it")
    assert (found.measured, found.token_limit) == (1.0, 16)
    assert sum(found.histograms["tokens"].counts) == 9
    assert sum(found.histograms["motion"].counts) == 9
