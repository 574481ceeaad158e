"""Read rows of captions from delimited text (CSV, TSV and similar) and from JSON of any shape.

No word is lost without naming the line. Captions often contain commas and quotes, and many tables were written without
proper quoting. So extra commas belong to the caption, and a quote that is never closed ends with its line instead of
swallowing the following rows. A list of "name|caption" lines (`lines_of_names`) is a two-column table without a header.
JSON may be a list or lines of records, captions by name, columns, or any of these nested in wrappers.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, cast

from workbench.dataset_builder.sources.columns import (
    MEDIA_SUFFIXES,
    Columns,
    by_language,
    file_name,
    is_media_name,
    plain,
)
from workbench.dataset_builder.sources.layouts.base import Problem

DELIMITERS = (",", ";", "\t", "|")
STRONG = ("\t", "|")  # delimiters that do not occur in prose
SAMPLE = 20  # lines used to detect the delimiter
PREFACE = 5  # maximum lines of comments before the header
MOST_LINES = 200  # per cell; a quote open for longer was never closed
NEW_LINE = re.compile(r"\r\n|\n|\r")  # unlike splitlines, do not split at U+2028
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # a cell that a spreadsheet would run; a leading quote makes it text
FORMULA_TEXT = re.compile(r'="([^"]*)"')  # text written as a spreadsheet formula
# "a.mp4: a cat", "a.mp4 - a cat", "a.mp4 a cat"
MEDIA_NAME = rf"\S(?:.*?\S)??(?:{'|'.join(map(re.escape, MEDIA_SUFFIXES))})"
NAME_FIRST = re.compile(rf"\s*({MEDIA_NAME})(?:\s*(?:[:=-]>?)\s+|\s*[:=]>?|\s+)", re.IGNORECASE)
WORD_FIRST = re.compile(r"\s*(\S+)\s+")


@dataclass(frozen=True)
class Records:
    """The content of a table. rows: position ("line 3") and values by column; unread: why it has none, or ""."""

    rows: Sequence[tuple[str, Mapping[str, Any]]] = ()
    columns: Sequence[str] = ()
    problems: Sequence[tuple[Problem, str]] = ()
    unread: str = ""


def read_delimited(text: str, suffix: str, columns: Columns, is_name: Callable[[str], bool]) -> Records:
    """Read a delimited table, detecting its delimiter and header.

    suffix: the file's extension, which decides if the delimiter is ambiguous.
    is_name: whether a cell names a video that is here.
    """
    lines = NEW_LINE.split(text.replace("\0", " "))
    first = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    declared = re.fullmatch(r"\ufeff?sep=(.)\s*", lines[first], re.IGNORECASE) if first < len(lines) else None
    first += bool(declared)
    numbers = list(islice((at for at in range(first, len(lines)) if lines[at].strip()), SAMPLE))
    if not numbers:
        return Records(unread="it is empty")
    sample = [lines[at] for at in numbers]
    delimiter = declared[1] if declared else _delimiter(sample, suffix, columns, is_name)

    def is_comment(line: str) -> bool:
        cells = _cells(line, delimiter)
        return len(cells) == 1 or (line.lstrip().startswith("#") and not any(map(is_media_name, cells)))

    # Lines before the table: those without a delimiter, and those with "#" and no file name.
    before = next((at for at, line in enumerate(sample[: PREFACE + 1]) if not is_comment(line)), 0)
    comments, first, sample = numbers[:before], numbers[before], sample[before:]
    header = [cell.strip().strip("\ufeff") for cell in _cells(sample[0], delimiter)]
    while header and not header[-1]:  # a delimiter after the last column
        header.pop()
    if any(map(is_media_name, header)) or not any(map(columns.knows, header)) and any(map(is_name, header[:1])):
        header = _guessed(sample, delimiter, is_media_name if any(map(is_media_name, header)) else is_name)
        if not header:
            return Records(unread="it has neither a header nor two columns")
    else:
        first += 1
    header = [column + " " * header[:at].count(column) for at, column in enumerate(header)]  # make names unique
    rows, problems = list[tuple[str, Mapping[str, Any]]](), [(Problem.BROKEN, f"line {at + 1}") for at in comments]
    for line, cells, odd in _rows(lines, first, delimiter, header, columns, is_name):
        rows.append((f"line {line}", cells))
        problems += [(problem, f"line {line}") for problem in odd]
        # A short row is fine if it has a file name.
        if len(cells) < len(header) and not is_media_name(name := columns.name(cells)) and not is_name(name):
            problems.append((Problem.BROKEN, f"line {line}"))
    return Records(rows, header, problems)


def _delimiter(sample: Sequence[str], suffix: str, columns: Columns, is_name: Callable[[str], bool]) -> str:
    """Choose by most known columns in the header, then rows with file names, then cells in the shortest row."""

    def fitness(delimiter: str) -> tuple[int, int, int, bool]:
        rows = [_cells(line, delimiter) for line in sample]
        known = max(sum(map(columns.knows, row)) if len(row) > 1 else 0 for row in rows[: PREFACE + 1])
        named = sum(len(row) > 1 and any(is_media_name(cell) or is_name(cell) for cell in row) for row in rows)
        return known, named, min(map(len, rows)), delimiter == preferred

    preferred = "\t" if suffix == ".tsv" else ","
    return max(DELIMITERS, key=fitness)


def _guessed(sample: Sequence[str], delimiter: str, is_name: Callable[[str], bool]) -> list[str]:
    """Guess the columns of a table without a header; none if the caption column is unclear.

    Two columns are a file name and a caption. With more columns, separated by tabs or bars (id|written|spoken,
    file|speaker|text), the caption is the first with at least half as many letters as the longest.
    """
    rows = [_cells(line, delimiter) for line in sample]
    if any(len(row) == 2 for row in rows):
        return ["file_name", "text"] if is_name(rows[0][0]) else ["text", "file_name"]
    width = len(rows[0])
    if delimiter not in STRONG or width == 1 or {len(row) for row in rows} != {width}:
        return []
    name_at = next(at for at, cell in enumerate(rows[0]) if is_name(cell))
    letters = [0 if at == name_at else sum(map(str.isalpha, "".join(row[at] for row in rows))) for at in range(width)]
    text_at = next(at for at, count in enumerate(letters) if at != name_at and 2 * count >= max(letters))
    return [("file_name" if at == name_at else "text" if at == text_at else "caption") for at in range(width)]


def lines_of_names(text: str, is_name: Callable[[str], bool]) -> str:
    """Convert lines of a file name and a caption to a delimited table; "" for other text. is_name: as above."""
    lines = [line for line in NEW_LINE.split(text.strip("\ufeff")) if line.strip()]
    sample = lines[:SAMPLE]

    def is_row(line: str, delimiter: str) -> bool:
        cells = [cell.strip() for cell in _cells(line, delimiter)]
        named = [cell for cell in cells if is_media_name(cell)] or [cell for cell in cells[:1] if is_name(cell)]
        if len(named) != 1 or named[0] not in (cells[0], cells[-1]):
            return False
        has_caption = any(_has_letters(cell) for cell in cells if cell not in named)
        return has_caption and (delimiter in STRONG or is_media_name(named[0]))

    for delimiter in DELIMITERS:
        rows = [line for line in sample if is_row(line, delimiter)]
        if 2 * len(rows) >= len(sample) and any(is_name(cell) for row in rows for cell in _cells(row, delimiter)):
            return text
    # Prose may start with the name of a file ("a cat ..." beside a.mp4). If names have no extension, it is a list only
    # if there are several and every line starts with one.
    for pattern, least, different in ((NAME_FIRST, len(sample) / 2, 1), (WORD_FIRST, len(sample), 2)):
        split = [_split(line, pattern) for line in sample]
        names = [name for name, caption in split if is_name(name) and _has_letters(caption)]
        if len(names) >= least and len(set(names)) >= different:
            return "\n".join("\t".join(filter(None, _split(line, pattern))) for line in NEW_LINE.split(text))
    return ""


def _split(line: str, pattern: re.Pattern[str]) -> tuple[str, str]:
    """Split a line into the name it starts with and the rest, or return ("", line)."""
    found = pattern.match(line)
    return (found[1], line[found.end() :]) if found else ("", line)


def _has_letters(text: str) -> bool:
    """Whether a text has letters. Class numbers and times have none."""
    return any(map(str.isalpha, text))


def _rows(
    lines: Sequence[str],
    first: int,
    delimiter: str,
    header: Sequence[str],
    columns: Columns,
    is_name: Callable[[str], bool],
) -> Iterator[tuple[int, dict[str, str], list[Problem]]]:
    """Yield each row from line `first`: the number of its first line (from 1), column -> text, and its problems."""
    texts = columns.text_keys(header)
    text_at = header.index(texts[0]) if texts else -1
    name_at = next((at for at, cell in enumerate(header) if columns.name_keys([cell])), -1)

    def name_in(line: str) -> str:
        """Return the file name in a line that looks like a complete row, or ""."""
        cells = line.split(delimiter)
        if name_at < 0 or len(cells) < len(header):
            return ""
        return cells[name_at if name_at < text_at else name_at - len(header)].strip().strip('"')

    def is_row(line: str, short: bool) -> bool:
        """Whether a line begins a row, so that no quote before it can be open. short: names have no extension."""
        name, at = name_in(line), line.find('"')
        opens = at > 0 and line[at - 1] == delimiter and line[at + 1 : at + 2] not in ("", delimiter)
        return is_media_name(name) or opens or bool(short and name and is_name(name))

    number = first
    while number < len(lines):
        begun = number
        number += 1
        if not lines[begun].strip():
            continue
        if _is_open(lines[begun], delimiter):
            short = not is_media_name(name_in(lines[begun]))
            for end, line in enumerate(lines[number : number + MOST_LINES], number + 1):
                if is_row(line, short):
                    break
                if not _is_open(f'"\n{line}', delimiter):
                    number = end
                    break
        yield begun + 1, *_row("\n".join(lines[begun:number]), delimiter, header, name_at, text_at)


def _row(
    record: str, delimiter: str, header: Sequence[str], name_at: int, text_at: int
) -> tuple[dict[str, str], list[Problem]]:
    """Read a row. Cells beyond the header's columns belong to the caption, or to the file name before it."""
    cells = list(_cell(delimiter).finditer(record))
    while len(cells) > len(header) and not _text(cells[-1]).strip():
        record = record[: cells.pop().start()]

    def between(start: int, end: int) -> str:
        """Return the text from one cell up to another, including delimiters, as a single cell."""
        raw = record[cells[start].start("cell") : cells[end].start() if end < len(cells) else len(record)].strip()
        inner = raw[1:-1].lstrip()
        at = inner.find('"')  # at the start, or after a space or bracket, it opens a quotation
        enclosed = raw.startswith('"') and raw.endswith('"') and (at <= 0 or inner[at - 1] in " \t\n([{")
        return _unquoted(raw[1:-1]) if enclosed else raw

    over = len(cells) - len(header)
    spans = [(at, at + 1) for at in range(len(cells))]
    at = text_at
    if over > 0 and text_at >= 0:
        if 0 <= name_at < text_at and not is_media_name(_text(cells[name_at])):
            at = name_at if is_media_name(between(name_at, name_at + over + 1)) else text_at
        spans[at : at + over + 1] = [(at, at + over + 1)]
    row: dict[str, str] = {}
    problems = [Problem.JOINED] * (over > 0 and at == text_at >= 0)
    for column, (start, end) in zip(header, spans, strict=False):
        alone = end == start + 1
        cell = _text(cells[start]) if alone else between(start, end)
        if cell.startswith('"') and cell.count('"') % 2 and not (alone and cells[start]["quoted"] is not None):
            cell = cell[1:]
            problems.append(Problem.OPEN_QUOTE)
        cell = as_text[1] if (as_text := FORMULA_TEXT.fullmatch(cell)) else cell
        row[column] = cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell
    return row, problems


