"""Folders of numbered pictures: named in the preview, one video where a person says so, with the folder's caption."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.drawing import draw
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.sources.survey import survey
from workbench.workspace import Workspace


def write(folder: Path, frames: int = 12, name: str = "frame_{:04d}.png", size: tuple[int, int] = (64, 48)) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(draw(frames, size), 1):
        Image.fromarray(picture).save(folder / name.format(number))
    return folder


def captions(given: Path) -> dict[str, str]:
    return {source.name: source.caption for source in survey([given], frame_rate=12).sources}


def test_they_are_pictures_until_somebody_says_that_they_are_a_video(tmp_path: Path) -> None:
    write(tmp_path / "given" / "walk")
    write(tmp_path / "given" / "few", 4)
    found = survey([tmp_path / "given"])
    assert len(found.sources) == 16
    assert (
        "given: '12 numbered frames in walk/': to import each such folder as one video, set frames_as_video and "
        "frame_rate"
    ) in found.sentences
    assert sorted(captions(tmp_path / "given")) == [*(f"frame_{number:04d}.png" for number in range(1, 5)), "walk"]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("walk.txt", "it walks"),
        ("walk.caption", "it walks"),
        ("walk/caption.txt", "it walks"),
        ("metadata.jsonl", '{"file_name": "walk", "text": "it walks"}'),
        ("metadata.csv", "file_name,text\nwalk/,it walks\n"),
    ],
)
def test_the_folder_has_the_caption(tmp_path: Path, text: str, content: str) -> None:
    write(tmp_path / "given" / "walk")
    write(tmp_path / "given" / "other.v2", name="{}.jpg")
    (tmp_path / "given" / text).write_text(content)
    assert captions(tmp_path / "given") == {"walk": "it walks", "other.v2": ""}
    assert not any("missing" in line for line in survey([tmp_path / "given"], frame_rate=12).sentences)
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "given"))
    assert captions(archive) == {"walk": "it walks", "other.v2": ""}


def test_a_folder_given_by_itself_a_gap_and_captions_of_their_own(tmp_path: Path) -> None:
    walk = write(tmp_path / "walk")
    (tmp_path / "walk.txt").write_text("it walks")
    assert captions(walk) == {"walk": "it walks"}
    (walk / "frame_0006.png").unlink()
    assert captions(walk) == {"walk frame_0001 to frame_0005": "it walks", "walk frame_0007 to frame_0012": "it walks"}
    for path in walk.glob("*.png"):
        path.with_suffix(".txt").write_text("a picture of its own")
    assert len(captions(walk)) == 11


@pytest.mark.parametrize("packed", [False, True])
def test_they_become_one_clip_of_the_rate_that_was_set(tmp_path: Path, packed: bool) -> None:
    given = tmp_path / "given"
    write(given / "walk", size=(65, 48))
    write(given / "mixed", 6)
    Image.fromarray(draw(1, (32, 32))[0]).save(given / "mixed" / "frame_0004.png")
    paths = [Path(shutil.make_archive(str(tmp_path / "packed"), "gztar", given))] if packed else [given]
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Frames")
    found = {result.name: result for result in dataset.import_files(paths, frame_rate=12)}
    assert found["walk"].notes == (
        "12 numbered pictures: made a clip of 12 fps",
        "cut by one row or column to an even size",
    )
    assert found["mixed"].notes == (
        "its frames differ in size (64x48, frame 4 is 32x32): import them as pictures, without frames_as_video",
    )
    (clip,) = dataset.clips
    assert (clip.source, clip.frames, clip.fps, clip.width) == ("walk", 12, 12, 64)
    shown = media.read_frames(dataset.path_of(clip), range(12)).astype(int)
    assert np.abs(shown - draw(12, (65, 48))[:, :, :64]).mean() < 8
    again = {result.name: result.outcome for result in dataset.import_files(paths, frame_rate=12)}
    assert again == {"walk": "known", "mixed": "refused"}
    assert not list((dataset.folder / ".import" / "scratch").glob("*"))
