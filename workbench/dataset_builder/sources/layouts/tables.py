"""A table of file names and captions, metadata.jsonl or metadata.csv: the Hub's VideoFolder.

A table holds for its folder and those below; the nearest one counts, and a text file beside a video counts before any.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.clips.records import METADATA
from workbench.dataset_builder.sources.layouts.base import (
    ExportedClip,
    ExportedFiles,
    Layout,
    Problem,
    ReadingNotes,
    json_lines,
)
from workbench.dataset_builder.sources.layouts.text_files import sidecar
from workbench.dataset_builder.sources.tree import NAME_COLUMNS, TEXT_COLUMNS, Columns, Tree, column_names, first_text
from workbench.errors import DataError

CSV = "metadata.csv"
# A spreadsheet takes such a cell for a formula; a quote in front makes it text.
FORMULA = re.compile(r"'*[=+\-@\t\r]")


class Table(Layout):
    """What both tables share; `file` is the one a subclass writes."""

    file: str

    def recognise(self, tree: Tree) -> bool:
        return any(_file(name) == self.file for name in tree.files) and bool(tree.media)

    def captions(self, tree: Tree, report: ReadingNotes) -> dict[str, str]:
        found: dict[str, str] = {}
        # A folder comes before those inside it, so that the nearest table has the last word.
        for folder in sorted({_folder(name) for name in tree.files if _file(name) in (CSV, METADATA)}):
            for row, text in _rows(tree, folder, report).items():
                name = tree.match(row, folder)
                if name is not None and (text or name not in found):  # an empty cell keeps its place, and no more
                    found[name] = report.clean(name, text)
                elif name is None and text and tree.whole:
                    report.add(Problem.NO_VIDEO, folder + row)
        for name in tree.media:
            if text := sidecar(tree, name):
                found[name] = report.clean(name, text)
        media = set(tree.media)
        return {name: text for name, text in found.items() if name in media}


class VideoFolder(Table):
    name = "videofolder"
    title = "Hub dataset (VideoFolder)"
    description = (
        "A metadata.jsonl names each video and its caption, as datasets on the Hugging Face Hub do; beside each "
        "video in the folder videos is its caption as a .txt file, which most trainers read."
    )
    file = METADATA

    def __init__(self, texts: bool = True) -> None:
        """texts: whether each caption is also in a text file beside its video"""
        self.texts = texts

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        lines = []
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            if self.texts:
                yield f"videos/{clip.stem}.txt", clip.line
            row = {"file_name": f"videos/{clip.name}", "text": clip.caption, **clip.facts}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        yield METADATA, "".join(lines).encode()


class Csv(Table):
    name = "csv"
    title = "Table metadata.csv"
    description = "A metadata.csv names each video and its caption: it opens in any spreadsheet, and the Hub reads it."
    file = CSV

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        table = io.StringIO(newline="")
        rows = csv.writer(table)
        rows.writerow(["file_name", "text"])
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            rows.writerow([f"videos/{clip.name}", f"'{clip.caption}" if FORMULA.match(clip.caption) else clip.caption])
        yield CSV, table.getvalue().encode()


def _file(name: str) -> str:
    """ "a.mp4" of "train/a.mp4"."""
    return name[name.rfind("/") + 1 :]


def _folder(name: str) -> str:
    """ "train/" of "train/metadata.csv", "" at the root."""
    return name[: name.rfind("/") + 1]


def _rows(tree: Tree, folder: str, report: ReadingNotes) -> dict[str, str]:
    """File name -> caption as a folder's tables have them; the later line counts, and metadata.jsonl before the csv.

    Raises DataError for a table without the column that a person named.
    """
    found: dict[str, str] = {}
    for table, read in ((CSV, _csv), (METADATA, json_lines)):
        if folder + table not in tree.files:
            continue
        named: set[str] = set()
        present: dict[str, None] = {}
        for row in read(tree.text(folder + table), folder + table, report):
            present |= dict.fromkeys(key for key in row if isinstance(key, str))
            name, text = tree.columns.name(row), tree.columns.text(row)
            _first_frame(tree, folder, name, first_text(row, ("first_frame",)), report)
            if table == CSV and text.startswith("'") and FORMULA.match(text):
                text = text[1:]
            if text.strip() and name in named:
                report.add(Problem.TWICE, folder + name)
            if name and (text.strip() or name not in found):
                found[name] = text.strip()
            if text.strip():
                named.add(name)
        _check_columns(folder + table, tuple(present), tree.columns, report)
    return found


def _check_columns(table: str, present: Sequence[str], columns: Columns, report: ReadingNotes) -> None:
    """Say so when a table lacks the column of captions or names. Raises DataError when a person named it."""
    described = f"{table} (columns: {column_names(present)})"
    for setting, wanted, usual, problem in (
        ("caption_column", columns.caption, TEXT_COLUMNS, Problem.NO_COLUMN),
        ("video_column", columns.video, NAME_COLUMNS, Problem.NO_NAMES),
    ):
        if wanted and present and wanted not in present:
            raise DataError(f"{setting} is {wanted!r}, which {described} does not have: name one of these")
        if not wanted and present and not set(usual) & set(present):
            report.add(problem, described)


def _first_frame(tree: Tree, folder: str, video: str, picture: str, report: ReadingNotes) -> None:
    """Note the picture that a row names as its video's first frame."""
    found, of = tree.match(picture, folder) if picture else None, tree.match(video, folder)
    if found is not None and of is not None:
        report.first_frames[of] = found
    elif picture and tree.whole:
        report.add(Problem.NO_PICTURE, folder + picture)


def _csv(text: str, table: str, report: ReadingNotes) -> Iterator[Mapping[str, Any]]:
    csv.field_size_limit(16 * 1024**2)  # a caption of a megabyte is cut later, with a word about it
    try:
        yield from csv.DictReader(io.StringIO(text.replace("\0", " "), newline=""))
    except csv.Error as error:
        report.add(Problem.BROKEN, f"{table} ({error})")
