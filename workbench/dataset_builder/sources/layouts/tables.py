"""Tables of file names and captions: metadata.jsonl and metadata.csv, as in the Hub's VideoFolder, and JSON, JSON
Lines, CSV, TSV and parquet files of any name, as in published datasets and of four trainers.

A table applies to its folder and those below. The nearest table takes precedence.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.clips import media
from workbench.clips.records import COMPANIONS, METADATA
from workbench.dataset_builder.sources.columns import (
    DELIMITED_SUFFIXES,
    IMAGE_SUFFIXES,
    JSON_SUFFIXES,
    LIST_SUFFIXES,
    PARQUET,
    Columns,
    column_names,
    companion_kind,
    first_frame,
    is_media_name,
    one_line,
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
    """A table. `file` is the one to write; `endings` are the extensions it is recognized by."""

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
        origin: dict[str, str] = {}  # file -> the table its caption is from
        for (table, row), text, file in zip(rows, texts, files, strict=True):
            if not row.name and text:
                notes.add(Problem.NO_NAME, row.where)
            if file is None:
                continue
            if text and origin.get(file) == table.name:
                notes.add(Problem.TWICE, file)
            elif text and file in origin and found[file] != notes.clean(file, text):
                notes.add(Problem.DIFFERS, f"{file} ({origin[file]})")
            if text or file not in found:  # a row without a caption still determines the order
                found[file] = notes.clean(file, text)
            if text:
                origin[file] = table.name
        frames = [Wanted(first_frame(row.values), table.folder, Problem.NO_PICTURE) for table, row in rows]
        for file, picture in zip(files, files_named(tree, frames, notes), strict=True):
            if picture is not None and file is not None:
                notes.add_first_frame(file, picture)
        _companions(tree, rows, files, notes)
        return found


class VideoFolder(Table):
    """A metadata.jsonl lists each video and its caption, like datasets on the Hugging Face Hub. Each video also has a
    .txt file with its caption beside it, which most trainers read. JSON and JSON Lines files with other names and keys
    can be imported too.
    """

    name = "videofolder"
    title = "Hub dataset (VideoFolder)"
    file = METADATA
    endings = (*JSON_SUFFIXES, PARQUET)

    def __init__(self, texts: bool = True) -> None:
        """texts: whether to write each caption also to a text file beside its video."""
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
    """A metadata.csv lists each video and its caption. It opens in any spreadsheet, and the Hub reads it. CSV and TSV
    files with other names and columns can be imported too, as can text files with lines such as a.mp4|a cat.
    """

    name = "csv"
    title = "Table metadata.csv"
    file = CSV
    endings = (*DELIMITED_SUFFIXES, *LISTS)

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        kinds = [kind for kind in COMPANIONS if any(kind in clip.companions for clip in clips)]
        rows = []
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            yield from clip.files_beside
            beside = {f"{kind}_path": name for kind, name in clip.beside.items()}
            rows.append({"file_name": f"videos/{clip.name}", "text": clip.caption, **beside})
        yield CSV, _csv_text(rows, ["file_name", "text", *(f"{kind}_path" for kind in kinds)]).encode()


def _csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Write a table, with a quote before cells that a spreadsheet would run."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        cells = [str(row.get(column, "")) for column in columns]
        writer.writerow([f"'{cell}" if FORMULA.match(cell) else cell for cell in cells])
    return text.getvalue()


# ---- the tables of trainers, with columns for control clips, references and masks -----------------------------------


class TrainerTable(Table):
    """A trainer's table, with its columns of file names and captions.

    beside: its columns of companion files, in the order of COMPANIONS. more_columns: others that it always has.
    """

    name_column: str
    text_column: str
    beside: tuple[str, ...]
    more_columns: tuple[str, ...] = ()

    def recognize(self, tree: Tree) -> bool:
        signature = {self.name_column, self.text_column, *self.more_columns}
        return bool(tree.named) and any(
            table.file == self.file and table.names and signature <= {*table.columns} for table in tables_of(tree)
        )

    def row(self, clip: ExportedClip) -> dict[str, Any]:
        """Return a clip's row."""
        row = {self.name_column: f"videos/{clip.name}", self.text_column: one_line(clip.caption)}
        return row | {self.column(kind, name): name for kind, name in clip.beside.items()}

    def column(self, kind: str, name: str) -> str:
        """Return the column for a companion file."""
        return self.beside[COMPANIONS.index(kind)]

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            yield from clip.files_beside
        yield self.file, self.table([self.row(clip) for clip in clips]).encode()

    def table(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return the table's text, JSON Lines by default."""
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


class VideoXFun(TrainerTable):
    """A metadata.json for VideoX-Fun's scripts, with the columns file_path, text, type and control_file_path."""

    name = "videox-fun"
    title = "VideoX-Fun (metadata.json)"
    file = "metadata.json"
    endings = (".json",)
    name_column, text_column, more_columns = "file_path", "text", ("type",)
    beside = ("control_file_path", "reference_file_path", "mask_file_path", "end_image")

    def row(self, clip: ExportedClip) -> dict[str, Any]:
        return {**super().row(clip), "type": "image" if clip.clip.is_image else "video"}

    def table(self, rows: Sequence[Mapping[str, Any]]) -> str:
        return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


class Musubi(TrainerTable):
    """A dataset.jsonl for musubi-tuner (video_jsonl_file), with the columns video_path, caption and control_path."""

    name = "musubi"
    title = "musubi-tuner (dataset.jsonl)"
    file = "dataset.jsonl"
    endings = (".jsonl",)
    name_column, text_column = "video_path", "caption"
    beside = ("control_path", "reference_path", "loss_mask_path", "end_image_path")


class LtxTrainer(TrainerTable):
    """A dataset.jsonl for the LTX trainers, with the columns media_path, caption, reference_video and video_mask."""

    name = "ltx"
    title = "LTX trainer (dataset.jsonl)"
    file = "dataset.jsonl"
    endings = (".jsonl",)
    name_column, text_column = "media_path", "caption"
    beside = ("control_video", "reference_video", "video_mask", "last_image")


class DiffSynth(TrainerTable):
    """A metadata.csv for DiffSynth-Studio, with columns such as video, prompt, control_video and vace_video_mask."""

    name = "diffsynth"
    title = "DiffSynth-Studio (metadata.csv)"
    file = "metadata.csv"
    endings = (".csv",)
    name_column, text_column = "video", "prompt"
    beside = ("control_video", "reference_video", "vace_video_mask", "end_image")
    pictures = True

    def column(self, kind: str, name: str) -> str:
        is_picture = kind == "reference" and name.lower().endswith(IMAGE_SUFFIXES)
        return "reference_image" if is_picture else super().column(kind, name)

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        first_frames = first_frames or any(clip.first_frame for clip in clips)
        for clip in clips:
            if first_frames and (clip.first_frame or not clip.clip.is_latents):
                yield f"images/{clip.stem}.png", clip.first_frame or media.first_frame_png(clip.file)
        yield from super().files(clips, first_frames)

    def row(self, clip: ExportedClip) -> dict[str, Any]:
        picture = {"input_image": f"images/{clip.stem}.png"} if clip.first_frame else {}
        return {**super().row(clip), **picture}

    def table(self, rows: Sequence[Mapping[str, Any]]) -> str:
        return _csv_text(rows, list(dict.fromkeys(column for row in rows for column in row)))


# ---- reading the tables of a tree -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableRow:
    """A row at a position such as "metadata.csv, line 3". name: the file name in it, or ""."""

    where: str
    values: Mapping[str, Any]
    name: str


@dataclass(frozen=True)
class ReadTable:
    """A table that was read. problems: what and where; unread: why it is not a table of captions, or ""."""

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
        """Whether any row has a file name."""
        return any(row.name for row in self.rows)


@once_a_tree
def tables_of(tree: Tree) -> list[ReadTable]:
    """Return all tables in reverse order of precedence, so that later ones overwrite earlier ones.

    Tables in deeper folders come later. Within a folder, metadata.csv comes after other names, and metadata.jsonl last.
    """
    texts = {text for of_clip in (*sidecars(tree).values(), *labels(tree).values()) for text in of_clip}
    texts |= paired(tree)
    endings = (*DELIMITED_SUFFIXES, *JSON_SUFFIXES, PARQUET, *LISTS)
    names = [name for name in tree.texts if name.lower().endswith(endings) and name not in texts]
    read = [table for name in names if (table := _read(tree, name)) is not None]
    return sorted(read, key=lambda table: (table.folder, table.file == METADATA, table.file == CSV, table.name))


def _read(tree: Tree, name: str) -> ReadTable | None:
    """Read a table; return None for a text file that is not one. Raises DataError if the file cannot be read."""
    text, folder = tree.text(name), name[: name.rfind("/") + 1]

    def is_name(cell: str) -> bool:
        return 0 < len(cell.strip()) < 1000 and len(tree.find(cell, folder).files) > 0

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
    """Return the column of file names if it is not the usual one, else "".

    Some downloaders write URLs in the usual column and the names of the files in another.
    """
    keys = columns.name_keys(list(dict.fromkeys(key for row in rows for key in row)))
    for at, key in enumerate(keys if len(keys) > 1 else ()):
        if any(is_name(name_in(row.get(key))) for row in rows):
            return key if at else ""
    return ""


def _usable(table: ReadTable, columns: Columns, notes: ReadingNotes) -> bool:
    """Whether a table has file names. Note what it lacks."""
    for problem, where in table.problems:
        notes.add(problem, where)
    described = f"{table.name} (columns: {column_names(table.columns)})"
    text, name = columns.text_keys(table.columns), columns.name_keys(table.columns)
    names = table.names or bool(name)
    if table.columns and not table.unread:
        notes.tables.append(described)
    for setting, value, matches in (("caption_column", columns.caption, text), ("video_column", columns.video, name)):
        if value and matches:
            notes.settings.add(setting)
    if table.unread or not (text or name):
        named = column_names(table.columns)
        notes.unread[table.name] = table.unread or f"no column of file names or captions among {named}"
        return False
    notes.read.add(table.name)
    notes.unread.pop(table.name, None)  # Lists may have noted it as one of a pair of lists
    if not text:
        notes.add(Problem.NO_COLUMN, described)
    if not names:
        notes.add(Problem.NO_NAMES, described)
    return names


def _caption(row: TableRow, columns: Columns, notes: ReadingNotes) -> str:
    """Return a row's caption, and note what is odd about it."""
    text = notes.cell(row.where, columns.text(row.values))
    keys = columns.text_keys(row.values)
    others = [key for key in keys if row.values[key] not in (None, "", []) and row.values[key] != row.values[keys[0]]]
    if text and others and columns.text({key: row.values[key] for key in others}).text:
        notes.add(Problem.OTHER_TEXT, f"{row.where.rpartition(',')[0]} ({column_names(others)})")
    return text


def _companions(
    tree: Tree, rows: Sequence[tuple[ReadTable, TableRow]], files: Sequence[str | None], notes: ReadingNotes
) -> None:
    """Note the companion files named in rows, which are not clips themselves."""
    clips = {*files, *notes.left_out}
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
                certain = len(found.files) == 1 and (found.how != "end" or bool(kind))
                no_clips = [file for file in found.files if file not in clips] if certain else []
                notes.left_out.update(no_clips)
                if kind and clip is not None and certain and kind not in notes.companions[clip]:
                    notes.companions[clip][kind] = found.files[0]
                elif kind and not found.files:
                    if tree.whole:
                        notes.add(Problem.NO_COMPANION, name)
                elif no_clips or kind:
                    notes.add(Problem.COMPANION, f"{table.name} ({column_names([str(column)])})")
