"""Captions and companion files from tables, text files, lists, parquet, folders and file names."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dataset_builder import tables
from tests.drawing import MakeClip
from tests.shell import Shell
from workbench.clips.records import read_clips
from workbench.dataset_builder.sources import archives, files
from workbench.dataset_builder.sources.columns import USUAL, Columns
from workbench.dataset_builder.sources.layouts.base import Problem
from workbench.dataset_builder.sources.survey import Survey, SurveyedFiles, survey
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.errors import DataError
from workbench.workspace import Workspace

CLIPS = {"a.mp4": "v", "b.mp4": "v", "c.mp4": "v"}
Files = dict[str, Any]


def write(folder: Path, files: Files) -> Path:
    """Write files by name: text, bytes, or a value to write as JSON."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = data if isinstance(data, str | bytes) else json.dumps(data)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def zipped(*names: str) -> bytes:
    """Return a zip with members of these names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"v")
    return file.getvalue()


def looked(folder: Path, files: Files, columns: Columns = USUAL, layout: str = "") -> Survey:
    return survey([write(folder / "given", files)], layout, columns)


def captions(found: Survey) -> dict[str, str]:
    """Return file -> caption, without files that have none."""
    root = found.found[0].path
    return {s.member or s.path.relative_to(root).as_posix(): s.caption for s in found.sources if s.caption}


def problems(found: Survey) -> dict[Problem, tuple[str, ...]]:
    return {kind: names for kind, names in found.found[0].problems.items() if kind is not Problem.NO_CAPTION}


# ---- CSV and its kin ------------------------------------------------------------------------------------------------

LINE_2 = ("metadata.csv, line 2",)


@pytest.mark.parametrize(
    ("table", "expected", "said"),
    [
        ("file_name,text\na.mp4,a cat, sitting, on\nb.mp4,B", ("a cat, sitting, on", "B"), {Problem.JOINED}),
        ("prompt,video\na cat, sitting,a.mp4\n\"B\",b.mp4", ("a cat, sitting", "B"), {Problem.JOINED}),
        ("file_name,text,fps\na.mp4,a cat, sitting,8\nb.mp4,B,8", ("a cat, sitting", "B"), {Problem.JOINED}),
        ('file_name,text\na.mp4,"A", and more\nb.mp4,B', ('"A", and more', "B"), {Problem.JOINED}),
        ("file_name,text\na.mp4,A,,\nb.mp4,B,", ("A", "B"), set()),
        ("file_name,text,\na.mp4,A, a,\nb.mp4,B,", ("A, a", "B"), {Problem.JOINED}),
        ("file_name,text,text\na.mp4,A,A2\nb.mp4,,B", ("A", "B"), {Problem.OTHER_TEXT}),
        ("file_name;text\na.mp4;a cat, sitting\nb.mp4;B", ("a cat, sitting", "B"), set()),
        ("file_name\ttext\na.mp4\ta; cat | dog\nb.mp4\tB", ("a; cat | dog", "B"), set()),
        ("sep=;\nfile_name;text\na.mp4;A\nb.mp4;B", ("A", "B"), set()),
        (" File-Name, TEXT \na.mp4, A\nb.mp4, B", ("A", "B"), set()),
        (",file_name,text\n0,a.mp4,A\n1,b.mp4,\"B, b\"", ("A", "B, b"), set()),
        ('file_name,text\na.mp4,"a ""big"" cat"\nb.mp4,"two\nlines, here"', ('a "big" cat', "two lines, here"), set()),
        ('file_name,text\na.mp4,the "big" cat\nb.mp4,a 5" nail', ('the "big" cat', 'a 5" nail'), set()),
        ('file_name,text\na.mp4,"Big" cat\nb.mp4,"a "big" cat"', ('"Big" cat', 'a "big" cat'), set()),
        ('file_name,text\na.mp4,"he said \\"hi\\", ok"\nb.mp4,"""tis"', ('he said "hi", ok', '"tis'), set()),
        ('file_name,text\na.mp4,"a cat\nb.mp4,B\nc.mp4,C', ("a cat", "B", "C"), {Problem.OPEN_QUOTE}),
        ('file_name,text\na.mp4,"a cat\nb.mp4,"B"\nc.mp4,see "C"', ("a cat", "B", 'see "C"'), {Problem.OPEN_QUOTE}),
        ('text,path\n"a cat,a.mp4\nB,b.mp4\n"C, c",c.mp4', ("a cat", "B", "C, c"), {Problem.OPEN_QUOTE}),
        ("a.mp4,a cat\nb.mp4,B", ("a cat", "B"), set()),
        ("a cat\ta.mp4\nB\tb.mp4", ("a cat", "B"), set()),
        ("videoID,caption\na,A\nb,B", ("A", "B"), set()),
        ('file_name,text\na.mp4,="A"\nb.mp4,"=""B, b"""', ("A", "B, b"), set()),
        ("made by x\n# at noon, in May\nfile_name,text\na.mp4,A\nb.mp4,B", ("A", "B"), {Problem.BROKEN}),
    ],
)  # fmt: skip
def test_every_dialect_keeps_every_word(tmp_path: Path, table: str, expected: tuple[str, ...], said: set[str]) -> None:
    found = looked(tmp_path, {**CLIPS, "metadata.csv": table.encode("utf-16" if "cat" in table else "utf-8-sig")})
    assert captions(found) == dict(zip(CLIPS, expected, strict=False))
    assert set(problems(found)) == said
    assert not said & {Problem.JOINED, Problem.OPEN_QUOTE} or LINE_2 in problems(found).values()


