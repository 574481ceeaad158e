"""Videos inside parquet tables, as the Hub keeps many datasets: written out once as files with a metadata.jsonl.

Needs pyarrow (the extra `parquet`). Rows are read a few at a time, nothing is decoded. Not covered: fetching (hub).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.clips.media import SUFFIXES
from workbench.clips.records import METADATA
from workbench.dataset_builder.sources.columns import IMAGE_SUFFIXES, NAME_COLUMNS, column_names, plain
from workbench.errors import DataError
from workbench.paths import extra_command
from workbench.workspace import from_json, write_text, writing

ROWS = 8  # read at a time: each may hold a whole video


def unpack(table: Path, video_column: str = "") -> Path:
    """The folder of a parquet file's videos, in the VideoFolder layout, made if need be.

    video_column: the column of videos, or of their names; "" to find it out. Columns of text keep their names. A table
    that only names files becomes a metadata.jsonl beside it. Raises DataError (no pyarrow, no such column, a
    damaged file), CannotWrite.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{table.name} is a parquet table, which needs pyarrow: {extra_command('parquet')}") from None
    try:
        with pyarrow.parquet.ParquetFile(table, pre_buffer=False) as file:
            schema = file.schema_arrow
            column, holds_bytes = _media_column(schema, video_column)
            if column is None:
                raise DataError(
                    f"{table.name} has no column of videos{f' called {video_column!r}' if video_column else ''}: "
                    f"{column_names(schema.names)}: name the one meant with video_column"
                )
            folder = table.with_suffix("") if holds_bytes else table.parent
            if video_column or not (folder / METADATA).exists():
                texts = [field.name for field in schema if field.name != column and _is_text(field.type)]
                rows = _rows(file, [column, *texts])
                lines = [_line(folder, number, row, column, texts) for number, row in enumerate(rows)]
                write_text(folder / METADATA, "".join(line for line in lines if line))
            return folder
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{table.name} cannot be read ({str(error)[:200]}): download it again") from error


def _rows(file: Any, columns: list[str]) -> Iterator[Mapping[str, Any]]:
    for batch in file.iter_batches(batch_size=ROWS, columns=columns):
        yield from batch.to_pylist()


def _line(folder: Path, number: int, row: Mapping[str, Any], column: str, texts: list[str]) -> str:
    """Write a row's video and give its line of metadata.jsonl; "" for a row without any."""
    value = row[column]
    if isinstance(value, dict):
        data, name = value.get("bytes"), value.get("path") or ""
    else:
        data, name = (value, "") if isinstance(value, bytes) else (None, value or "")
    if data:
        suffix = PurePosixPath(name).suffix.lower()
        name = f"{number:06d}{suffix if suffix in (*SUFFIXES, *IMAGE_SUFFIXES) else '.mp4'}"
        with writing(folder):
            folder.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
    kept = {one: row[one] for one in texts if row[one] is not None} | {"file_name": name, column: name}
    return json.dumps(kept, ensure_ascii=False) + "\n" if name else ""


def _is_text(kind: Any) -> bool:
    """Whether a column may hold captions: texts, lists of them, or records of them by language."""
    import pyarrow.types as types

    if types.is_struct(kind):
        return all(_is_text(kind.field(at).type) for at in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _features(notes: bytes) -> Mapping[str, Any]:
    """What the Hub's notes in a table say of its columns; {} where they are damaged."""
    found: Any = None
    with contextlib.suppress(ValueError):
        found = from_json(notes)
    for name in ("info", "features"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _media_column(schema: Any, wanted: str) -> tuple[str | None, bool]:
    """(the column of videos or pictures, whether it holds them rather than names them)."""
    import pyarrow.types as types

    if wanted:
        named = [name for name in schema.names if plain(name) == plain(wanted)]
        return (named[0], not types.is_string(schema.field(named[0]).type)) if named else (None, False)

    declared = _features((schema.metadata or {}).get(b"huggingface", b"{}"))
    for kind in ("Video", "Image"):
        for name, feature in declared.items():
            if isinstance(feature, dict) and feature.get("_type") == kind and name in schema.names:
                return name, not types.is_string(schema.field(name).type)
    for name in schema.names:
        kind = schema.field(name).type
        if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            return name, True
        if name in ("video", "mp4", "image") and types.is_binary(kind):
            return name, True
    texts = {plain(name): name for name in reversed(schema.names) if types.is_string(schema.field(name).type)}
    named = [texts[plain(name)] for name in NAME_COLUMNS if plain(name) in texts]
    return (named[0], False) if named else (None, False)
