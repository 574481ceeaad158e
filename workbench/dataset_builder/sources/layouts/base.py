"""What a layout of a video dataset is: how it is recognised, read and written. One file a layout, beside this one.

A layout reads a `Tree` (a folder, files given together, or an archive: survey, archives) and writes through a
`LayoutWriter` (a folder or an archive: export), so each works in all of them. Captions are read in whatever encoding
editors write. Not covered: which layouts there are (layouts), the videos themselves (ingest).
"""

from __future__ import annotations

import codecs
import contextlib
import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.clips.media import SUFFIXES
from workbench.clips.records import Clip

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".avif")
# No picture that is taken, but each gets its import result, which says what to do with it.
OTHER_IMAGE_SUFFIXES = (".heic", ".heif", ".tif", ".tiff", ".jxl", ".psd", ".dng")
MEDIA_SUFFIXES = (*SUFFIXES, *IMAGE_SUFFIXES, *OTHER_IMAGE_SUFFIXES)
TEXT_SUFFIXES = (".txt", ".caption", ".json", ".jsonl", ".csv")
LONGEST_CAPTION = 4000  # characters; far beyond what any text encoder reads
MOST_TEXT_BYTES = 64 * 1024**2  # of one text file: a table of a hundred thousand captions
ENCODINGS = ("cp932", "euc_jp", "gb18030", "big5", "euc_kr", "cp1251", "koi8_r", "cp1250", "cp1252", "cp1253")
LONG_RUN = re.compile(rb"[\x80-\xff]{3}")  # three bytes in a row that are not ASCII
TEXT_COLUMNS = ("text", "caption", "prompt")
NAME_COLUMNS = ("file_name", "video", "path", "file")


@dataclass(frozen=True)
class Columns:
    """The column of a table, or the key of a JSON record, that holds the file's name and the one of its caption.

    video, caption: the one that a person named; "" for the usual ones
    """

    video: str = ""
    caption: str = ""

    def name(self, row: Mapping[str, Any]) -> str:
        return first_text(row, (self.video,) if self.video else NAME_COLUMNS)

    def text(self, row: Mapping[str, Any]) -> str:
        return first_text(row, (self.caption,) if self.caption else TEXT_COLUMNS)


