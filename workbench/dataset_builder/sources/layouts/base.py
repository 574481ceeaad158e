"""The interface of a dataset layout: recognize it, read its captions, and write its files.

Layouts read a `Tree` (a folder, files given together, or an archive), so each works with all of these.
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from workbench.clips.records import Clip
from workbench.dataset_builder.sources.columns import LONGEST_CAPTION, Cell, clean_caption, column_names, one_line
from workbench.dataset_builder.sources.tree import Found, Tree

# ---- reading --------------------------------------------------------------------------------------------------------


class Problem(StrEnum):
    """Something the user should know before importing a source. Messages list the affected names after it."""

    NO_CAPTION = "no caption"
    NO_VIDEO = "captions without a video"
    CUT = f"captions truncated to {LONGEST_CAPTION:,} characters"
    TWICE = "named twice, the last caption is used"
    BROKEN = "lines that are not records, skipped"
    NO_NAME = "rows without a file name, skipped"
    JOINED = "rows with more cells than columns, the extra ones were joined to the caption (check that it reads right)"
    OPEN_QUOTE = "a quote is never closed, so the row ends with its line"
    NO_TEXT = "no text in the caption column"
    SEVERAL = "several captions in one cell, used the first or the English one"
    OTHER_TEXT = "other caption columns, not used (name one with caption_column to use it instead)"
    DIFFERS = "a different caption in another file, not used"
    COMPANION = "files beside a clip that already has one of that kind, or of an unknown kind, left out"
    NO_COMPANION = "control clips, references, masks or last frames whose file is missing"
    NO_CLIP = "control clips, references, masks or last frames without a clip of the same name, left out"
    BY_CASE = "names that match a file only ignoring case"
    BY_END = "paths that do not exist here, matched by the end of the path"
    AMBIGUOUS = "names that match several files, or share one file with another name, no caption used"
    UNPAIRED = "lists of different lengths, so captions cannot be assigned"
    NO_PICTURE = "first frames whose picture is missing"
    UNPAIRED_PICTURES = "lists of different lengths, so first frames cannot be assigned"
    ENCODING = "not saved as UTF-8, encoding detected (check that the captions read right)"
    UNREADABLE = "text in an unknown encoding, not used (save it as UTF-8)"
    NOT_READ = "not read"
    UNPAIRED_TEXT = "texts without a video, not read"
    OTHER = "files of other kinds, skipped"
    KIND = "unsupported formats (convert pictures to JPEG or PNG, videos to mp4)"
    FRAMES = "numbered pictures (to import each folder as one video, set frames_as_video and frame_rate)"
    POSTER = "pictures of videos that are also here, left out"
    NO_COLUMN = "no caption column, such as text, caption or prompt (if another column has them, set caption_column)"
    NO_NAMES = "no column of file names, such as file_name, video or path (set video_column)"


class ReadingNotes:
    """Observations made while reading a tree.

    names: problem -> affected names, in order.
    companions: video -> kind -> the file that a list or table names as its first frame, control clip, mask ...
    left_out: files that a list or table names beside a video, which are not clips themselves.
    read: text files that were read for captions.
    unread: text file -> why it was not read.
    settings: those of video_column and caption_column whose value matches something here.
    tables: the tables here with their columns, for messages.
    """

    def __init__(self) -> None:
        self.names: dict[Problem, dict[str, None]] = defaultdict(dict)
        self.companions: dict[str, dict[str, str]] = defaultdict(dict)
        self.left_out: set[str] = set()
        self.read: set[str] = set()
        self.unread: dict[str, str] = {}
        self.settings: set[str] = set()
        self.tables: list[str] = []

    def add(self, problem: Problem, name: str) -> None:
        self.names[problem][name] = None

    def add_first_frame(self, video: str, picture: str) -> None:
        self.companions[video]["first_frame"] = picture
        self.left_out.add(picture)

    def clean(self, name: str, text: str) -> str:
        """Clean a caption, and note under this name if it is truncated."""
        caption = clean_caption(text)
        if len(caption) < LONGEST_CAPTION - 1 or one_line(text) == caption:
            return caption
        self.add(Problem.CUT, name)
        return caption

    def cell(self, name: str, cell: Cell) -> str:
        """Return the caption in a cell, and note under this name what is odd about it."""
        if cell.several:
            self.add(Problem.SEVERAL, name)
        if cell.odd:
            self.add(Problem.NO_TEXT, f"{name} ({cell.odd})")
        return cell.text


@dataclass(frozen=True)
class Wanted:
    """A file named by a list or table in `folder`. missing: the problem to note if it does not exist, or None."""

    name: str
    folder: str
    missing: Problem | None = Problem.NO_VIDEO


def files_named(tree: Tree, wanted: Sequence[Wanted], notes: ReadingNotes) -> list[str | None]:
    """Find the video or picture for each name; None if there is none or the match is ambiguous.

    A file matched by its full path is not matched again by the end of another path.
    """
    found = [tree.find(one.name, one.folder) if one.name.strip() else Found() for one in wanted]
    taken = {one.files[0] for one in found if one.how == "path" and len(one.files) == 1}
    left = [one.files if one.how == "path" else [file for file in one.files if file not in taken] for one in found]
    claims: dict[str, set[str]] = defaultdict(set)
    for one, files in zip(wanted, left, strict=True):
        for file in files:
            claims[file].add(one.folder + one.name)
    chosen: list[str | None] = []
    for one, how, files in zip(wanted, (one.how for one in found), left, strict=True):
        clear = len(files) == 1 and (how == "path" or len(claims[files[0]]) == 1)
        chosen.append(files[0] if clear else None)
        name = one.folder + one.name.strip() if one.name.strip() else ""
        if clear and how != "path":
            notes.add(Problem.BY_CASE if how == "case" else Problem.BY_END, f"{name} ({files[0]})")
        elif files and not clear:
            notes.add(Problem.AMBIGUOUS, f"{name} ({', '.join(files[:3])})")
        elif not files and name and tree.whole and one.missing:
            notes.add(one.missing, name)
    return chosen


def caption_in(tree: Tree, name: str, notes: ReadingNotes) -> str:
    """Read the caption in a video's own text file: plain text, or a JSON record."""
    text = tree.text(name)
    notes.read.add(name)
    if not name.lower().endswith(".json"):
        lines = text.strip().splitlines()
        return lines[0] if tree.columns.first_line and lines else text.strip()
    value: object = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return value.strip()
    if not isinstance(value, dict):
        if text.strip():
            notes.add(Problem.BROKEN, name)
        return ""
    if tree.columns.text_keys(value):
        if tree.columns.caption:
            notes.settings.add("caption_column")
        return notes.cell(name, tree.columns.text(value))
    notes.unread[name] = f"keys: {column_names(list(value))}"
    return ""