@pytest.mark.parametrize(
    ("name", "table", "expected", "said"),
    [
        ("captions.txt", "a.mp4|A, a\nb.mp4|B | b", ("A, a", "B | b"), {Problem.JOINED}),
        ("videos.txt", "a.mp4|A\r\nb.mp4|B\r\n", ("A", "B"), set()),
        ("all.lst", "a|A\nb|B", ("A", "B"), set()),
        ("x/all.list", "../a.mp4\tA\nb.mp4\tB", ("A", "B"), set()),
        ("lj.csv", "a|A cat|a cat\nb|B|B", ("A cat", "B"), {Problem.OTHER_TEXT}),
        ("vits.txt", "a.mp4|3|A\nb.mp4|12|B\n", ("A", "B"), {Problem.OTHER_TEXT}),
        ("bare.csv", "a,A\nb,B", ("A", "B"), set()),
        ("head.txt", "file|caption\na.mp4|A\nb.mp4|B", ("A", "B"), set()),
        ("colon.txt", "a.mp4: A\nb.mp4:B", ("A", "B"), set()),
        ("blank.txt", "a.mp4 A cat\nb.mp4   B", ("A cat", "B"), set()),
        ("msvd.txt", "a a cat\nb B\na A", ("A", "B"), {Problem.TWICE}),
        ("odd.txt", "a.mp4|A\n# a remark\nb.mp4|B\ngone.mp4|G", ("A", "B"), {Problem.BROKEN, Problem.NO_VIDEO}),
        ("flickr.txt", "a.mp4#0\tA0\na.mp4#1\tA\nb.mp4#0\tB", ("A", "B"), {Problem.TWICE}),
        ("README.txt", "All clips\n\na.mp4 - A\nb.mp4 - B", ("A", "B"), {Problem.BROKEN}),
        ("lines.txt", '{"file_name": "a.mp4", "text": "A"}\n["b.mp4", "B"]', ("A", "B"), set()),
        ("other.txt", '{"lr": 1}', (), {Problem.UNPAIRED_TEXT}),
        ("kinetics.txt", "a.mp4 0\nb.mp4 1", (), {Problem.UNPAIRED_TEXT}),
        ("prose.txt", "a cat sits here, b walks\nand a.mp4 shows it", (), {Problem.UNPAIRED_TEXT}),
        ("notes.txt", "a cat that left", (), {Problem.UNPAIRED_TEXT}),
        ("flat.txt", "a.mp4\nb.mp4\n", (), {Problem.UNPAIRED_TEXT}),
    ],
)  # fmt: skip
def test_lines_with_a_name_and_a_caption(
    tmp_path: Path, name: str, table: str, expected: tuple[str, ...], said: set[Problem]
) -> None:
    found = looked(tmp_path, {**CLIPS, name: f"\ufeff{table}"})
    assert captions(found) == dict(zip(CLIPS, expected, strict=False))
    assert set(problems(found)) == said


def test_unusable_rows_are_named(tmp_path: Path) -> None:
    table = "file_name,text\na.mp4,nan\n,lost words\nb.mp4,None\nc.mp4\ngone.mp4,G\nand a second line\n"
    found = looked(tmp_path, {**CLIPS, "metadata.csv": table})
    assert captions(found) == {}
    assert found.found[0].problems == {
        Problem.NO_TEXT: ("metadata.csv, line 2 (it says nan)", "metadata.csv, line 4 (it says None)"),
        Problem.BROKEN: ("metadata.csv, line 7",),
        Problem.NO_VIDEO: ("gone.mp4",),
        Problem.NO_NAME: ("metadata.csv, line 3",),
        Problem.NO_CAPTION: tuple(CLIPS),
    }


