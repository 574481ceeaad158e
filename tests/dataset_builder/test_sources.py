"""Which files are found, and which captions come with them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from workbench.dataset_builder.sources import LONGEST_CAPTION, find_sources


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def captions(given: Path) -> dict[str, str]:
    return {source.path.name: source.caption for source in find_sources([given])}


def test_folders_are_searched_and_nothing_hidden_or_linked_is_entered(tmp_path: Path) -> None:
    for name in ("b.MP4", "a.mov", "deep/er/c.webm", ".hidden.mp4", ".import/d.mp4", "notes.txt", "photo.jpg"):
        touch(tmp_path / "given" / name)
    touch(tmp_path / "elsewhere" / "e.mp4")
    os.symlink(tmp_path / "elsewhere", tmp_path / "given" / "linked")
    alone = touch(tmp_path / "alone.bin")
    found = find_sources([tmp_path / "given", alone, alone, tmp_path / "given" / "a.mov"])
    assert [source.path.name for source in found] == ["a.mov", "b.MP4", "photo.jpg", "c.webm", "alone.bin"]


@pytest.mark.parametrize(
    ("data", "caption"),
    [
        ("une télé à Zürich".encode(), "une télé à Zürich"),
        ("une télé".encode("utf-8-sig"), "une télé"),
        ("une télé".encode("utf-16"), "une télé"),
        ("\ufeffune télé".encode("utf-16-be"), "une télé"),
        ("a plain cat".encode("utf-16-le"), "a plain cat"),
        ("une télé".encode("latin-1"), "une télé"),
        ("une te\u0301le\u0301".encode(), "une télé"),
        (b" two\r\nlines\tand a\0 NUL\n", "two lines and a NUL"),
        (b"", ""),
        ("🐱🎬".encode(), "🐱🎬"),
        (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
        (b"=cmd|'/c calc'!A0", "=cmd|'/c calc'!A0"),
        (b"word " * 300_000, ("word " * 300_000)[:LONGEST_CAPTION].rstrip()),
    ],
)
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
