"""Decode text files that come with videos, and find the columns of file names and captions.

Text is decoded from whatever encoding an editor wrote, and captions are cleaned. Column names match regardless of case,
spaces, hyphens and underscores: "File_Name", "file name" and "filename" are the same column.
"""

from __future__ import annotations

import ast
import codecs
import contextlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workbench.clips.records import LATENTS
from workbench.clips.video_files import OTHER_IMAGE_SUFFIXES, SUFFIXES
from workbench.display.quantities import counted, listed

LONGEST_CAPTION = 4000  # characters; far more than any text encoder reads
MOST_TEXT_BYTES = 64 * 1024**2  # per text file; enough for a table of a hundred thousand captions
ENCODINGS = ("cp932", "euc_jp", "gb18030", "big5", "euc_kr", "cp1251", "koi8_r", "cp1250", "cp1252", "cp1253")
LONG_RUN = re.compile(rb"[\x80-\xff]{3}")  # three non-ASCII bytes in a row


def decode_text(data: bytes) -> tuple[str, str | None]:
    """Decode text and name its encoding: "" if it is certain, None if it could not be detected.

    UTF-8 and UTF-16 are recognized with or without a byte order mark. Otherwise, text with at most two non-ASCII bytes
    in a row is Western European (Windows-1252), and charset-normalizer picks one of ENCODINGS for the rest. Text in
    no known encoding becomes "". If most non-ASCII lines are UTF-8, only the others are decoded as Windows-1252,
    because tables are often merged from several files.
    """
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return data.decode("utf-32", "replace"), ""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace"), ""
    if data[:2].count(b"\0") == 1 and data.count(b"\0") > len(data) // 4:
        return data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-16-be", "replace"), ""
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        pass
    lines, odd, proven = [], 0, 0
    for line in data.removeprefix(codecs.BOM_UTF8).split(b"\n"):
        try:
            lines.append(line.decode())
            proven += not line.isascii()
        except UnicodeDecodeError:
            lines.append(line.decode("cp1252", "replace"))
            odd += 1
    if proven >= odd:
        return "\n".join(lines), f"UTF-8, but for {counted(odd, 'line')}"
    if not LONG_RUN.search(data):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("cp1252"), "cp1252"
    from charset_normalizer import from_bytes

    best = from_bytes(data, cp_isolation=list(ENCODINGS)).best()
    return ("", None) if best is None else (str(best), best.encoding)


def clean_caption(text: str) -> str:
    """Return one line of NFC text without control characters, at most LONGEST_CAPTION characters long."""
    return one_line(text[: 4 * LONGEST_CAPTION])[:LONGEST_CAPTION].rstrip()


def one_line(text: str) -> str:
    """Return the text in NFC on one line, without control characters."""
    plain = "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
    return " ".join(unicodedata.normalize("NFC", plain).split())


# ---- where captions are ----------------------------------------------------------------------------------------------

IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".jfi", ".pjpeg", ".pjp", ".webp", ".bmp", ".dib"),
    *(".avif", ".avifs"),
)
MEDIA_SUFFIXES = (*SUFFIXES, *IMAGE_SUFFIXES, *OTHER_IMAGE_SUFFIXES, LATENTS)
DELIMITED_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
CAPTION_SUFFIXES = (".txt", ".caption")
LIST_SUFFIXES = (".lst", ".list")
SIDECAR_SUFFIXES = (*CAPTION_SUFFIXES, ".json")  # caption files beside a video, in order of precedence
PLAIN_TEXT_SUFFIXES = (*CAPTION_SUFFIXES, *LIST_SUFFIXES, *JSON_SUFFIXES, *DELIMITED_SUFFIXES)
PARQUET = ".parquet"  # a table of names and captions, or one that contains the videos
TEXT_SUFFIXES = (*PLAIN_TEXT_SUFFIXES, PARQUET)