def test_a_line_in_another_encoding_affects_no_other(tmp_path: Path) -> None:
    table = "file_name,text\na.mp4,café ☕\nb.mp4,été\n".encode() + b"c.mp4,caf\xe9\n"
    found = looked(tmp_path, {**CLIPS, "metadata.csv": table})
    assert captions(found) == {"a.mp4": "café ☕", "b.mp4": "été", "c.mp4": "café"}
    assert problems(found) == {Problem.ENCODING: ("metadata.csv (UTF-8, but for 1 line)",)}


# ---- other names, keys and shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("dataset.json", [{"caption": "A", "media_path": "a.mp4"}, {"caption": "B", "media_path": "./b.mp4"}]),
        ("captions.json", {"a.mp4": ["A"], "b.mp4": "B"}),
        ("train.jsonl", '{"video_path": "/x/a.mp4", "caption": "A"}\n{"video_path": "/x/b.mp4", "caption": "B"}\n'),
        ("x/TRAIN.TSV", "Video\tCaption\na.mp4\tA\nb.mp4\tB\n"),
        ("panda.csv", 'videoID,caption,timestamp\na,"[\'A\']","[1, 2]"\nb,"[""B""]",x\n'),
        ("odd.jsonl", '{"clip_uri": "a.mp4", "description": "A"}\n["b.mp4", "B"]\n'),
        ("columns.json", {"file_name": ["a.mp4", "b.mp4"], "text": ["A", "B"]}),
        ("pandas.json", {"file_name": {"0": "a.mp4", "1": "b.mp4"}, "text": {"0": "A", "1": "B"}}),
        ("split.json", {"columns": ["file_name", "text"], "index": [0, 1], "data": [["a.mp4", "A"], ["b.mp4", "B"]]}),
        ("wrapped.json", {"n": 2, "data": {"x": [{"video": "a", "text": "A"}], "y": [{"video": "b", "text": "B"}]}}),
        ("kohya.json", {"/x/a": {"caption": "A", "fps": "8"}, "/x/b": {"caption": "B"}}),
        ("coco.json", {"images": [{"id": 1, "file_name": "a.mp4"}, {"id": 2, "file_name": "b.mp4"}],
                       "annotations": [{"image_id": 2, "caption": "B"}, {"id": 3, "image_id": 1, "caption": "A"}]}),
        ("metadata.jsonl", '[\n {"file_name": "a.mp4", "text": "A"},\n {"file_name": "b.mp4", "text": "B"}\n]'),
        ("lines.json", '{"file_name": "a.mp4", "text": "A"}\n{"file_name": "b.mp4", "text": "B"}'),
        ("activitynet.json", {"a": {"duration": 3, "sentences": ["A"]}, "b": {"sentences": ["B"]}}),
        ("youcook.json", {"database": {"a": {"annotations": [{"segment": [0, 1], "sentence": "A"}]},
                                       "b": {"annotations": [{"sentence": "B"}]}}}),
        ("msrvtt.json", {"videos": [{"video_id": "a", "id": 0}, {"video_id": "b", "id": 1}],
                         "sentences": [{"caption": "A", "video_id": "a"}, {"caption": "B", "video_id": "b"}]}),
        ("vatex.json", [{"videoID": "a", "enCap": ["A"], "chCap": ["C"]}, {"videoID": "b", "enCap": ["B"]}]),
        ("llava.json", [{"video": "a.mp4", "conversations": [{"from": "human", "value": "<video>"},
                                                             {"from": "gpt", "value": "A"}]},
                        {"videos": ["b.mp4"], "messages": [{"role": "user", "content": "?"},
                                                           {"role": "assistant", "content": "B"}]}]),
        ("python.jsonl", "{'file_name': 'a.mp4', 'text': 'A'}\n{'file_name': 'b.mp4', 'text': \"B\"}\n"),
        ("pretty.jsonl", '{\n "file_name": "a.mp4",\n "text": "A"\n}\n{\n "file_name": "b.mp4",\n "text": "B"\n}\n'),
        ("comma.json", '[{"file_name": "a.mp4", "text": "A"},\n{"file_name": "b.mp4", "text": "B"},\n]'),
        ("dict.jsonl", '{"video": {"path": "a.mp4"}, "cap": {"de": "", "en": "A"}}\n{"video": ["b.mp4"], "cap": "B"}'),
    ],
)  # fmt: skip
def test_tables_of_any_name_are_read(tmp_path: Path, name: str, table: Any) -> None:
    found = looked(tmp_path, {**CLIPS, name: table})
    assert captions(found) == {"a.mp4": "A", "b.mp4": "B"}
    assert not set(problems(found)) & {Problem.NOT_READ, Problem.NO_COLUMN, Problem.NO_NAMES, Problem.AMBIGUOUS}


