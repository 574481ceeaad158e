"""A tree of files below one root, as layouts read it: a folder, files given together, or an archive.

A folder of numbered pictures (walk/frame_0001.png to frame_0024.png) may be one video, but only if the user says so,
because photos from a camera are numbered too. It then appears in the tree under its folder's name, and layouts find its
caption as for any file.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from workbench.dataset_builder.sources.columns import (
    CAPTION_SUFFIXES,
    IMAGE_SUFFIXES,
    MEDIA_SUFFIXES,
    Columns,
    clean_caption,
    decode_text,
)

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://[^/]*", re.IGNORECASE)
DRIVE = re.compile(r"/?[a-z]:/*", re.IGNORECASE)
INSIDE = re.compile(r"(?:zip|tar)://(.+?)::(.+)")  # "zip://a.mp4::clips.zip", as in fsspec
T = TypeVar("T")
Index = Mapping[str, Mapping[str, None]]  # key -> files, in order
NUMBER = re.compile(r"#\d+$")  # the number of one of several captions: "a.mp4#0", as in Flickr8k
# Kinds of companion files by folder, and by ending: "a.mask.mp4", "ID.mask-1a2b3c4d.mp4".
KIND_OF_FOLDER = {
    **dict.fromkeys(("control", "controls", "control_videos", "control_video", "control_files"), "control"),
    **dict.fromkeys(("reference", "references", "reference_videos", "reference_video", "refs"), "reference"),
    **dict.fromkeys(("mask", "masks", "video_masks", "video_mask", "loss_masks", "loss_mask"), "mask"),
    **dict.fromkeys(("last_frame", "last_frames", "end_images", "end_image"), "last_frame"),
}
KIND_OF_ENDING = {
    **{"control": "control", "reference": "reference", "ref": "reference", "mask": "mask"},
    **dict.fromkeys(("last_frame", "last", "end_image"), "last_frame"),
}
ENDING = re.compile(rf"(.+)\.({'|'.join(KIND_OF_ENDING)})(-[0-9a-f]{{8}})?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class SourceFile:
    """A video or picture to import, with the caption that came with it.

    path, member: the file; or the archive that contains it, and its name in there.
    target: the file that `path` links to, if the link may be followed. refused: why it may not be read, or "".
    frames, fps: the numbered pictures it consists of, and their rate; `path` and `member` are then only a name.
    companions: (kind, file) of the first frame, control clip, reference, mask and last frame that came with it.
    """

    path: Path
    caption: str = ""
    member: str = ""
    target: Path | None = None
    refused: str = ""
    frames: tuple[SourceFile, ...] = ()
    fps: float = 0.0
    companions: tuple[tuple[str, SourceFile], ...] = ()

    @property
    def key(self) -> str:
        """Its unique key: the path, or "archive.zip::folder/a.mp4"."""
        return f"{self.path}::{self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        return PurePosixPath(self.member).name if self.member else self.path.name


@dataclass(frozen=True)
class Entry:
    """A member of an archive. refused: why it may not be read, or ""; info: the archive reader's own data."""

    name: str
    size: int
    refused: str
    info: Any


@dataclass(frozen=True)
class Found:
    """The files that a name in a list or table may refer to; more than one if it is ambiguous.

    how: "path", "case" (they match ignoring case) or "end" (only the ends of the paths match).
    """

    files: Sequence[str] = ()
    how: str = "path"


@dataclass
class HandedOver:
    """What texts and tables around an archive say about its members, by member name.

    left_out: members that are not clips.
    layout: name of the layout of these texts and tables.
    """

    captions: dict[str, str] = field(default_factory=dict)
    companions: dict[str, dict[str, SourceFile]] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    layout: str = ""


