"""Parquet tables that hold videos, or name them: of the Hub, of other tools, with and without their files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dataset_builder import tables
from tests.drawing import MakeClip
from tests.shell import Shell
from workbench.clips.records import read_clips
from workbench.dataset_builder.sources import archives
from workbench.dataset_builder.sources.columns import USUAL, Columns
from workbench.dataset_builder.sources.survey import Survey, SurveyedFiles, survey
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.errors import DataError
from workbench.workspace import Workspace

RECORDS = [{"bytes": b"video %d" % number, "path": f"x/{number}.webm"} for number in range(5)]


def write(path: Path, data: bytes | str | Mapping[str, Any], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, Mapping):
        data = tables.parquet(data, **more)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def looked(path: Path, columns: Columns = USUAL) -> SurveyedFiles:
    (part,) = survey([path], columns=columns).found
    return part


def captions(found: Survey | SurveyedFiles) -> dict[str, str]:
    return {source.name: source.caption for source in found.sources}


def content(source: SourceFile, folder: Path) -> bytes:
    archives.extract(source, folder / "out", 1_000)
    return (folder / "out").read_bytes()


def test_a_table_of_a_folder_is_read_like_an_archive(
    tmp_path: Path, make_clip: MakeClip, shell: Shell, workspace: Workspace
) -> None:
    videos = [make_clip(tmp_path / f"{color}.mp4", color=color).read_bytes() for color in ("red", "blue")]
    given = tmp_path / "given"
    for number, video in enumerate(videos):
        rows = {"video": [{"bytes": video, "path": f"{number}.mp4"}], "caption": [f"clip {number}"]}
        write(given / f"train-{number}.parquet", rows, features={"video": "Video"})
    said = shell("dataset", "preview", given).out
    assert "given: Hub dataset (VideoFolder): 2 videos, 2 archives, 2 captions" in said
    assert shell("dataset", "import", "cats", given).code == 0
    assert sorted(clip.text for clip in read_clips(workspace.dataset("cats"))) == ["clip 0", "clip 1"]
    assert sorted(os.listdir(given)) == ["train-0.parquet", "train-1.parquet"], "no file is written next to a table"


@pytest.mark.parametrize("order", [range(5), range(4, -1, -1), (3, 0, 4, 4, 1)])
def test_each_row_has_its_own_video_in_any_order(tmp_path: Path, order: Any) -> None:
    part = looked(write(tmp_path / "t.parquet", {"clip": RECORDS, "text": list("abcde")}))
    assert captions(part) == {f"00000{number}.webm": text for number, text in enumerate("abcde")}
    for number in order:
        assert content(part.sources[number], tmp_path) == b"video %d" % number


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ({"video": [b"a", b"b", b"c"]}, ["000000.mp4", "000001.mp4", "000002.mp4"]),
        ({"image": [b"a", None, b"c"]}, ["000000.png", "000002.png"]),
        ({"mp4": [b"a"], "json": [{"caption": "C", "fps": 8.0}]}, ["000000.mp4"]),
        ({"video_bytes": [b"a"], "file_name": ["/x/a.mp4"]}, ["000000.mp4"]),
        ({"clip": [{"bytes": b"a", "path": None}, {"bytes": None, "path": None}]}, ["000000.mp4"]),
    ],
)
def test_bytes_under_the_usual_names_are_videos(tmp_path: Path, rows: dict[str, Any], names: list[str]) -> None:
    part = looked(write(tmp_path / "t.parquet", rows))
    assert [source.name for source in part.sources] == names
    assert [content(source, tmp_path) for source in part.sources] == [b"abc"[int(name[:6]) :][:1] for name in names]
    assert [source.caption for source in part.sources] == (["C"] if "json" in rows else [""] * len(names))


def test_one_column_is_taken_and_the_others_are_named(tmp_path: Path) -> None:
    rows = {
        "low": [b"small"],
        "High": [b"large"],
        "description": [["a red square", "a square"]],
        "mask_video": RECORDS[:1],
    }
    path = write(tmp_path / "t.parquet", rows)
    part = looked(path)
    assert content(part.sources[0], tmp_path) == b"video 0"
    chosen = looked(path, Columns(video="high"))
    assert (captions(chosen), content(chosen.sources[0], tmp_path)) == ({"000000.mp4": "a red square"}, b"large")
    assert chosen.refused == {
        "mask_video": "another column of videos or pictures: name it with video_column to take it instead"
    }
    with pytest.raises(
        DataError, match="no column of videos called 'none', .* name one of low, High, .* with video_column"
    ):
        assert not survey([path], columns=Columns(video="none")).sources


@pytest.mark.parametrize("notes", ["[" * 100_000, "null", '{"info": {"features": [1]}}'])
def test_a_table_whose_notes_are_damaged_is_read_by_its_columns(tmp_path: Path, notes: str) -> None:
    part = looked(write(tmp_path / "t.parquet", {"video": [b"pixels"], "text": ["a red square"]}, notes=notes))
    assert content(part.sources[0], tmp_path) == b"pixels"


# ---- tables of names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "features"),
    [
        ({"file_name": ["b.mp4", "a.mp4"], "text": ["B", "A"]}, None),
        ({"video_id": [2, 1], "caption": [["B", "b"], ["A"]]}, None),
        (
            {"video": [{"bytes": None, "path": "b.mp4"}, {"bytes": None, "path": "a.mp4"}], "text": ["B", "A"]},
            {"video": "Video"},
        ),
        ({"url": ["https://x/watch?v=1", "https://x/watch?v=2"], "key": ["b", "a"], "caption": ["B", "A"]}, None),
    ],
)
def test_a_table_of_names_captions_the_files_beside_it(
    tmp_path: Path, rows: dict[str, Any], features: dict[str, str] | None
) -> None:
    given = tmp_path / "given"
    write(given / "all.parquet", rows, features=features)
    for name in ("1.mp4", "2.mp4") if "video_id" in rows else ("a.mp4", "b.mp4"):
        write(given / name, b"v")
    assert list(captions(survey([given])).values()) == ["B", "A"]
    assert list(captions(survey([given / "all.parquet", *given.glob("*.mp4")])).values()) == ["B", "A"]


def test_a_table_without_videos_and_names_is_named_with_its_columns(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", {"number": [1.5], "pixels": [b"video"]})
    write(tmp_path / "a.mp4", b"v")
    said = "it has no column of videos, nor of their names: name one of number, pixels with video_column"
    assert looked(tmp_path).refused == {"t.parquet": said}
    assert survey([tmp_path / "t.parquet"]).refused == {"t.parquet": said}
    assert list(captions(survey([tmp_path], columns=Columns(video="pixels")))) == ["a.mp4", "000000.mp4"]


def test_a_table_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "given" / "t.parquet", b"PAR1 not")
    write(tmp_path / "given" / "a.mp4", b"v")
    assert "t.parquet cannot be read (" in looked(tmp_path / "given").refused["t.parquet"]
    write(path, {"video": []}, features={"video": "Video"})
    assert looked(tmp_path / "given").refused["t.parquet"] == "it has no rows"
    monkeypatch.setattr(archives, "MOST_TEXT_BYTES", 10)
    write(path, {"file_name": ["a.mp4"], "text": ["a long caption"]})
    assert "MB of captions: split the table" in looked(tmp_path / "given").refused["t.parquet"]
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    remedy = r"needs pyarrow: pip install 'video-lora-workbench[parquet]'"
    assert remedy in looked(tmp_path / "given").refused["t.parquet"]
    assert remedy in survey([path]).refused["t.parquet"]