# ---- writing --------------------------------------------------------------------------------------------------------


FOLDERS = {"control": "control", "reference": "reference", "mask": "masks", "last_frame": "last_frames"}


@dataclass(frozen=True)
class ExportedClip:
    """A clip to write.

    name: its unique file name in the layout ("1a2b3c4d5e6f7a8b.mp4"), with one dot and no spaces.
    first_frame: the picture that came with it as its first frame, or None.
    companions: kind -> file of its control clip, reference, mask or last frame.
    """

    clip: Clip
    file: Path
    name: str
    caption: str
    first_frame: Path | None = None
    companions: Mapping[str, Path] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        return self.name.partition(".")[0]

    @property
    def beside(self) -> dict[str, str]:
        """Kind -> the companion's path in the layout, such as "masks/a.mp4" for the clip a.mp4."""
        return {kind: f"{FOLDERS[kind]}/{self.stem}{file.suffix}" for kind, file in self.companions.items()}

    @property
    def files_beside(self) -> ExportedFiles:
        return ((name, self.companions[kind]) for kind, name in self.beside.items())

    @property
    def line(self) -> bytes:
        return f"{one_line(self.caption)}\n".encode()

    @property
    def facts(self) -> dict[str, Any]:
        """Facts for layouts that store them. The source file's name stays private."""
        return self.clip.model_dump(mode="json", include={"fps", "frames", "width", "height", "sha256"})


ExportedFiles = Iterator[tuple[str, Path | bytes]]
"""(name, the file to copy or its bytes), in the order to write them."""


# ---- the interface --------------------------------------------------------------------------------------------------


class Layout(ABC):
    """A way to store videos and captions.

    name: the name in settings.
    title: the name shown to users.
    reads: what captions are read from; only one of the layouts that share it reads a tree.
    pictures: whether it can store first frames that differ from the clips' own.
    shards: whether it consists of tar files.
    """

    name: str
    title: str
    reads: str
    pictures = False
    shards = False

    @abstractmethod
    def recognize(self, tree: Tree) -> bool:
        """Whether a tree looks like this layout."""

    @abstractmethod
    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        """Return file name -> caption of the media that the layout names, in its order. Raises DataError.

        The caller appends all other media. Report pictures that are not clips as first frames or posters in `notes`.
        """

    @abstractmethod
    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        """Yield the files of this layout, from which `captions` reads the same captions. Raises DataError.

        first_frames: whether to write each clip's first frame, if the layout can store it. Such a layout always writes
            them if any clip came with a separate first frame.
        """
