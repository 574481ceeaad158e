"""SAT's reader takes every clip of our WebDataset shards, with its caption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder.sat_reader import taken
from tests.drawing import draw
from workbench.clips import media
from workbench.clips.records import Clip, file_sha256, write_clips
from workbench.dataset_builder.export.files import export
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.sources.layouts import shards
from workbench.dataset_builder.sources.survey import survey

RATES = (8, 12.5, 15, 23.976, 24, 25, 29.97, 30)
FPS, FRAMES = 8, 5  # what SAT is told in the tests


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 clips of eight rates, each from barely long enough for SAT to a little longer."""
    folder = tmp_path_factory.mktemp("many") / "many"
    clips = []
    for number in range(64):
        fps = RATES[number % 8]
        count = int(np.ceil(FRAMES / FPS * fps)) + number // 8
        path = folder / "clips" / f"{number:016x}.mp4"
        media.encode(draw(count), path, fps)
        clips.append(
            Clip(
                file_name=f"clips/{path.name}",
                text=f"clip {number} é",
                fps=fps,
                frames=count,
                width=64,
                height=64,
                sha256=file_sha256(path),
            )
        )
    write_clips(folder, clips)
    return folder


def test_sat_takes_all_64_clips_of_our_shards(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_CLIPS", 40)
    folder = export(many, ExportSettings(layout="webdataset", target=str(tmp_path / "shards")))
    found = [one for tar in sorted(folder.iterdir()) for one in taken(tar, fps=FPS, num_frames=FRAMES)]
    assert [one.caption for one in found] == [f"clip {number} é" for number in range(64)]
    assert {one.frames.shape for one in found} == {(FRAMES, 64, 64, 3)}
    # A trainer that is set up for records beside the shards reads ours as well.
    tar = next(folder.iterdir())
    assert taken(tar, fps=FPS, num_frames=FRAMES, meta_names=("caption", "duration", "fps"))
    assert [source.caption for source in survey([folder]).sources] == [f"clip {number} é" for number in range(64)]