class Tree(ABC):
    """Files below one root: a folder, files given together, or an archive.

    files: name ("clips/a.mp4") -> size in bytes, in order, without hidden files and without a top folder shared by all.
    media: the videos and pictures to import. texts: the files that may have captions.
    others: all other files, except parts of WebDataset samples.
    detected: text file -> detected encoding, None if unknown.
    refused: entry -> why it may not be read.
    whole: whether all files of the source are known, so that a caption without a video is worth a warning.
    beside: the text of a file that lies beside the folder or archive and belongs to it, or "".
    title: the names of files given one by one; "" for a folder or archive.
    inside: (name, tree) of archives in it, whose members its texts and tables may name.
    handed: for an archive, what texts and tables around it say about its members.
    made: videos made of numbered pictures.
    read: cached results of layouts (`once_a_tree`).
    """

    columns = Columns()
    beside = ""
    title = ""
    inside: Sequence[tuple[str, Tree]] = ()

    def __init__(self, path: Path, files: Mapping[str, int], refused: Mapping[str, str], whole: bool = True) -> None:
        self.path, self.refused, self.whole = path, dict(refused), whole
        folders = os.path.commonprefix([name[: name.rfind("/") + 1] for name in files])
        self._prefix = folders[: folders.rfind("/") + 1]  # the folder that contains all files ("a/b/"), or ""
        self.files = {name.removeprefix(self._prefix): size for name, size in files.items()}
        self.detected: dict[str, str | None] = {}
        self.read: dict[str, Any] = {}
        self.made: dict[str, SourceFile] = {}
        self.handed = HandedOver()

    @cached_property
    def media(self) -> list[str]:
        return [name for name in self.files if name.lower().endswith(MEDIA_SUFFIXES) or name in self.made]

    def forget(self) -> None:
        """Clear cached properties after files were added or removed."""
        for name in [one for one in self.__dict__ if isinstance(getattr(type(self), one, None), cached_property)]:
            del self.__dict__[name]

    @cached_property
    def guests(self) -> dict[str, tuple[Tree, str]]:
        """Videos and pictures in the archives inside: path if unpacked -> (archive, member).

        The path is beside the archive, or in a folder with its name if that path is taken.
        """
        members = [(part, name, self._unpacked(path, name)) for path, part in self.inside for name in part.media]
        count = Counter(self.media)
        for _, _, places in members:
            count.update(places)
        return {
            next((place for place in places if count[place] == 1), places[-1]): (part, name)
            for part, name, places in members
        }

    def _unpacked(self, archive: str, member: str) -> list[str]:
        """Return the paths a member may have if its archive is unpacked, the most likely first."""
        folder, _, file = archive.removeprefix(self._prefix).rpartition("/")
        folder += "/" if folder else ""
        return [f"{folder}{within}{member}" for within in ("", f"{file.partition('.')[0]}/", f"{file}/")]

    @cached_property
    def named(self) -> list[str]:
        """All media that texts and tables may name, including those in archives inside."""
        return [*self.media, *self.guests]

    @cached_property
    def texts(self) -> list[str]:
        media = set(self.media)
        return [name for name in self.files if self.columns.reads(name) and name not in media]

    @property
    def others(self) -> list[str]:
        samples, known = {_sample(name) for name in self.media}, {*self.media, *self.texts}
        return [name for name in self.files if name not in known and _sample(name) not in samples]

    def find(self, name: str, folder: str = "") -> Found:
        """Find the videos and pictures that a list or table in `folder` ("" or "train/") may mean by a name.

        Paths are relative to the folder or one of its parents. Other paths, such as those from another machine, match
        the files that share the longest end of the path, below the folder or, if that has no videos, anywhere. A name
        without an extension matches the file with any extension.
        """
        if folder + name in self._by_path:
            return Found([self._by_path[folder + name]])
        spellings = list(dict.fromkeys(_spellings(name, self.path.as_posix())))
        stems, folded, last = self._indexes
        if not any(spelled.rstrip("/").rpartition("/")[2].casefold() in last for spelled in spellings):
            return Found()
        folders = [folder]
        while folders[-1]:
            folders.append(folders[-1][: folders[-1].rfind("/", 0, -1) + 1])
        paths = [posixpath.normpath(above + spelled.lstrip("/")) for spelled in spellings for above in folders]
        for path in paths:
            if found := self._by_path.get(path) or self._by_path.get(path.removeprefix(self._prefix)):
                return Found([found])
        for path in paths:
            if found_without := stems.get(path):
                return Found(_clearest([*found_without]))
        for path in paths:
            if same := folded.get(path.casefold()):
                return Found([*same], "case")
        return self._by_end(spellings, folder if folder in self._folders else "")

    def _by_end(self, spellings: Sequence[str], folder: str) -> Found:
        for spelled in spellings:
            parts = [part for part in spelled.split("/") if part not in ("", ".", "..")]
            if not parts:
                continue
            files = [one for one in self._indexes[2].get(parts[-1].casefold(), ()) if one.startswith(folder)]
            if files:
                shared = [_shared_end(parts, self.full_name(one)) for one in files]
                longest = [one for one, length in zip(files, shared, strict=True) if length == max(shared)]
                # "/data/a.mp4" means a.mp4 rather than masks/a.mp4, because the path has no folder masks.
                whole = [one for one in longest if one.count("/") - folder.count("/") < max(shared)]
                return Found(_clearest(whole if len(whole) == 1 else longest), "end")
        return Found()

    @cached_property
    def _folders(self) -> set[str]:
        """Folders with a video or picture below them: "train/"."""
        return {name[: at + 1] for name in self.named for at, letter in enumerate(name) if letter == "/"}

    @cached_property
    def _by_path(self) -> dict[str, str]:
        found = {unicodedata.normalize("NFC", name): name for name in self.named}
        archives = {id(part): path for path, part in self.inside}
        also = defaultdict[str, set[str]](set)  # other paths of guests, with and without their archive's top folder
        for name, (part, member) in self.guests.items():
            for spelled in {member, part.full_name(member)}:
                for place in self._unpacked(archives[id(part)], spelled):
                    also[unicodedata.normalize("NFC", place)].add(name)
        return {**{path: next(iter(names)) for path, names in also.items() if len(names) == 1}, **found}

    @cached_property
    def _indexes(self) -> tuple[Index, Index, Index]:
        """Files by path without extension, by path in lowercase, and by name in lowercase with or without extension."""
        stems, folded, last = (defaultdict[str, dict[str, None]](dict) for _ in range(3))
        for path, name in self._by_path.items():
            stems[without_suffix(path)][name] = None
            folded[path.casefold()][name] = None
            for key in (path[path.rfind("/") + 1 :], stem(path)):
                last[key.casefold()][name] = None
        return stems, folded, last

    def text(self, name: str) -> str:
        """Return a text file's content, or "" if its encoding is unknown. Raises DataError."""
        text, detected = decode_text(self._data(self._prefix + name))
        if detected != "":
            self.detected[name] = detected
        return text

    def full_name(self, name: str) -> str:
        """Return a file's name including the top folder shared by all files."""
        return self._prefix + name

    def source(self, name: str, caption: str) -> SourceFile:
        """Return a file as a source to import."""
        if name in self.guests:
            part, member = self.guests[name]
            return part.source(member, caption)
        made = self.made.get(name)
        return replace(made, caption=caption or made.caption) if made else self._source(self._prefix + name, caption)

    @abstractmethod
    def _data(self, name: str) -> bytes: ...

    @abstractmethod
    def _source(self, name: str, caption: str) -> SourceFile: ...


