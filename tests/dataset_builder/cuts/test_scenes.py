"""Hard cuts are found at their very frames; moving the threshold decodes nothing; a strip shows its times' frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder.scenery import joined, scenery
from tests.serving import ROOT
from workbench.clips import media
from workbench.dataset_builder.cuts import scenes
from workbench.dataset_builder.cuts import scenes as module
from workbench.dataset_builder.cuts.scenes import DETECTORS, DetectorName, cuts, filmstrip, scores
from workbench.errors import DataError


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize(("lengths", "fps"), [((31, 17, 3, 40), 30000 / 1001)])
def test_hard_cuts_are_found_at_their_frames(
    tmp_path: Path, detector: DetectorName, lengths: tuple[int, ...], fps: float
) -> None:
    video, true = joined(lengths)
    media.encode(video, tmp_path / "joined.mp4", fps)
    found = scores(tmp_path / "joined.mp4", detector, tmp_path)
    assert len(found) == sum(lengths)
    assert cuts(found, DETECTORS[detector].threshold) == true


def test_stray_frames_of_another_shot_at_the_ends_are_found(tmp_path: Path) -> None:
    """As they are left over where a tool has cut a frame too early or too late."""
    media.encode(joined((1, 30, 2))[0], tmp_path / "stray.mp4", 8)
    assert cuts(scores(tmp_path / "stray.mp4", "adaptive", tmp_path), DETECTORS["adaptive"].threshold) == [1, 31]


@pytest.mark.parametrize("detector", ["adaptive", "content"])
def test_a_flash_is_no_cut_but_a_glimpse_of_another_scene_is_two(tmp_path: Path, detector: DetectorName) -> None:
    video = scenery(1, 40)
    video[10:12] = np.minimum(video[10:12], 175) + 80
    video[25:28] = np.clip(scenery(7, 3).astype(np.int16) + 40, 0, 255)
    media.encode(video, tmp_path / "flash.mp4", 24)
    found = scores(tmp_path / "flash.mp4", detector, tmp_path)
    assert cuts(found, DETECTORS[detector].threshold) == [25, 28]


@pytest.mark.parametrize("detector", DETECTORS)
def test_scores_agree_with_the_library_itself(tmp_path: Path, detector: DetectorName) -> None:
    import scenedetect

    theirs = {
        "adaptive": scenedetect.AdaptiveDetector(adaptive_threshold=2.0, min_scene_len=1),
        "content": scenedetect.ContentDetector(min_scene_len=1),
        "hash": scenedetect.HashDetector(threshold=0.35, min_scene_len=1),
    }[detector]
    theirs.stats_manager = scenedetect.StatsManager()
    media.encode(joined((30, 20, 26))[0], tmp_path / "joined.mp4", 12)
    times = [scenedetect.FrameTimecode(number, 12.0) for number in range(76)]
    found = list[int]()
    for time, (_, frame) in zip(times, media.raw_frames(tmp_path / "joined.mp4"), strict=True):
        found += [cut.frame_num for cut in theirs.process_frame(time, frame.to_ndarray(format="bgr24"))]
    ours = scores(tmp_path / "joined.mp4", detector, tmp_path)
    assert cuts(ours, DETECTORS[detector].threshold) == found == [30, 50]
    key = "content_val" if detector == "content" else theirs.get_metrics()[-1]
    kept = [theirs.stats_manager.get_metrics(times[number], [key])[0] for number in found]
    assert ours[found] == pytest.approx(kept, rel=0.001)


def test_scores_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media.encode(joined((12, 12))[0], tmp_path / "a.mp4", 8)
    first = scores(tmp_path / "a.mp4", "content", tmp_path / "cache")
    (tmp_path / "a.mp4").rename(tmp_path / "b.mp4")
    with monkeypatch.context() as without:
        without.setattr(scenes, "frames_from", None)  # decoding would fail
        again = scores(tmp_path / "b.mp4", "content", tmp_path / "cache")
    assert (again == first).all()
    media.encode(joined((6, 18), seed=9)[0], tmp_path / "b.mp4", 8)
    assert cuts(scores(tmp_path / "b.mp4", "content", tmp_path / "cache"), 27) == [6]


def test_damaged_scores_are_made_again_and_none_are_in_a_format_that_threads_cannot_read(tmp_path: Path) -> None:
    """numpy's own head is a Python expression, which several threads of Python 3.11 cannot always read at once."""
    media.encode(joined((5, 5))[0], tmp_path / "a.mp4", 8)
    found = scores(tmp_path / "a.mp4", "content", tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    good = kept.read_bytes()
    for bad in (b"", good[:-1], bytes([*good[:-3], good[-3] ^ 1, *good[-2:]])):
        kept.write_bytes(bad)
        assert np.array_equal(scores(tmp_path / "a.mp4", "content", tmp_path / "kept"), found)
        assert kept.read_bytes() == good
    assert not [path for path in (ROOT / "workbench").rglob("*.py") if "np.load(" in path.read_text(encoding="utf-8")]


def test_a_damaged_clip_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.mp4"):
        scores(tmp_path / "gone.mp4", "content", tmp_path)


def brightening(frames: int) -> np.ndarray:
    """Frame n is gray of level 20 + n * 200 / frames, so that a picture tells its number."""
    levels = 20 + np.arange(frames) * 200 / frames
    return np.broadcast_to(levels[:, None, None, None], (frames, 32, 64, 3)).astype(np.uint8)


@pytest.mark.parametrize("frames", [60, 1000])  # all decoded; by keyframes
def test_each_frame_is_shown_at_its_time(tmp_path: Path, frames: int) -> None:
    media.encode(brightening(frames), tmp_path / "clip.mp4", 10)
    strip = filmstrip(tmp_path / "clip.mp4", tmp_path / "cache", frames=12, height=16)
    with Image.open(strip.path) as picture:
        pixels = np.asarray(picture)
    assert (pixels.shape, strip.width) == ((16, 12 * 32, 3), 32)
    share = frames / 10 / 12
    for place, seconds in enumerate(strip.times):
        assert place * share <= seconds < (place + 1) * share
        level = pixels[4:12, place * 32 + 8 : place * 32 + 24].mean()
        assert level == pytest.approx(20 + seconds * 10 * 200 / frames, abs=3)


def test_it_is_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media.encode(brightening(9), tmp_path / "clip.mp4", 10)
    first = filmstrip(tmp_path / "clip.mp4", tmp_path / "cache")
    with monkeypatch.context() as without:
        without.setattr(module, "stills", None)
        assert filmstrip(tmp_path / "clip.mp4", tmp_path / "cache") == first
    media.encode(brightening(8), tmp_path / "clip.mp4", 10)
    assert filmstrip(tmp_path / "clip.mp4", tmp_path / "cache") != first


def test_too_wide_is_told(tmp_path: Path) -> None:
    media.encode(brightening(20), tmp_path / "clip.mp4", 10)
    with pytest.raises(DataError, match="a strip of 20 frames of 4000 pixels is too wide: use 16 or fewer"):
        filmstrip(tmp_path / "clip.mp4", tmp_path, frames=20, height=2000)
