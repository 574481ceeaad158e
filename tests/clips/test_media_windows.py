"""Training sees the same pixels whichever of decord and PyAV reads a clip, and decord never reads what it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dataset_builder.foreign import write_video
from workbench.clips import media
from workbench.clips.frame_plan import FramePlan
from workbench.clips.records import Clip, file_sha256

FRAMES = 40
ENCODED: dict[str, dict[str, Any]] = {
    "B-frames": {"options": {"bf": "3", "g": "12"}},
    "an open group": {"options": {"x264-params": "open-gop=1:keyint=12:bframes=3"}},
    "television's rate": {"fps": 30000 / 1001, "container": {"movflags": "+faststart"}},
}


@pytest.fixture
def decord() -> Any:
    return pytest.importorskip("decord", reason="no wheel of decord for this machine: PyAV reads everything here")


def detailed(width: int = 160, height: int = 136) -> np.ndarray:
    """Frames of which every one differs everywhere."""
    coarse = np.random.default_rng(3).integers(0, 255, (FRAMES, height // 8 + 1, width // 8 + 1, 3), np.uint8)
    return coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :height, :width]


@pytest.mark.parametrize("encoded", ["ours", *ENCODED])
def test_both_give_the_same_bits(tmp_path: Path, decord: Any, encoded: str) -> None:
    path, video = tmp_path / "clip.mp4", detailed()
    if encoded == "ours":
        media.encode(video, path, 8)
    else:
        write_video(path, video, **{"fps": 24, **ENCODED[encoded]})
    every = np.stack([picture for _, picture in media.decode(path)])
    shape = every.shape[:3]
    assert len(every) == FRAMES
    for indices in (range(FRAMES), range(13, 30), [5, 6, 8, 9, 11, 12, 14, 15], [30, 29, 28, 27, 26, 25, 24, 23]):
        assert media.suits_decord(shape, indices)
        assert np.array_equal(media._read_with_decord(path, shape, indices), every[list(indices)])
        for resize, crop in ((None, None), ((72, 96), (4, 8, 64, 80))):
            ours = media.read_own_clip(path, shape, indices, resize, crop)
            assert np.array_equal(ours, media.read_frames(path, indices, resize, crop))


@pytest.mark.parametrize("width", [16, 72])
def test_clips_that_decord_reads_in_another_shape_go_to_pyav(tmp_path: Path, width: int) -> None:
    media.encode(detailed(width, 64), tmp_path / "narrow.mp4", 8)
    shown = media.read_own_clip(tmp_path / "narrow.mp4", (FRAMES, 64, width), range(FRAMES))
    assert shown.shape == (FRAMES, 64, width, 3)
    assert np.array_equal(shown, media.read_frames(tmp_path / "narrow.mp4", range(FRAMES)))


def test_each_way_of_reading_has_its_reader() -> None:
    clip, long, large = (240, 256, 256), (2400, 256, 256), (240, 480, 720)
    assert media.suits_decord(clip, range(100, 149))
    assert not media.suits_decord(clip, [3])
    assert not media.suits_decord(clip, range(0, 240, 30))
    assert not media.suits_decord(clip, range(0, 98, 2))
    assert not media.suits_decord(long, range(100, 149))
    assert not media.suits_decord(large, range(100, 149))


def test_a_clip_that_is_not_what_its_record_says_goes_to_pyav(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    media.encode(detailed(), path, 8)
    wanted = media.read_frames(path, range(10))
    assert np.array_equal(media.read_own_clip(path, (FRAMES + 1, 136, 160), range(10)), wanted)
    assert np.array_equal(media.read_own_clip(path, (FRAMES, 160, 136), range(10)), wanted)


def test_training_reads_with_decord_only_what_an_import_wrote(
    tmp_path: Path, decord: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.clips.buckets import Bucket
    from workbench.runs.data import RunClip
    from workbench.trainer.encoder import read_video

    path, read = tmp_path / "clip.mp4", []
    media.encode(detailed(), path, 8)
    clip = Clip(file_name="clip.mp4", fps=8, frames=FRAMES, width=160, height=136, sha256=file_sha256(path))
    plan = FramePlan(clip, tuple(range(9, 26)), (68, 80), (2, 8, 64, 64), 8)
    item = RunClip(path, clip.sha256, "", plan, "train", Bucket(17, 64, 64))
    real = decord.VideoReader

    def noted(*arguments: Any, **more: Any) -> Any:
        read.append(arguments)
        return real(*arguments, **more)

    monkeypatch.setattr(decord, "VideoReader", noted)
    with_decord = read_video(item)
    assert len(read) == 1
    changed = read_video(replace(item, sha256="another"))
    monkeypatch.setattr(media, "_has_decord", lambda: False)
    without = read_video(item)
    assert len(read) == 1
    assert with_decord.equal(without)
    assert with_decord.equal(changed)
