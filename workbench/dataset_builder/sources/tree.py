"""Files by their names below one root, as layouts read them: a folder, files given together, or an archive.

A folder of numbered pictures (walk/frame_0001.png to frame_0024.png) may be one video. It is only when a person says
so, since the photos of a camera are numbered as well. It then stands in the tree under its folder's name, so that each
layout finds its caption as it does for a file.
"""

from __future__ import annotations

import functools
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
INSIDE = re.compile(r"(?:zip|tar)://(.+?)::(.+)")  # "zip://a.mp4::clips.zip", as fsspec has it
T = TypeVar("T")
NUMBER = re.compile(r"#\d+$")  # of one of several captions: "a.mp4#0", as Flickr8k has them
# What lies beside clips, by the folder that it lies in, and by how its name ends: "a.mask.mp4", "ID.mask-1a2b3c4d.mp4".
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
    """A video or picture to import, and the caption that came with it ("" when there is none).

    path: the file, or the archive that holds it; member: its name inside the archive, "" for a file
    first_frame: the picture that came with it as its first frame, None when there is none
    target: the file that `path` is a link to, where it may be followed; refused: why it may not be read, else ""
    frames: the numbered pictures that make it up, shown at `fps`; `path` and `member` then only name it
    companions: (kind, file) of what belongs to it: its control clip, reference, mask, last frame
    """

    path: Path
    caption: str = ""
    member: str = ""
    first_frame: SourceFile | None = None
    target: Path | None = None
    refused: str = ""
    frames: tuple[SourceFile, ...] = ()
    fps: float = 0.0
    companions: tuple[tuple[str, SourceFile], ...] = ()

    @property
    def key(self) -> str:
        """What distinguishes it from all others: the path, or "archive.zip::folder/a.mp4"."""
        return f"{self.path}::{self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        return PurePosixPath(self.member).name if self.member else self.path.name


@dataclass(frozen=True)
class Entry:
    """One member of an archive. refused: why it may not be read, "" when it may; info: what its reader knows of it."""

    name: str
    size: int
    refused: str
    info: Any


@dataclass(frozen=True)
class Found:
    """The files that a list or table may mean by a name; one if it is clear which.

    how: "path", "case" (their letters differ in case) or "end" (only the ends of the paths agree)
    """

    files: Sequence[str] = ()
    how: str = "path"


@dataclass
class HandedOver:
    """What the texts and tables around an archive say of its members, by their names.

    left_out: members that are no clips of their own; layout: how those texts and tables are laid out
    """

    captions: dict[str, str] = field(default_factory=dict)
    first_frames: dict[str, SourceFile] = field(default_factory=dict)
    companions: dict[str, dict[str, SourceFile]] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    layout: str = ""