# Column names used by trainers and published datasets, in order of precedence; a row may have several.
NAME_COLUMNS = (
    *("file_name", "video", "path", "file", "media_path", "video_path", "file_path", "video_file", "video_name"),
    *("video_file_name", "video_file_path", "media", "media_file", "clip", "clip_path", "clip_name", "mp4"),
    *("image_path", "image", "image_file", "image_name", "img_path", "img", "relative_path", "video_id", "clip_id"),
    *("vid", "video_url", "url", "uri", "id", "key", "name"),
)
TEXT_COLUMNS = (
    *("text", "caption", "prompt", "captions", "texts", "prompts", "description", "descriptions", "cap"),
    *("video_caption", "video_description", "caption_text", "long_caption", "dense_caption", "detailed_caption"),
    *("refined_caption", "generated_caption", "short_caption", "brief_caption", "recaption", "text_prompt", "txt"),
    *("sentence", "sentences", "annotation", "annotations", "content", "caption_en", "en_caption", "text_en", "en_cap"),
    *("conversations", "messages"),
)
FIRST_FRAME_COLUMNS = (
    *("first_frame", "first_frame_path", "first_frame_image", "first_image", "start_image", "start_frame"),
    "input_image",
)
LIST_NAMES = ("video", "videos", "text", "texts", "prompts", "captions")  # list files without an extension
# Companion columns, by parts of their names, in order of precedence: vace_video_mask has masks, vace_reference_image
# references, and vace_video control clips. Files in such columns never become clips.
COMPANION_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mask", ("mask",)),
    ("last_frame", ("lastframe", "lastimage", "endimage", "endframe", "tailimage", "tailframe")),
    ("reference", ("reference", "refvideo", "refimage", "incontext", "editimage", "editvideo", "object")),
    ("control", ("control", "condition", "vace", "depth", "pose", "canny")),
)
ANSWERING = ("gpt", "assistant", "model")
ENGLISH = ("en", "eng", "english", "en-us", "en_us", "en-gb")
LANGUAGES = (
    *ENGLISH,
    *("ar", "cn", "cs", "da", "de", "el", "es", "fi", "fr", "he", "hi", "hu", "id", "it", "ja", "jp", "ko", "kr", "nl"),
    *("no", "pl", "pt", "ro", "ru", "sv", "th", "tr", "uk", "vi", "zh", "zh-cn", "zh_cn", "zh-tw"),
    *("chinese", "french", "german", "japanese", "korean", "spanish"),
)
# Empty cells as written by pandas, Python and spreadsheets. Lowercase "none" is a word and may be a caption.
NO_TEXT = ("nan", "NaN", "NAN", "None", "NONE", "null", "NULL", "<NA>", "NaT", "N/A", "n/a", "#N/A")


@lru_cache(maxsize=4096)
def plain(column: str) -> str:
    """Normalize a column name for comparison: " File_Name" -> "filename"."""
    return "".join(c for c in column.casefold() if c.isprintable() and c not in " -_.\ufeff")


@dataclass(frozen=True)
class Cell:
    """The caption in a table cell, the first if it has several. odd: what it has instead of text ("a number")."""

    text: str = ""
    several: bool = False
    odd: str = ""


@dataclass(frozen=True)
class Columns:
    """Where to look for captions; by default, under the usual names.

    video: the column of file names, or a list file (`files.lst`); "" for the usual ones.
    caption: the column of captions, a list file, or the ending of caption files (`longcap` for 000.longcap); "" for the
        usual ones.
    first_line: whether to read only the first line of caption files.
    """

    video: str = ""
    caption: str = ""
    first_line: bool = False

    def name(self, row: Mapping[str, Any]) -> str:
        """Return the file name in a row, or ""."""
        keys = self.name_keys(row)
        if found := next((name for key in keys if (name := file_name(row[key]))), ""):
            return found
        if self.video:
            return ""
        # A column with an unknown name may still have names of video files.
        excluded = {*_named(tuple(row), FIRST_FRAME_COLUMNS), *_named(tuple(row), TEXT_COLUMNS)}
        others = [file_name(value) for key, value in row.items() if key not in excluded and not companion_kind(key)]
        return next((name for name in others if is_media_name(name)), "")

    def name_keys(self, columns: Iterable[str]) -> Sequence[str]:
        """Return the columns that may have the file name, in order of precedence."""
        return _named(tuple(columns), (self.video,) if self.video else NAME_COLUMNS)

    def text(self, row: Mapping[str, Any]) -> Cell:
        """Return the row's caption, the first if there are several."""
        cells = [_cell(row[key]) for key in self.text_keys(row)]
        return next((cell for cell in cells if cell.text), cells[0] if cells else Cell())

    def text_keys(self, columns: Iterable[str]) -> Sequence[str]:
        """Return the caption columns, in order of precedence."""
        return _named(tuple(columns), (self.caption,) if self.caption else TEXT_COLUMNS)

    def knows(self, column: str) -> bool:
        """Whether a column has a known name."""
        asked = [name for name in (self.video, self.caption) if name]
        return bool(_named((column,), (*asked, *NAME_COLUMNS, *TEXT_COLUMNS)))

    def asks_for(self, file: str) -> bool:
        """Whether a setting names this file as a list, or its ending as the ending of caption files."""
        name = file.rpartition("/")[2].casefold()
        asked = [one.replace("\\", "/").rpartition("/")[2].casefold() for one in (self.video, self.caption) if one]
        ending = self.caption.casefold().lstrip(".")
        return name in asked or (bool(ending) and name.endswith(f".{ending}") and not name.endswith(MEDIA_SUFFIXES))

    def reads(self, file: str) -> bool:
        """Whether a file may have captions, judging by its name."""
        name = file.rpartition("/")[2].casefold()
        return name.endswith(TEXT_SUFFIXES) or name in LIST_NAMES or self.asks_for(file)


