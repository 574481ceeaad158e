"""What a layout of a video dataset is: how it is recognized and read, and which files it consists of.

Layouts read a `Tree` (a folder, files given together, or an archive), so each works in all of them.
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
    """What a person should know of a source before it is imported; each goes with the names it holds for."""

    NO_CAPTION = "without a caption"
    NO_VIDEO = "captions whose video is missing"
    CUT = f"captions longer than {LONGEST_CAPTION} characters: cut there"
    TWICE = "named twice: the last caption counts"
    BROKEN = "lines that are not records: skipped"
    NO_NAME = "rows without a file name: skipped"
    JOINED = "rows with more cells than columns: the rest was taken as part of the caption, see whether it reads right"
    OPEN_QUOTE = "a quote that is never closed: the row was taken to end with its line"
    NO_TEXT = "no text in the column of captions"
    SEVERAL = "several captions in one cell: the first was taken, or the English one"
    OTHER_TEXT = "other columns of captions, which were not taken: name one with caption_column to take it instead"
    DIFFERS = "a different caption in another file, which was not taken"
    COMPANION = "more files that go with a clip than one of a kind, or of an unknown kind: left out"
    NO_COMPANION = "control clips, references, masks or last frames whose file is missing"
    NO_CLIP = "control clips, references, masks or last frames without a clip of their name: left out"
    BY_CASE = "names that differ from the file's in upper and lower case only"
    BY_END = "paths that lead elsewhere: the file was found by the end of its path"
    AMBIGUOUS = "names that fit several files, or one file that several names fit: no caption was taken"
    UNPAIRED = "lists of unequal length, so that no caption can be assigned: none is taken"
    NO_PICTURE = "first frames whose picture is missing"
    UNPAIRED_PICTURES = "lists of unequal length, so that no first frame can be assigned: none is taken"
    ENCODING = "not saved as UTF-8, their encoding was detected: see whether the captions read right"
    UNREADABLE = "text of unknown encoding: save it as UTF-8, no caption is taken from it"
    NOT_READ = "not read"
    UNPAIRED_TEXT = "texts that belong to no video: not read"
    OTHER = "files of other kinds: skipped"
    KIND = "cannot be read: convert pictures to JPEG or PNG, videos to mp4"
    FRAMES = "to import each such folder as one video, set frames_as_video and frame_rate"
    POSTER = "pictures that show a video which is here, too: left out"
    NO_COLUMN = (
        "no column of captions, which is called text, caption, prompt or similar: if another one holds them, name it "
        "with caption_column"
    )
    NO_NAMES = "no column of file names, which is called file_name, video, path or similar: name it with video_column"


class ReadingNotes:
    """What a layout noticed while it was read: problem -> names, in the order they were met.

    first_frames: video -> the picture that the layout names as its first frame, which is no clip of its own
    companions: video -> kind -> the file that a table names as its control clip, reference, mask or last frame
    left_out: files that a table names beside a video, such as control clips, which are no clips of their own
    read: text files that captions were taken from, or could have been; unread: why a text file was not read
    settings: the settings video_column and caption_column, so far as something here has what they name
    tables: the tables here with their columns, for a message
    """

    def __init__(self) -> None:
        self.names: dict[Problem, dict[str, None]] = defaultdict(dict)
        self.first_frames: dict[str, str] = {}
        self.companions: dict[str, dict[str, str]] = defaultdict(dict)
        self.left_out: set[str] = set()
        self.read: set[str] = set()
        self.unread: dict[str, str] = {}
        self.settings: set[str] = set()
        self.tables: list[str] = []

    def add(self, problem: Problem, name: str) -> None:
        self.names[problem][name] = None

    def clean(self, name: str, text: str) -> str:
        """`clean_caption`, noting under that name when it had to cut."""
        caption = clean_caption(text)
        if len(caption) < LONGEST_CAPTION - 1 or one_line(text) == caption:
            return caption
        self.add(Problem.CUT, name)
        return caption

    def cell(self, name: str, cell: Cell) -> str:
        """The caption of a cell, noting under that name what was odd about it."""
        if cell.several:
            self.add(Problem.SEVERAL, name)
        if cell.odd:
            self.add(Problem.NO_TEXT, f"{name} ({cell.odd})")
        return cell.text


@dataclass(frozen=True)
class Wanted:
    """A file that a list or table names. folder: of the list; missing: the problem if there is no such file"""

    name: str
    folder: str
    missing: Problem | None = Problem.NO_VIDEO


def files_named(tree: Tree, wanted: Sequence[Wanted], notes: ReadingNotes) -> list[str | None]:
    """The video or picture that each name stands for, None where there is none or it is not clear which.

    A file that one name leads to is never given to another whose path only ends alike.
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
    """The caption in a text file of one video: plain text, or a JSON record."""
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
    """A clip to write. name: its file name in the layout ("1a2b3c4d5e6f7a8b.mp4"), one dot, no spaces, unique.

    first_frame: the picture that came with it as its first frame
    companions: kind -> the file of what lies beside it: its control clip, reference, mask, last frame
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
        """Kind -> the name in a layout of what lies beside it: "control/a.mp4", "masks/a.mp4", of the clip a.mp4."""
        return {kind: f"{FOLDERS[kind]}/{self.stem}{file.suffix}" for kind, file in self.companions.items()}

    @property
    def files_beside(self) -> ExportedFiles:
        return ((name, self.companions[kind]) for kind, name in self.beside.items())

    @property
    def line(self) -> bytes:
        return f"{one_line(self.caption)}\n".encode()

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the clip, for layouts that have room for it. The original file's name stays private."""
        return self.clip.model_dump(mode="json", include={"fps", "frames", "width", "height", "sha256"})


ExportedFiles = Iterator[tuple[str, Path | bytes]]
"""(name, the file to copy or its bytes), in the order in which they are written."""


# ---- the contract ---------------------------------------------------------------------------------------------------


class Layout(ABC):
    """A way to keep videos and captions. name: as in settings; title: for people.

    reads: the kind of files that captions come from; of layouts that share a kind, one reads a tree
    pictures: whether it has a place for first frames that differ from the clips' own; shards: whether it is tar files
    """

    name: str
    title: str
    reads: str
    pictures = False
    shards = False

    @abstractmethod
    def recognize(self, tree: Tree) -> bool:
        """Whether the tree looks like this layout."""

    @abstractmethod
    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        """File name -> caption of the media that the layout names, in its order; the caller adds the rest after them.

        Pictures that are no clips of their own are reported as first frames or posters. Raises DataError.
        """

    @abstractmethod
    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        """The files that make up the clips in this layout, from which `captions` reads the same again.

        first_frames: also each clip's first frame, in layouts that have a place for it; if any clip came with a picture
        of its own, such a layout has them in any case. Raises DataError.
        """
