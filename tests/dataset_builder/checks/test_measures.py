"""Measures of clips with known faults: the faulty ones stand out, the good ones do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder import footage
from workbench.clips import frame_metrics, media
from workbench.clips.records import Clip, read_clips
from workbench.dataset_builder.checks import measures
from workbench.dataset_builder.checks.measures import FILE, FOLDER, Measures, measure, measure_all, read_measures
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.cuts import scenes
from workbench.dataset_builder.parallel import ClipProgress

DEMO = Path(__file__).parents[3] / "assets" / "demo_clips"
ALIKE = (
    "16_*",
    "25_*",
    "27_*",
    "40_*",
    "46_*",
    "49_*",
    "50_*",
    "54_*",
)  # the likest ones
THRESHOLD = CheckSettings().near_duplicate


def measured(folder: Path, video: np.ndarray) -> Measures:
    dataset = footage.write_footage(folder, {"it": video}, {})
    return measure(dataset, read_clips(dataset)[0])


def test_an_even_pan_is_clean(tmp_path: Path) -> None:
    found = measured(tmp_path, footage.pan(1))
    assert found.motion > 2
    assert (found.still, found.flashes, found.cuts, found.letterbox) == (0, (), (), None)
    assert found.shake < 0.3
    assert found.blur < 0.45


def test_faults_are_measured_where_they_are(tmp_path: Path) -> None:
    assert measured(tmp_path / "still", footage.still(1)).still == 1
    assert measured(tmp_path / "shaky", footage.shaky(1)).shake > 1.5
    assert measured(tmp_path / "blurred", footage.blurred(1)).blur > 0.6
    first, over, height = measured(tmp_path / "flash", footage.flashing(1)).flashes[0]
    assert (first, over) == (10, 12)
    assert height > 50
    assert [frame for frame, _ in measured(tmp_path / "cut", footage.cut(1, 2, 3)).cuts] == [12, 24]
    assert measured(tmp_path / "bars", footage.barred(1)).letterbox == (0, 16, footage.WIDTH, footage.HEIGHT - 32)


def test_shake_is_told_from_what_moves_on_its_own(tmp_path: Path) -> None:
    assert measured(tmp_path / "calm", footage.crowd(1)).shake < 0.5
    assert measured(tmp_path / "shaky", footage.crowd(1, jerk=5)).shake > 1.5


def test_cuts_are_those_that_splitting_finds(tmp_path: Path) -> None:
    video = np.concatenate([footage.pan(1, 12), footage.pan(2, 3), footage.pan(3, 12), footage.pan(4, 1)])
    found = measured(tmp_path, video).cuts
    scores = scenes.scores(tmp_path / "clips" / "it.mp4", "adaptive", tmp_path)
    assert [frame for frame, _ in found] == scenes.cuts(scores, scenes.DETECTORS["adaptive"].threshold) == [12, 15, 27]
    assert [score for _, score in found] == pytest.approx([scores[frame] for frame, _ in found], abs=0.01)


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
    prints = [frame_metrics.fingerprint([picture] * 4) for picture in (scene, other, grainy, dark, darker)]
    assert frame_metrics.alike(prints, 0.15) == [[0, 2]]


def test_demo_clips_written_anew_are_copies_and_no_two_of_them_are(tmp_path: Path) -> None:
    """Flat colours that hardly differ: orange on red, yellow on orange."""
    clips = sorted(clip for pattern in ALIKE for clip in (DEMO / "known").glob(f"{pattern}.mp4"))
    clips += sorted((DEMO / "stripes").glob("*.mp4"))
    assert len(clips) == 32
    anew = clips[:12]
    for number, clip in enumerate(anew):
        media.encode(np.stack([picture for _, picture in media.decode(clip)]), tmp_path / f"{number}.mp4", 8, crf=18)
    prints = [print_of(clip) for clip in (*clips, *(tmp_path / f"{number}.mp4" for number in range(len(anew))))]
    found = frame_metrics.alike(prints, THRESHOLD)
    assert found == [[number, len(clips) + number] for number in range(len(anew))]


def print_of(path: Path) -> bytes:
    clip = Clip(file_name=path.name, sha256="it", fps=8, frames=9)
    return measure(path.parent, clip).print_bytes


def test_a_clip_is_measured_once_and_one_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    dataset = footage.write_footage(tmp_path, {"a": footage.pan(1), "b": footage.still(2), "bad": footage.pan(3)}, {})
    (dataset / "clips" / "bad.mp4").write_bytes(b"nothing")
    clips, seen = read_clips(dataset), list[ClipProgress]()
    found = measure_all(dataset, clips, seen.append)
    assert seen[-1].items == "3 of 3"
    assert seen[-1].frames == seen[-1].total == 3 * footage.FRAMES
    assert "not a video" in found[clips[2].sha256].error
    with (dataset / FOLDER / FILE).open("a") as file:
        file.write('{"sha256": "torn')
    (dataset / "clips" / "a.mp4").unlink()
    copy = Clip(file_name="clips/b.mp4", frames=24, fps=8, sha256="new")
    again = measure_all(dataset, [*clips, copy], seen.append)
    assert seen[-1].items == "1 of 1"
    assert again.pop("new").still == 1
    assert again == found
    assert set(read_measures(dataset)) == {*found, "new"}


def test_a_clip_that_brings_its_reader_down_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a", "crash", "b", "crash too")
    dataset = footage.write_footage(tmp_path, {name: footage.pan(i, 4) for i, name in enumerate(names)}, {})
    monkeypatch.setattr(measures, "WORKER", "tests.dataset_builder.fragile_measuring")
    clips = read_clips(dataset)
    found = measure_all(dataset, clips)
    errors = {Path(clip.file_name).stem: found[clip.sha256].error for clip in clips}
    assert {name for name, error in errors.items() if not error} == {"a", "b"}
    assert all("brought the decoder down" in errors[name] for name in ("crash", "crash too"))
    assert {one.sha256 for one in read_measures(dataset).values()} == {clip.sha256 for clip in clips}


def test_a_stop_does_not_wait_for_a_long_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = footage.write_footage(tmp_path, {"a": footage.pan(1, 4), "long": footage.pan(2, 4)}, {})
    monkeypatch.setattr(measures, "WORKER", "tests.dataset_builder.fragile_measuring")

    def stop(now: ClipProgress) -> None:
        if now.items == "1 of 2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_all(dataset, read_clips(dataset), stop)  # the long one would take longer than a test may
    assert len(read_measures(dataset)) == 1


def test_what_was_measured_before_a_stop_stays(tmp_path: Path) -> None:
    dataset = footage.write_footage(tmp_path, {name: footage.pan(i, 8) for i, name in enumerate("abcdefgh")}, {})

    def stop(now: ClipProgress) -> None:
        seen.append(int(now.items.split()[0]))
        if seen[-1] >= 2:
            raise KeyboardInterrupt

    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        measure_all(dataset, read_clips(dataset), stop)
    assert len(read_measures(dataset)) == seen[-1] < 8
