"""Captions that an import would lose: beside shards, and in columns of other names."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.drawing import MakeClip
from tests.shell import Shell
from workbench.clips.records import read_clips
from workbench.dataset_builder.sources.survey import survey
from workbench.workspace import Workspace


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory, make_clip: MakeClip) -> Path:
    return make_clip(tmp_path_factory.mktemp("clip") / "clip.mp4")


def shard(path: Path, *names: str) -> Path:
    """A tar with empty clips of these names, each with its .id, whose text is "id of NAME"."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name("part")
    with tarfile.open(path, "w") as tar:
        for name in names:
            for suffix, text in (("mp4", ""), ("id", f"id of {name}\n")):
                part.write_text(text)
                tar.add(part, f"{name}.{suffix}")
    part.unlink()
    return path


def records(path: Path, *rows: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def captions(*given: Path) -> dict[str, str]:
    return {source.member or source.name: source.caption for source in survey(given).sources}


def test_captions_beside_a_shard_come_along(tmp_path: Path) -> None:
    tar = shard(tmp_path / "shards" / "a-00.tar", "x/0", "x/1-$#%@&2", "x/2", "3")
    records(
        tar.with_name("a-00.meta.jsonl"),
        {"key": "x/0", "caption": "zero"},
        {"key": "x/1", "caption": "one"},
        {"key": "id of x/2", "caption": "two"},
        {"key": 3, "caption": "three"},
    )
    expected = {"x/0.mp4": "zero", "x/1-$#%@&2.mp4": "one", "x/2.mp4": "two", "3.mp4": "three"}
    assert captions(tar.parent) == captions(tar) == expected
    apart = records(tmp_path / "elsewhere" / "a-00.meta.jsonl", {"key": "x/0", "caption": "dropped on a page"})
    assert captions(tar, apart)["x/0.mp4"] == "dropped on a page"
    lone = shard(tmp_path / "one" / "b.tar", "0")  # everything in one folder, which is left out of names
    records(lone.with_name("b.meta.jsonl"), {"key": "0", "text": "zero"}, {"key": "7", "text": "seven"})
    assert captions(lone) == {"0.mp4": "zero"}
    assert "captions without a video: '7'" in "\n".join(survey([lone]).sentences)
    records(lone.with_name("b.meta.jsonl"), {"key": "0", "wording": "zero"})
    assert "no caption column, such as text" in "\n".join(survey([lone]).sentences)
    assert "(keys: key, wording)'" in "\n".join(survey([lone]).sentences)
    secret = tmp_path / "secret.jsonl"
    lone.with_name("b.meta.jsonl").rename(secret)
    os.symlink(secret, lone.with_name("b.meta.jsonl"))
    assert captions(lone) == {"0.mp4": ""}


def test_a_column_of_another_name_is_named_and_can_be_chosen(
    tmp_path: Path, clip: Path, shell: Shell, workspace: Workspace
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    shutil.copyfile(clip, given / "a.mp4")
    (given / "metadata.csv").write_text("file_name,wording,title\na.mp4,a red square,Red\n")
    sentence = "set caption_column): 'metadata.csv (columns: file_name, wording, title)'"
    assert sentence in shell("dataset", "preview", given).out
    imported = shell("dataset", "import", "squares", given)
    assert imported.code == 0
    assert sentence in imported.out
    asked = ("dataset", "import", "squares2", given, "--caption-column")
    assert shell(*asked, "Wording").code == 0
    assert [found.text for found in read_clips(workspace.dataset("squares2"))] == ["a red square"]
    wrong = shell("dataset", "preview", given, "--caption-column", "text")
    named = "caption_column is 'text', which is not a column of metadata.csv (columns: file_name, "
    assert (wrong.code, named in wrong.err) == (65, True)
    (given / "metadata.csv").write_text("pick,wording,\x1b[2J\na,a red square,x\n")
    looked = shell("dataset", "preview", given).out
    assert "not read: 'metadata.csv (no column of file names or captions among pick, wording, [2J)'" in looked
    assert "\x1b" not in looked
    both = ("--video-column", "pick", "--caption-column", "wording")
    assert "1 caption" in shell("dataset", "preview", given, *both).out
