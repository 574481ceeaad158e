"""Cutting clips by hand, splitting them at detected cuts, and undoing both."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder.foreign import write_video
from tests.dataset_builder.scenery import joined, scenery
from tests.patience import PATIENCE
from tests.serving import ROOT
from workbench import jobs
from workbench.clips import media, records
from workbench.clips.records import Clip, read_clips, write_clips
from workbench.dataset_builder import Dataset, history
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cutting import Cut, make_part
from workbench.dataset_builder.cuts.scenes import DETECTORS, DetectorName, cuts, filmstrip, plan_split, scores
from workbench.dataset_builder.settings import SplitSettings
from workbench.errors import ConfigError, DataError
from workbench.workspace import Workspace, read_json

FRAMES, FPS, SIZE = 75, 24, (128, 96)


@pytest.fixture(scope="session")
def panorama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder of one natural-looking clip, 75 frames of 128x96 at 24 fps; never change it."""
    base = tmp_path_factory.mktemp("panorama")
    write_video(base / "pan.mp4", scenery(1, FRAMES, SIZE), fps=FPS, options={"crf": "12"})
    (base / "pan.txt").write_text("hills")
    dataset = Dataset.create(Workspace.open(base / "workspace"), "Pan")
    dataset.import_files([base / "pan.mp4"])
    return dataset.folder


@pytest.fixture
def folder(tmp_path: Path, panorama: Path) -> Path:
    import shutil

    return Path(shutil.copytree(panorama, tmp_path / "pan"))


def only(folder: Path) -> Clip:
    (clip,) = records.read_clips(folder)
    return clip


def stored(path: Path, start: int = 0, end: int | None = None) -> np.ndarray:
    """Return the frames as stored, uint8 [F, 3/2 H, W], so that no color conversion blurs the comparison."""
    return np.stack(
        [frame.to_ndarray() for _, frame in itertools.islice(media.frames_from(path, start), (end or 10**6) - start)]
    )


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Return the worst frame's PSNR in dB."""
    assert a.shape == b.shape
    errors = ((a.astype(float) - b.astype(float)) ** 2).reshape(len(a), -1).mean(axis=1)
    return float(10 * np.log10(255**2 / max(errors.max(), 1e-9)))


@pytest.mark.parametrize(("start", "end"), [(0, 2), (29, 61), (70, 75)])
def test_a_part_has_exactly_its_frames(folder: Path, start: int, end: int) -> None:
    clip = only(folder)
    new = make_part(folder, clip, Cut(start, end))
    assert psnr(stored(folder / new.file_name), stored(folder / clip.file_name)[start:end]) >= 45
    about = media.probe(folder / new.file_name)
    assert (about.frames, about.fps, new.frames, new.fps) == (end - start, FPS, end - start, FPS)
    assert new.span == pytest.approx((start / FPS, end / FPS))
    assert new.sha256 == records.file_sha256(folder / new.file_name)
    assert (folder / "thumbs" / f"{new.id}.jpg").exists()
    assert (new.text, new.caption_by, new.source) == ("hills", "file", "pan.mp4")
    assert records.read_clips(folder) == [clip]


def test_crop_and_rate_take_the_right_pixels_and_frames(folder: Path) -> None:
    clip = only(folder)
    whole = media.read_frames(folder / clip.file_name, range(FRAMES))
    new = make_part(folder, clip, Cut(5, 53, crop=(16, 8, 64, 48), fps=8))
    assert (new.frames, new.fps, new.width, new.height, new.crop) == (16, 8, 64, 48, (16, 8, 64, 48))
    wanted = whole[6:53:3, 8:56, 16:80]  # the middle one of every three
    assert psnr(media.read_frames(folder / new.file_name, range(16)), wanted) >= 40  # colors have half the pixels
    uneven = make_part(folder, clip, Cut(0, 75, fps=25 * 24 / 30))
    assert uneven.frames == 62
    assert media.probe(folder / uneven.file_name).frames == 62


def test_the_colors_stay_whatever_they_are_called(tmp_path: Path) -> None:
    """A file without color tags is imported byte for byte; its parts must keep the same colors."""
    write_video(tmp_path / "plain.mp4", scenery(2, 12), fps=12)
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Plain")
    assert dataset.import_files([tmp_path / "plain.mp4"])[0].outcome == "taken"
    new = make_part(dataset.folder, dataset.clips[0], Cut(3, 9))
    given = media.read_frames(tmp_path / "plain.mp4", range(3, 9))
    assert psnr(media.read_frames(dataset.folder / new.file_name, range(6)), given) >= 40


