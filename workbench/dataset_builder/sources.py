"""Find video files and the captions that came with them, in the layouts people have.

A caption is looked for in `NAME.txt` beside the video, then in a metadata.jsonl or metadata.csv in the video's folder
or one above it, up to the folder that was given. Hidden files are skipped and links are not followed (a linked video is
listed all the same, so that it gets its verdict). Not covered: other tools' layouts (prompt lists, latents), archives.
"""

from __future__ import annotations

import csv
import io
import json
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from workbench.dataset_builder.layouts.base import LONGEST_CAPTION, Source, clean_caption, read_text
from workbench.media import SUFFIXES

__all__ = ["LONGEST_CAPTION", "Source", "clean_caption", "find_sources", "read_text"]

NAME_COLUMNS = ("file_name", "video", "path", "file")
TEXT_COLUMNS = ("text", "caption", "prompt")


def find_sources(given: Iterable[Path | str]) -> list[Source]:
    """The given files, and the video files in the given folders, each once, sorted within a folder."""
    found: dict[Path, Source] = {}
    captions = _CaptionTables()
    for path in (Path(os.path.abspath(Path(item).expanduser())) for item in given):
        root = path if path.is_dir() else path.parent
        for file in _videos(path) if path.is_dir() else [path]:
            found.setdefault(file, Source(file, _sidecar(file) or captions.find(file, root)))
    return list(found.values())


def _videos(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            Path(parent, name) for name in sorted(files) if not name.startswith(".") and name.lower().endswith(SUFFIXES)
        )


def _sidecar(file: Path) -> str:
    path = file.with_suffix(".txt")
    return clean_caption(read_text(path)) if _is_own_file(path) else ""


def _is_own_file(path: Path) -> bool:
    """An ordinary file, no link: a downloaded folder cannot make us read another place's text."""
    return path.is_file() and not path.is_symlink()


class _CaptionTables:
    """The captions in metadata files, each file read once."""

    def __init__(self) -> None:
        self._read = cache(_read_tables)

    def find(self, file: Path, root: Path) -> str:
        for folder in file.parents:
            if not folder.is_relative_to(root):
                break
            name = unicodedata.normalize("NFC", file.relative_to(folder).as_posix())
            if text := self._read(folder).get(name):
                return text
        return ""


def _read_tables(folder: Path) -> dict[str, str]:
    """File name -> caption from a folder's metadata.jsonl and metadata.csv; what is no record is passed over."""
    rows: list[Mapping[str, Any]] = []
    if _is_own_file(path := folder / "metadata.csv"):
        rows += csv.DictReader(io.StringIO(read_text(path)))
    if _is_own_file(path := folder / "metadata.jsonl"):
        for line in read_text(path).splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            rows += [row] if isinstance(row, dict) else []
    captions = {}
    for row in rows:
        name, text = _column(row, NAME_COLUMNS), clean_caption(_column(row, TEXT_COLUMNS))
        if name and text:
            captions[unicodedata.normalize("NFC", name.replace("\\", "/").removeprefix("./"))] = text
    return captions


def _column(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := row.get(name), str) and value), "")
