"""Measures of clips with known faults: the faulty ones stand out, the good ones do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder import footage
from workbench.clips import Clip, read_clips
from workbench.dataset_builder import signals
from workbench.dataset_builder.measures import FILE, FOLDER, Measures, measure, measure_all, read_measures


def measured(folder: Path, video: np.ndarray) -> Measures:
    dataset = footage.write_footage(folder, {"it": video}, {})
    return measure(dataset, read_clips(dataset)[0])


def test_an_even_pan_is_clean(tmp_path: Path) -> None:
    found = measured(tmp_path, footage.pan(1))
    assert found.motion > 2
    assert (found.still, found.flashes, found.cuts, found.borders) == (0, (), (), None)
    assert found.shake < 0.3
    assert found.blur < 0.45


def test_faults_are_measured_where_they_are(tmp_path: Path) -> None:
    assert measured(tmp_path / "still", footage.still(1)).still == 1
    assert measured(tmp_path / "shaky", footage.shaky(1)).shake > 1.5
    assert measured(tmp_path / "blurred", footage.blurred(1)).blur > 0.6
    first, over, height = measured(tmp_path / "flash", footage.flashing(1)).flashes[0]
    assert (first, over) == (10, 12)
    assert height > 50
    assert [frame for frame, times in measured(tmp_path / "cut", footage.cut(1, 2, 3)).cuts if times > 2.5] == [12, 24]
    assert measured(tmp_path / "bars", footage.barred(1)).borders == (0, 16, footage.WIDTH, footage.HEIGHT - 32)


def test_a_flash_is_no_cut_and_a_brighter_scene_no_flash(tmp_path: Path) -> None:
    assert measured(tmp_path / "flash", footage.flashing(1)).cuts == ()
    brighter = footage.cut(1, 2)
    brighter[12:] = np.minimum(brighter[12:], 175) + 80
    found = measured(tmp_path / "cut", brighter)
    assert [frame for frame, _ in found.cuts] == [12]
    assert found.flashes == ()


def test_copies_are_told_from_clips_that_are_merely_dark() -> None:
    scene, other = footage.ground(1), footage.ground(2)
    grain = np.random.default_rng(0).normal(0, 10, scene.shape)
    grainy = np.clip(scene + grain, 0, 255).astype(np.uint8)
    dark, darker = scene // 12, other // 12
    prints = [signals.fingerprint([picture] * 4) for picture in (scene, other, grainy, dark, darker)]
    assert signals.alike(prints, 0.15) == [[0, 2]]


def test_a_clip_is_measured_once_and_one_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    dataset = footage.write_footage(tmp_path, {"a": footage.pan(1), "b": footage.still(2), "bad": footage.pan(3)}, {})
    (dataset / "clips" / "bad.mp4").write_bytes(b"nothing")
    clips, seen = read_clips(dataset), list[tuple[int, int]]()
    found = measure_all(dataset, clips, lambda *progress: seen.append(progress))
    assert seen[0] == (0, 3)
    assert seen[-1] == (3, 3)
    assert "not a video" in found[clips[2].sha256].error
    with (dataset / FOLDER / FILE).open("a") as file:
        file.write('{"sha256": "torn')
    (dataset / "clips" / "a.mp4").unlink()
    copy = Clip(file_name="clips/b.mp4", frames=24, fps=8, sha256="new")
    again = measure_all(dataset, [*clips, copy], lambda *progress: seen.append(progress))
    assert seen[-1] == (1, 1)
    assert again.pop("new").still == 1
    assert again == found
    assert set(read_measures(dataset)) == {*found, "new"}


def test_what_was_measured_before_a_stop_stays(tmp_path: Path) -> None:
    dataset = footage.write_footage(tmp_path, {name: footage.pan(i, 8) for i, name in enumerate("abcdefgh")}, {})

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_all(dataset, read_clips(dataset), stop)
    assert len(read_measures(dataset)) == 2
