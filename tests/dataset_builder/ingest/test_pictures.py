"""Animated pictures become clips, single ones stay pictures, and separate first frames are kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.drawing import draw
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips import media
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset
from workbench.dataset_builder import export as export_job
from workbench.dataset_builder.export import export
from workbench.dataset_builder.ingest.canonical import convert
from workbench.dataset_builder.settings import ExportSettings
from workbench.workspace import Workspace, read_json

SAVE: dict[str, dict[str, Any]] = {"gif": {"disposal": 2}, "webp": {"lossless": True, "kmin": 0, "kmax": 1}, "png": {}}
RED, GREEN = (250, 10, 10, 255), (10, 200, 10, 255)


def animation(path: Path, frames: int = 6, duration: int | list[int] = 80, clear: bool = False) -> Path:
    """A green bar moving over red. clear: whether the background is transparent."""
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
    still = convert(animation(tmp_path / f"one.{kind}", frames=1), target)
    assert (still.frames, "a picture" in still.changes[0]) == (1, True)
    made = convert(animation(tmp_path / f"a.{kind}"), target)
    assert (made.fps, made.frames, made.width, made.height) == (12.5, 6, 64, 48)
    shown = media.read_frames(target, range(6))
    for number, frame in enumerate(shown):
        assert abs(frame[24, 8 * number + 4].astype(int) - GREEN[:3]).max() < 40
        assert abs(frame[4, 60].astype(int) - RED[:3]).max() < 40


@pytest.mark.parametrize("kind", SAVE)
def test_transparency_becomes_white_with_a_note(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "clip.mp4"
    made = convert(animation(tmp_path / f"a.{kind}", clear=True), target)
    assert "transparency filled with white" in made.changes
    frames = media.read_frames(target, range(made.frames))
    assert np.all(frames[:, 2:6, 2:60] > 235)


def test_variable_frame_times_and_longest_side(tmp_path: Path) -> None:
    made = convert(animation(tmp_path / "a.webp", duration=[100, 100, 300, 100, 100, 100]), tmp_path / "clip.mp4", 32)
    assert (made.fps, made.width, made.height) == (10, 32, 24)
    assert made.frames >= 7
    assert any("constant 10 fps" in change for change in made.changes)
    assert "scaled down from 64x48" in made.changes


NAMES = ("drawn", "own", "broken", "none", "wide")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five clips with lists; their first frames: drawn, the clip's own as JPEG, broken, missing, of another shape."""
    folder = tmp_path_factory.mktemp("first") / "given"
    (folder / "images").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        media.encode(draw(9 + number, (96, 64)), folder / "videos" / f"{name}.mp4", 8)
    Image.fromarray(drawing()).save(folder / "images" / "drawn.png")
    own = media.read_frames(folder / "videos" / "own.mp4", [0])[0]
    Image.fromarray(own).resize((192, 128)).save(folder / "images" / "own.jpg", quality=90)
    (folder / "images" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    Image.fromarray(drawing()[:, :64]).save(folder / "images" / "wide.png")
    (folder / "videos.txt").write_text("".join(f"videos/{name}.mp4\n" for name in NAMES))
    (folder / "prompts.txt").write_text("".join(f"{name}\n" for name in NAMES))
    pictures = ("images/drawn.png", "images/own.jpg", "images/broken.png", "", "images/wide.png")
    (folder / "images.txt").write_text("".join(f"{name}\n" for name in pictures))
    return folder


def drawing() -> np.ndarray:
    """uint8 [64, 96, 3], unlike any frame of the clips."""
    return np.random.default_rng(3).integers(0, 256, (64, 96, 3), np.uint8)


@pytest.fixture(scope="module")
def imported(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = Dataset.create(Workspace.open(tmp_path_factory.mktemp("kept") / "workspace"), "Kept")
    dataset.import_files([given])
    return dataset.folder


@pytest.fixture
def dataset(imported: Path, workspace: Workspace) -> Dataset:
    return Dataset(Path(shutil.copytree(imported, workspace.dataset("kept"))))


def named(dataset: Dataset, name: str) -> Clip:
    return next(clip for clip in dataset.clips if clip.text == name)


def test_a_first_frame_is_kept_only_if_it_differs(dataset: Dataset) -> None:
    kept = named(dataset, "drawn").first_frame
    assert np.array_equal(np.asarray(Image.open(dataset.folder / kept)), drawing())
    wide = np.asarray(Image.open(dataset.folder / named(dataset, "wide").first_frame))
    assert wide.shape == (64, 96, 3)
    assert [named(dataset, name).first_frame for name in ("own", "broken", "none")] == ["", "", ""]
    notes = {one.name.removesuffix(".mp4"): (*one.notes, *one.left_out) for one in dataset.import_results}
    assert notes["drawn"] == ("its separate first frame is kept",)
    assert notes["own"] == ("its separate first frame equals the clip's own: not stored twice",)
    assert "was left out: the picture is damaged" in notes["broken"][0]
    assert notes["none"] == ()
    assert "cropped to the clip's aspect ratio (it was 64x64)" in notes["wide"][0]
    assert len(dataset.clips) == 5


@pytest.mark.parametrize("ending", ["", ".tar"])
def test_first_frames_survive_export_and_import(
    dataset: Dataset, workspace: Workspace, tmp_path: Path, ending: str
) -> None:
    target = export(dataset.folder, ExportSettings(layout="lists", target=str(tmp_path / f"out{ending}")))
    back = Dataset.create(workspace, "Back")
    back.import_files([target])
    assert back.content_hash == dataset.content_hash
    assert [clip.first_frame for clip in back.clips] == [clip.first_frame for clip in dataset.clips]
    for name in filter(None, (clip.first_frame for clip in back.clips)):
        assert (back.folder / name).read_bytes() == (dataset.folder / name).read_bytes()
    back.import_files([target])  # importing again adds nothing
    assert len(list((back.folder / "first_frames").iterdir())) == 2


def test_first_frames_are_added_to_known_clips(given: Path, dataset: Dataset, workspace: Workspace) -> None:
    later = Dataset.create(workspace, "Later")
    later.import_files([given / "videos"])
    (result, *_) = later.import_files([given])
    assert (result.outcome, result.notes[-1]) == ("known", "its separate first frame is kept")
    assert {clip.first_frame for clip in later.clips} == {clip.first_frame for clip in dataset.clips}


def test_a_part_with_another_start_loses_the_first_frame_until_undone(dataset: Dataset) -> None:
    clip = named(dataset, "drawn")
    first = clip.first_frame
    start = dataset.trim(clip.id, 0, 0.5)
    assert start.first_frame == first
    later = dataset.trim(start.id, 0.5, 1)
    assert named(dataset, "drawn").first_frame == later.first_frame == ""
    dataset.undo()
    assert named(dataset, "drawn").first_frame == first
    dataset.redo()
    dataset.reset_cut(later.id)
    assert named(dataset, "drawn") == clip


def test_a_layout_that_cannot_store_first_frames_says_so(dataset: Dataset, tmp_path: Path) -> None:
    task = dataset.task("export")
    task.start(ExportSettings(layout="sidecars", target=str(tmp_path / "out")))
    assert task.wait(PATIENCE).state == jobs.State.FINISHED
    assert task.result["left_behind"].startswith("2 first frames that came with clips have no place in this layout")
    config = tmp_path / ".export" / jobs.CONFIG
    ExportSettings(layout="lists", target=str(tmp_path / "lists")).save(config)
    with jobs.Job(config.parent) as job:
        export_job.run(dataset.folder, config, job)
    assert "left_behind" not in read_json(config.parent / jobs.RESULT)
    images = (tmp_path / "lists" / "images.txt").read_text().split()
    assert len(images) == 5
    assert np.array_equal(np.asarray(Image.open(tmp_path / "lists" / images[0])), drawing())
