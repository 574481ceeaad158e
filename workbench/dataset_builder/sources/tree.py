"""Files by their names below one root, as layouts read them: a folder, files given together, or an archive.

Not covered: the files on disk (files), archives (archives), how captions lie beside videos (layouts).
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.clips.media import SUFFIXES
from workbench.dataset_builder.sources.text import decode_text, one_line

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".avif")
# No picture that is taken, but each gets its import result, which says what to do with it.
OTHER_IMAGE_SUFFIXES = (".heic", ".heif", ".tif", ".tiff", ".jxl", ".psd", ".dng")
MEDIA_SUFFIXES = (*SUFFIXES, *IMAGE_SUFFIXES, *OTHER_IMAGE_SUFFIXES)
TEXT_SUFFIXES = (".txt", ".caption", ".json", ".jsonl", ".csv")
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
        """What distinguishes it from all others: the path, or "archive.zip::folder/a.mp4"."""
        return f"{self.path}::{self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        """The file name that people see."""
        return PurePosixPath(self.member).name if self.member else self.path.name


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
    title:   the names of files that were given one by one, "" for a folder or archive, which has a name of its own
    """

    columns = Columns()
    beside = ""
    title = ""

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
        """A text file's content, "" when its encoding is unknown. Raises DataError."""
        text, detected = decode_text(self._data(self._prefix + name))
        if detected != "":
            self.detected[name] = detected
        return text

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