def test_a_gzipped_table_is_read_like_the_table(tmp_path: Path) -> None:
    table = gzip.compress(b"file_name,text\na.mp4,A\nb.mp4,B\n")
    given = write(tmp_path / "given", {**CLIPS, "captions.csv.GZ": table, "c.txt.gz": gzip.compress(b"C")})
    for paths in ([given], sorted(given.iterdir())):
        found = survey(paths)
        assert {s.name: s.caption for s in found.sources} == {"a.mp4": "A", "b.mp4": "B", "c.mp4": "C"}
        assert not problems(found)
    twice = survey([write(given, {"captions.csv": "file_name,text\na.mp4,plain\n", "captions.csv.gz": table})])
    assert "captions.csv.gz" in twice.not_read
    assert captions(twice)["a.mp4"] == "plain"
    write(given, {"d.csv.gz": table[:-12]})
    with pytest.raises(DataError, match=r"d\.csv\.gz cannot be read \(.*\): copy it again"):
        survey([given])


def test_a_text_that_is_too_long_is_named_and_never_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_TEXT_BYTES", 30)
    found = looked(tmp_path, {**CLIPS, "t.csv": "file_name,text\na.mp4,A\nb.mp4,B\n", "c.txt": "C"})
    assert captions(found) == {"c.mp4": "C"}
    assert found.not_read == {"t.csv": files.TOO_LONG}


def test_cells_without_text_are_described(tmp_path: Path) -> None:
    rows = [["one", "two"], None, 5, {"en": "E", "zh": "Z"}, {"license": "cc0"}, []]
    clips = {f"{number}.mp4": "v" for number in range(len(rows))}
    table = "".join(
        json.dumps({"file_name": name, "text": text}) + "\n" for name, text in zip(clips, rows, strict=True)
    )
    found = looked(tmp_path, {**clips, "metadata.jsonl": table})
    assert captions(found) == {"0.mp4": "one", "3.mp4": "E"}
    assert problems(found) == {
        Problem.SEVERAL: ("metadata.jsonl, line 1", "metadata.jsonl, line 4"),
        Problem.NO_TEXT: (
            "metadata.jsonl, line 2 (nothing)",
            "metadata.jsonl, line 3 (a number)",
            "metadata.jsonl, line 5 (no text in a record)",
            "metadata.jsonl, line 6 (an empty list)",
        ),
    }


def test_files_that_are_not_read_are_named_with_the_reason(tmp_path: Path) -> None:
    files = {
        "a.mp4": "v", "config.json": {"lr": 1}, "b.JSON": '{"x":', "e.csv": "", "t.csv": "x,y\n1,2\n",
        "README.TXT": ".",
    }  # fmt: skip
    found = looked(
        tmp_path, {**files, "prompts.txt": "A\n", "sub/video": "bytes", "three.csv": "a.mp4,x,A\n", "x.yaml": ""}
    )
    reasons = problems(found)
    assert [name.partition(" (")[0] for name in reasons[Problem.NOT_READ]] == [
        *("b.JSON", "config.json", "e.csv", "prompts.txt", "t.csv", "three.csv"),
    ]
    assert "it is not JSON" in reasons[Problem.NOT_READ][0]
    assert "no column of file names or captions among x, y" in reasons[Problem.NOT_READ][4]
    assert reasons[Problem.UNPAIRED_TEXT] == ("README.TXT",)
    assert reasons[Problem.OTHER] == ("sub/video", "x.yaml")
    spreadsheet = looked(tmp_path / "sheet", {"a.mp4": "v", "captions.xlsx": "PK"})
    assert spreadsheet.not_read == {"captions.xlsx": "a spreadsheet, which is not supported: save it as CSV"}
    (tmp_path / "alone").mkdir()
    assert "captions without videos" in survey([write(tmp_path / "alone", {"dataset.json": []})]).sentences[0]


def test_control_clips_and_masks_are_not_clips(tmp_path: Path) -> None:
    rows = [
        {
            "video_path": "/x/a.mp4",
            "caption": "A",
            "control_path": "/x/ctl/a.mp4",
            "mask": "m.png",
            "source": "film.mov",
        }
    ]
    found = looked(tmp_path, {"a.mp4": "v", "ctl/a.mp4": "v", "m.png": "p", "data.jsonl": json.dumps(rows[0])})
    assert [source.name for source in found.sources] == ["a.mp4"]
    (source,) = found.sources
    assert [(kind, file.name) for kind, file in source.companions] == [("control", "a.mp4"), ("mask", "m.png")]
    assert Problem.COMPANION not in problems(found)