class Tree(ABC):
    """Files by their names below one root: a folder, files given together, or an archive.

    path:    what was given
    files:   name ("clips/a.mp4") -> bytes, in order; hidden files are left out, as is a folder that holds all of them
    media:   those of them that are to be imported: videos and pictures
    texts:   those that captions may stand in
    others:  names of files that are neither, and no part of a WebDataset sample
    detected: text that was read -> the encoding that was detected for it, None where none could be
    refused: entry -> why it may not be read
    whole:   whether it is all there is, so that a caption without its video means something
    columns: what the columns of its tables are called
    beside:  the text of a file that belongs to it and lies next to it, "" when there is none
    title:   the names of files that were given one by one, "" for a folder or archive, which has a name of its own
    inside:  archives that lie in it, by name, whose members its texts and tables may speak of
    handed:  what such texts and tables say, of an archive
    made:    videos that numbered pictures in it are
    read:    what layouts made of its files (`once_a_tree`)
    """

    columns = Columns()
    beside = ""
    title = ""
    inside: Sequence[tuple[str, Tree]] = ()

    def __init__(self, path: Path, files: Mapping[str, int], refused: Mapping[str, str], whole: bool = True) -> None:
        self.path, self.refused, self.whole = path, dict(refused), whole
        self._prefix = _folder_of_all(files)
        self.files = {name.removeprefix(self._prefix): size for name, size in files.items()}
        self.detected: dict[str, str | None] = {}
        self.read: dict[str, Any] = {}
        self.made: dict[str, SourceFile] = {}
        self.handed = HandedOver()

    @cached_property
    def media(self) -> list[str]:
        return [name for name in self.files if name.lower().endswith(MEDIA_SUFFIXES) or name in self.made]

    def forget(self) -> None:
        """Drop cached facts after files were added or removed."""
        for name in [one for one in self.__dict__ if isinstance(getattr(type(self), one, None), cached_property)]:
            del self.__dict__[name]

    @cached_property
    def guests(self) -> dict[str, tuple[Tree, str]]:
        """Videos and pictures in the archives inside: where each would lie if it was unpacked -> archive and member.

        That is next to the archive, or in a folder of its name where that path is taken.
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
        """The paths that a member may have once its archive is unpacked, the likeliest first."""
        folder, _, file = archive.removeprefix(self._prefix).rpartition("/")
        folder += "/" if folder else ""
        return [f"{folder}{within}{member}" for within in ("", f"{file.partition('.')[0]}/", f"{file}/")]

    @cached_property
    def named(self) -> list[str]:
        """What texts and tables may speak of: its media, and those of the archives inside."""
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
        """The videos and pictures that a list or table in `folder` ("" or "train/") may call by that name.

        A path counts from the folder or one of those above it. A path from elsewhere, such as the one that the dataset
        had on another machine, is found by its longest end that fits a file: one below the folder, or anywhere if no
        video lies below the folder. A name without an ending finds the video whose ending was left out.
        """
        if folder + name in self._by_path:
            return Found([self._by_path[folder + name]])
        spellings = list(dict.fromkeys(_spellings(name, self.path.as_posix())))
        if not any(spelled.rstrip("/").rpartition("/")[2].casefold() in self._by_last for spelled in spellings):
            return Found()
        folders = [folder]
        while folders[-1]:
            folders.append(folders[-1][: folders[-1].rfind("/", 0, -1) + 1])
        paths = [posixpath.normpath(above + spelled.lstrip("/")) for spelled in spellings for above in folders]
        for path in paths:
            if found := self._by_path.get(path) or self._by_path.get(path.removeprefix(self._prefix)):
                return Found([found])
        for path in paths:
            if found_without := self._by_stem.get(path):
                return Found(_clearest(found_without))
        for path in paths:
            if same := self._by_folded.get(path.casefold()):
                return Found(same, "case")
        return self._by_end(spellings, folder if folder in self._folders else "")

    def _by_end(self, spellings: Sequence[str], folder: str) -> Found:
        for spelled in spellings:
            parts = [part for part in spelled.split("/") if part not in ("", ".", "..")]
            if not parts:
                continue
            files = [one for one in self._by_last.get(parts[-1].casefold(), ()) if one.startswith(folder)]
            if files:
                shared = [_shared_end(parts, self.full_name(one)) for one in files]
                longest = [one for one, length in zip(files, shared, strict=True) if length == max(shared)]
                # "/data/a.mp4" is a.mp4 rather than masks/a.mp4, whose folder the path does not have.
                whole = [one for one in longest if one.count("/") - folder.count("/") < max(shared)]
                return Found(_clearest(whole if len(whole) == 1 else longest), "end")
        return Found()

    @cached_property
    def _folders(self) -> set[str]:
        """Those that have a video or picture below them: "train/"."""
        return {name[: at + 1] for name in self.named for at, letter in enumerate(name) if letter == "/"}

    @cached_property
    def _by_path(self) -> dict[str, str]:
        found = {unicodedata.normalize("NFC", name): name for name in self.named}
        archives = {id(part): path for path, part in self.inside}
        also = defaultdict[str, set[str]](
            set
        )  # other paths of a guest, in the folder that holds all of its archive, too
        for name, (part, member) in self.guests.items():
            for spelled in {member, part.full_name(member)}:
                for place in self._unpacked(archives[id(part)], spelled):
                    also[unicodedata.normalize("NFC", place)].add(name)
        return {**{path: next(iter(names)) for path, names in also.items() if len(names) == 1}, **found}

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        return self._by(lambda path: {without_suffix(path)})

    @cached_property
    def _by_folded(self) -> dict[str, list[str]]:
        return self._by(lambda path: {path.casefold()})

    @cached_property
    def _by_last(self) -> dict[str, list[str]]:
        """The last part of a path, with and without its ending, case aside -> the files."""
        return self._by(lambda path: {path[path.rfind("/") + 1 :].casefold(), stem(path).casefold()})

    def _by(self, keys: Callable[[str], set[str]]) -> dict[str, list[str]]:
        found = defaultdict[str, dict[str, None]](dict)
        for path, name in self._by_path.items():
            for key in keys(path):
                found[key][name] = None
        return {key: list(names) for key, names in found.items()}

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
    """Keep what a function finds in a tree, so that each file is read once."""

    @functools.wraps(make)
    def kept(tree: Tree) -> T:
        if make.__name__ not in tree.read:
            tree.read[make.__name__] = make(tree)
        return cast(T, tree.read[make.__name__])

    return kept


def _spellings(name: str, root: str) -> Iterator[str]:
    """The ways to read a name that was written on any system: as it is, as a path, without percent signs."""
    plain = unicodedata.normalize("NFC", name)
    yield plain
    plain = plain.strip().strip("\"'").replace("\\", "/")
    plain = INSIDE.sub(r"\2/\1", plain).replace("::", "/")  # "clips.zip::a.mp4", as ours are printed
    if address := ADDRESS.match(plain):
        plain = plain[address.end() :].partition("?")[0]
    plain = DRIVE.sub("/", plain, count=1) if DRIVE.match(plain) else plain
    for spelled in (plain, unicodedata.normalize("NFC", unquote(plain)), NUMBER.sub("", plain)):
        yield spelled.removeprefix(root + "/")


def _clearest(files: Sequence[str]) -> Sequence[str]:
    """The one video among pictures that show it and masks that belong to it, or all of them."""
    videos = [name for name in files if not name.lower().endswith(IMAGE_SUFFIXES)]
    clips = [name for name in videos if not companion_kind_of(name)]
    return next((found for found in (videos, clips) if len(found) == 1), files)


def _shared_end(parts: Sequence[str], name: str) -> int:
    """How many of a path's last parts are those of the file, whose ending may be left out."""
    own = [part.casefold() for part in unicodedata.normalize("NFC", name).split("/")]
    count = 1
    while count < min(len(parts), len(own)) and parts[-1 - count].casefold() == own[-1 - count]:
        count += 1
    return count


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
    name, dot, suffix = file.rpartition(".")
    return f"{folder}{slash}{name if dot and name and suffix else file}"


