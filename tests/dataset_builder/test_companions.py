"""What lies beside a clip fits it to the frame, goes with it through every cut and undo, and is never lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder.foreign import write_video
from tests.dataset_builder.scenery import scenery
from workbench.clips import media, records
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset, companions
from workbench.dataset_builder.companions import attach, attach_all, companion_path, detach, problems
from workbench.errors import ConfigError, DataError
from workbench.workspace import Workspace

FRAMES, FPS, SIZE = 48, 24, (128, 96)


def mask_video(frames: int = FRAMES, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A white box that moves to the right by two pixels a frame over black, uint8 [F, H, W, 3]."""
    width, height = size
    video = np.zeros((frames, height, width, 3), np.uint8)
    for number in range(frames):
        left = min(2 * number, width - width // 4)
        video[number, height // 4 : height // 2, left : left + width // 4] = 255
    return video


@pytest.fixture(scope="session")
def hills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of one clip, 48 frames of 128x96 at 24 fps; never change it. Beside it files that fit the clip."""
    base = tmp_path_factory.mktemp("hills")
    write_video(base / "walk.mp4", scenery(1, FRAMES, SIZE), fps=FPS, options={"crf": "12"})
    write_video(base / "edges.mkv", 255 - scenery(1, FRAMES, SIZE), fps=FPS, codec="mpeg4")
    media.encode(mask_video(), base / "mask.mp4", FPS)
    media.encode(scenery(2, 20, (64, 64)), base / "other.mp4", 12)
    Image.fromarray(scenery(3, 1, (100, 100))[0]).save(base / "face.jpg")
    dataset = Dataset.create(Workspace.open(base / "workspace"), "Hills")
    dataset.import_files([base / "walk.mp4"])
    return base


@pytest.fixture
def base(tmp_path: Path, hills: Path) -> Path:
    return Path(shutil.copytree(hills, tmp_path / "hills"))


@pytest.fixture
def dataset(base: Path) -> Dataset:
    return Dataset.open(Workspace.open(base / "workspace"), "hills")


def only(dataset: Dataset) -> Clip:
    (clip,) = records.read_clips(dataset.folder)
    return clip


def pixels(dataset: Dataset, clip: Clip, kind: str) -> np.ndarray:
    path = companion_path(dataset.folder, clip, kind)
    assert path is not None
    return media.read_frames(path, range(media.probe(path).frames))


def left_edges(video: np.ndarray) -> list[int]:
    """The first white column of each frame."""
    return [int(np.flatnonzero((frame[..., 0] > 127).any(axis=0))[0]) for frame in video]


def test_all_four_are_attached_and_named_by_their_content(base: Path, dataset: Dataset) -> None:
    files = {"control": "edges.mkv", "reference": "other.mp4", "mask": "mask.mp4", "last_frame": "face.jpg"}
    for kind, file in files.items():
        clip = attach(dataset.folder, only(dataset), kind, base / file)
    assert list(clip.companions) == list(records.COMPANIONS)
    for kind, name in clip.companions.items():
        digest = records.file_sha256(dataset.folder / name)[:8]
        assert name == f"clips/{clip.id}.{kind}-{digest}{'.png' if kind == 'last_frame' else '.mp4'}"
    control = media.probe(dataset.folder / clip.control)
    assert (control.frames, control.width, control.height, control.fps) == (FRAMES, *SIZE, FPS)
    assert problems(dataset.folder, clip) == []
    with Image.open(dataset.folder / clip.last_frame) as picture:
        assert picture.size == SIZE  # cut to the clip's proportions
    assert [one.what for one in dataset.undoable][:2] == ["last frame of walk.mp4", "mask of walk.mp4"]


def test_a_mask_of_our_own_stays_as_it_is_and_is_gray(base: Path, dataset: Dataset) -> None:
    clip = attach(dataset.folder, only(dataset), "mask", base / "mask.mp4", made=True)
    assert (dataset.folder / clip.mask).read_bytes() == (base / "mask.mp4").read_bytes()
    video = pixels(dataset, clip, "mask")
    assert (np.ptp(video, axis=3) == 0).all()
    assert np.abs(video[..., 0].astype(int) - mask_video()[..., 0]).max() <= 24
    assert np.array_equal(video[..., 0] > 127, mask_video()[..., 0] > 127)


def test_a_mask_loses_its_colors_and_keeps_its_place(base: Path, dataset: Dataset) -> None:
    colored = mask_video()
    colored[..., 0] = 0  # cyan
    media.encode(colored, base / "cyan.mp4", FPS)
    clip = attach(dataset.folder, only(dataset), "mask", base / "cyan.mp4")
    video = pixels(dataset, clip, "mask")
    assert (np.ptp(video, axis=3) == 0).all()
    assert np.array_equal(video[..., 0] > 100, mask_video()[..., 0] > 127)


def test_a_picture_is_a_mask_that_stands_still_and_a_reference_as_it_is(base: Path, dataset: Dataset) -> None:
    Image.fromarray(mask_video()[0]).save(base / "box.png")
    clip = attach(dataset.folder, only(dataset), "mask", base / "box.png")
    video = pixels(dataset, clip, "mask")
    assert len(video) == FRAMES
    assert left_edges(video) == [0] * FRAMES
    clip = attach(dataset.folder, clip, "reference", base / "face.jpg")
    assert clip.reference.endswith(".png")
    with Image.open(dataset.folder / clip.reference) as picture:
        assert picture.size == (100, 100)


def test_what_is_shorter_or_of_other_proportions_is_refused_in_a_sentence(base: Path, dataset: Dataset) -> None:
    media.encode(mask_video(20), base / "short.mp4", FPS)
    with pytest.raises(DataError, match=r"short.mp4 cannot be the mask of walk.mp4: it has 20 frames .* the clip 48"):
        attach(dataset.folder, only(dataset), "mask", base / "short.mp4")
    media.encode(mask_video(size=(96, 96)), base / "square.mp4", FPS)
    with pytest.raises(DataError, match="its picture is 96x96, that of the clip 128x96"):
        attach(dataset.folder, only(dataset), "mask", base / "square.mp4")
    with pytest.raises(ConfigError, match="kind is 'depth', must be one of control, reference, mask, last_frame"):
        attach(dataset.folder, only(dataset), "depth", base / "mask.mp4")
    (base / "text.mp4").write_text("no video")
    with pytest.raises(DataError, match="not a video"):
        attach(dataset.folder, only(dataset), "control", base / "text.mp4")
    assert only(dataset).companions == {}
    assert not list((dataset.folder / ".masters").glob(".*"))


def test_another_size_and_rate_are_brought_to_the_clips(base: Path, dataset: Dataset) -> None:
    media.encode(mask_video(24, (64, 48))[:, :, :], base / "half.mp4", 12)
    clip = attach(dataset.folder, only(dataset), "mask", base / "half.mp4")
    video = pixels(dataset, clip, "mask")
    assert video.shape[:3] == (FRAMES, SIZE[1], SIZE[0])
    expected = [2 * min(2 * (number // 2), 64 - 16) for number in range(FRAMES)]
    assert np.abs(np.subtract(left_edges(video), expected)).max() <= 1


def test_trim_crop_and_rate_cut_a_mask_with_its_clip(base: Path, dataset: Dataset) -> None:
    attach(dataset.folder, only(dataset), "mask", base / "mask.mp4")
    whole = only(dataset)
    part = dataset.trim(whole.file_name, 0.5, 1.5)
    assert left_edges(pixels(dataset, part, "mask")) == [2 * number for number in range(12, 36)]
    assert part.mask.startswith(f"clips/{part.id}.mask-")
    assert problems(dataset.folder, part) == []
    cropped = dataset.crop(part.file_name, (16, 16, 64, 64))
    assert left_edges(pixels(dataset, cropped, "mask"))[:20] == [2 * number - 16 for number in range(12, 32)]
    (slower,) = dataset.set_fps(12, cropped.file_name)
    assert left_edges(pixels(dataset, slower, "mask"))[:10] == [2 * number - 16 for number in range(13, 33, 2)]
    wider = dataset.trim(slower.file_name, 0.25, 1.75)  # from the mask of the whole source video
    assert media.probe(dataset.folder / wider.mask).frames == wider.frames
    (back,) = dataset.reset_cut(wider.file_name)
    assert back == whole
    assert (dataset.folder / whole.mask).is_file()
    for _ in range(5):
        dataset.undo()
    assert only(dataset) == whole
    assert problems(dataset.folder, whole) == []


def test_a_split_gives_each_part_its_mask_and_an_undo_takes_them_back(base: Path, dataset: Dataset) -> None:
    whole = attach_all(
        dataset.folder,
        [(only(dataset), "mask", base / "mask.mp4"), (only(dataset), "reference", base / "face.jpg")],
    )[1]
    parts = dataset.split_at(whole.file_name, [1.0])
    assert [left_edges(pixels(dataset, part, "mask"))[0] for part in parts] == [0, 48]
    assert len({part.reference for part in parts}) == 2
    assert all(companion_path(dataset.folder, p, "reference") for p in parts)
    dataset.undo()
    assert only(dataset) == whole
    assert problems(dataset.folder, whole) == []
    dataset.redo()
    assert dataset.clips == parts
    assert all(problems(dataset.folder, part) == [] for part in parts)


def test_a_mask_of_the_whole_source_gets_the_parts_span_and_crop(base: Path, dataset: Dataset) -> None:
    part = dataset.trim(only(dataset).file_name, 0.5, 1.5)
    part = dataset.crop(part.file_name, (16, 16, 64, 64))
    part = attach(dataset.folder, part, "mask", base / "mask.mp4")
    assert left_edges(pixels(dataset, part, "mask"))[:20] == [2 * number - 16 for number in range(12, 32)]
    (back,) = dataset.reset_cut(part.file_name)
    assert left_edges(pixels(dataset, back, "mask"))[:40] == [2 * number for number in range(40)]


def test_a_mask_made_for_a_part_goes_with_narrower_parts_only(base: Path, dataset: Dataset) -> None:
    part = dataset.trim(only(dataset).file_name, 0.5, 1.5)
    media.encode(mask_video(24), base / "part.mp4", FPS)
    part = attach(dataset.folder, part, "mask", base / "part.mp4", made=True)
    narrow = dataset.trim(part.file_name, 1.0, 1.5)
    assert left_edges(pixels(dataset, narrow, "mask")) == [2 * number for number in range(12, 24)]
    wide = dataset.trim(narrow.file_name, 0.5, 1.75)
    assert wide.mask == ""
    assert dataset.history[-1].what.endswith("without its mask, which showed the former part only")
    dataset.undo()
    assert only(dataset) == narrow


def test_a_last_frame_of_the_clips_own_moves_with_its_end(base: Path, dataset: Dataset) -> None:
    whole = only(dataset)
    own = media.read_frames(dataset.folder / whole.file_name, [FRAMES - 1])[0]
    Image.fromarray(own).save(base / "own.png")
    attach(dataset.folder, whole, "last_frame", base / "own.png")
    part = dataset.trim(whole.file_name, 0, 1)
    with Image.open(dataset.folder / part.last_frame) as picture:
        assert np.array_equal(np.asarray(picture), media.read_frames(dataset.folder / part.file_name, [23])[0])
    foreign = attach(dataset.folder, part, "last_frame", base / "face.jpg")
    later = dataset.trim(foreign.file_name, 0.5, 1)  # the end stays
    assert later.last_frame
    assert dataset.trim(later.file_name, 0.25, 0.75).last_frame == ""
    assert "without its last frame" in dataset.history[-1].what


def test_they_leave_with_the_clip_and_come_back(base: Path, dataset: Dataset) -> None:
    clip = attach(dataset.folder, only(dataset), "mask", base / "mask.mp4")
    dataset.remove(clip.file_name)
    assert not (dataset.folder / clip.mask).exists()
    assert (dataset.folder / ".removed" / clip.mask).exists()
    dataset.restore(clip.file_name)
    assert problems(dataset.folder, only(dataset)) == []
    other = attach(dataset.folder, clip, "mask", base / "mask.mp4", what="again")
    assert other == clip
    assert dataset.history[-1].what != "again"
    assert detach(dataset.folder, [clip], "mask") == 1
    assert only(dataset).mask == ""
    assert dataset.history[-1].what == "walk.mp4 without mask"
    dataset.undo()
    assert only(dataset) == clip
    assert companion_path(dataset.folder, clip, "mask")


def test_a_lost_file_is_a_problem_and_stops_no_cut(base: Path, dataset: Dataset) -> None:
    clip = attach(dataset.folder, only(dataset), "mask", base / "mask.mp4")
    (dataset.folder / clip.mask).unlink()
    assert [one.what for one in problems(dataset.folder, clip)] == ["missing"]
    with pytest.raises(DataError, match="the mask of walk.mp4, is missing"):
        companions.companion_path(dataset.folder, clip, "mask")
    assert dataset.trim(clip.file_name, 0, 1).mask == ""


def test_what_a_model_could_learn_includes_them(base: Path, dataset: Dataset) -> None:
    before = dataset.content_hash
    attach(dataset.folder, only(dataset), "mask", base / "mask.mp4")
    assert dataset.content_hash != before
    dataset.undo()
    assert dataset.content_hash == before
