"""Captions that lie around archives, in tables, lists and texts, reach the videos inside."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.drawing import MakeClip
from tests.shell import Shell
from workbench.clips.records import read_clips
from workbench.dataset_builder.sources.layouts.base import Problem
from workbench.dataset_builder.sources.survey import Survey, survey
from workbench.workspace import Workspace

AB = ("a.mp4", "b.mp4")
TABLE = "file_name,text\na.mp4,A\nb.mp4,B\n"
Members = Mapping[str, bytes] | Iterable[str]


def packed(members: Members, ending: str) -> bytes:
    data = members if isinstance(members, Mapping) else dict.fromkeys(members, b"v")
    file = io.BytesIO()
    if ending == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in data.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(fileobj=file, mode="w:gz" if ending.endswith("gz") else "w") as tar:
            for name, content in data.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def write(folder: Path, files: Mapping[str, str], archives: Mapping[str, Members]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, members in archives.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(packed(members, name.partition(".")[2]))
    return folder


def captions(found: Survey) -> dict[str, str]:
    return {f"{s.path.name}::{s.member}" if s.member else s.name: s.caption for s in found.sources}


def problems(found: Survey) -> dict[Problem, tuple[str, ...]]:
    return {kind: names for part in found.found for kind, names in part.problems.items()}


@pytest.mark.parametrize("archive", ["clips.zip", "clips.tar", "clips.tar.gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("captions.csv", TABLE),
        ("captions.csv", "file_name,text\nclips/a.mp4,A\nclips/b.mp4,B\n"),
        ("captions.csv", "file_name,text\n{}/a.mp4,A\n./{}/b.mp4,B\n"),
        ("captions.csv", "file_name,text\n{}::a.mp4,A\nzip://b.mp4::{},B\n"),
        ("metadata.jsonl", '{{"file_name": "a.mp4", "text": "A"}}\n{{"file_name": "b", "text": "B"}}\n'),
        ("prompts.txt", "a.mp4|A\nclips/b.mp4|B\n"),
    ],
)
def test_a_table_beside_an_archive_captions_its_members(tmp_path: Path, archive: str, name: str, text: str) -> None:
    given = write(tmp_path / "given", {name: text.format(archive, archive)}, {archive: AB})
    expected = {f"{archive}::a.mp4": "A", f"{archive}::b.mp4": "B"}
    for paths in ([given], [given / archive, given / name], [given / name, given / archive]):
        found = survey(paths)
        assert captions(found) == expected
        assert not problems(found), "no name is said to be found by its end"
        assert not found.refused


def test_lists_and_texts_around_an_archive_count_as_beside_its_members(tmp_path: Path) -> None:
    lists = {"prompts.txt": "A\nB\n", "videos.txt": "a.mp4\nb.mp4\n"}
    assert captions(survey([write(tmp_path / "lists", lists, {"v.zip": AB})])) == {
        "v.zip::a.mp4": "A",
        "v.zip::b.mp4": "B",
    }
    texts = {"captions/a.txt": "A", "b.txt": "B"}
    found = survey([write(tmp_path / "texts", texts, {"v.zip": AB})])
    assert captions(found) == {"v.zip::a.mp4": "A", "v.zip::b.mp4": "B"}
    assert found.sentences[0].startswith("v.zip: Folders videos and labels: 2 videos, 2 captions")


def test_members_of_several_archives_and_files_beside_them_are_told_apart(tmp_path: Path) -> None:
    table = "file_name,text\na.mp4,A\nb.mp4,B\none/c.mp4,1\ntwo.zip/c.mp4,2\nd.mp4,D\ngone.mp4,G\ne.mp4,E\n"
    given = write(
        tmp_path / "given",
        {"t.csv": table, "d.mp4": "v"},
        {"one.zip": ("a.mp4", "c.mp4", "e.mp4"), "two.zip": ("x/b.mp4", "x/c.mp4", "x/e.mp4")},
    )
    found = survey([given])
    assert captions(found) == {
        "d.mp4": "D",
        **{"one.zip::a.mp4": "A", "one.zip::c.mp4": "1", "one.zip::e.mp4": ""},
        **{"two.zip::x/b.mp4": "B", "two.zip::x/c.mp4": "2", "two.zip::x/e.mp4": ""},
    }
    assert problems(found) == {
        Problem.NO_VIDEO: ("gone.mp4",),
        Problem.AMBIGUOUS: ("e.mp4 (one/e.mp4, two/e.mp4)",),
        Problem.NO_CAPTION: ("e.mp4", "e.mp4"),
    }


def test_a_table_of_a_folder_reaches_the_archives_below_it(tmp_path: Path) -> None:
    tables = {
        "train/t.csv": "file_name,text\na.mp4,A\n",
        "all.csv": "file_name,text\nval/b.mp4,B\n/data/val/clips/c.mp4,C\n",
    }
    given = write(tmp_path / "given", tables, {"train/clips.zip": AB, "val/clips.zip": ("b.mp4", "c.mp4")})
    found = survey([given]).sources
    assert [(source.path.parent.name, source.member, source.caption) for source in found] == [
        *(("train", "a.mp4", "A"), ("train", "b.mp4", "")),
        *(("val", "b.mp4", "B"), ("val", "c.mp4", "C")),
    ]


def test_what_is_inside_counts_before_what_is_around_and_shards_stay_shards(tmp_path: Path) -> None:
    members = {"000.mp4": b"v", "000.txt": b"inside", "001.mp4": b"v"}
    table = {"t.csv": "file_name,text\n000.mp4,around\n001.mp4,one\n", "00_stats.json": '{"count": 2}'}
    found = survey([write(tmp_path / "given", table, {"00.tar": members})])
    assert [source.caption for source in found.sources] == ["inside", "one"]
    assert [part.layout for part in found.found] == ["csv", "webdataset"]
    assert problems(found)[Problem.DIFFERS] == ("000.mp4 (next to the archive)",)
    assert problems(found)[Problem.NOT_READ][0].startswith("00_stats.json (there is no list of records")
    assert found.sentences[0] == "given: Table metadata.csv: 2 captions of videos in archives"


def test_first_frames_and_control_clips_in_an_archive_are_no_clips(tmp_path: Path) -> None:
    table = "file_name,text,first_frame,control_path\na.mp4,A,f.png,ctl/a.mp4\n"
    (source,) = survey([write(tmp_path, {"t.csv": table}, {"v.zip": ("a.mp4", "f.png", "ctl/a.mp4")})]).sources
    assert (source.caption, source.first_frame and source.first_frame.key) == ("A", f"{tmp_path}/v.zip::f.png")


def test_numbered_frames_in_an_archive_are_captioned_from_around_it(tmp_path: Path) -> None:
    frames = [f"walk/{number:03d}.png" for number in range(6)]
    given = write(tmp_path / "given", {"t.csv": "file_name,text\nwalk,W\n"}, {"v.zip": ["a.mp4", *frames]})
    found = survey([given], frame_rate=8.0)
    assert {source.name: source.caption for source in found.sources if source.frames} == {"walk": "W"}


def test_the_import_takes_the_captions_over(
    tmp_path: Path, make_clip: MakeClip, shell: Shell, workspace: Workspace
) -> None:
    clip = make_clip(tmp_path / "clip.mp4").read_bytes()
    given = write(
        tmp_path / "given", {"captions.csv": "video;caption\nclips/a.mp4;a cat\n"}, {"clips.zip": {"a.mp4": clip}}
    )
    assert shell("dataset", "import", "cats", given).code == 0
    assert [found.text for found in read_clips(workspace.dataset("cats"))] == ["a cat"]