def once_a_tree(make: Callable[[Tree], T]) -> Callable[[Tree], T]:
    """Cache a function's result in the tree, so that each file is read once."""

    @functools.wraps(make)
    def kept(tree: Tree) -> T:
        if make.__name__ not in tree.read:
            tree.read[make.__name__] = make(tree)
        return cast(T, tree.read[make.__name__])

    return kept


def _spellings(name: str, root: str) -> Iterator[str]:
    """Yield ways to read a name written on any system: verbatim, as a path, percent-decoded, without a number."""
    plain = unicodedata.normalize("NFC", name)
    yield plain
    plain = plain.strip().strip("\"'").replace("\\", "/")
    plain = INSIDE.sub(r"\2/\1", plain).replace("::", "/")  # "clips.zip::a.mp4" is how we print archive members
    if address := ADDRESS.match(plain):
        plain = plain[address.end() :].partition("?")[0]
    plain = DRIVE.sub("/", plain, count=1) if DRIVE.match(plain) else plain
    for spelled in (plain, unicodedata.normalize("NFC", unquote(plain)), NUMBER.sub("", plain)):
        yield spelled.removeprefix(root + "/")


def _clearest(files: Sequence[str]) -> Sequence[str]:
    """Return the only video, else the only video that is not a companion, else all files."""
    videos = [name for name in files if not name.lower().endswith(IMAGE_SUFFIXES)]
    clips = [name for name in videos if not companion_kind_of(name)]
    return next((found for found in (videos, clips) if len(found) == 1), files)


def _shared_end(parts: Sequence[str], name: str) -> int:
    """Count the parts a path shares with the end of a file's path. The last part is known to match."""
    own = [part.casefold() for part in unicodedata.normalize("NFC", name).split("/")]
    count = 1
    while count < min(len(parts), len(own)) and parts[-1 - count].casefold() == own[-1 - count]:
        count += 1
    return count


