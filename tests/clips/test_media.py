"""Video files: what is written plays everywhere and reads back the same by number."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.drawing import MakeClip, draw
from workbench.clips import media
from workbench.errors import CannotWrite, DataError


def test_written_clip_plays_in_every_browser_and_reads_back(tmp_path: Path) -> None:
    video, path = draw(12, (96, 64)), tmp_path / "new" / "clip.mp4"
    media.encode(video, path, 12.5, comment='{"prompt": "été"}')
    about = media.probe(path)
    assert (about.codec, about.pixel_format, about.width, about.height) == ("h264", "yuv420p", 96, 64)
    assert (about.fps, about.frames, about.audio, about.hdr) == (12.5, 12, False, False)
    assert media.read_comment(path) == '{"prompt": "été"}'
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    assert np.abs(media.read_frames(path, range(12)).astype(int) - video).mean() < 4
    assert [entry.name for entry in path.parent.iterdir()] == ["clip.mp4"]


def test_colors_survive_the_round_trip(tmp_path: Path) -> None:
    for color in ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0), (200, 120, 40)):
        media.encode(np.full((2, 32, 32, 3), color, np.uint8), tmp_path / "plain.mp4", 8)
        shown = media.read_frames(tmp_path / "plain.mp4", [1])[0, 16, 16].astype(int)
        assert np.abs(shown - color).max() <= 4, (color, shown)


def test_odd_sizes_gain_a_row_and_a_column(tmp_path: Path) -> None:
    media.encode(draw(3, (65, 49)), tmp_path / "odd.mp4", 8)
    assert media.read_frames(tmp_path / "odd.mp4", [0]).shape == (1, 50, 66, 3)


@pytest.mark.parametrize("size", [(48, 64), (200, 120)])
def test_frames_by_number_are_those_of_reading_from_the_start(
    tmp_path: Path, make_clip: MakeClip, size: tuple[int, int]
) -> None:
    path, wanted = make_clip(tmp_path / "clip.mp4", 65, size), [60, 3, 33, 3]
    every = np.stack([picture for _, picture in media.decode(path)])
    assert np.array_equal(media.read_frames(path, wanted), every[wanted])


def test_reducing_averages_so_that_nothing_flickers(tmp_path: Path) -> None:
    stripes = np.zeros((2, 128, 128, 3), np.uint8)
    stripes[:, :, ::2] = 255
    media.encode(stripes, tmp_path / "stripes.mp4", 8, crf=0)
    small = media.read_frames(tmp_path / "stripes.mp4", [0], resize=(32, 48), crop=(0, 8, 32, 32))
    assert small.shape == (1, 32, 32, 3)
    assert np.abs(small[:, 2:-2, 2:-2].astype(int) - 127).max() < 12


def test_a_frame_that_is_not_there_is_named(tmp_path: Path, make_clip: MakeClip) -> None:
    with pytest.raises(DataError, match="has no frame 40"):
        media.read_frames(make_clip(tmp_path / "clip.mp4"), [0, 40])


def test_failed_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path, make_clip: MakeClip) -> None:
    path = make_clip(tmp_path / "clip.mp4")
    before = path.read_bytes()
    with pytest.raises(KeyError), media.VideoWriter(path, 64, 64, 8, crf=14):
        raise KeyError
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["clip.mp4"]
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="cannot write"):
        media.encode(draw(2), tmp_path / "file" / "clip.mp4", 8)


def test_importing_media_loads_nothing_heavy() -> None:
    import subprocess

    code = "import sys, workbench.clips.media, workbench.dataset_builder as d; d.Dataset; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"av", "decord", "numpy", "PIL", "torch", "gradio"} & set(loaded)
