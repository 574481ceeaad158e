"""Texts that came with videos, and where captions stand in them.

Texts are decoded from whatever encoding an editor wrote, and made clean captions. Column names match without regard to
case, blanks, hyphens and underscores: "File_Name", "file name" and "filename" are the same column.
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

from workbench.clips.media import OTHER_IMAGE_SUFFIXES, SUFFIXES
from workbench.clips.records import LATENTS
from workbench.display.quantities import counted

LONGEST_CAPTION = 4000  # characters; far beyond what any text encoder reads
MOST_TEXT_BYTES = 64 * 1024**2  # of one text file: a table of a hundred thousand captions
ENCODINGS = ("cp932", "euc_jp", "gb18030", "big5", "euc_kr", "cp1251", "koi8_r", "cp1250", "cp1252", "cp1253")
LONG_RUN = re.compile(rb"[\x80-\xff]{3}")  # three bytes in a row that are not ASCII


def decode_text(data: bytes) -> tuple[str, str | None]:
    """(text, the encoding detected for it: "" where its bytes say it, None where none could be).

    Text in whatever encoding editors write: UTF-8 and UTF-16, with or without mark; anything else is detected.
    Letters that stand alone or in pairs are Western European (Windows-1252); for the rest charset-normalizer chooses
    between the encodings that people's editors still write. A text that is none of them is empty. Where most lines are
    UTF-8 and some are not, only those are read in another encoding: a table is often made of several files.
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
    """One line of NFC text without control characters, at most LONGEST_CAPTION characters."""
    return one_line(text[: 4 * LONGEST_CAPTION])[:LONGEST_CAPTION].rstrip()


def one_line(text: str) -> str:
    """The text in NFC on one line, without control characters."""
    plain = "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
    return " ".join(unicodedata.normalize("NFC", plain).split())


# ---- where captions stand --------------------------------------------------------------------------------------------

IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".jfi", ".pjpeg", ".pjp", ".webp", ".bmp", ".dib"),
    *(".avif", ".avifs"),
)
MEDIA_SUFFIXES = (*SUFFIXES, *IMAGE_SUFFIXES, *OTHER_IMAGE_SUFFIXES, LATENTS)
DELIMITED_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
CAPTION_SUFFIXES = (".txt", ".caption")
LIST_SUFFIXES = (".lst", ".list")
SIDECAR_SUFFIXES = (*CAPTION_SUFFIXES, ".json")  # of a caption that lies beside its video, the one that counts first
PLAIN_TEXT_SUFFIXES = (*CAPTION_SUFFIXES, *LIST_SUFFIXES, *JSON_SUFFIXES, *DELIMITED_SUFFIXES)
PARQUET = ".parquet"  # a table of names and captions, or one that holds the videos
TEXT_SUFFIXES = (*PLAIN_TEXT_SUFFIXES, PARQUET)

# What trainers and published datasets call the two, the most telling first; a row may hold several.
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
LIST_NAMES = ("video", "videos", "text", "texts", "prompts", "captions")  # of lists without an ending
# Columns of what lies beside a clip, by parts of their names, the most telling first: vace_video_mask is of masks,
# vace_reference_image of references, vace_video of control clips. Such files never become clips of their own.
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
# How pandas, Python and spreadsheets write an empty cell. In lower case "none" is a word, and may be a caption.
NO_TEXT = ("nan", "NaN", "NAN", "None", "NONE", "null", "NULL", "<NA>", "NaT", "N/A", "n/a", "#N/A")


@lru_cache(maxsize=4096)
def plain(column: str) -> str:
    """The column's name as it is compared: "filename" of " File_Name"."""
    return "".join(c for c in column.casefold() if c.isprintable() and c not in " -_.\ufeff")


@dataclass(frozen=True)
class Cell:
    """The caption that a cell holds, "" when there is none.

    several: it held more than one text, and the first was taken; odd: what it held instead of a text ("a number")
    """

    text: str = ""
    several: bool = False
    odd: str = ""