@cache
def _cell(delimiter: str) -> re.Pattern[str]:
    """Return a pattern for one cell of a record after another.

    Quotes in captions are often not escaped, so a quote closes a cell only before a delimiter or the record's end. In
    '"Big" cat', where the first quote after the opening one follows a word, both belong to the caption. Quotes are
    doubled or escaped with a backslash, which before a delimiter only counts if another quote closes the cell.
    """
    sign = re.escape(delimiter)
    ends = rf" *(?:{sign}|\Z)"
    own = rf'(?:[^"\n]|"")*+(?<![\s\\])"(?![^\W_]|{ends})'
    quoted = rf'(?:""|\\"(?!"| *{sign} *(?:"|[^"]*\Z)| *\Z)|[^"\\]+|\\|"(?!{ends}))*+'
    plain = rf'(?P<open>"(?!{own}))?[^{sign}]*'
    return re.compile(rf'(?:\A|{sign})(?P<cell> *(?:"(?!{own})(?P<quoted>{quoted})"(?={ends}) *|(?P<plain>{plain})))')


def _text(cell: re.Match[str]) -> str:
    return cell["plain"].rstrip(" ") if cell["quoted"] is None else _unquoted(cell["quoted"])


def _unquoted(cell: str) -> str:
    return cell.replace('""', '"').replace('\\"', '"')


