"""Tables of file names and captions: metadata.jsonl and metadata.csv, as the Hub's VideoFolder has them, and the JSON,
JSON Lines, CSV, TSV and parquet files of any name that trainers and published datasets use.

A table holds for its folder and those below; the nearest one counts.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.clips.records import COMPANIONS, METADATA
from workbench.dataset_builder.sources.columns import (
    DELIMITED_SUFFIXES,
    JSON_SUFFIXES,
    LIST_SUFFIXES,
    PARQUET,
    Columns,
    column_names,
    companion_kind,
    first_frame,
    is_media_name,
)
from workbench.dataset_builder.sources.columns import file_name as name_in
from workbench.dataset_builder.sources.layouts.base import (
    ExportedClip,
    ExportedFiles,
    Layout,
    Problem,
    ReadingNotes,
    Wanted,
    files_named,
)
from workbench.dataset_builder.sources.layouts.records import FORMULA, lines_of_names, read_delimited, read_json
from workbench.dataset_builder.sources.layouts.text_files import labels, paired, sidecars
from workbench.dataset_builder.sources.tree import Tree, once_a_tree

CSV = "metadata.csv"
LISTS = (".txt", *LIST_SUFFIXES)


class Table(Layout):
    """What both tables share; `file` is the one a subclass writes, `endings` are those it is told by."""

    reads = "tables"
    file: str
    endings: tuple[str, ...]

    def recognize(self, tree: Tree) -> bool:
        return bool(tree.named) and any(
            table.name.lower().endswith(self.endings) and (table.names or table.file in (CSV, METADATA))
            for table in tables_of(tree)
        )

    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        tables = [table for table in tables_of(tree) if _usable(table, tree.columns, notes)]
        rows = [(table, row) for table in tables for row in table.rows]
        texts = [_caption(row, tree.columns, notes) for _, row in rows]
        wanted = [
            Wanted(row.name, table.folder, Problem.NO_VIDEO if text else None)
            for (table, row), text in zip(rows, texts, strict=True)
        ]
        files = files_named(tree, wanted, notes)
        found: dict[str, str] = {}
        said: dict[str, str] = {}  # file -> the table that its caption is from
        for (table, row), text, file in zip(rows, texts, files, strict=True):
            if not row.name and text:
                notes.add(Problem.NO_NAME, row.where)
            if file is None:
                continue
            if text and said.get(file) == table.name:
                notes.add(Problem.TWICE, file)
            elif text and file in said and found[file] != notes.clean(file, text):
                notes.add(Problem.DIFFERS, f"{file} ({said[file]})")
            if text or file not in found:  # an empty cell keeps its place, and no more
                found[file] = notes.clean(file, text)
            if text:
                said[file] = table.name
        frames = [Wanted(first_frame(row.values), table.folder, Problem.NO_PICTURE) for table, row in rows]
        for file, picture in zip(files, files_named(tree, frames, notes), strict=True):
            if picture is not None and file is not None:
                notes.first_frames[file] = picture
        _companions(tree, rows, files, notes)
        return found


class VideoFolder(Table):
    """A metadata.jsonl names each video and its caption, as datasets on the Hugging Face Hub do; beside each video in
    the folder videos is its caption as a .txt file, which most trainers read. JSON and JSON Lines files of other
    names and keys are read as well.
    """

    name = "videofolder"
    title = "Hub dataset (VideoFolder)"
    file = METADATA
    endings = (*JSON_SUFFIXES, PARQUET)

    def __init__(self, texts: bool = True) -> None:
        """texts: whether each caption is also in a text file beside its video"""
        self.texts = texts

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        lines = []
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            if self.texts:
                yield f"videos/{clip.stem}.txt", clip.line
            yield from clip.files_beside
            beside = {f"{kind}_path": name for kind, name in clip.beside.items()}
            row = {"file_name": f"videos/{clip.name}", "text": clip.caption, **beside, **clip.facts}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        yield METADATA, "".join(lines).encode()


class Csv(Table):
    """A metadata.csv names each video and its caption: it opens in any spreadsheet, and the Hub reads it. CSV and TSV
    files of other names and columns are read as well, and text files of lines such as a.mp4|a cat.
    """

    name = "csv"
    title = "Table metadata.csv"
    file = CSV
    endings = (*DELIMITED_SUFFIXES, *LISTS)

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        table = io.StringIO(newline="")
        rows = csv.writer(table)
        kinds = [kind for kind in COMPANIONS if any(kind in clip.companions for clip in clips)]
        rows.writerow(["file_name", "text", *(f"{kind}_path" for kind in kinds)])
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            yield from clip.files_beside
            caption = f"'{clip.caption}" if FORMULA.match(clip.caption) else clip.caption
            rows.writerow([f"videos/{clip.name}", caption, *(clip.beside.get(kind, "") for kind in kinds)])
        yield CSV, table.getvalue().encode()


# ---- what is in the tables of a tree --------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableRow:
    """where: "metadata.csv, line 3"; name: what it calls its file, "" when it names none."""

    where: str
    values: Mapping[str, Any]
    name: str


@dataclass(frozen=True)
class ReadTable:
    """A table as it was read. names: whether any row names a file; problems: what was odd, and where

    unread: why it is no table of captions, "" when it is one
    """

    name: str
    rows: Sequence[TableRow]
    columns: Sequence[str]
    problems: Sequence[tuple[Problem, str]]
    unread: str = ""

    @property
    def folder(self) -> str:
        return self.name[: self.name.rfind("/") + 1]

    @property
    def file(self) -> str:
        return self.name[self.name.rfind("/") + 1 :].lower()

    @property
    def names(self) -> bool:
        return any(row.name for row in self.rows)


@once_a_tree
def tables_of(tree: Tree) -> list[ReadTable]:
    """All tables; one whose word counts comes after those it overrules.

    A folder comes before those inside it, so that the nearest table has the last word; within a folder metadata.csv
    comes after tables of other names, and metadata.jsonl last.
    """
    texts = {text for of_clip in (*sidecars(tree).values(), *labels(tree).values()) for text in of_clip}
    texts |= paired(tree)
    endings = (*DELIMITED_SUFFIXES, *JSON_SUFFIXES, PARQUET, *LISTS)
    names = [name for name in tree.texts if name.lower().endswith(endings) and name not in texts]
    read = [table for name in names if (table := _read(tree, name)) is not None]
    return sorted(read, key=lambda table: (table.folder, table.file == METADATA, table.file == CSV, table.name))


def _read(tree: Tree, name: str) -> ReadTable | None:
    """One table with its rows, None for a text that is none. Raises DataError when the file cannot be read."""
    text, folder = tree.text(name), name[: name.rfind("/") + 1]

    def is_name(cell: str) -> bool:
        return len(tree.find(cell, folder).files) > 0 if 0 < len(cell.strip()) < 1000 else False

    is_list = name.lower().endswith(LISTS)
    listed = lines_of_names(text, is_name) if is_list else ""
    if listed or name.lower().endswith(DELIMITED_SUFFIXES):
        read = read_delimited(listed or text, name[name.rfind(".") :].lower(), tree.columns, is_name)
    elif is_list and text.lstrip()[:1] not in ("[", "{"):
        return None
    else:
        read = read_json(text, tree.columns, is_name)
        if is_list and read.unread:
            return None
    key = _name_key([row for _, row in read.rows], tree.columns, is_name)
    found = [
        TableRow(f"{name}, {where}", row, (name_in(row.get(key)) if key else "") or tree.columns.name(row))
        for where, row in read.rows
    ]
    problems = [(problem, f"{name}, {where}") for problem, where in read.problems]
    return ReadTable(name, found, read.columns, problems, read.unread)


def _name_key(rows: Sequence[Mapping[str, Any]], columns: Columns, is_name: Callable[[str], bool]) -> str:
    """The column that names the files, where the one that should names none that is here: addresses beside keys, as
    downloaders write them. "" where the usual one does."""
    keys = columns.name_keys(list(dict.fromkeys(key for row in rows for key in row)))
    for at, key in enumerate(keys if len(keys) > 1 else ()):
        if any(is_name(name_in(row.get(key))) for row in rows):
            return key if at else ""
    return ""


def _usable(table: ReadTable, columns: Columns, notes: ReadingNotes) -> bool:
    """Whether a table names files; notes what it lacks."""
    for problem, where in table.problems:
        notes.add(problem, where)
    described = f"{table.name} (columns: {column_names(table.columns)})"
    text, name = columns.text_keys(table.columns), columns.name_keys(table.columns)
    names = table.names or bool(name)
    if table.columns and not table.unread:
        notes.tables.append(described)
    for setting, named, there in (("caption_column", columns.caption, text), ("video_column", columns.video, name)):
        if named and there:
            notes.settings.add(setting)
    if table.unread or not (text or name):
        named = column_names(table.columns)
        notes.unread[table.name] = table.unread or f"no column of file names or captions among {named}"
        return False
    notes.read.add(table.name)
    notes.unread.pop(table.name, None)  # no half of a pair of lists
    if not text:
        notes.add(Problem.NO_COLUMN, described)
    if not names:
        notes.add(Problem.NO_NAMES, described)
    return names


def _caption(row: TableRow, columns: Columns, notes: ReadingNotes) -> str:
    """The caption of a row, noting what is odd about it."""
    text = notes.cell(row.where, columns.text(row.values))
    keys = columns.text_keys(row.values)
    others = [key for key in keys if row.values[key] not in (None, "", []) and row.values[key] != row.values[keys[0]]]
    if text and others and columns.text({key: row.values[key] for key in others}).text:
        notes.add(Problem.OTHER_TEXT, f"{row.where.rpartition(',')[0]} ({column_names(others)})")
    return text


def _companions(
    tree: Tree, rows: Sequence[tuple[ReadTable, TableRow]], files: Sequence[str | None], notes: ReadingNotes
) -> None:
    """Note the other files that rows name beside their videos, which are no clips of their own."""
    clips = {*files, *notes.first_frames.values()}
    for (table, row), clip in zip(rows, files, strict=True):
        texts = tree.columns.text_keys(row.values)
        for column, value in row.values.items():
            if column in texts:
                continue
            for one in value if isinstance(value, list) else [value]:
                name, kind = name_in(one), companion_kind(str(column))
                if not is_media_name(name) or name in (row.name, first_frame(row.values)):
                    continue
                found = tree.find(name, table.folder)
                sure = len(found.files) == 1 and (found.how != "end" or bool(kind))
                here = [file for file in found.files if file not in clips] if sure else []
                notes.left_out.update(here)
                if kind and clip is not None and sure and kind not in notes.companions[clip]:
                    notes.companions[clip][kind] = found.files[0]
                elif kind and not found.files:
                    if tree.whole:
                        notes.add(Problem.NO_COMPANION, name)
                elif here or kind:
                    notes.add(Problem.COMPANION, f"{table.name} ({column_names([str(column)])})")