def stem(name: str) -> str:
    """ "a" of "videos/a.mp4"."""
    return without_suffix(name).rpartition("/")[2]


def companion_kind_of(name: str) -> tuple[str, str] | None:
    """(kind, the clip that it belongs to, without an ending, "" where its folder says the kind); None of others."""
    folder, slash, file = name.rpartition("/")
    if found := ENDING.fullmatch(without_suffix(file)):
        return KIND_OF_ENDING[found[2].lower()], f"{folder}{slash}{found[1]}"
    kinds = [KIND_OF_FOLDER[part] for part in folder.casefold().split("/") if part in KIND_OF_FOLDER]
    return (kinds[-1], "") if kinds else None


# ---- numbered frames -------------------------------------------------------------------------------------------------

FEWEST_NUMBERED = 5  # pictures in a row
NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>\d+)(?P<ending>\.\w+)", re.DOTALL)
ROW_CAPTIONS = ("caption.txt", "prompt.txt", "caption.caption")


@dataclass(frozen=True)
class NumberedRow:
    """Pictures of a folder ("walk/", "" at the root) that are numbered without a gap, in order.

    alone: whether the folder has no other row
    """

    folder: str
    names: tuple[str, ...]
    alone: bool

    @property
    def sentence(self) -> str:
        """ "24 numbered frames in walk/"."""
        return f"{len(self.names)} numbered frames" + (f" in {self.folder}" if self.folder else "")


def numbered_rows(tree: Tree) -> list[NumberedRow]:
    """All rows of the tree. Pictures with captions of their own are none."""
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
    """The pictures parted where a number is missing; pieces of fewer than FEWEST_NUMBERED are left out.

    Every n-th frame is a row, too, where most of the numbers are n apart.
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
    """Put each row of the tree in place of its pictures, as one video of that frame rate."""
    used: set[str] = set()
    for row in numbered_rows(tree):
        folder = row.folder.rstrip("/")
        texts = [f"{folder}{end}" for end in CAPTION_SUFFIXES if folder] + [row.folder + name for name in ROW_CAPTIONS]
        there = [name for name in texts if name in tree.files]
        caption = next(filter(None, (tree.text(name).strip() for name in there)), "")
        used |= set(there)
        # A folder that was given by itself goes by its own name, and the text beside it is its caption.
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
