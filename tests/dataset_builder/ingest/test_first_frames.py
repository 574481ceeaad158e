"""First frames that come with clips are kept where they say something new, and never silently lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.drawing import draw
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips import media
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.export import job as export_job
from workbench.dataset_builder.export.files import export
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.workspace import Workspace, read_json

NAMES = ("drawn", "own", "broken", "none", "wide")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five clips in the layout of lists: a drawing, the own first frame as JPEG, a broken file, none, another shape."""
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
    """uint8 [64, 96, 3] that looks like no frame of the clips."""
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


def test_what_differs_is_kept_and_what_does_not_is_said_to_be_equal(dataset: Dataset) -> None:
    kept = named(dataset, "drawn").first_frame
    assert np.array_equal(np.asarray(Image.open(dataset.folder / kept)), drawing())
    wide = np.asarray(Image.open(dataset.folder / named(dataset, "wide").first_frame))
    assert wide.shape == (64, 96, 3)
    assert [named(dataset, name).first_frame for name in ("own", "broken", "none")] == ["", "", ""]
    notes = {result.name.removesuffix(".mp4"): result.notes for result in dataset.import_results}
    assert notes["drawn"] == ("the first frame that came with it is kept beside it",)
    assert notes["own"] == ("the first frame that came with it is its own: not kept twice",)
    assert "is left out: the picture is damaged" in notes["broken"][0]
    assert notes["none"] == ()
    assert "cut to the clip's proportions (it was 64x64)" in notes["wide"][0]
    assert len(dataset.clips) == 5


@pytest.mark.parametrize("ending", ["", ".zip", ".tar"])
def test_they_go_out_and_come_back_whole(dataset: Dataset, workspace: Workspace, tmp_path: Path, ending: str) -> None:
    target = export(dataset.folder, ExportSettings(layout="lists", target=str(tmp_path / f"out{ending}")))
    back = Dataset.create(workspace, "Back")
    back.import_files([target])
    assert back.content_hash == dataset.content_hash
    assert [clip.first_frame for clip in back.clips] == [clip.first_frame for clip in dataset.clips]
    for name in filter(None, (clip.first_frame for clip in back.clips)):
        assert (back.folder / name).read_bytes() == (dataset.folder / name).read_bytes()
    back.import_files([target])  # again: nothing is taken twice
    assert len(list((back.folder / "first_frames").iterdir())) == 2


def test_a_dataset_folder_brings_its_own(dataset: Dataset, workspace: Workspace) -> None:
    copy = Dataset.create(workspace, "Copy")
    copy.import_files([dataset.folder])
    assert copy.content_hash == dataset.content_hash


def test_pictures_of_clips_that_are_here_already_are_taken(given: Path, dataset: Dataset, workspace: Workspace) -> None:
    later = Dataset.create(workspace, "Later")
    later.import_files([given / "videos"])
    (result, *_) = later.import_files([given])
    assert (result.outcome, result.notes[-1]) == ("known", "the first frame that came with it is kept beside it")
    assert {clip.first_frame for clip in later.clips} == {clip.first_frame for clip in dataset.clips}


def test_a_part_that_begins_elsewhere_has_none_and_the_whole_gets_it_back(dataset: Dataset) -> None:
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


def test_a_layout_without_a_place_for_them_says_so(dataset: Dataset, tmp_path: Path) -> None:
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
