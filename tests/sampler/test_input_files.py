"""First frames: what is taken from a person's own picture or video."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workbench.clips import media
from workbench.errors import ConfigError
from workbench.sampler.inputs import last_frames, read_picture


def test_a_picture_is_turned_upright_and_cut_to_the_middle(tmp_path: Path) -> None:
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 255
    turned = Image.Exif()
    turned[0x0112] = 6  # to be shown turned by a quarter
    Image.fromarray(wide).save(tmp_path / "wide.png", exif=turned)
    frames = read_picture(tmp_path / "wide.png", 10, 10)
    assert frames.shape == (1, 10, 10, 3)
    assert frames.min() > 220
    whole = read_picture(tmp_path / "wide.png", 30, 10)[0, :, 5, 0]
    assert whole[2] < 5
    assert whole[15] > 250
    assert whole[27] < 5


def test_what_is_transparent_becomes_white(tmp_path: Path) -> None:
    Image.new("RGBA", (16, 16), (255, 0, 0, 0)).save(tmp_path / "clear.webp", lossless=True)
    assert read_picture(tmp_path / "clear.webp", 16, 16).min() == 255


def test_a_picture_cut_short_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(tmp_path / "whole.png")
    data = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "half.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(ConfigError, match="image is half.png, which is damaged: copy it again"):
        read_picture(tmp_path / "half.png", 16, 16)


@pytest.mark.parametrize(
    ("count", "fps", "expected"),
    [(5, 8.0, [3, 6, 9, 12, 15]), (1, 8.0, [15]), (3, 24.0, [13, 14, 15]), (17, 8.0, [0, *range(16)])],
)
def test_the_last_frames_come_at_the_wanted_rate(tmp_path: Path, count: int, fps: float, expected: list[int]) -> None:
    """16 frames at 24 a second, each of a gray of its own; too short for the wanted rate: the last ones as they are."""
    grays = np.linspace(0, 240, 16).astype(np.uint8)
    video = np.broadcast_to(grays[:, None, None, None], (16, 32, 32, 3))
    media.encode(np.ascontiguousarray(video), tmp_path / "grays.mp4", 24.0)
    found = last_frames(tmp_path / "grays.mp4", count, fps, 16, 16)
    assert found.shape == (count, 16, 16, 3)
    assert np.abs(found.mean((1, 2, 3)) - grays[expected]).max() < 4
