"""JSON as the field keeps captions in it: lists and lines of records, captions by name, columns, and their wrappers."""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

from workbench.dataset_builder.sources.columns import Columns, by_language, file_name, is_media_name, plain

LONGEST_LINE = 1024**2  # characters of one record
MOST_DEEP = 4  # wrappers around the records: {"data": {"train": [...]}}
ID_COLUMNS = ("imageid", "videoid", "clipid")
BROKEN: Mapping[str, Any] = {}
"""Stands for what is no record."""


def read_json(
    text: str, columns: Columns, is_name: Callable[[str], bool]
) -> tuple[list[tuple[str, Mapping[str, Any]]], str]:
    """Find the records of a .json or .jsonl file, whichever of the two it really is.

    Args:
        text: the file's content
        columns: what the keys may be called
        is_name: whether a text names a video that is here

    Returns:
        Each record with the place where it stands ("line 3"), BROKEN for what is none; and why there are none at all,
        "" when there are.
    """
    text = text.strip().strip("\ufeff")
    if not text:
        return [], "it is empty"
    try:
        value = json.loads(text)
    except RecursionError:
        return [], "it is nested too deeply"
    except ValueError as error:
        for rows in (list(_lines(text)), list(_one_by_one(text))):
            if any(row is not BROKEN for _, row in rows):
                return rows, ""
        return [], f"it is not JSON: {error}"
    found = _records(value, columns, is_name, MOST_DEEP)
    if not found:
        return [], "there is no list of records in it, and none of its keys is the name of a video that is here"
    if isinstance(value, dict) and found == [value]:
        return [("line 1", value)], ""
    return [(f"record {number}", row) for number, row in enumerate(_with_names(found, columns), 1)], ""


def _lines(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip(" \t\r[],"):
            yield f"line {number}", _record(_value(line.strip()))


def _value(line: str) -> object:
    """What a line says, None for nothing that can be read: JSON, or a record as Python prints it; by itself, or as a
    part of a list that is not whole."""
    if not line.startswith(("{", "[")) or len(line) > LONGEST_LINE:
        return None
    for part in (line.rstrip(", "), line.lstrip("[, ").rstrip("], ")):
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return cast(object, read(part))
    return None


def _one_by_one(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Records that follow one another, each over several lines; what is behind one that is damaged is one, too."""
    reader, at, line = json.JSONDecoder(), 0, 1
    while at < len(text):
        begun = at
        try:
            value, at = reader.raw_decode(text, at)
        except (ValueError, RecursionError):
            value, at = None, len(text)
        yield f"line {line}", _record(value)
        at = next((later for later in range(at, len(text)) if text[later] not in ", \t\r\n"), len(text))
        line += text.count("\n", begun, at)


def _record(value: object) -> Mapping[str, Any]:
    """A record, or a pair of name and caption as one."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        return {"file_name": value[0], "text": value[1]}
    return BROKEN


def _records(value: object, columns: Columns, is_name: Callable[[str], bool], deep: int) -> list[Mapping[str, Any]]:
    """The records in a value of JSON, whatever holds them; none when it holds none."""
    if isinstance(value, list):
        rows = [_record(one) for one in value]
        return rows if any(row is not BROKEN for row in rows) else []
    if not isinstance(value, dict) or not deep:
        return []
    keys = list(value)
    if isinstance(value.get("columns"), list) and isinstance(value.get("data"), list):  # pandas, orient="split"
        names = [str(column) for column in value["columns"]]
        return [dict(zip(names, row, strict=False)) for row in value["data"] if isinstance(row, list)]
    if table := _of_columns(value, columns):
        return table
    if (name := columns.name(value)) and (is_media_name(name) or is_name(name)):
        return [value]
    if any(is_media_name(key) or is_name(key) for key in keys):
        return [_named(key, one, columns) for key, one in value.items() if isinstance(one, str | list | dict | None)]
    inside = [_records(one, columns, is_name, deep - 1) for one in value.values()]
    if any(inside):
        return list(chain.from_iterable(inside))
    return []


def _of_columns(value: Mapping[str, Any], columns: Columns) -> list[Mapping[str, Any]]:
    """The records of a table kept by columns: as lists, or by the rows' numbers, as pandas writes it."""
    lists = {
        key: list(one.values()) if isinstance(one, dict) and all(map(str.isdigit, one)) else one
        for key, one in value.items()
    }
    kept = {key: one for key, one in lists.items() if isinstance(one, list)}
    if not columns.has_name(list(kept)) or len({len(one) for one in kept.values()}) != 1:
        return []
    rows: list[Mapping[str, Any]] = [dict(zip(kept, row, strict=True)) for row in zip(*kept.values(), strict=True)]
    return rows if all(columns.name(row) for row in rows) else []


def _named(key: str, value: object, columns: Columns) -> Mapping[str, Any]:
    """The record of {name: caption} or {name: record}."""
    if isinstance(value, dict) and (columns.has_text(list(value)) or not by_language(value)):
        return {**value, "file_name": key}
    return {"file_name": key, "text": value}


def _with_names(rows: Sequence[Mapping[str, Any]], columns: Columns) -> list[Mapping[str, Any]]:
    """The records, where captions and files are apart (COCO's images and annotations) joined by their numbers."""
    names = {str(row["id"]): name for row in rows if "id" in row and (name := columns.name({**row, "id": None}))}
    if not names:
        return list(rows)
    joined = []
    for row in rows:
        ids = (file_name(one) for key, one in row.items() if plain(key) in ID_COLUMNS)
        name = next((names[one] for one in ids if one in names), "")
        joined.append({**row, "file_name": name} if name and columns.has_text(list(row)) else row)
    return joined