def _cells(record: str, delimiter: str) -> list[str]:
    return list(map(_text, _cell(delimiter).finditer(record)))


def _is_open(record: str, delimiter: str) -> bool:
    """Whether a record ends inside a quoted cell."""
    return '"' in record and any(cell["open"] for cell in _cell(delimiter).finditer(record))


# ---- JSON ------------------------------------------------------------------------------------------------------------

LONGEST_LINE = 1024**2  # characters of one record
MOST_DEEP = 4  # maximum wrappers around the records: {"data": {"train": [...]}}
ID_COLUMNS = ("imageid", "videoid", "clipid")
BROKEN: Mapping[str, Any] = {}
"""Placeholder for a value that is not a record."""


def read_json(text: str, columns: Columns, is_name: Callable[[str], bool]) -> Records:
    """Find the records in JSON or JSON Lines, whatever the file's extension. is_name: as for `read_delimited`."""
    text = text.strip().strip("\ufeff")
    if not text:
        return Records(unread="it is empty")
    try:
        value = json.loads(text)
    except RecursionError:
        return Records(unread="it is nested too deeply")
    except ValueError as error:
        numbered = enumerate(text.split("\n"), 1)
        lines = [(f"line {at}", _record(_value(line.strip()))) for at, line in numbered if line.strip(" \t\r[],")]
        for rows in (lines, list(_one_by_one(text))):
            if any(row is not BROKEN for _, row in rows):
                return _with_columns(rows)
        return Records(unread=f"it is not JSON: {error}")
    found = _records(value, columns, is_name, MOST_DEEP)
    if not found:
        return Records(unread="there is no list of records in it, and none of its keys names a video that is here")
    if isinstance(value, dict) and found == [value]:
        return _with_columns([("line 1", value)])
    return _with_columns([(f"record {number}", row) for number, row in enumerate(_with_names(found, columns), 1)])