def test_overridden_captions_are_reported(tmp_path: Path) -> None:
    table = {"file_name": "a.mp4", "caption": "long", "short_caption": "short"}
    found = looked(tmp_path, {"a.mp4": "v", "t.json": [table], "a.txt": "beside", "a.json": {"prompt": "third"}})
    assert captions(found) == {"a.mp4": "beside"}
    assert problems(found) == {
        Problem.OTHER_TEXT: ("t.json (short_caption)",),
        Problem.DIFFERS: ("a.mp4 (a.json)", "a.mp4 (in a table)"),
    }


# ---- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("/data/moved/train/é 1.mp4", Problem.BY_END),
        ("C:\\data\\train\\é 1.mp4", Problem.BY_END),
        (".\\train\\e\u0301 1.mp4", None),
        ("./train/../train/é 1.mp4", None),
        ("file:///data/train/%C3%A9%201.mp4", Problem.BY_END),
        ("https://host/x/train/é 1.mp4?download=true", Problem.BY_END),
        ("Train/É 1.MP4", Problem.BY_CASE),
        ("train/é 1", None),
    ],
)
def test_a_path_from_elsewhere_finds_its_file(tmp_path: Path, named: str, said: Problem | None) -> None:
    rows = [{"path": named, "text": "right"}, {"path": str(tmp_path / "given/val/é 1.mp4"), "text": "other"}]
    found = looked(tmp_path, {"train/é 1.mp4": "v", "val/é 1.mp4": "v", "t.json": rows})
    assert captions(found) == {"train/é 1.mp4": "right", "val/é 1.mp4": "other"}
    assert set(problems(found)) == ({said} if said else set())


@pytest.mark.parametrize(
    ("clips", "rows"),
    [
        (("x/a.mp4", "y/a.mp4"), {"/data/a.mp4": "A"}),
        (("a.mp4",), {"/data/x/a.mp4": "X", "/data/y/a.mp4": "Y"}),
        (("a.mp4", "A.mp4"), {"A.MP4": "A"}),
    ],
)
def test_an_ambiguous_path_captions_no_file(tmp_path: Path, clips: tuple[str, ...], rows: Files) -> None:
    found = looked(tmp_path, {**dict.fromkeys(clips, "v"), "captions.json": rows})
    assert captions(found) == {}
    assert set(problems(found)) == {Problem.AMBIGUOUS}


def test_a_table_never_captions_the_videos_of_another_folder(tmp_path: Path) -> None:
    tables = {
        "train/metadata.csv": "file_name,text\na.mp4,T\n",
        "val/metadata.csv": "file_name,text\na.mp4,V\nb.mp4,B\n",
    }
    found = looked(tmp_path, {"train/a.mp4": "v", "val/b.mp4": "v", **tables})
    assert captions(found) == {"train/a.mp4": "T", "val/b.mp4": "B"}
    assert problems(found) == {Problem.NO_VIDEO: ("val/a.mp4",)}


# ---- texts, labels, lists -------------------------------------------------------------------------------------------


def test_text_files_are_found_in_any_case_folder_and_format(tmp_path: Path) -> None:
    files = {"A.MP4": "v", "a.TXT": "A", "b.mp4": "v", "b.mp4.txt": "B", "c.mp4": "v", "c.Json": {"caption": "C"}}
    deep = {"x/videos/s/d.mp4": "v", "x/labels/s/D.txt": "D", "y/clips/e.mp4": "v", "y/Captions/e.txt": "E"}
    rest = {"z/f.mp4": "v", "z/prompts/f.caption": "F", "captions/gone.txt": "G"}
    found = looked(tmp_path, {**files, **deep, **rest})
    assert captions(found) == {
        **{"A.MP4": "A", "b.mp4": "B", "c.mp4": "C"},
        **{"x/videos/s/d.mp4": "D", "y/clips/e.mp4": "E", "z/f.mp4": "F"},
    }
    assert problems(found) == {Problem.UNPAIRED_TEXT: ("captions/gone.txt",)}
    twins = looked(tmp_path / "twins", {"train/a.mp4": "v", "val/a.mp4": "v", "captions/a.txt": "whose?"})
    assert (captions(twins), problems(twins)) == ({}, {Problem.UNPAIRED_TEXT: ("captions/a.txt",)})


def test_the_first_line_option(tmp_path: Path) -> None:
    files = {"videos/a.mp4": "v", "labels/a.txt": "first\nsecond", "b.mp4": "v", "b.txt": "one\ntwo"}
    assert captions(looked(tmp_path, files)) == {"videos/a.mp4": "first second", "b.mp4": "one two"}
    assert captions(looked(tmp_path, files, Columns(first_line=True))) == {"videos/a.mp4": "first", "b.mp4": "one"}


