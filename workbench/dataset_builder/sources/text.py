"""Texts that came with videos: decoded from whatever encoding an editor wrote, and made clean captions."""

from __future__ import annotations

import codecs
import contextlib
import re
import unicodedata

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
        return _line_by_line(data) or _detected(data)


def _line_by_line(data: bytes) -> tuple[str, str] | None:
    """The text whose lines are UTF-8 but for some, None when fewer lines prove to be UTF-8 than do not."""
    lines, odd, proven = [], 0, 0
    for line in data.removeprefix(codecs.BOM_UTF8).split(b"\n"):
        try:
            lines.append(line.decode())
            proven += not line.isascii()
        except UnicodeDecodeError:
            lines.append(line.decode("cp1252", "replace"))
            odd += 1
    return ("\n".join(lines), f"UTF-8, but for {counted(odd, 'line')}") if proven >= odd else None


def _detected(data: bytes) -> tuple[str, str | None]:
    from charset_normalizer import from_bytes

    if not LONG_RUN.search(data):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("cp1252"), "cp1252"
    best = from_bytes(data, cp_isolation=list(ENCODINGS)).best()
    return ("", None) if best is None else (str(best), best.encoding)


def clean_caption(text: str) -> str:
    """One line of NFC text without control characters, at most LONGEST_CAPTION characters."""
    return one_line(text[: 4 * LONGEST_CAPTION])[:LONGEST_CAPTION].rstrip()


def one_line(text: str) -> str:
    """The text in NFC on one line, without control characters."""
    plain = "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
    return " ".join(unicodedata.normalize("NFC", plain).split())
