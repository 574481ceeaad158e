"""GIF, animated WebP and APNG become clips at the rate of their frames; those of one frame stay pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.ingest import canonical
from workbench.dataset_builder.ingest.canonical import convert
from workbench.errors import DataError
from workbench.workspace import Workspace

SAVE: dict[str, dict[str, Any]] = {"gif": {"disposal": 2}, "webp": {"lossless": True, "kmin": 0, "kmax": 1}, "png": {}}
RED, GREEN = (250, 10, 10, 255), (10, 200, 10, 255)


def animation(path: Path, frames: int = 6, duration: int | list[int] = 80, clear: bool = False) -> Path:
    """A red picture over which a green bar moves; clear: its background is transparent."""
    pictures = []
    for number in range(frames):
        picture = Image.new("RGBA", (64, 48), (0, 0, 0, 0) if clear else RED)
        picture.paste(GREEN, (8 * number, 8, 8 * number + 8, 40))
        pictures.append(picture)
    more = {} if frames == 1 else {"save_all": True, "append_images": pictures[1:], "duration": duration}
    pictures[0].save(path, **more, **SAVE[path.suffix[1:]])
    return path


@pytest.mark.parametrize("kind", SAVE)
def test_an_animation_is_a_clip_at_the_rate_of_its_frames(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "clip.mp4"
    made = convert(animation(tmp_path / f"a.{kind}"), target)
    assert (made.fps, made.frames, made.width, made.height) == (12.5, 6, 64, 48)
    shown = media.read_frames(target, range(6))
    for number, frame in enumerate(shown):
        assert abs(frame[24, 8 * number + 4].astype(int) - GREEN[:3]).max() < 40
        assert abs(frame[4, 60].astype(int) - RED[:3]).max() < 40


@pytest.mark.parametrize("kind", SAVE)
def test_what_is_transparent_becomes_white_and_the_result_says_so(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "clip.mp4"
    made = convert(animation(tmp_path / f"a.{kind}", clear=True), target)
    assert "transparent parts made white" in made.changes
    frames = media.read_frames(target, range(made.frames))
    assert np.all(frames[:, 2:6, 2:60] > 235)


@pytest.mark.parametrize("kind", SAVE)
def test_one_frame_is_a_picture(tmp_path: Path, kind: str) -> None:
    made = convert(animation(tmp_path / f"a.{kind}", frames=1), tmp_path / "clip.mp4")
    assert made.frames == 1
    assert "a picture" in made.changes[0]


def test_uneven_times_are_evened_and_a_size_is_kept_to(tmp_path: Path) -> None:
    made = convert(animation(tmp_path / "a.webp", duration=[100, 100, 300, 100, 100, 100]), tmp_path / "clip.mp4", 32)
    assert (made.fps, made.width, made.height) == (10, 32, 24)
    assert made.frames >= 7
    assert any("evened to 10 fps" in change for change in made.changes)
    assert "scaled down from 64x48 as asked" in made.changes


def test_an_animated_webp_has_the_limits_of_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = animation(tmp_path / "a.webp", duration=1000)
    with monkeypatch.context() as patch:
        patch.setattr(canonical, "MAX_SECONDS", 2.0)
        with pytest.raises(DataError, match="too long"):
            convert(source, tmp_path / "clip.mp4")
    monkeypatch.setattr("workbench.dataset_builder.ingest.pictures.MAX_PIXELS", 1000)
    with pytest.raises(DataError, match="too large: 64x48"):
        convert(source, tmp_path / "clip.mp4")


def test_a_folder_of_animations_is_imported(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for kind in SAVE:
        animation(given / f"{kind}.{kind}", duration=100)
    (given / "torn.webp").write_bytes((given / "webp.webp").read_bytes()[:120])
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Moving")
    results = {Path(one.source).name: one for one in dataset.import_files([given])}
    assert {name: one.outcome for name, one in results.items()} == {
        "gif.gif": "converted",
        "png.png": "converted",
        "webp.webp": "converted",
        "torn.webp": "refused",
    }
    assert [clip.frames for clip in dataset.clips] == [6, 6, 6]
    assert {clip.fps for clip in dataset.clips} == {10}
