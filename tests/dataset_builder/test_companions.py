"""What lies beside a clip fits it to the frame, goes with it through every cut and undo, and is never lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder.foreign import write_video
from tests.dataset_builder.scenery import scenery
from tests.patience import PATIENCE
from workbench.clips import media, records
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset, companions
from workbench.dataset_builder.companions import attach, attach_all, companion_path, detach, problems
from workbench.dataset_builder.cuts.painted import info_of, keep_info, painted_frames, read_painted
from workbench.dataset_builder.export import export
from workbench.dataset_builder.masking import paint, refine, track_clip
from workbench.dataset_builder.settings import ExportSettings, MaskEdges
from workbench.dataset_builder.sources.layouts import LAYOUTS
from workbench.errors import ConfigError, DataError
from workbench.jobs import State
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
    assert problems(dataset.folder, clip) == {}
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
    with pytest.raises(DataError, match="it is 96x96 and the clip is 128x96"):
        attach(dataset.folder, only(dataset), "mask", base / "square.mp4")
    with pytest.raises(ConfigError, match="kind is 'depth', must be one of control, reference, mask, last_frame"):
        attach(dataset.folder, only(dataset), "depth", base / "mask.mp4")
    (base / "text.mp4").write_text("no video")
    with pytest.raises(DataError, match="not a readable video"):
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
    assert problems(dataset.folder, part) == {}
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
    assert problems(dataset.folder, whole) == {}


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
    assert problems(dataset.folder, whole) == {}
    dataset.redo()
    assert dataset.clips == parts
    assert all(problems(dataset.folder, part) == {} for part in parts)


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
    assert dataset.history[-1].what.endswith("without its mask, which covered the previous part only")
    dataset.undo()
    assert only(dataset) == narrow


def frames_painted(dataset: Dataset, clip: Clip) -> dict[int, int]:
    """The painted frames of a clip, each with the left edge of what was painted."""
    found = painted_frames(dataset.folder, clip)
    return {frame: int(np.flatnonzero(read_painted(path).max(0))[0]) for frame, path in found.items()}


def test_painted_frames_and_what_is_known_of_the_mask_go_with_every_cut(dataset: Dataset) -> None:
    whole, drawn = only(dataset), mask_video()[..., 0]
    for frame in (0, 10, 30):
        paint(dataset.folder, whole, frame, drawn[frame])
    made, info = track_clip(dataset.folder, whole, MaskEdges(soften=4, invert=True))
    whole = attach(dataset.folder, whole, "mask", made, made=True)
    keep_info(dataset.folder, whole, info)

    trimmed = dataset.trim(whole.id, 8 / FPS, 40 / FPS)
    assert frames_painted(dataset, trimmed) == {2: 20, 22: 60}
    known = info_of(dataset.folder, trimmed)
    assert (known.painted, known.confidence) == ([2, 22], info.confidence[8:40])
    plain = refine(dataset.folder, trimmed, MaskEdges())  # from how it was tracked, not from soft and inverted edges
    assert (pixels(dataset, plain, "mask")[2, ..., 0] > 127).mean() == pytest.approx((drawn[10] > 127).mean(), abs=0.01)

    cropped = dataset.crop(plain.id, (16, 16, 96, 64))
    assert frames_painted(dataset, cropped) == {2: 4, 22: 44}
    assert read_painted(painted_frames(dataset.folder, cropped)[2]).shape == (64, 96)
    slower = dataset.set_fps(12, cropped.id)[0]
    assert frames_painted(dataset, slower) == {1: 4, 11: 44}

    paint(dataset.folder, slower, 1, None)
    paint(dataset.folder, slower, 3, drawn[0, 16:80, 16:112])
    for _ in range(4):
        dataset.undo()
    assert frames_painted(dataset, only(dataset)) == {0: 0, 10: 20, 30: 60}, "as before the cut"
    first, second = dataset.split(only(dataset).id, [(0, 1), (1, 2)])
    assert (frames_painted(dataset, first), frames_painted(dataset, second)) == ({0: 0, 10: 20}, {6: 60})


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
    assert problems(dataset.folder, only(dataset)) == {}
    other = attach(dataset.folder, clip, "mask", base / "mask.mp4", what="again")
    assert other == clip
    assert dataset.history[-1].what != "again"
    assert detach(dataset.folder, [clip], "mask") == 1
    assert only(dataset).mask == ""
    assert dataset.history[-1].what == "walk.mp4 without mask"
    dataset.undo()
    assert only(dataset) == clip
    assert companion_path(dataset.folder, clip, "mask")


def partners(base: Path) -> Path:
    """A folder of three clips: the first with all four beside it, the second with a mask that is too short."""
    given = base / "given"
    for name in ("videos", "control", "masks", "references", "last_frames"):
        (given / name).mkdir(parents=True)
    for number, name in enumerate(("a", "b", "c")):
        write_video(given / "videos" / f"{name}.mp4", scenery(4 + number, FRAMES, SIZE), fps=FPS)
        (given / "videos" / f"{name}.txt").write_text(f"hills {name}")
    shutil.copyfile(base / "edges.mkv", given / "control" / "a.mkv")
    shutil.copyfile(base / "mask.mp4", given / "masks" / "a.mp4")
    media.encode(mask_video(20), given / "masks" / "b.mp4", FPS)
    shutil.copyfile(base / "face.jpg", given / "references" / "a.jpg")
    shutil.copyfile(base / "face.jpg", given / "last_frames" / "a.jpg")
    return given


def test_an_import_takes_them_and_names_those_that_do_not_fit(base: Path, dataset: Dataset) -> None:
    given = partners(base)
    task = dataset.task("import")
    dataset.start_import([given])
    assert task.wait(PATIENCE).state is State.FINISHED
    _, first, second, third = dataset.clips
    assert list(first.companions) == list(records.COMPANIONS)
    assert (second.companions, third.companions) == ({}, {})
    assert problems(dataset.folder, first) == {}
    sentence = "Imported: 3 taken, with 1 control clip, 1 reference, 1 mask, 1 last frame."
    shown = dataset.snapshot().tasks[0]
    assert shown.sentence.startswith(sentence)
    assert shown.details[0].startswith("b.mp4: its mask (b.mp4) was left out: it has 20 frames")
    results = {result.name: result for result in dataset.import_results}
    assert "stored with its mask" in results["a.mp4"].sentence
    again = dataset.import_files([given])
    assert [result.outcome for result in again] == ["known"] * 3
    assert dataset.clips[1:] == [first, second, third]


@pytest.mark.parametrize("layout", [layout.name for layout in LAYOUTS])
def test_every_layout_gives_them_back(base: Path, dataset: Dataset, layout: str) -> None:
    files = {"control": "edges.mkv", "reference": "other.mp4", "mask": "mask.mp4", "last_frame": "face.jpg"}
    attach_all(dataset.folder, [(only(dataset), kind, base / file) for kind, file in files.items()])
    part = dataset.trim(only(dataset).file_name, 0.5, 1.5)
    attach(dataset.folder, part, "last_frame", base / "face.jpg")
    part = only(dataset)
    target = export(dataset.folder, ExportSettings(layout=layout, target=str(base / "out")))
    back = Dataset.create(Workspace.open(base / "workspace"), "Back")
    (result,) = back.import_files([target])
    (clip,) = back.clips
    assert (clip.sha256, clip.frames, set(result.companions)) == (part.sha256, 24, set(records.COMPANIONS))
    for kind, name in part.companions.items():
        assert records.file_sha256(back.folder / clip.companions[kind]) == records.file_sha256(dataset.folder / name)


def test_a_lost_file_is_a_problem_and_stops_no_cut(base: Path, dataset: Dataset) -> None:
    clip = attach(dataset.folder, only(dataset), "mask", base / "mask.mp4")
    (dataset.folder / clip.mask).unlink()
    assert problems(dataset.folder, clip) == {"mask": "its file is missing"}
    with pytest.raises(DataError, match="the mask of walk.mp4, is missing"):
        companions.companion_path(dataset.folder, clip, "mask")
    assert dataset.trim(clip.file_name, 0, 1).mask == ""
