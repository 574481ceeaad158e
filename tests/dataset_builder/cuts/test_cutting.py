"""Parts are exact to the frame and look like their source video; nothing is lost; every change can be taken back."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder.foreign import write_video
from tests.dataset_builder.scenery import scenery
from workbench.clips import media, records
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset, history
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cutting import Cut, checked, make_part, master_of
from workbench.dataset_builder.cuts.scenes import frames_from
from workbench.errors import ConfigError, DataError
from workbench.workspace import Workspace

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
    """Frames as they are stored, uint8 [F, 3/2 H, W]: no conversion of colors blurs the comparison."""
    return np.stack(
        [frame.to_ndarray() for _, frame in itertools.islice(frames_from(path, start), (end or 10**6) - start)]
    )


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """The worst frame's, dB."""
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
    """A file whose colors have no name is taken byte for byte; its parts must not be shown in others."""
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
    with pytest.raises(ConfigError, match="is in the dataset already"):
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
    with pytest.raises(ConfigError, match="fps is 30, the source video has 24: .*: use 24 or less"):
        cutting.set_fps(folder, [clip], 30)
    with pytest.raises(ConfigError, match=r"fps is 0.1, which leaves fewer than 2 frames: use 0.64 or more"):
        cutting.set_fps(folder, [clip], 0.1)
    assert not (folder / ".masters").exists()


def test_what_is_advised_is_legal(folder: Path) -> None:
    master = master_of(folder, only(folder))
    sides = (-7, 0, 5, 40, 127, 500)
    for box in itertools.product(sides, repeat=4):
        try:
            checked(Cut(0, 9, box), master)
        except ConfigError as error:
            left, top, width, height = map(int, str(error).rpartition("use ")[2].split(", "))
            advised = (left, top, width, height)
            assert checked(Cut(0, 9, advised), master).crop in (advised, None)


def test_a_picture_can_be_cropped_but_not_split(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    media.encode(scenery(1, 1), tmp_path / "clips/a.mp4", 8)
    picture = Clip(file_name="clips/a.mp4", frames=1, fps=8, width=128, height=96)
    records.write_clips(tmp_path, [picture])
    with pytest.raises(ConfigError, match="is one picture: only videos can be split"):
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