@pytest.mark.parametrize(
    ("videos", "texts", "columns"),
    [
        ("videos.txt", "prompts.txt", Columns()),
        ("Videos.TXT", "prompt.txt", Columns()),
        ("video", "text", Columns()),
        ("files.lst", "captions.lst", Columns("files.lst", "captions.lst")),
        ("files.lst", "prompts.txt", Columns("files.lst")),
        ("videos.txt", "wording.md", Columns(caption="wording.md")),
    ],
)
def test_lists_are_read_in_every_folder(tmp_path: Path, videos: str, texts: str, columns: Columns) -> None:
    found = looked(
        tmp_path,
        {
            **{f"{folder}/v/{name}.mp4": "v" for folder in ("train", "val") for name in "ab"},
            **{f"train/{videos}": "v/a.mp4\nv/b.mp4\n", f"train/{texts}": "TA\nTB\n"},
            **{f"val/{videos}": "val/v/b.mp4\nval/v/a.mp4\n", f"val/{texts}": "VB\nVA\n"},
        },
        columns,
    )
    assert captions(found) == {"train/v/a.mp4": "TA", "train/v/b.mp4": "TB", "val/v/a.mp4": "VA", "val/v/b.mp4": "VB"}
    assert (found.found[0].layout, problems(found)) == ("lists", {})


def test_one_folder_may_have_several_layouts(tmp_path: Path) -> None:
    lists = {"1/videos.txt": "a.mp4\n", "1/prompts.txt": "list\n", "1/a.mp4": "v"}
    table = {"2/metadata.csv": "file_name,text\nb.mp4,table\n", "2/b.mp4": "v"}
    files = {**lists, **table, "3/c.mp4": "v", "3/c.txt": "text"}
    assert captions(looked(tmp_path, files)) == {"1/a.mp4": "list", "2/b.mp4": "table", "3/c.mp4": "text"}
    alone = looked(tmp_path, files, layout="csv")
    assert captions(alone) == {"2/b.mp4": "table"}
    assert len(problems(alone)[Problem.NOT_READ]) == 3


def test_caption_column_names_the_extension_of_shard_members(tmp_path: Path) -> None:
    write(tmp_path, {"000.mp4": "v", "000.longcap": "long", "000.txt": "short", "001.mp4": "v", "001.longcap": "one"})
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for path in sorted(tmp_path.glob("00*")):
            tar.add(path, path.name)
    (part,) = survey([tmp_path / "s.tar"], columns=Columns(caption="longcap")).found
    assert [source.caption for source in part.sources] == ["long", "one"]
    assert part.problems == {Problem.DIFFERS: ("000.mp4 (000.txt)",)}
    assert [source.caption for source in survey([tmp_path / "s.tar"]).sources] == ["short", ""]


@pytest.mark.parametrize("setting", ["video", "caption"])
def test_a_column_setting_without_a_match_is_rejected(tmp_path: Path, setting: str) -> None:
    columns = Columns(**{setting: "files.lst"})
    with pytest.raises(DataError, match=f"{setting}_column is 'files.lst', but no list"):
        looked(tmp_path / "without", {"a.mp4": "v", "a.txt": "A"}, columns)
    with pytest.raises(
        DataError, match=f"{setting}_column is 'files.lst', which is not a column of t.csv .columns: file_name, text."
    ):
        looked(tmp_path / "with", {"a.mp4": "v", "t.csv": "file_name,text\na.mp4,A\n"}, columns)


# ---- tables with videos in them


RECORDS = [{"bytes": b"video %d" % number, "path": f"x/{number}.webm"} for number in range(5)]


def write_parquet(path: Path, data: bytes | str | Mapping[str, Any], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, Mapping):
        data = tables.parquet(data, **more)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def looked_at(path: Path, columns: Columns = USUAL) -> SurveyedFiles:
    (part,) = survey([path], columns=columns).found
    return part


def captions_in(found: Survey | SurveyedFiles) -> dict[str, str]:
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
        write_parquet(given / f"train-{number}.parquet", rows, features={"video": "Video"})
    said = shell("dataset", "preview", given).out
    assert "given: Hub dataset (VideoFolder): 2 videos, 2 archives, 2 captions" in said
    assert shell("dataset", "import", "cats", given).code == 0
    assert sorted(clip.text for clip in read_clips(workspace.dataset("cats"))) == ["clip 0", "clip 1"]
    assert sorted(os.listdir(given)) == ["train-0.parquet", "train-1.parquet"], "no file is written next to a table"


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
    part = looked_at(write_parquet(tmp_path / "t.parquet", rows))
    assert [source.name for source in part.sources] == names
    assert [content(source, tmp_path) for source in part.sources] == [b"abc"[int(name[:6]) :][:1] for name in names]
    assert [source.caption for source in part.sources] == (["C"] if "json" in rows else [""] * len(names))