@dataclass(frozen=True)
class Columns:
    """Where a person says that captions are; by default, under the usual names.

    video, caption: the column that holds the file's name and the one of its caption, the list files that take their
    place (`files.lst`), or the ending of caption files (`longcap` for 000.longcap); "" for the usual ones
    first_line: take only the first line of a caption's text file
    """

    video: str = ""
    caption: str = ""
    first_line: bool = False

    def name(self, row: Mapping[str, Any]) -> str:
        """What the row calls its file, "" when it names none."""
        keys = self.name_keys(row)
        if found := next((name for key in keys if (name := file_name(row[key]))), ""):
            return found
        if self.video:
            return ""
        # A column with an unknown name still holds file names if they end as videos do.
        passed = {*_named(tuple(row), FIRST_FRAME_COLUMNS), *_named(tuple(row), TEXT_COLUMNS)}
        others = [file_name(value) for key, value in row.items() if key not in passed and not is_companion(key)]
        return next((name for name in others if is_media_name(name)), "")

    def name_keys(self, columns: Iterable[str]) -> Sequence[str]:
        """The columns that may name the file, the one that counts first."""
        return _named(tuple(columns), (self.video,) if self.video else NAME_COLUMNS)

    def text(self, row: Mapping[str, Any]) -> Cell:
        """The first of the row's captions."""
        cells = [_cell(row[key]) for key in self.text_keys(row)]
        return next((cell for cell in cells if cell.text), cells[0] if cells else Cell())

    def text_keys(self, columns: Iterable[str]) -> Sequence[str]:
        """The columns of captions, the one that counts first."""
        return _named(tuple(columns), (self.caption,) if self.caption else TEXT_COLUMNS)

    def knows(self, column: str) -> bool:
        """Whether this cell may belong to a table's header."""
        asked = [name for name in (self.video, self.caption) if name]
        return bool(_named((column,), (*asked, *NAME_COLUMNS, *TEXT_COLUMNS)))

    def asks_for(self, file: str) -> bool:
        """Whether a setting names this file as a list, or its ending as that of caption files."""
        name = file.rpartition("/")[2].casefold()
        asked = [one.replace("\\", "/").rpartition("/")[2].casefold() for one in (self.video, self.caption) if one]
        ending = self.caption.casefold().lstrip(".")
        return name in asked or (bool(ending) and name.endswith(f".{ending}") and not name.endswith(MEDIA_SUFFIXES))

    def reads(self, file: str) -> bool:
        """Whether captions may stand in a file, by its name."""
        name = file.rpartition("/")[2].casefold()
        return name.endswith(TEXT_SUFFIXES) or name in LIST_NAMES or self.asks_for(file)


USUAL = Columns()


def by_language(value: Mapping[str, Any]) -> bool:
    """Whether a record holds one text in several languages."""
    return all(key.casefold() in LANGUAGES for key in value)


def is_media_name(name: str) -> bool:
    """Whether it ends as the names of videos and pictures do."""
    return name.strip().casefold().endswith(MEDIA_SUFFIXES) and "\n" not in name.strip()


def companion_kind(column: str) -> str:
    """The kind of what lies beside a clip that a column is called after, "" for any other column."""
    name = plain(column)
    for kind, parts in COMPANION_PARTS:
        if any(part in name for part in parts):
            return kind
    return "reference" if name.startswith("ref") else ""


def is_companion(column: str) -> bool:
    """Whether a column is called as those of control, reference and mask clips are."""
    return bool(companion_kind(column))


def file_name(value: object) -> str:
    """The file's name that a cell holds: text, a number, the Hub's {"path": ...} or a list of one; else ""."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict):
        value = value.get("path")
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    name = str(value).strip()
    return "" if name in NO_TEXT else name


def first_frame(row: Mapping[str, Any]) -> str:
    """The picture that a row names as its video's first frame, "" when it names none."""
    return next((name for key in _named(tuple(row), FIRST_FRAME_COLUMNS) if (name := file_name(row[key]))), "")


def column_names(columns: Sequence[str]) -> str:
    """ "a, b, c" for a message, at most twelve of them."""
    more = f" and {len(columns) - 12} more" if len(columns) > 12 else ""
    return ", ".join(one_line(str(name))[:60] for name in columns[:12]) + more


@lru_cache(maxsize=1024)
def _named(present: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that have one of these names, in the order of the names."""
    by_name: dict[str, list[str]] = {}
    for column in sorted(present, key=lambda column: column not in wanted):  # of "Text" and "text", the one asked for
        by_name.setdefault(plain(column), []).append(column)
    return tuple(column for name in dict.fromkeys(map(plain, wanted)) for column in by_name.get(name, ()))


def _cell(value: object) -> Cell:
    """The caption in a cell: text, the first of a list, or the English one of several languages."""
    if isinstance(value, str):
        text = value.strip()
        if text in NO_TEXT:
            return Cell(odd=f"it says {text}")
        written = _written_list(text)
        return _cell(written) if written is not None else Cell(text)
    if isinstance(value, list | tuple):
        # Of a conversation about a video, as those who train vision-language models keep it, the answers.
        if answers := [one for one in value if isinstance(one, dict) and one.get("from", one.get("role")) in ANSWERING]:
            value = [one.get("value", one.get("content")) for one in answers]
        cells = [cell for one in value if (cell := _cell(one)).text]
        return (
            Cell(cells[0].text, len(cells) > 1 or cells[0].several)
            if cells
            else Cell(odd="no text in a list" if value else "an empty list")
        )
    if isinstance(value, dict):
        cells = [cell for one in _in_order(value) if isinstance(one, str | list | dict) and (cell := _cell(one)).text]
        return Cell(cells[0].text, len(cells) > 1 or cells[0].several) if cells else Cell(odd="no text in a record")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Cell(odd="nothing")
    return Cell(odd="true or false" if isinstance(value, bool) else "a number")


def _in_order(texts: Mapping[Any, Any]) -> Iterator[object]:
    """The texts of a record: a caption's key first, then English, then other languages. Its other keys are facts."""
    keys = tuple(str(key) for key in texts)
    english = (key for key in keys if key.casefold() in ENGLISH)
    others = (key for key in keys if key.casefold() in LANGUAGES)
    for key in dict.fromkeys((*_named(keys, TEXT_COLUMNS), *english, *others)):
        yield texts.get(key)


def _written_list(text: str) -> list[str] | None:
    """The texts of a list that a table holds as JSON or as Python writes it: "['one', 'two']"."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = read(text)
            if isinstance(found, list) and all(isinstance(one, str) for one in found):
                return found
    return None