def test_a_span_can_be_widened_again_and_all_taken_back(folder: Path) -> None:
    first = only(folder)
    whole = stored(folder / first.file_name)
    short = cutting.trim(folder, first, 1.0, 1.5)
    assert records.read_clips(folder) == [short]
    assert short.master == f".masters/{first.id}.mp4"
    wide = cutting.trim(folder, short, 0.5, 2.51)
    assert (wide.frames, wide.master) == (48, short.master)
    assert psnr(stored(folder / wide.file_name), whole[12:60]) >= 45
    cropped = cutting.crop(folder, [wide], (0, 0, 64, 96))[0]
    assert (cropped.span, cropped.width) == (wide.span, 64)
    slow = cutting.set_fps(folder, [cropped], 12)[0]
    assert (slow.fps, slow.frames, slow.crop) == (12, 24, cropped.crop)
    assert cutting.set_fps(folder, [slow], None)[0].file_name == cropped.file_name
    back = cutting.reset_cut(folder, records.read_clips(folder))[0]
    assert back == first
    assert (folder / first.file_name).exists()
    for _ in range(6):
        history.undo(folder, history.undoable(folder)[0].number)
    assert records.read_clips(folder) == [first]
    assert sorted(path.name for path in (folder / "clips").iterdir()) == [f"{first.id}.mp4"]
    assert (folder / ".masters" / f"{first.id}.mp4").samefile(folder / first.file_name)


def test_the_same_part_made_twice_is_one_file(folder: Path) -> None:
    clip = only(folder)
    one = make_part(folder, clip, Cut(3, 9))
    changed = (folder / one.file_name).stat().st_mtime_ns
    assert make_part(folder, clip, Cut(3, 9)) == one
    assert (folder / one.file_name).stat().st_mtime_ns == changed
    cutting.trim(folder, clip, 3 / FPS, 9 / FPS)
    history.undo(folder, history.undoable(folder)[0].number)
    again = cutting.trim(folder, only(folder), 3 / FPS, 9 / FPS)  # its file comes back from .removed
    assert again == one
    assert (folder / one.file_name).stat().st_mtime_ns == changed


def test_a_split_is_one_change_and_joins_again(folder: Path) -> None:
    first = only(folder)
    parts = cutting.split(folder, first, [(0, 1), (1, 2), (2, 3)])
    assert records.read_clips(folder) == parts
    assert [part.frames for part in parts] == [24, 24, 24]
    assert len(history.undoable(folder)) == 1
    with pytest.raises(ConfigError, match="is already in the dataset"):
        cutting.trim(folder, parts[0], 1, 2)
    assert cutting.reset_cut(folder, parts) == [first]
    assert records.read_clips(folder) == [first]


def test_a_caption_written_meanwhile_is_kept(folder: Path) -> None:
    old = only(folder)
    part = make_part(folder, old, Cut(0, 12))
    history.change(folder, "caption", {old.file_name: [old.changed(text="valleys", caption_by="hand", tags=("a",))]})
    new = cutting.replace(folder, "cut", {old.file_name: [part]})[0]
    assert (new.text, new.caption_by, new.tags, new.span) == ("valleys", "hand", ("a",), part.span)


def test_a_change_that_changes_nothing_is_none(folder: Path) -> None:
    clip = only(folder)
    assert cutting.trim(folder, clip, 0, FRAMES / FPS) == clip
    assert cutting.crop(folder, [clip], (0, 0, *SIZE)) == [clip]
    assert history.undoable(folder) == []


def test_another_master_of_the_same_name_is_left_alone(folder: Path) -> None:
    clip = only(folder)
    other = folder / ".masters" / f"{clip.id}.mp4"
    other.parent.mkdir()
    other.write_bytes(b"another video")
    new = cutting.trim(folder, clip, 0, 1)
    assert other.read_bytes() == b"another video"
    assert records.file_sha256(folder / new.master) == clip.sha256
    assert cutting.reset_cut(folder, [new])[0].sha256 == clip.sha256


def test_illegal_cuts_name_the_nearest_legal_one(folder: Path) -> None:
    clip = only(folder)
    with pytest.raises(ConfigError, match=r"the span is 1 to 9 s, .* 0 to 3.125 s .*: use 1 to 3.125 s"):
        cutting.trim(folder, clip, 1, 9)
    with pytest.raises(ConfigError, match=r"the span is 2 to 2 s, .* 2 frames or more: use 2 to 2.08333 s"):
        cutting.trim(folder, clip, 2, 2.01)
    with pytest.raises(ConfigError, match=r"the crop is 3, 0, 101, 90 .*: use 2, 0, 100, 90"):
        cutting.crop(folder, [clip], (3, 0, 101, 90))
    with pytest.raises(ConfigError, match=r"the crop is 120, 90, 8, 300 .* inside 128x96 .*: use 112, 0, 16, 96"):
        cutting.crop(folder, [clip], (120, 90, 8, 300))
    with pytest.raises(ConfigError, match="fps is 30, but the source video has only 24: use 24 or less"):
        cutting.set_fps(folder, [clip], 30)
    with pytest.raises(ConfigError, match=r"fps is 0.1, which leaves fewer than 2 frames: use 0.64 or more"):
        cutting.set_fps(folder, [clip], 0.1)
    assert not (folder / ".masters").exists()