def test_one_column_is_imported_and_the_others_are_named(tmp_path: Path) -> None:
    rows = {
        "low": [b"small"],
        "High": [b"large"],
        "description": [["a red square", "a square"]],
        "mask_video": RECORDS[:1],
    }
    path = write_parquet(tmp_path / "t.parquet", rows)
    part = looked_at(path)
    assert content(part.sources[0], tmp_path) == b"video 0"
    chosen = looked_at(path, Columns(video="high"))
    assert (captions_in(chosen), content(chosen.sources[0], tmp_path)) == ({"000000.mp4": "a red square"}, b"large")
    assert chosen.refused == {
        "mask_video": "another column of videos or pictures: name it with video_column to use it instead"
    }
    with pytest.raises(
        DataError, match="no column of videos or file names called 'none': name one of low, High, .* with video_column"
    ):
        assert not survey([path], columns=Columns(video="none")).sources


@pytest.mark.parametrize("notes", ["[" * 100_000, "null", '{"info": {"features": [1]}}'])
def test_a_table_with_invalid_metadata_is_read_by_its_columns(tmp_path: Path, notes: str) -> None:
    part = looked_at(
        write_parquet(tmp_path / "t.parquet", {"video": [b"pixels"], "text": ["a red square"]}, notes=notes)
    )
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
    write_parquet(given / "all.parquet", rows, features=features)
    for name in ("1.mp4", "2.mp4") if "video_id" in rows else ("a.mp4", "b.mp4"):
        write_parquet(given / name, b"v")
    assert list(captions_in(survey([given])).values()) == ["B", "A"]
    assert list(captions_in(survey([given / "all.parquet", *given.glob("*.mp4")])).values()) == ["B", "A"]


def test_a_table_without_videos_and_names_is_named_with_its_columns(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t.parquet", {"number": [1.5], "pixels": [b"video"]})
    write_parquet(tmp_path / "a.mp4", b"v")
    said = "it has no column of videos or file names: name one of number, pixels with video_column"
    assert looked_at(tmp_path).refused == {"t.parquet": said}
    assert survey([tmp_path / "t.parquet"]).refused == {"t.parquet": said}
    assert list(captions_in(survey([tmp_path], columns=Columns(video="pixels")))) == ["a.mp4", "000000.mp4"]


def test_a_table_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "given" / "t.parquet", b"PAR1 not")
    write_parquet(tmp_path / "given" / "a.mp4", b"v")
    assert "t.parquet cannot be read (" in looked_at(tmp_path / "given").refused["t.parquet"]
    write_parquet(path, {"video": []}, features={"video": "Video"})
    assert looked_at(tmp_path / "given").refused["t.parquet"] == "it has no rows"
    monkeypatch.setattr(archives, "MOST_TEXT_BYTES", 10)
    write_parquet(path, {"file_name": ["a.mp4"], "text": ["a long caption"]})
    assert "MB of captions: split the table" in looked_at(tmp_path / "given").refused["t.parquet"]
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    remedy = r"needs pyarrow: pip install 'video-lora-workbench[parquet]'"
    assert remedy in looked_at(tmp_path / "given").refused["t.parquet"]
    assert remedy in survey([path]).refused["t.parquet"]


# ---- companion files


def beside(found: Survey) -> dict[str, dict[str, str]]:
    """Return clip -> kind -> the end of the file's path."""
    return {
        source.name: {kind: "/".join(file.key.replace("::", "/").split("/")[-2:]) for kind, file in source.companions}
        for source in found.sources
    }


@pytest.mark.parametrize("folder", ["clips/", "videos/", "", "train/x/"])
@pytest.mark.parametrize(
    ("kind", "where"),
    [("control", "control"), ("control", "controls"), ("mask", "masks"), ("mask", "mask"), ("reference", "references")],
)
def test_companions_by_folder(tmp_path: Path, folder: str, kind: str, where: str) -> None:
    parent = folder.rpartition("/")[0].rpartition("/")[0]
    parent += "/" if parent else ""
    found = looked(tmp_path, {f"{folder}a.mp4": "v", f"{folder}b.mp4": "v", f"{parent}{where}/a.mp4": "m"})
    assert beside(found) == {"a.mp4": {kind: f"{where}/a.mp4"}, "b.mp4": {}}
    assert found.found[0].sentence.count(f"1 {'control clip' if kind == 'control' else kind}") == 1