USUAL = Columns()


def by_language(value: Mapping[str, Any]) -> bool:
    """Whether a record has one text in several languages."""
    return all(key.casefold() in LANGUAGES for key in value)


def is_media_name(name: str) -> bool:
    """Whether this is the name of a video or picture, judging by its ending."""
    return name.strip().casefold().endswith(MEDIA_SUFFIXES) and "\n" not in name.strip()


def companion_kind(column: str) -> str:
    """Return the kind of companion a column is named for, or ""."""
    name = plain(column)
    for kind, parts in COMPANION_PARTS:
        if any(part in name for part in parts):
            return kind
    return "reference" if name.startswith("ref") else ""


def file_name(value: object) -> str:
    """Return the file name in a cell (text, a number, the Hub's {"path": ...}, or a list of one), or ""."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict):
        value = value.get("path")
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    name = str(value).strip()
    return "" if name in NO_TEXT else name


def first_frame(row: Mapping[str, Any]) -> str:
    """Return the picture that a row names as its video's first frame, or ""."""
    return next((name for key in _named(tuple(row), FIRST_FRAME_COLUMNS) if (name := file_name(row[key]))), "")


def column_names(columns: Sequence[str]) -> str:
    """Join up to twelve column names for a message."""
    return listed([one_line(str(name))[:60] for name in columns], 12)


@lru_cache(maxsize=1024)
def _named(present: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns with one of these names, in the order of the names."""
    by_name: dict[str, list[str]] = {}
    for column in sorted(present, key=lambda column: column not in wanted):  # exact matches first ("text", then "Text")
        by_name.setdefault(plain(column), []).append(column)
    return tuple(column for name in dict.fromkeys(map(plain, wanted)) for column in by_name.get(name, ()))


def _cell(value: object) -> Cell:
    """Read the caption in a cell: the text, the first of a list, or the English one of several languages."""
    if isinstance(value, str):
        text = value.strip()
        if text in NO_TEXT:
            return Cell(odd=f"it says {text}")
        written = _written_list(text)
        return _cell(written) if written is not None else Cell(text)
    if isinstance(value, list | tuple):
        # In a conversation about a video, as used to train vision-language models, the answers are captions.
        if answers := [one for one in value if isinstance(one, dict) and one.get("from", one.get("role")) in ANSWERING]:
            value = [one.get("value", one.get("content")) for one in answers]
        return _first(value, "no text in a list" if value else "an empty list")
    if isinstance(value, dict):
        return _first([one for one in _in_order(value) if isinstance(one, str | list | dict)], "no text in a record")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Cell(odd="nothing")
    return Cell(odd="true or false" if isinstance(value, bool) else "a number")


def _first(values: Iterable[object], odd: str) -> Cell:
    cells = [cell for value in values if (cell := _cell(value)).text]
    return Cell(cells[0].text, len(cells) > 1 or cells[0].several) if cells else Cell(odd=odd)


def _in_order(texts: Mapping[Any, Any]) -> Iterator[object]:
    """Yield the texts of a record: caption columns first, then English, then other languages. Ignore other keys."""
    keys = tuple(str(key) for key in texts)
    english = (key for key in keys if key.casefold() in ENGLISH)
    others = (key for key in keys if key.casefold() in LANGUAGES)
    for key in dict.fromkeys((*_named(keys, TEXT_COLUMNS), *english, *others)):
        yield texts.get(key)


def _written_list(text: str) -> list[str] | None:
    """Parse a list of texts written as JSON or as a Python literal: "['one', 'two']"."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = read(text)
            if isinstance(found, list) and all(isinstance(one, str) for one in found):
                return found
    return None
