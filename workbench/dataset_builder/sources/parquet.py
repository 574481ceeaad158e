"""Parquet tables: those that hold videos are read as archives of them, those that name files as tables of captions.

The Hub keeps many datasets so. Needs pyarrow (the extra `parquet`). Rows are read a few at a time, nothing is written
out or decoded. Not covered: what the columns of captions are called (columns), fetching (hub).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.clips.media import SUFFIXES
from workbench.clips.records import METADATA
from workbench.dataset_builder.sources.columns import IMAGE_SUFFIXES, NAME_COLUMNS, column_names, file_name, plain
from workbench.dataset_builder.sources.text import MOST_TEXT_BYTES
from workbench.dataset_builder.sources.tree import Entry
from workbench.errors import DataError
from workbench.paths import extra_command
from workbench.workspace import from_json

ROWS, TEXT_ROWS = 8, 64  # read at a time: each may hold a whole video, or a long text
BUFFER = 1024**2  # bytes: without it pyarrow reads a whole group of rows, which may be all of the file
IMAGES = ("image", "images", "img", "picture", "png", "jpg", "jpeg", "webp")
MEDIA = ("video", "videos", "clip", "mp4", "webm", "mov", "mkv", "avi", "gif", *IMAGES)  # columns of bytes
ANOTHER = "another column of videos or pictures: name it with video_column to take it instead"
TOO_MUCH = f"more than {MOST_TEXT_BYTES / 1024**2:.0f} MB of captions: split the table"


def holds_videos(table: Path, video_column: str = "") -> bool:
    """Whether a table holds videos or pictures, rather than names them.

    video_column: the column of videos, or of their names; "" to find it out
    Raises DataError for one that is neither, or that cannot be read: without pyarrow, damaged, with too much text.
    """
    with _opened(table) as file:
        if not file.metadata.num_rows:
            raise DataError("it has no rows")
        columns = _Columns(file.schema_arrow, video_column)
        if columns.holds and _nulls(file, columns.data) < file.metadata.num_rows:
            return True
        if not columns.media:
            called = f" called {video_column!r}" if video_column else ""
            names = column_names(file.schema_arrow.names)
            raise DataError(
                f"it has no column of videos{called}, nor of their names: name one of {names} with video_column"
            )
        texts = {name.partition(".")[0] for name in columns.texts}
        size = sum(
            chunk.total_uncompressed_size for chunk in _chunks(file) if chunk.path_in_schema.split(".")[0] in texts
        )
        if size > MOST_TEXT_BYTES:
            raise DataError(TOO_MUCH)
        return False


def as_lines(table: Path, video_column: str = "") -> bytes:
    """What a table of names says, as JSON Lines: its texts, and what may name a file. Raises DataError."""
    with _opened(table) as file:
        columns = _Columns(file.schema_arrow, video_column)
        lines, size = list[bytes](), 0
        for row in columns.rows(file):
            lines.append(_line(row))
            size += len(lines[-1])
            if size > MOST_TEXT_BYTES:
                raise DataError(f"{table.name} has {TOO_MUCH}")
    return b"".join(lines)


class Rows:
    """The videos or pictures of one column as members, numbered by row, with what the rows say as a metadata.jsonl."""

    def __init__(self, table: Path, video_column: str = "") -> None:
        """Raises DataError."""
        self._table, self._stack = table, contextlib.ExitStack()
        self._file = self._stack.enter_context(_opened(table))
        self._video_column = video_column
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = ()
        self._first, self._of = 0, ""  # the batch's first row, and the column it is of

    @property
    def entries(self) -> Iterator[Entry]:
        """All members; their folder says which column they are of. Raises DataError."""
        with _explained(self._table):
            columns = _Columns(self._file.schema_arrow, self._video_column)
            folder, size = f"{columns.schema.names.index(columns.media)}/", 0
            lines, members = list[bytes](), list[Entry]()
            for number, (row, length) in enumerate(
                zip(columns.rows(self._file), self._lengths(columns.data), strict=True)
            ):
                path = file_name(row.pop(columns.media, None))
                suffix = PurePosixPath(path).suffix.lower()
                name = f"{number:06d}{suffix if suffix in (*SUFFIXES, *IMAGE_SUFFIXES) else columns.suffix}"
                if length:
                    members.append(Entry(folder + name, length, "", None))
                line = _line({**row, "file_name": name if length else path, columns.media: name if length else path})
                size += len(line)
                if size <= MOST_TEXT_BYTES:
                    lines.append(line)
            yield Entry(folder + METADATA, size, "", b"".join(lines))
            yield from (Entry(name, 0, ANOTHER, None) for name in columns.others)
            yield from members

    def _lengths(self, column: str) -> Iterator[int]:
        """The bytes of each row's video: about, where all rows have one, else exactly, which costs reading them."""
        if _nulls(self._file, column):
            for cells in _batches(self._file, column):
                yield from (len(cell) for cell in map(_bytes_in, cells))
            return
        for group in range(self._file.metadata.num_row_groups):
            about = self._file.metadata.row_group(group)
            size = sum(chunk.total_uncompressed_size for chunk in _chunks(self._file, column, [group]))
            yield from [max(1, size // max(1, about.num_rows))] * about.num_rows

    def find(self, name: str) -> Entry:
        """A member with its bytes. Raises DataError."""
        folder, _, file = name.partition("/")
        column = self._file.schema_arrow.field(int(folder))
        with _explained(self._table):
            data = self._cell(_data(column), int(PurePosixPath(file).stem))
        return Entry(name, len(data), "", data)

    def _cell(self, column: str, number: int) -> bytes:
        """The bytes in one row. Rows that are asked for in their order are read once."""
        if column != self._of or number < self._first:
            self._of, self._first, self._batch, group = column, 0, (), 0
            about = self._file.metadata
            while number - self._first >= about.row_group(group).num_rows:
                self._first, group = self._first + about.row_group(group).num_rows, group + 1
            self._batches = _batches(self._file, column, range(group, about.num_row_groups))
        while number >= self._first + len(self._batch):
            self._first += len(self._batch)
            self._batch = next(self._batches)
        return _bytes_in(self._batch[number - self._first])

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        yield entry.info

    def close(self) -> None:
        self._stack.close()


# ---- pyarrow --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(table: Path) -> Iterator[Any]:
    """Raises DataError, also for what goes wrong meanwhile."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{table.name} is a parquet table, which needs pyarrow: {extra_command('parquet')}") from None
    with _explained(table), pyarrow.parquet.ParquetFile(table, pre_buffer=False, buffer_size=BUFFER) as file:
        yield file


@contextlib.contextmanager
def _explained(table: Path) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, StopIteration) as error:
        raise DataError(f"{table.name} cannot be read ({str(error)[:200]}): copy or download it again") from error


def _batches(file: Any, column: str, groups: Sequence[int] | None = None) -> Iterator[Any]:
    """The cells of one column, some rows at a time."""
    for batch in file.iter_batches(batch_size=ROWS, columns=[column], row_groups=groups):
        yield batch.column(0)


def _bytes_in(cell: Any) -> bytes:
    value = cell.as_py()
    return (value.get("bytes") if isinstance(value, dict) else value) or b""


def _line(row: Mapping[str, Any]) -> bytes:
    kept = {key: value for key, value in row.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False).encode() + b"\n"


def _chunks(file: Any, column: str = "", groups: Sequence[int] | None = None) -> Iterator[Any]:
    """What the table says of each stretch of a column, or of all of them."""
    for group in range(file.metadata.num_row_groups) if groups is None else groups:
        about = file.metadata.row_group(group)
        chunks = map(about.column, range(about.num_columns))
        yield from (chunk for chunk in chunks if column in ("", chunk.path_in_schema))


def _nulls(file: Any, column: str) -> int:
    """How many rows of a column are empty; at least one for each stretch of which the table does not say it."""
    known = [chunk.statistics for chunk in _chunks(file, column)]
    return sum(one.null_count if one is not None and one.has_null_count else 1 for one in known)


# ---- columns --------------------------------------------------------------------------------------------------------


class _Columns:
    """What the columns of a table are for.

    media: that of videos or pictures, "" for none; holds: whether it holds them, rather than names them
    data: where their bytes are; suffix: of those whose name is not known
    texts: columns that captions or names of files may stand in; others: more columns of videos or pictures
    """

    def __init__(self, schema: Any, wanted: str) -> None:
        self.schema = schema
        declared = _declared(schema)
        self.media, self.holds = _media_column(schema, wanted, declared)
        field = schema.field(self.media) if self.media else None
        self.data = _data(field) if field is not None else ""
        self.suffix = ".png" if declared.get(self.media) == "Image" or plain(self.media) in IMAGES else ".mp4"
        rest = [field for field in schema if field.name != self.media]
        self.others = [field.name for field in rest if _is_media(field)]
        self._nested = {field.name: inside for field in rest if (inside := _texts_inside(field.type))}
        self.texts = [field.name for field in rest if _may_be_read(field.type)]
        self.texts += [f"{name}.{one}" for name, inside in self._nested.items() for one in inside]
        if field is not None and (not self.holds or _has(field.type, "path")):
            self.texts.append(f"{self.media}.path" if self.holds else self.media)

    def rows(self, file: Any) -> Iterator[dict[str, Any]]:
        """The texts of each row; those inside of a record stand beside it."""
        if not self.texts:
            yield from ({} for _ in range(file.metadata.num_rows))
            return
        for batch in file.iter_batches(batch_size=TEXT_ROWS, columns=self.texts):
            for row in batch.to_pylist():
                for name in self._nested:
                    row = {**(row.pop(name) or {}), **row}
                yield row


def _is_text(kind: Any) -> bool:
    """Whether a column may hold captions: texts, lists of them, or records of them by language."""
    import pyarrow.types as types

    if types.is_dictionary(kind) or types.is_list(kind) or types.is_large_list(kind):
        return _is_text(kind.value_type)
    if types.is_struct(kind):
        return all(_is_text(kind.field(at).type) for at in range(kind.num_fields))
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _may_be_read(kind: Any) -> bool:
    """Whether a column may hold captions or names of files, which may be numbers."""
    import pyarrow.types as types

    return _is_text(kind) or bool(types.is_integer(kind))


def _texts_inside(kind: Any) -> list[str]:
    """The texts in a record of other facts, as WebDataset's json becomes a column."""
    import pyarrow.types as types

    if not types.is_struct(kind) or _is_text(kind) or _has(kind, "bytes"):
        return []
    return [kind.field(at).name for at in range(kind.num_fields) if _is_text(kind.field(at).type)]


def _has(kind: Any, name: str) -> bool:
    import pyarrow.types as types

    return bool(types.is_struct(kind)) and kind.get_field_index(name) >= 0


def _is_bytes(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _is_media(field: Any) -> bool:
    """Whether it holds videos or pictures: the Hub's {"bytes": ..., "path": ...}, or bytes under such a name."""
    return _has(field.type, "bytes") or (_is_bytes(field.type) and plain(field.name).removesuffix("bytes") in MEDIA)


def _data(field: Any) -> str:
    return f"{field.name}.bytes" if _has(field.type, "bytes") else str(field.name)


def _declared(schema: Any) -> dict[str, str]:
    """Column -> what the Hub's notes in a table say that it holds ("Video"); {} where they are damaged."""
    found: Any = None
    with contextlib.suppress(ValueError):
        found = from_json((schema.metadata or {}).get(b"huggingface", b"{}"))
    for name in ("info", "features"):
        found = found.get(name) if isinstance(found, dict) else None
    known = found if isinstance(found, dict) else {}
    return {name: str(one.get("_type")) for name, one in known.items() if isinstance(one, dict)}


def _media_column(schema: Any, wanted: str, declared: Mapping[str, str]) -> tuple[str, bool]:
    """(the column of videos or pictures, whether it holds them rather than names them)."""
    holding = {field.name for field in schema if _has(field.type, "bytes") or _is_bytes(field.type)}
    if wanted:
        name = next((name for name in schema.names if plain(name) == plain(wanted)), "")
        return name, name in holding
    for kind in ("Video", "Image"):
        if named := [name for name in schema.names if declared.get(name) == kind]:
            return named[0], named[0] in holding
    if media := [field.name for field in schema if _is_media(field)]:
        return media[0], True
    texts = {plain(field.name): field.name for field in reversed(list(schema)) if _may_be_read(field.type)}
    return next((texts[plain(name)] for name in NAME_COLUMNS if plain(name) in texts), ""), False