def test_companions_by_ending(tmp_path: Path) -> None:
    names = ["a.mp4", "a.mask.mp4", "a.control.mkv", "a.reference.png", "a.last.png", "b.mp4", "b.mask.png"]
    found = looked(tmp_path, dict.fromkeys(names, "v"))
    given = {"control": "given/a.control.mkv", "mask": "given/a.mask.mp4"}
    given |= {"reference": "given/a.reference.png", "last_frame": "given/a.last.png"}
    assert beside(found) == {"a.mp4": given, "b.mp4": {"mask": "given/b.mask.png"}}


def test_companions_in_our_own_dataset_folder(tmp_path: Path) -> None:
    row = {"file_name": "clips/1a.mp4", "text": "A", "mask": "clips/1a.mask-0123abcd.mp4", "control": ""}
    files = {"clips/1a.mp4": "v", "clips/1a.mask-0123abcd.mp4": "m", "clips/1a.mask-99999999.mp4": "older"}
    found = looked(tmp_path, {**files, "metadata.jsonl": json.dumps(row)})
    assert beside(found) == {"1a.mp4": {"mask": "clips/1a.mask-0123abcd.mp4"}}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        *(("control", one) for one in ("control_path", "control_file_path", "control_video", "vace_video", "depth")),
        *(("reference", one) for one in ("reference_video", "reference_path", "edit_image", "vace_reference_image")),
        *(("mask", one) for one in ("mask", "video_mask", "mask_path", "loss_mask_path", "vace_video_mask")),
        *(("last_frame", one) for one in ("end_image", "last_image", "last_frame")),
    ],
)
def test_companions_by_column(tmp_path: Path, kind: str, column: str) -> None:
    rows = [{"video": "a.mp4", "prompt": "A", column: "x/p.mp4"}, {"video": "b.mp4", "prompt": "B", column: None}]
    found = looked(tmp_path, {"a.mp4": "v", "b.mp4": "v", "x/p.mp4": "m", "metadata.json": rows})
    assert beside(found) == {"a.mp4": {kind: "x/p.mp4"}, "b.mp4": {}}
    assert problems(found) == {}


def test_missing_and_duplicate_companions_are_reported(tmp_path: Path) -> None:
    rows = [
        {"video_path": "a.mp4", "caption": "A", "control_path_0": "c/0.mp4", "control_path_1": "c/1.mp4"},
        {"video_path": "b.mp4", "caption": "B", "control_path_0": "c/lost.mp4"},
    ]
    files = {"a.mp4": "v", "b.mp4": "v", "c/0.mp4": "c", "c/1.mp4": "c", "masks/a.mp4": "m", "masks/z.mp4": "m"}
    found = looked(tmp_path, {**files, "data.jsonl": "\n".join(map(json.dumps, rows))})
    assert beside(found) == {"a.mp4": {"control": "c/0.mp4", "mask": "masks/a.mp4"}, "b.mp4": {}}
    assert problems(found) == {
        Problem.COMPANION: ("data.jsonl (control_path_1)",),
        Problem.NO_COMPANION: ("c/lost.mp4",),
        Problem.NO_CLIP: ("masks/z.mp4",),
    }


def test_a_folder_of_masks_alone_is_a_folder_of_clips(tmp_path: Path) -> None:
    files = {"venice/a.mp4": "v", "masks/carnival.mp4": "v", "masks/carnival.txt": "a carnival", "venice/a.txt": "A"}
    assert beside(looked(tmp_path, files)) == {"a.mp4": {}, "carnival.mp4": {}}
    same = {"venice/a.mp4": "v", "masks/a.mp4": "v", "masks/a.txt": "a carnival", "venice/a.txt": "A"}
    assert len(looked(tmp_path / "same", same).sources) == 2  # its own caption makes it a clip


def test_a_name_without_a_folder_means_the_clip_not_its_mask(tmp_path: Path) -> None:
    files = {"x/a.mp4": "v", "masks/a.mp4": "m", "captions/a.txt": "A"}
    found = looked(tmp_path, files)
    assert [(source.name, source.caption) for source in found.sources] == [("a.mp4", "A")]
    table = looked(tmp_path / "t", {"x/a.mp4": "v", "masks/a.mp4": "m", "t.csv": "file_name,text\na.mp4,A\n"})
    assert [(source.key[-7:], source.caption) for source in table.sources] == [("x/a.mp4", "A")]


def test_companions_in_and_around_an_archive(tmp_path: Path) -> None:
    inside = looked(tmp_path, {"v.zip": zipped("videos/a.mp4", "masks/a.mp4")})
    assert beside(inside) == {"a.mp4": {"mask": "masks/a.mp4"}}
    table = "file_name,text,control_path\na.mp4,A,ctl/a.mp4\n"
    around = looked(tmp_path / "around", {"t.csv": table, "v.zip": zipped("a.mp4", "ctl/a.mp4")})
    assert beside(around) == {"a.mp4": {"control": "ctl/a.mp4"}}
