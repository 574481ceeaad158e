"""Clip records and dataset facts on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.clips.records import (
    Clip,
    DatasetInfo,
    clips_named,
    damage,
    file_sha256,
    find_clip,
    read_clips,
    read_info,
    write_clips,
    write_info,
)
from workbench.errors import ConfigError


def test_records_survive_with_columns_we_do_not_know(tmp_path: Path) -> None:
    line = {
        "file_name": "clips/a.mp4", "text": "a cat, été", "fps": 8.0, "frames": 16, "mood": "calm",
        "span": [0.5, 2.5],
    }  # fmt: skip
    (tmp_path / "metadata.jsonl").write_text(json.dumps(line) + "\n\n", encoding="utf-8-sig")
    (clip,) = read_clips(tmp_path)
    assert (clip.seconds, clip.span) == (2.0, (0.5, 2.5))
    write_clips(tmp_path, [clip.changed(text="a dog")])
    again = json.loads((tmp_path / "metadata.jsonl").read_text())
    assert (again["text"], again["mood"]) == ("a dog", "calm")


def test_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.mp4"}\n{"file_na')
    assert [clip.file_name for clip in read_clips(tmp_path)] == ["a.mp4"]
    assert "metadata.jsonl, line 2 is left out" in damage(tmp_path)[0]
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


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"source": "walk.mp4"}, "walk.mp4"),
        ({"source": "given/walk.mp4", "span": (12.0, 15.02)}, "walk.mp4 0:12-0:15"),
        ({"source": "walk.mp4", "span": (59.98, 3661.0)}, "walk.mp4 1:00-61:01"),
        ({"source": "walk.mp4", "span": (0.5, 1.04)}, "walk.mp4 0:00.5-0:01.0"),
        ({}, "1a2b"),
        ({"master": ".masters/dusk.mp4", "span": (0.0, 2.0)}, "dusk 0:00-0:02"),
    ],
)
def test_a_clip_is_called_by_its_source_and_the_part_of_it(facts: dict[str, Any], name: str) -> None:
    assert Clip(file_name="clips/1a2b.mp4", **facts).name == name


def test_a_clip_is_found_by_file_id_and_name() -> None:
    part = Clip(file_name="clips/1a.mp4", source="walk.mp4", span=(0, 2))
    twice = [Clip(file_name=f"clips/{number}.mp4", source="run.mp4") for number in "23"]
    clips = [part, *twice]
    assert [find_clip(clips, name) for name in ("clips/1a.mp4", "1a", "walk.mp4 0:00-0:02")] == [part] * 3
    assert clips_named(clips, ["3", "walk.mp4 0:00-0:02"]) == [part, twice[1]]
    with pytest.raises(ConfigError, match=r"2 clips are named 'run.mp4': choose one by its id, 2, 3"):
        find_clip(clips, "run.mp4")
    with pytest.raises(ConfigError, match="there is no clip 'walk.mp4' in this dataset: did you mean 'walk.mp4 0:00-0"):
        clips_named(clips, ["walk.mp4"])
