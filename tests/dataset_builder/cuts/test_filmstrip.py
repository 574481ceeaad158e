"""A strip shows the frames whose times it tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workbench.clips import media
from workbench.dataset_builder.cuts import filmstrip as module
from workbench.dataset_builder.cuts.filmstrip import filmstrip
from workbench.errors import DataError


def brightening(frames: int) -> np.ndarray:
    """Frame n is grey of level 20 + n * 200 / frames, so that a picture tells its number."""
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


def test_a_short_clip_has_fewer_frames(tmp_path: Path) -> None:
    media.encode(brightening(3), tmp_path / "clip.mp4", 10)
    assert filmstrip(tmp_path / "clip.mp4", tmp_path).times == (0.0, 0.1, 0.2)


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
