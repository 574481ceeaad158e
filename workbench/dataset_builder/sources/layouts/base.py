"""What a layout of a video dataset is: how it is recognised and read, and which files it consists of.

Layouts read a `Tree` (a folder, files given together, or an archive), so each works in all of them. Not covered: which
layouts there are (layouts), writing the files (export), the videos themselves (ingest).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from workbench.clips.records import Clip
from workbench.dataset_builder.sources.text import LONGEST_CAPTION, clean_caption, one_line
from workbench.dataset_builder.sources.tree import Tree

# ---- reading --------------------------------------------------------------------------------------------------------


class Problem(StrEnum):
    """What a person should know of a source before it is imported; each goes with the names it holds for."""

    NO_CAPTION = "without a caption"
    NO_VIDEO = "captions whose video is missing"
    CUT = f"captions longer than {LONGEST_CAPTION} characters: cut there"
    TWICE = "named twice: the last caption counts"
    BROKEN = "lines that are not records: skipped"
    UNPAIRED = "lists of unequal length, so that no caption can be assigned: none is taken"
    NO_PICTURE = "first frames whose picture is missing"
    UNPAIRED_PICTURES = "lists of unequal length, so that no first frame can be assigned: none is taken"
    ENCODING = "not saved as UTF-8, their encoding was detected: see whether the captions read right"
    UNREADABLE = "text of unknown encoding: save it as UTF-8, no caption is taken from it"
    OTHER = "files of other kinds: skipped"
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
    def line(self) -> bytes:
        """The caption as one line of a text file."""
        return f"{one_line(self.caption)}\n".encode()

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the clip, for layouts that have room for it. The original file's name stays private."""
        return self.clip.model_dump(mode="json", include={"fps", "frames", "width", "height", "sha256"})


ExportedFiles = Iterator[tuple[str, Path | bytes]]
"""(name, the file to copy or its bytes), in the order in which they are written."""


# ---- the contract ---------------------------------------------------------------------------------------------------


class Layout(ABC):
    """A way to keep videos and captions. name: as in settings; title, description: for people.

    pictures: whether it has a place for first frames that differ from the clips' own; shards: whether it is tar files
    """

    name: str
    title: str
    description: str
    pictures = False
    shards = False

    @abstractmethod
    def recognise(self, tree: Tree) -> bool:
        """Whether the tree looks like this layout, from its files' names alone."""

    @abstractmethod
    def captions(self, tree: Tree, report: ReadingNotes) -> dict[str, str]:
        """File name -> caption of the media that the layout names, in its order; the caller adds the rest after them.

        Pictures that are no clips of their own are reported as first frames or posters. Raises DataError.
        """

    @abstractmethod
    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        """The files that make up the clips in this layout, from which `captions` reads the same again.

        first_frames: also each clip's first frame, in layouts that have a place for it; if any clip came with a picture
        of its own, such a layout has them in any case. Raises DataError.
        """
