"""A memorized clip is told from one that only resembles the training clips."""

from __future__ import annotations

import numpy as np

from tests.drawing import draw
from tests.written_run import write_run
from workbench.clips import media
from workbench.clips.records import Clip
from workbench.compare import measurements
from workbench.dataset_builder import Dataset
from workbench.workspace import Workspace, write_json


def lock(dataset: Dataset) -> list[dict[str, object]]:
    """As a run of these clips writes it: frames 4 to 12, scaled to 48 and cut to 40 pixels of width."""
    return [
        {
            "file_name": clip.file_name, "name": clip.name, "sha256": clip.sha256, "caption": clip.text,
            "role": "train", "indices": list(range(4, 13)), "resize": [48, 48], "crop": [0, 4, 48, 40],
        }
        for clip in dataset.clips
    ]  # fmt: skip


def test_a_training_clip_is_found_again(workspace: Workspace, dataset: Dataset) -> None:
    run = write_run(workspace, "cats", 20)
    run.settings.changed(dataset=dataset.name).save(run.folder / "config.json")
    write_json(run.folder / "dataset.lock.json", lock(dataset))
    kept = run.folder / "prints.json"
    clips = measurements.trained_on(workspace, run, kept)
    assert len(clips) == 6
    clip: Clip = dataset.clips[2]
    frames = media.read_frames(dataset.path_of(clip), list(range(4, 13)), (48, 48), (0, 4, 48, 40))
    noise = np.random.default_rng(0).integers(-6, 7, frames.shape)
    again = workspace.root / "again.mp4"
    media.encode((frames.astype(int) + noise).clip(0, 255).astype(np.uint8), again, 8)
    other = workspace.root / "other.mp4"
    media.encode(draw(9, (40, 48), "yellow", ground=(10, 60, 160)), other, 8)
    usually = measurements.usual_difference(clips)
    copied = measurements.nearest_clip(measurements.of_video(again)["signature"], clips, usually)
    apart = measurements.nearest_clip(measurements.of_video(other)["signature"], clips, usually)
    assert (copied["nearest"], copied["copied"]) == (clip.name, True)
    assert copied["nearest_difference"] < 0.15
    assert not apart["copied"]
    assert apart["nearest_difference"] > measurements.NEAR
    before = kept.stat().st_mtime_ns
    assert measurements.trained_on(workspace, run, kept) == clips
    assert kept.stat().st_mtime_ns == before, "signatures are made once"
