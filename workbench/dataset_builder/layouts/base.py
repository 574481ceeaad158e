"""What a layout of a video dataset is: how it is recognised, read and written. One file a layout, beside this one.

A layout reads a `Tree` (a folder, files given together, or an archive: sources, archives) and writes through a `Writer`
(a folder or an archive: export), so each works in all of them. Captions are read in whatever encoding editors write.
Not covered: which layouts there are (layouts), the videos themselves (ingest).
"""

from __future__ import annotations

import codecs
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
TEXT_SUFFIXES = (".txt", ".caption", ".json", ".jsonl", ".csv")
LONGEST_CAPTION = 4000  # characters; far beyond what any text encoder reads
MOST_TEXT_BYTES = 64 * 1024**2  # of one text file: a table of a hundred thousand captions
TEXT_COLUMNS = ("text", "caption", "prompt")


@dataclass(frozen=True)
class Source:
    """A video or picture to import, and the caption that came with it ("" when there is none).

    path: the file, or the archive that holds it; member: its name inside the archive, "" for a file
    """

    path: Path
    caption: str = ""
    member: str = ""

    @property
    def key(self) -> str:
        """What tells it from all others: the path, or "archive.zip::folder/a.mp4"."""
        return f"{self.path}::{self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        """The file name that people see."""
        return PurePosixPath(self.member).name if self.member else self.path.name


# ---- text -----------------------------------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """A text file in whatever encoding it has (`decode_text`), at most MOST_TEXT_BYTES of it."""
    with path.open("rb") as file:
        return decode_text(file.read(MOST_TEXT_BYTES))


def decode_text(data: bytes) -> str:
    """Text in whatever encoding editors write: UTF-8 and UTF-16, with or without mark, else Latin-1."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if data[:2].count(b"\0") == 1 and data.count(b"\0") > len(data) // 4:
        return data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-16-be", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def clean_caption(text: str) -> str:
    """One line of NFC text without control characters, at most LONGEST_CAPTION characters."""
    return one_line(text[: 4 * LONGEST_CAPTION])[:LONGEST_CAPTION].rstrip()


def one_line(text: str) -> str:
    """The text in NFC on one line, without control characters."""
    plain = "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
    return " ".join(unicodedata.normalize("NFC", plain).split())