def _with_columns(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Records:
    whole = [(where, row) for where, row in rows if row is not BROKEN]
    keys = dict.fromkeys(str(key) for _, row in whole for key in row)
    return Records(whole, tuple(keys), [(Problem.BROKEN, where) for where, row in rows if row is BROKEN])


def _value(line: str) -> object:
    """Parse a line of JSON or a Python literal, alone or as part of an incomplete list; None if that fails."""
    if not line.startswith(("{", "[")) or len(line) > LONGEST_LINE:
        return None
    for part in (line.rstrip(", "), line.lstrip("[, ").rstrip("], ")):
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return cast(object, read(part))
    return None


def _one_by_one(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield consecutive records that may span several lines. Everything after a damaged one is one broken record."""
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
    """Return a record, converting a pair of name and caption, or BROKEN."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        return {"file_name": value[0], "text": value[1]}
    return BROKEN


def _records(value: object, columns: Columns, is_name: Callable[[str], bool], deep: int) -> list[Mapping[str, Any]]:
    """Find the records in a JSON value of any shape."""
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
    return [row for one in value.values() for row in _records(one, columns, is_name, deep - 1)]


def _of_columns(value: Mapping[str, Any], columns: Columns) -> list[Mapping[str, Any]]:
    """Return the records of a table stored by columns, as lists or, as pandas does, by row number."""
    lists = {
        key: list(one.values()) if isinstance(one, dict) and all(map(str.isdigit, one)) else one
        for key, one in value.items()
    }
    kept = {key: one for key, one in lists.items() if isinstance(one, list)}
    if not columns.name_keys(kept) or len({len(one) for one in kept.values()}) != 1:
        return []
    rows: list[Mapping[str, Any]] = [dict(zip(kept, row, strict=True)) for row in zip(*kept.values(), strict=True)]
    return rows if all(columns.name(row) for row in rows) else []


def _named(key: str, value: object, columns: Columns) -> Mapping[str, Any]:
    """Make a record from an item of {name: caption} or {name: record}."""
    if isinstance(value, dict) and (columns.text_keys(value) or not by_language(value)):
        return {**value, "file_name": key}
    return {"file_name": key, "text": value}


def _with_names(rows: Sequence[Mapping[str, Any]], columns: Columns) -> list[Mapping[str, Any]]:
    """Join captions to file names by id if they are in separate records, like COCO's images and annotations."""
    names = {str(row["id"]): name for row in rows if "id" in row and (name := columns.name({**row, "id": None}))}
    if not names:
        return list(rows)
    joined = []
    for row in rows:
        ids = (file_name(one) for key, one in row.items() if plain(key) in ID_COLUMNS)
        name = next((names[one] for one in ids if one in names), "")
        joined.append({**row, "file_name": name} if name and columns.text_keys(row) else row)
    return joined