def first_text(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these columns that holds text, "" when none does."""
    return next((value for name in names if isinstance(value := row.get(name), str) and value), "")


def column_names(columns: Sequence[str]) -> str:
    """ "a, b, c" for a message, at most twelve of them."""
    more = f" and {len(columns) - 12} more" if len(columns) > 12 else ""
    return ", ".join(one_line(str(name))[:60] for name in columns[:12]) + more


@dataclass(frozen=True)
class SourceFile:
    """A video or picture to import, and the caption that came with it ("" when there is none).

    path: the file, or the archive that holds it; member: its name inside the archive, "" for a file
    first_frame: the picture that came with it as its first frame, None when there is none
    """

    path: Path
    caption: str = ""
    member: str = ""
    first_frame: SourceFile | None = None

    @property
    def key(self) -> str:
        """What tells it from all others: the path, or "archive.zip::folder/a.mp4"."""
        return f"{self.path}::{self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        """The file name that people see."""
        return PurePosixPath(self.member).name if self.member else self.path.name


# ---- text -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decoded:
    """A text, and the encoding detected for it: "" where its bytes say it, None where none could be."""

    text: str
    detected: str | None = ""


def read_text(path: Path) -> str:
    """A text file in whatever encoding it has (`decode_text`), at most MOST_TEXT_BYTES of it."""
    with path.open("rb") as file:
        return decode_text(file.read(MOST_TEXT_BYTES)).text


def decode_text(data: bytes) -> Decoded:
    """Text in whatever encoding editors write: UTF-8 and UTF-16, with or without mark; anything else is detected.

    Letters that stand alone or in pairs are Western European (Windows-1252); for the rest charset-normalizer chooses
    between the encodings that people's editors still write. A text that is none of them is empty.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Decoded(data.decode("utf-16", "replace"))
    if data[:2].count(b"\0") == 1 and data.count(b"\0") > len(data) // 4:
        return Decoded(data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-16-be", "replace"))
    try:
        return Decoded(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return _detected(data)


def _detected(data: bytes) -> Decoded:
    from charset_normalizer import from_bytes

    if not LONG_RUN.search(data):
        with contextlib.suppress(UnicodeDecodeError):
            return Decoded(data.decode("cp1252"), "cp1252")
    best = from_bytes(data, cp_isolation=list(ENCODINGS)).best()
    return Decoded("", None) if best is None else Decoded(str(best), best.encoding)


def clean_caption(text: str) -> str:
    """One line of NFC text without control characters, at most LONGEST_CAPTION characters."""
    return one_line(text[: 4 * LONGEST_CAPTION])[:LONGEST_CAPTION].rstrip()


def one_line(text: str) -> str:
    """The text in NFC on one line, without control characters."""
    plain = "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
    return " ".join(unicodedata.normalize("NFC", plain).split())


def json_lines(text: str, name: str, report: ReadingNotes) -> Iterator[Mapping[str, Any]]:
    """The objects of a JSON Lines file; other lines are noted under that name."""
    for number, line in enumerate(text.split("\n"), 1):
        try:
            row = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield row
        else:
            report.add(Problem.BROKEN, f"{name}, line {number}")


# ---- reading --------------------------------------------------------------------------------------------------------


class Problem(StrEnum):
    """What a person should know of a source before it is imported; each goes with the names it holds for."""

    NO_CAPTION = "without a caption"
    NO_VIDEO = "captions whose video is missing"
    CUT = f"captions longer than {LONGEST_CAPTION} characters: cut there"
    TWICE = "named twice: the last caption counts"
    BROKEN = "lines that are no records: passed over"
    UNPAIRED = "lists of unequal length, so that nobody knows which caption belongs where: no caption is taken"
    NO_PICTURE = "first frames whose picture is missing"
    UNPAIRED_PICTURES = "lists of unequal length, so that nobody knows which first frame belongs where: none is taken"
    ENCODING = "not saved as UTF-8, their encoding was detected: see whether the captions read right"
    UNREADABLE = "text whose encoding nobody can tell: save it as UTF-8, no caption is taken from it"
    OTHER = "files of other kinds: passed over"
    POSTER = "pictures that show a video which is here, too: left out"
    NO_COLUMN = (
        "no column of captions, which is called text, caption or prompt: if another one holds them, name it with "
        "caption_column"
    )
    NO_NAMES = "no column of file names, which is called file_name, video, path or file: name it with video_column"


class ReadingNotes:
    """What a layout noticed while it was read: problem -> names, in the order they were met.

    first_frames: video -> the picture that the layout names as its first frame, which is no clip of its own
    """

    def __init__(self) -> None:
        self.names: dict[Problem, list[str]] = defaultdict(list)
        self.first_frames: dict[str, str] = {}

    def add(self, problem: Problem, name: str) -> None:
        self.names[problem].append(name)

    def clean(self, name: str, text: str) -> str:
        """`clean_caption`, noting under that name when it had to cut."""
        caption = clean_caption(text)
        if len(caption) < LONGEST_CAPTION - 1 or one_line(text) == caption:
            return caption
        self.add(Problem.CUT, name)
        return caption


class Tree(ABC):
    """Files by their names below one root: a folder, files given together, or an archive.

    path:    what was given
    files:   name ("clips/a.mp4") -> bytes, in order; hidden files are left out, as is a folder that holds all of them
    media:   those of them that are to be imported: videos and pictures
    others:  names of files that are neither those nor texts, and no part of a WebDataset sample
    detected: text that was read -> the encoding that was detected for it, None where none could be
    refused: entry -> why it may not be read
    whole:   whether it is all there is, so that a caption without its video means something
    columns: what the columns of its tables are called
    beside:  the text of a file that belongs to it and lies beside it, "" when there is none
    """

    columns = Columns()
    beside = ""

    def __init__(self, path: Path, files: Mapping[str, int], refused: Mapping[str, str], whole: bool = True) -> None:
        self.path, self.refused, self.whole = path, dict(refused), whole
        self._prefix = _folder_of_all(files)
        self.files = {name.removeprefix(self._prefix): size for name, size in files.items()}
        self.detected: dict[str, str | None] = {}
        self._spellings = {unicodedata.normalize("NFC", name): name for name in self.files}

    @cached_property
    def media(self) -> list[str]:
        return [name for name in self.files if name.lower().endswith(MEDIA_SUFFIXES)]

    @property
    def others(self) -> list[str]:
        samples = {_sample(name) for name in self.media}
        known = (*MEDIA_SUFFIXES, *TEXT_SUFFIXES)
        return [name for name in self.files if not name.lower().endswith(known) and _sample(name) not in samples]

    def match(self, name: str, folder: str = "") -> str | None:
        """The file that a list or table in `folder` ("" or "train/") calls by that name, None when it is not here."""
        plain = folder + name.strip().replace("\\", "/").removeprefix("./")
        return self._spellings.get(unicodedata.normalize("NFC", plain))

    def text(self, name: str) -> str:
        """A text file's content, "" when its encoding cannot be told. Raises DataError."""
        decoded = decode_text(self._data(self._prefix + name))
        if decoded.detected != "":
            self.detected[name] = decoded.detected
        return decoded.text

    def full_name(self, name: str) -> str:
        """The file's name before the folder that holds everything was left out."""
        return self._prefix + name

    def source(self, name: str, caption: str) -> SourceFile:
        """The file as something to import."""
        return self._source(self._prefix + name, caption)

    @abstractmethod
    def _data(self, name: str) -> bytes: ...

    @abstractmethod
    def _source(self, name: str, caption: str) -> SourceFile: ...


def _folder_of_all(names: Mapping[str, int]) -> str:
    """ "a/b/" when everything lies in there, as in an archive of one folder; "" when the files share none."""
    shared: str | None = None
    for name in names:
        if shared is None:
            shared = name[: name.rfind("/") + 1]
        while not name.startswith(shared):
            shared = shared[: shared.rfind("/", 0, -1) + 1]
        if not shared:
            break
    return shared or ""


def _sample(name: str) -> str:
    """ "train/00012" of "train/00012.mp4" and "train/00012.fps": what parts of a WebDataset sample share."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def without_suffix(name: str) -> str:
    """ "videos/a" of "videos/a.mp4"."""
    folder, slash, file = name.rpartition("/")
    stem, dot, suffix = file.rpartition(".")
    return f"{folder}{slash}{stem if dot and stem and suffix else file}"


# ---- writing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExportedClip:
    """A clip to write. name: its file name in the layout ("1a2b3c4d5e6f7a8b.mp4"), one dot, no spaces, unique.

    first_frame: the picture that came with it as its first frame
    """

    clip: Clip
    file: Path
    name: str
    caption: str
    first_frame: Path | None = None

    @property
    def stem(self) -> str:
        return self.name.partition(".")[0]

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the clip, for layouts that have room for it. The original file's name stays private."""
        return self.clip.model_dump(mode="json", include={"fps", "frames", "width", "height", "sha256"})


class LayoutWriter(ABC):
    """Where a layout is written to: a new folder or archive. Everything raises CannotWrite."""

    splits = False  # whether `shard` gives a new archive each time

    @abstractmethod
    def file(self, name: str, source: Path) -> None:
        """Put a copy of a clip under that name."""

    @abstractmethod
    def text(self, name: str, text: str) -> None:
        """Put a text file there, UTF-8."""

    @abstractmethod
    def picture(self, name: str, item: ExportedClip) -> None:
        """Put the first frame of a clip there, as PNG: the picture that came with it, else its own."""

    @abstractmethod
    def shard(self, name: str) -> AbstractContextManager[LayoutWriter]:
        """A writer into a tar of that name inside this one; a tar is its own only shard. Raises ConfigError (zip)."""


# ---- the contract ---------------------------------------------------------------------------------------------------


class Layout(ABC):
    """A way to keep videos and captions. name: as in settings; title, description: for people.

    pictures: whether it has a place for first frames that differ from the clips' own
    """

    name: str
    title: str
    description: str
    pictures = False

    @abstractmethod
    def recognise(self, tree: Tree) -> bool:
        """Whether the tree looks like this layout, from its files' names alone."""

    @abstractmethod
    def captions(self, tree: Tree, report: ReadingNotes) -> dict[str, str]:
        """File name -> caption of the media that the layout names, in its order; the caller adds the rest after them.

        Pictures that are no clips of their own are reported as first frames or posters. Raises DataError.
        """

    @abstractmethod
    def write(self, items: Sequence[ExportedClip], writer: LayoutWriter, first_frames: bool) -> None:
        """Write the clips in this layout; `captions` of it then gives the same. Raises CannotWrite, ConfigError.

        first_frames: also each clip's first frame, in layouts that have a place for it; if any clip came with a picture
        of its own, such a layout writes them in any case
        """
