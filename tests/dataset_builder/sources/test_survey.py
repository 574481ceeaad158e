"""Which files are found, which captions come with them, and what becomes of folders of numbered pictures."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.drawing import draw
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.sources.columns import LONGEST_CAPTION
from workbench.dataset_builder.sources.survey import survey
from workbench.errors import DataError
from workbench.workspace import Workspace


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def captions(given: Path) -> dict[str, str]:
    return {source.path.name: source.caption for source in survey([given]).sources}


def test_folders_are_searched_and_nothing_hidden_or_linked_is_entered(tmp_path: Path) -> None:
    for name in ("b.MP4", "a.mov", "deep/er/c.webm", ".hidden.mp4", ".import/d.mp4", "notes.txt", "photo.jpg"):
        touch(tmp_path / "given" / name)
    touch(tmp_path / "elsewhere" / "e.mp4")
    os.symlink(tmp_path / "elsewhere", tmp_path / "given" / "linked")
    alone = touch(tmp_path / "alone.bin")
    found = survey([tmp_path / "given", alone, alone, tmp_path / "given" / "a.mov"]).sources
    assert [source.path.name for source in found] == ["a.mov", "b.MP4", "photo.jpg", "c.webm", "alone.bin"]


@pytest.mark.parametrize(
    ("data", "caption"),
    [
        ("une télé à Zürich".encode(), "une télé à Zürich"), ("une télé".encode("utf-8-sig"), "une télé"),
        ("une télé".encode("utf-16"), "une télé"), ("\ufeffune télé".encode("utf-16-be"), "une télé"),
        ("a plain cat".encode("utf-16-le"), "a plain cat"), ("une télé".encode("latin-1"), "une télé"),
        ("une te\u0301le\u0301".encode(), "une télé"), (b" two\r\nlines\tand a\0 NUL\n", "two lines and a NUL"),
        (b"", ""), ("🐱🎬".encode(), "🐱🎬"), (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
        (b"=cmd|'/c calc'!A0", "=cmd|'/c calc'!A0"),
        (b"word " * 300_000, ("word " * 300_000)[:LONGEST_CAPTION].rstrip()),
    ],
)  # fmt: skip
def test_captions_in_every_encoding(tmp_path: Path, data: bytes, caption: str) -> None:
    touch(tmp_path / "a.mp4")
    (tmp_path / "a.txt").write_bytes(data)
    assert captions(tmp_path) == {"a.mp4": caption}


def test_caption_tables_by_column_and_folder(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4", "deep/c.mp4", "deep/d.mp4", "e.mp4", "té.mp4"):
        touch(tmp_path / name)
    rows = [
        {"file_name": "a.mp4", "text": "from the table"},
        {"file_name": "deep/c.mp4", "caption": "from above"},
        {"file_name": "te\u0301.mp4", "prompt": "by another spelling"},
        {"file_name": "missing.mp4", "text": "no such clip"},
        ["not", "a", "record"],
        {"file_name": "e.mp4", "text": 7},
    ]
    table = "".join(json.dumps(row) + "\n" for row in rows) + '{"file_na'
    (tmp_path / "metadata.jsonl").write_text(table)
    (tmp_path / "a.txt").write_text("from beside")
    (tmp_path / "metadata.csv").write_text('file_name,text\nb.mp4,"a, b"\n', encoding="utf-8-sig")
    (tmp_path / "deep" / "metadata.csv").write_text("video;x\n")
    (tmp_path / "deep" / "d.txt").symlink_to("/etc/hostname")
    assert captions(tmp_path) == {
        "a.mp4": "from beside",
        "b.mp4": "a, b",
        "c.mp4": "from above",
        "d.mp4": "",
        "e.mp4": "",
        "té.mp4": "by another spelling",
    }


def test_files_dropped_on_a_page_find_their_captions_though_each_lies_in_a_folder_of_its_own(tmp_path: Path) -> None:
    texts = {"a.txt": "caption of a", "metadata.jsonl": '{"file_name": "b.mp4", "text": "from the table"}\n'}
    paths = [touch(tmp_path / str(n) / name) for n, name in enumerate(("a.mp4", "b.mp4", "c.png", *texts))]
    for path in paths[3:]:
        path.write_text(texts[path.name])
    assert {source.name: source.caption for source in survey(paths).sources} == {
        "a.mp4": "caption of a",
        "b.mp4": "from the table",
        "c.png": "",
    }


def test_files_of_one_name_from_two_folders_keep_their_own_captions(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        touch(tmp_path / folder / "a.mp4")
        (tmp_path / folder / "a.txt").write_text(f"from {folder}")
    found = survey([tmp_path / "x" / "a.mp4", tmp_path / "y" / "a.mp4"]).sources
    assert [source.caption for source in found] == ["from x", "from y"]


def test_a_survey_says_what_an_import_would_do(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.MOV", "c.png", "a.jpg"):
        touch(tmp_path / "cats" / name).write_bytes(bytes(500_000))
    (tmp_path / "cats" / "a.txt").write_text("a cat")
    (tmp_path / "cats" / "gone.txt").write_text("a cat that left")
    (tmp_path / "not.zip").write_text("no archive")
    found = survey([tmp_path / "cats", tmp_path / "not.zip", tmp_path / "gone.tar"])
    lines = found.sentences
    assert lines[:4] == [
        "cats: A .txt file next to each video: 2 videos, 1 picture, 1 caption, 1.5 MB",
        "cats: 'a.jpg': pictures that show a video which is here, too: left out",
        "cats: 'b.MOV', 'c.png': without a caption",
        "cats: 'gone.txt': texts that belong to no video: not read",
    ]
    assert "not.zip cannot be read as an archive" in lines[4]
    assert "gone.tar is not there" in lines[5]


@pytest.mark.parametrize("pair", ["DNG JPG", "HEIC JPG"])
def test_of_two_files_of_one_picture_the_one_that_can_be_read_is_taken(tmp_path: Path, pair: str) -> None:
    raw, plain = (f"DSC_1.{ending}" for ending in pair.split())
    (tmp_path / raw).write_bytes(b"unknown bytes")
    Image.new("RGB", (64, 48)).save(tmp_path / plain)
    found = survey([tmp_path])
    assert "1 picture, 1 file that cannot be taken, 0 captions, " in found.sentences[0]
    assert f"{raw!r}: cannot be read: convert pictures to JPEG or PNG, videos to mp4" in "\n".join(found.sentences)
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Pair")
    results = {result.name: result for result in dataset.import_files([tmp_path / raw, tmp_path / plain])}
    assert results[plain].outcome == "converted"
    assert results[raw].notes[0].endswith("convert it to JPEG or PNG first")


def test_the_picture_of_a_video_stays_left_out(tmp_path: Path) -> None:
    for name in ("IMG_1.MOV", "IMG_1.JPG", "IMG_1.HEIC"):
        touch(tmp_path / name)
    found = survey([tmp_path])
    assert [source.name for source in found.sources] == ["IMG_1.HEIC", "IMG_1.MOV"]
    assert any("'IMG_1.JPG': pictures that show a video" in line for line in found.sentences)


def test_rare_endings_of_pictures_and_videos_are_known(tmp_path: Path) -> None:
    names = ["a.jfif", "b.JPE", "c.pjpeg", "d.dib", "e.avifs", "f.mpe", "g.M2T", "h.divx", "i.264"]
    for name in names:
        touch(tmp_path / name)
    assert sorted(source.name for source in survey([tmp_path]).sources) == names


def test_thousands_of_files_are_surveyed_and_more_than_the_cap_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2_000):
        (tmp_path / f"{number:05d}.mp4").touch()
        (tmp_path / f"{number:05d}.txt").write_text(f"caption {number}")
    found = survey([tmp_path])
    assert (len([one for one in found.sources if one.caption]), found.too_many) == (2_000, False)
    monkeypatch.setattr("workbench.dataset_builder.sources.survey.MOST_SOURCES", 1_500)
    capped = survey([tmp_path])
    assert (len(capped.sources), capped.too_many) == (1_500, True)
    assert capped.sentences[-1] == "more than 1,500 videos: only the first 1,500 are taken"


def test_text_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "a.mp4")
    touch(tmp_path / "a.txt").write_text("caption")
    opened = Path.open

    def refuse(self: Path, *rest: Any, **more: Any) -> Any:
        if self.suffix == ".txt":
            raise PermissionError(13, "Permission denied")
        return opened(self, *rest, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"a\.txt cannot be read \(Permission denied\): check its permissions"):
        survey([tmp_path])


def write(folder: Path, frames: int = 12, name: str = "frame_{:04d}.png", size: tuple[int, int] = (64, 48)) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(draw(frames, size), 1):
        Image.fromarray(picture).save(folder / name.format(number))
    return folder


def captions_of(given: Path) -> dict[str, str]:
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
    assert sorted(captions_of(tmp_path / "given")) == [*(f"frame_{number:04d}.png" for number in range(1, 5)), "walk"]


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
    assert captions_of(tmp_path / "given") == {"walk": "it walks", "other.v2": ""}
    assert not any("missing" in line for line in survey([tmp_path / "given"], frame_rate=12).sentences)
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "given"))
    assert captions_of(archive) == {"walk": "it walks", "other.v2": ""}


def test_a_folder_given_by_itself_a_gap_and_captions_of_their_own(tmp_path: Path) -> None:
    walk = write(tmp_path / "walk")
    (tmp_path / "walk.txt").write_text("it walks")
    assert captions_of(walk) == {"walk": "it walks"}
    (walk / "frame_0006.png").unlink()
    assert captions_of(walk) == {
        "walk frame_0001 to frame_0005": "it walks",
        "walk frame_0007 to frame_0012": "it walks",
    }
    for path in walk.glob("*.png"):
        path.with_suffix(".txt").write_text("a picture of its own")
    assert len(captions_of(walk)) == 11


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