def test_a_picture_can_be_cropped_but_not_split(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    media.encode(scenery(1, 1), tmp_path / "clips/a.mp4", 8)
    picture = Clip(file_name="clips/a.mp4", frames=1, fps=8, width=128, height=96)
    records.write_clips(tmp_path, [picture])
    with pytest.raises(ConfigError, match="is a picture: only videos can be split"):
        cutting.split(tmp_path, picture, [(0, 1)])
    assert cutting.crop(tmp_path, [picture], (0, 0, 64, 64))[0].frames == 1


def test_a_lost_recording_is_told(folder: Path) -> None:
    new = cutting.trim(folder, only(folder), 0, 1)
    (folder / new.master).unlink()
    with pytest.raises(DataError, match=r"the source video of pan\.mp4 0:00-0:01 is missing .*: import it again"):
        cutting.trim(folder, new, 0, 2)


def test_an_odd_rate_keeps_its_frames(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    with media.VideoWriter(tmp_path / "clips/a.mp4", 128, 96, Fraction(30000, 1001)) as writer:
        for picture in scenery(4, 200, speed=1):
            writer.write(media.bt709_frame(picture))
    clip = Clip(file_name="clips/a.mp4")
    whole = stored(tmp_path / clip.file_name)
    new = make_part(tmp_path, clip, Cut(137, 199))
    assert psnr(stored(tmp_path / new.file_name), whole[137:199]) >= 45


# ---- scenes


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
    """Tools that cut a frame too early or too late leave them."""
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
    for at, (_, frame) in zip(times, media.raw_frames(tmp_path / "joined.mp4"), strict=True):
        found += [cut.frame_num for cut in theirs.process_frame(at, frame.to_ndarray(format="bgr24"))]
    ours = scores(tmp_path / "joined.mp4", detector, tmp_path)
    assert cuts(ours, DETECTORS[detector].threshold) == found == [30, 50]
    key = "content_val" if detector == "content" else theirs.get_metrics()[-1]
    kept = [theirs.stats_manager.get_metrics(times[number], [key])[0] for number in found]
    assert ours[found] == pytest.approx(kept, rel=0.001)


def test_damaged_scores_are_made_again_and_none_are_in_a_format_that_threads_cannot_read(tmp_path: Path) -> None:
    """numpy's header is a Python expression, which several threads of Python 3.11 cannot always parse at once."""
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
    """Draw frame n in gray level 20 + n * 200 / frames, so that a frame shows its number."""
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


def test_a_part_of_half_an_hour_is_exact_and_costs_its_own_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media.encode(brightening(1800), tmp_path / "clips/long.mp4", 1)
    decoded, onward = list[int](), media.frames_onward

    def counting(*arguments: Any) -> Iterator[tuple[int, Any]]:
        for number, frame in onward(*arguments):
            decoded.append(number)
            yield number, frame

    monkeypatch.setattr(media, "frames_onward", counting)
    part = make_part(tmp_path, Clip(file_name="clips/long.mp4"), Cut(1790, 1798))
    assert len(decoded) <= 8 + 31 + 31, "its own frames, and from a keyframe to that of the thumbnail"
    levels = media.read_frames(tmp_path / part.file_name, [0, 7]).mean(axis=(1, 2, 3))
    assert levels == pytest.approx([20 + number * 200 / 1800 for number in (1790, 1797)], abs=2)


# ---- splitting


LENGTHS = {"one": (24, 30, 5, 27), "two": (16, 40), "three": (33,), "four": (4, 4, 4)}
RATE = 8


@pytest.fixture(scope="session")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder of four clips with hard cuts as in LENGTHS, and a picture; never change it."""
    shots = tmp_path_factory.mktemp("footage")
    records = []
    for number, (name, lengths) in enumerate(LENGTHS.items()):
        media.encode(joined(lengths, seed=10 * number)[0], shots / f"clips/{name}.mp4", RATE)
        records.append(
            Clip(file_name=f"clips/{name}.mp4", text=name, source=f"{name}.mov", frames=sum(lengths), fps=RATE)
        )
    media.encode(scenery(1, 1), shots / "clips/still.mp4", RATE)
    records.append(Clip(file_name="clips/still.mp4", source="still.png", frames=1, fps=RATE))
    write_clips(shots, records)
    return shots


@pytest.fixture
def shots(tmp_path: Path, footage: Path) -> Path:
    return Path(shutil.copytree(footage, tmp_path / "dataset"))


def run(shots: Path, settings: SplitSettings) -> jobs.Status:
    """Run the split as a real job in its own process."""
    settings.save(shots / ".split" / jobs.CONFIG)
    jobs.start(shots / ".split", "workbench.dataset_builder")
    return jobs.wait(shots / ".split", PATIENCE)


def test_the_plan_says_what_would_be_done_and_does_nothing(shots: Path) -> None:
    before = read_clips(shots)
    one, two, three, four, still = plan_split(shots, SplitSettings(min_seconds=1))
    assert (one.spans, one.dropped) == (((0, 24), (24, 54), (59, 86)), ((54, 59),))
    assert one.sentence == "one.mov: 3 pieces, too short: 6.75 to 7.38 s"
    assert two.spans == ((0, 16), (16, 56))
    assert three.sentence == "three.mov stays unchanged: one shot"
    assert four.sentence.startswith("four.mov stays unchanged: none of its ")
    assert still.sentence == "still.png stays unchanged: a picture"
    assert read_clips(shots) == before
    assert len(list((shots / "clips").iterdir())) == 5


def test_long_shots_become_equal_pieces_and_windows_leave_a_rest(shots: Path) -> None:
    (plan,) = plan_split(shots, SplitSettings(clips=("two",), max_seconds=2))
    assert plan.spans == ((0, 16), (16, 29), (29, 43), (43, 56))
    windows = SplitSettings(clips=("two", "clips/three.mp4"), mode="windows", window_seconds=3)
    two, three = plan_split(shots, windows)
    assert (two.spans, two.dropped) == (((0, 24), (24, 48), (48, 56)), ())
    assert (three.spans, three.dropped) == (((0, 24), (24, 33)), ())
    assert plan_split(shots, windows.changed(min_seconds=1.5))[0].dropped == ((48, 56),)


def test_the_job_splits_all_in_one_change(shots: Path) -> None:
    before = read_clips(shots)
    status = run(shots, SplitSettings(min_seconds=1))
    assert status.state == jobs.State.FINISHED, jobs.log_tail(shots / ".split")
    result = read_json(shots / ".split" / jobs.RESULT)
    assert (result["clips"], result["parts"], result["failed"]) == (2, 5, [])
    assert "one.mov: 3 pieces, too short: 6.75 to 7.38 s" in result["splits"]
    now = read_clips(shots)
    assert [clip.frames for clip in now] == [24, 30, 27, 16, 40, 33, 12, 1]
    assert [clip.text for clip in now[:5]] == ["one"] * 3 + ["two"] * 2
    assert all((shots / clip.file_name).exists() for clip in now)
    assert all(media.probe(shots / clip.file_name).frames == clip.frames for clip in now)
    history.undo(shots, history.undoable(shots)[0].number)
    assert read_clips(shots) == before
    assert plan_split(shots, SplitSettings(clips=("one",)))[0].spans == ((0, 24), (24, 54), (59, 86))


def test_parts_are_split_again_with_their_crop_and_rate(shots: Path) -> None:
    from workbench.dataset_builder.cuts import cutting

    clip = read_clips(shots)[0]
    part = cutting.trim(shots, clip, 1, 8)  # frames 8 to 64, with cuts at 24, 54 and 59
    part = cutting.set_fps(shots, cutting.crop(shots, [part], (32, 0, 64, 96)), 4)[0]
    (plan,) = plan_split(shots, SplitSettings(clips=(part.id,)))
    assert plan.spans == ((8, 24), (24, 54))
    assert run(shots, SplitSettings(clips=(part.id,))).state == jobs.State.FINISHED
    now = read_clips(shots)[:2]
    assert [(c.fps, c.frames, c.crop, c.span) for c in now] == [
        (4, 8, (32, 0, 64, 96), (1, 3)),
        (4, 15, (32, 0, 64, 96), (3, 6.75)),
    ]


def test_a_damaged_clip_costs_only_itself(shots: Path) -> None:
    path = shots / "clips/one.mp4"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)
    one, two, *_ = plan_split(shots, SplitSettings())
    assert "one.mov stays unchanged: frame " in one.sentence or "damaged" in one.sentence
    assert len(two.spans) == 2
    path.unlink()
    assert "the source video of one.mov is missing" in plan_split(shots, SplitSettings(clips=("one",)))[0].sentence


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (SplitSettings(clips=("gone",)), "there is no clip 'gone' in this dataset"),
        (
            SplitSettings(min_seconds=2, max_seconds=3),
            r"max_seconds is 3, must be at least twice .*: use 4",
        ),
        (SplitSettings(mode="windows", window_seconds=1, min_seconds=2), r"window_seconds is 1, .*: use 2"),
        (SplitSettings(detector="hash", threshold=27), "threshold is 27, must be 0.1 to 0.8 .*: the default is 0.35"),
    ],
)
def test_settings_that_cannot_be_met(shots: Path, settings: SplitSettings, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_split(shots, settings)