def _sample(name: str) -> str:
    """Return the WebDataset sample a file belongs to: "train/00012" for "train/00012.mp4" and "train/00012.fps"."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def without_suffix(name: str) -> str:
    """Remove the extension: "videos/a.mp4" -> "videos/a"."""
    folder, slash, file = name.rpartition("/")
    name, dot, suffix = file.rpartition(".")
    return f"{folder}{slash}{name if dot and name and suffix else file}"


def stem(name: str) -> str:
    """Return the file name without folder and extension: "videos/a.mp4" -> "a"."""
    return without_suffix(name).rpartition("/")[2]


def folded_parts(name: str) -> tuple[str, ...]:
    """Split a path without its extension into parts, normalized and in lowercase for comparison."""
    return tuple(unicodedata.normalize("NFC", without_suffix(name)).casefold().split("/"))


def companion_kind_of(name: str) -> tuple[str, str] | None:
    """Return the kind of companion that a file is by name, or None.

    The second value is the clip it belongs to, without extension, or "" if the kind is known from its folder.
    """
    folder, slash, file = name.rpartition("/")
    if found := ENDING.fullmatch(without_suffix(file)):
        return KIND_OF_ENDING[found[2].lower()], f"{folder}{slash}{found[1]}"
    kinds = [KIND_OF_FOLDER[part] for part in folder.casefold().split("/") if part in KIND_OF_FOLDER]
    return (kinds[-1], "") if kinds else None


# ---- numbered frames -------------------------------------------------------------------------------------------------

FEWEST_NUMBERED = 5  # consecutive pictures
NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>\d+)(?P<ending>\.\w+)", re.DOTALL)
ROW_CAPTIONS = ("caption.txt", "prompt.txt", "caption.caption")


@dataclass(frozen=True)
class NumberedRow:
    """Pictures in a folder ("walk/") numbered without gaps, in order. alone: whether it is the folder's only row."""

    folder: str
    names: tuple[str, ...]
    alone: bool

    @property
    def sentence(self) -> str:
        """ "24 numbered frames in walk/"."""
        return f"{len(self.names)} numbered frames" + (f" in {self.folder}" if self.folder else "")


def numbered_rows(tree: Tree) -> list[NumberedRow]:
    """Find all rows in the tree, ignoring pictures with captions of their own."""
    found: dict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
    for name in tree.media:
        folder, _, file = name.rpartition("/")
        if not file.lower().endswith(IMAGE_SUFFIXES) or not (parts := NUMBERED.fullmatch(file)):
            continue
        if not any(without_suffix(name) + end in tree.files for end in CAPTION_SUFFIXES):
            key = (f"{folder}/" if folder else "", parts["before"], parts["ending"].lower())
            found[key].setdefault(int(parts["number"]), name)
    cut = [(folder, names) for (folder, _, _), numbers in found.items() for names in _without_gaps(numbers)]
    count: dict[str, int] = defaultdict(int)
    for folder, _ in cut:
        count[folder] += 1
    return [NumberedRow(folder, names, count[folder] == 1) for folder, names in cut]


def _without_gaps(numbers: dict[int, str]) -> list[tuple[str, ...]]:
    """Split pictures where numbers are missing, and drop pieces shorter than FEWEST_NUMBERED.

    Numbers may also increase in steps of n, if that is the most common step.
    """
    ordered = sorted(numbers)
    steps = [later - earlier for earlier, later in zip(ordered, ordered[1:], strict=False)]
    usual = max(set(steps), key=steps.count, default=1)
    pieces: list[list[str]] = [[]]
    for number, step in zip(ordered, [usual, *steps], strict=True):
        if step != usual:
            pieces.append([])
        pieces[-1].append(numbers[number])
    return [tuple(piece) for piece in pieces if len(piece) >= FEWEST_NUMBERED]


def join_numbered(tree: Tree, fps: float) -> None:
    """Replace the pictures of each row with one video at this frame rate."""
    used: set[str] = set()
    for row in numbered_rows(tree):
        folder = row.folder.rstrip("/")
        texts = [f"{folder}{end}" for end in CAPTION_SUFFIXES if folder] + [row.folder + name for name in ROW_CAPTIONS]
        there = [name for name in texts if name in tree.files]
        caption = next(filter(None, (tree.text(name).strip() for name in there)), "")
        used |= set(there)
        # A folder given by itself uses its own name, and the text beside it is its caption.
        whole = tree.full_name(row.folder).rstrip("/")
        name = folder or whole or tree.path.name.partition(".")[0]
        frames = tuple(tree.source(one, "") for one in row.names)
        part = "" if row.alone else " {} to {}".format(*(stem(one) for one in (row.names[0], row.names[-1])))
        source = SourceFile(
            tree.path if frames[0].member else Path(f"{tree.path / whole}{part}"),
            clean_caption(caption or ("" if folder else tree.beside)),
            f"{whole or name}{part}" if frames[0].member else "",
            frames=frames,
            fps=fps,
        )
        tree.files[f"{name}{part}"] = sum(tree.files.pop(frame) for frame in row.names)
        tree.made[f"{name}{part}"] = source
        tree.forget()
    for name in used:
        del tree.files[name]
    tree.forget()
