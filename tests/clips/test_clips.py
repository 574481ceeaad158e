"""Clip records and dataset facts on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.clips.records import Clip, DatasetInfo, file_sha256, read_clips, read_info, write_clips, write_info
from workbench.errors import ConfigError, DataError


def test_records_survive_with_columns_we_do_not_know(tmp_path: Path) -> None:
    line = {
        "file_name": "clips/a.mp4",
        "text": "a cat, été",
        "fps": 8.0,
        "frames": 16,
        "mood": "calm",
        "span": [0.5, 2.5],
    }
    (tmp_path / "metadata.jsonl").write_text(json.dumps(line) + "\n\n", encoding="utf-8-sig")
    (clip,) = read_clips(tmp_path)
    assert (clip.seconds, clip.span) == (2.0, (0.5, 2.5))
    write_clips(tmp_path, [clip.changed(text="a dog")])
    again = json.loads((tmp_path / "metadata.jsonl").read_text())
    assert (again["text"], again["mood"]) == ("a dog", "calm")


def test_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.mp4"}\n{"file_na')
    with pytest.raises(DataError, match="line 2, is not a clip record"):
        read_clips(tmp_path)
    assert read_clips(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("trigger", "text", "caption"),
    [
        ("zwx", "a red ball", "zwx a red ball"),
        ("zwx", "A Zwx ball", "A Zwx ball"),
        ("ball", "a baller", "ball a baller"),
        ("", " a ball ", "a ball"),
        ("zwx", "", "zwx"),
        ("c++", "c++ on a screen", "c++ on a screen"),
    ],
)
def test_trigger_word_stands_in_front_once(trigger: str, text: str, caption: str) -> None:
    assert DatasetInfo(trigger_word=trigger).caption(Clip(file_name="a.mp4", text=text)) == caption


def test_info_and_hash(tmp_path: Path) -> None:
    assert read_info(tmp_path).title == tmp_path.name
    write_info(tmp_path, DatasetInfo(title="Été", trigger_word="zwx"))
    assert read_info(tmp_path) == DatasetInfo(title="Été", trigger_word="zwx")
    assert file_sha256(tmp_path / "dataset.json") == file_sha256(tmp_path / "dataset.json")
    (tmp_path / "dataset.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read as JSON"):
        read_info(tmp_path)


def test_a_line_separator_in_a_name_ends_no_record(tmp_path: Path) -> None:
    write_clips(tmp_path, [Clip(file_name="clips/a.mp4", source="a\u2028b\x85c.mp4", text="one")])
    assert read_clips(tmp_path)[0].source == "a\u2028b\x85c.mp4"
