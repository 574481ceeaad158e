"""Layouts with captions in text files: beside each video, in a folder of their own, in a list with a line a clip, or in
the members of tar files.

WebDataset's tar files hold each clip as a group of members of one name: 000.mp4 with 000.txt, 000.caption or 000.json.
The setting caption_column may name the ending of another member: longcap for 000.longcap. As SAT's trainers keep it,
captions may also stand beside the tar: shard-000.meta.jsonl, a line a clip, whose `key` is the members' name (or what
the clip's member 000.id says). What is written has the members that SAT's reader asks for: caption, fps and duration
(its data_video.py and sgm/webds.py).
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.clips import media
from workbench.dataset_builder.sources.columns import SIDECAR_SUFFIXES, column_names, file_name, one_line
from workbench.dataset_builder.sources.layouts.base import (
    ExportedClip,
    ExportedFiles,
    Layout,
    Problem,
    ReadingNotes,
    Wanted,
    caption_in,
    files_named,
)
from workbench.dataset_builder.sources.layouts.records import read_json
from workbench.dataset_builder.sources.tree import Tree, companion_kind_of, once_a_tree, without_suffix
from workbench.errors import DataError

VIDEO_FOLDER, LABEL_FOLDER = "videos/", "labels/"
LABEL_FOLDERS = ("labels", "label", "captions", "caption", "texts", "text", "prompts", "prompt", "txt", "annotations")
# Lists by their names, case aside; the trainers of the diffusers examples look for `video` and `text` by default.
VIDEOS = ("videos.txt", "video.txt", "videos", "video")
PROMPTS = ("prompts.txt", "prompt.txt", "captions.txt", "caption.txt", "texts.txt", "text.txt") + (
    *("prompts", "captions", "texts", "text"),
)
IMAGES = ("images.txt", "image.txt")


class Sidecars(Layout):
    """Each caption is in a text file of the video's name beside it: a.mp4 and a.txt. Read by kohya's scripts,
    diffusion-pipe, finetrainers and most other tools.
    """

    name = "sidecars"
    title = "A .txt file next to each video"
    reads = "texts"

    def recognize(self, tree: Tree) -> bool:
        return bool(tree.named)

    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        found = {}
        for name, texts in sidecars(tree).items():
            if caption := _caption_of(tree, name, texts, notes):
                found[name] = caption
        return found

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield clip.name, clip.file
            yield f"{clip.stem}.txt", clip.line
            yield from clip.files_beside


@once_a_tree
def sidecars(tree: Tree) -> dict[str, list[str]]:
    """Video or picture -> the caption files beside it, a.txt or a.mp4.txt of a.mp4, the one that counts first.

    Names that differ in case belong together where no other file fits better.
    """
    exact, folded = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for name in tree.named:
        for key in {name, without_suffix(name)}:
            exact[_spelled(key)].append(name)
            folded[_spelled(key).casefold()].append(name)
    found: dict[str, list[str]] = {name: [] for name in tree.named}
    texts = (one for one in tree.texts if one.lower().endswith(SIDECAR_SUFFIXES) or _has_asked_ending(tree, one))

    def rank(text: str) -> tuple[bool, int, str]:
        """Which of several caption files of a video counts first."""
        suffix = text[text.rfind(".") :].lower()
        known = SIDECAR_SUFFIXES.index(suffix) if suffix in SIDECAR_SUFFIXES else -1
        return not _has_asked_ending(tree, text), known, text

    for text in sorted(texts, key=rank):
        key = _spelled(without_suffix(text))
        alike = folded[key.casefold()]
        for name in exact[key] or (alike if len({_spelled(without_suffix(name)) for name in alike}) == 1 else ()):
            found[name].append(text)
    return {name: texts for name, texts in found.items() if texts}


def _has_asked_ending(tree: Tree, name: str) -> bool:
    """Whether a file ends as the setting caption_column says of caption files: a.longcap."""
    ending = tree.columns.caption.casefold().lstrip(".")
    return bool(ending) and name.casefold().endswith(f".{ending}")


def _caption_of(tree: Tree, name: str, texts: Sequence[str], notes: ReadingNotes) -> str:
    """A video's caption: that of the first of its text files which has one; notes others that differ."""
    caption = ""
    for text in texts:
        if tree.columns.caption and _has_asked_ending(tree, text):
            notes.settings.add("caption_column")
        found = notes.clean(name, caption_in(tree, text, notes))
        if caption and found and found != caption:
            notes.add(Problem.DIFFERS, f"{name} ({text})")
        caption = caption or found
    for text in texts if caption or len(texts) > 1 else ():
        notes.unread.pop(text, None)  # a file of facts beside the caption lacks nothing
    return caption


def _spelled(name: str) -> str:
    return unicodedata.normalize("NFC", name)


class Labels(Layout):
    """Each caption is in a text file of the video's name in another folder: videos/a.mp4 and labels/a.txt."""

    name = "labels"
    title = "Folders videos and labels"
    reads = "labels"

    def recognize(self, tree: Tree) -> bool:
        return bool(labels(tree))

    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        return {name: _caption_of(tree, name, texts, notes) for name, texts in labels(tree).items()}

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield VIDEO_FOLDER + clip.name, clip.file
            yield f"{LABEL_FOLDER}{clip.stem}.txt", clip.line
            yield from clip.files_beside


@once_a_tree
def labels(tree: Tree) -> dict[str, list[str]]:
    """Video -> the text of its name in a folder of labels that lies beside its own, at any depth, or inside it.

    "train/videos/x/a.mp4" -> ["train/labels/x/a.txt"]. Where several folders hold such a video, that of the folder
    `videos` is meant.
    """
    found = defaultdict[str, list[str]](list)
    beside = _beside(tree)
    texts = [
        text
        for text in tree.texts
        if text.lower().endswith(SIDECAR_SUFFIXES) and text not in beside and {*_parts(text)[:-1]} & {*LABEL_FOLDERS}
    ]
    files = defaultdict[tuple[str, ...], list[tuple[str, str]]](list)  # path -> the videos that fit, their folder
    for name in tree.named if texts else ():
        parts = _parts(name)
        files[parts].append((name, ""))
        for at, folder in enumerate(parts[:-1]):
            if folder not in LABEL_FOLDERS:
                files[(*parts[:at], "*", *parts[at + 1 :])].append((name, folder))
    for text in texts:
        parts = _parts(text)
        fits: list[tuple[str, str]] = []
        for at, folder in enumerate(parts[:-1]):
            if folder in LABEL_FOLDERS:
                fits += files[(*parts[:at], "*", *parts[at + 1 :])] or files[(*parts[:at], *parts[at + 1 :])]
        fits = [one for one in fits if one[1] == "videos"] or fits
        fits = [one for one in fits if not companion_kind_of(one[0])] or fits
        if len({without_suffix(name) for name, _ in fits}) == 1:
            for name in dict.fromkeys(name for name, _ in fits):
                found[name].append(text)
    return {name: found[name] for name in tree.named if name in found}


def _parts(name: str) -> tuple[str, ...]:
    """The folders of a file and its name without the ending, as they are compared."""
    return tuple(_spelled(without_suffix(name)).casefold().split("/"))


def _beside(tree: Tree) -> set[str]:
    return {text for texts in sidecars(tree).values() for text in texts}


class Lists(Layout):
    """A line a clip: its caption in prompts.txt, its path in videos.txt and, for image-to-video, the path of its first
    frame in images.txt. Read by the trainers of the diffusers examples.
    """

    name = "lists"
    title = "Lists prompts.txt and videos.txt"
    pictures = True
    reads = "lists"

    def recognize(self, tree: Tree) -> bool:
        return bool(tree.named) and bool(_lists(tree))

    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        found: dict[str, str] = {}
        for lists in _lists(tree):
            self._read(tree, lists, notes, found)
        known = {*notes.read, *_beside(tree), *(text for texts in labels(tree).values() for text in texts)}
        for names, other in ((VIDEOS, "captions (prompts.txt)"), (PROMPTS, "videos (videos.txt)")):
            for name in tree.texts:
                if name.rpartition("/")[2].casefold() in names and name not in known:
                    notes.unread[name] = f"a list without one of {other} beside it"
        return found

    def _read(self, tree: Tree, lists: _ListFiles, notes: ReadingNotes, found: dict[str, str]) -> None:
        names = _lines(tree, lists.videos, 0)
        texts = _lines(tree, lists.prompts, len(names))
        notes.read |= {lists.videos, lists.prompts}
        for setting, asked, file in (
            ("video_column", tree.columns.video, lists.videos),
            ("caption_column", tree.columns.caption, lists.prompts),
        ):
            if asked and _is_asked_list(tree, asked, file):
                notes.settings.add(setting)
        if len(texts) != len(names):
            counts = f"{lists.videos} ({len(names)} lines), {lists.prompts} ({len(texts)} lines)"
            notes.add(Problem.UNPAIRED, counts)
            texts = [""] * len(names)
        files = files_named(tree, [Wanted(line, lists.folder) for line in names], notes)
        for name, text in zip(files, texts, strict=True):
            if name is not None:
                if name in found:
                    notes.add(Problem.TWICE, name)
                found[name] = notes.clean(name, text)
        if lists.images:
            notes.read.add(lists.images)
            _pair(tree, lists, files, notes)

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        first_frames = first_frames or any(clip.first_frame for clip in clips)
        if first_frames and (bare := [one for one in clips if one.clip.is_latents and not one.first_frame]):
            sentence = f"{bare[0].clip.name} is latents without a first frame, and this layout writes one of each clip"
            raise DataError(f"{sentence}: choose another layout, or turn first_frames off")
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            yield from clip.files_beside
            if first_frames:
                yield f"images/{clip.stem}.png", clip.first_frame or media.first_frame_png(clip.file)
        yield PROMPTS[0], b"".join(clip.line for clip in clips)
        yield VIDEOS[0], "".join(f"videos/{clip.name}\n" for clip in clips).encode()
        if first_frames:
            yield IMAGES[0], "".join(f"images/{clip.stem}.png\n" for clip in clips).encode()


@dataclass(frozen=True)
class _ListFiles:
    """The lists of one folder ("" or "train/"); images: "" when there is none."""

    folder: str
    videos: str
    prompts: str
    images: str


@once_a_tree
def _lists(tree: Tree) -> list[_ListFiles]:
    """The lists that belong together, of every folder that has a pair of them."""
    columns, beside = tree.columns, _beside(tree)
    folders = defaultdict[str, list[str]](list)
    for name in tree.texts:
        if name not in beside:
            folders[name[: name.rfind("/") + 1]].append(name)
    asked_videos = [name for name in tree.texts if _is_asked_list(tree, columns.video, name)]
    asked_prompts = [name for name in tree.texts if _is_asked_list(tree, columns.caption, name)]
    found = []
    if len(asked_videos) == len(asked_prompts) == 1:  # each may lie anywhere
        folder = asked_videos[0][: asked_videos[0].rfind("/") + 1]
        found.append(_ListFiles(folder, asked_videos[0], asked_prompts[0], _called(folders[folder], IMAGES)))
    else:
        for folder, names in folders.items():
            videos = next((name for name in names if name in asked_videos), "") or _called(names, VIDEOS)
            prompts = next((name for name in names if name in asked_prompts), "") or _called(names, PROMPTS)
            if videos and prompts:
                found.append(_ListFiles(folder, videos, prompts, _called(names, IMAGES)))
    return found


def paired(tree: Tree) -> set[str]:
    """The lists that are read line by line beside one another."""
    return {name for lists in _lists(tree) for name in (lists.videos, lists.prompts, lists.images) if name}


def _called(files: Sequence[str], names: Sequence[str]) -> str:
    """The file that has the first of these names, case aside; "" when none has any."""
    by_name = {file.rpartition("/")[2].casefold(): file for file in reversed(files)}
    return next((by_name[name] for name in names if name in by_name), "")


def _is_asked_list(tree: Tree, asked: str, file: str) -> bool:
    """Whether a setting names this file as a list: by its name, or by its path from the root."""
    path = asked.replace("\\", "/").removeprefix(f"{tree.path.as_posix()}/").removeprefix("./").casefold()
    return bool(path) and path in (file.casefold(), file.rpartition("/")[2].casefold())


def _pair(tree: Tree, lists: _ListFiles, videos: Sequence[str | None], notes: ReadingNotes) -> None:
    """Which picture is the first frame of which video, by line. An empty line leaves its video without one."""
    lines = _lines(tree, lists.images, len(videos))
    paired = len(lines) == len(videos)
    if not paired:
        counts = f"{lists.videos} ({len(videos)} lines), {lists.images} ({len(lines)} lines)"
        notes.add(Problem.UNPAIRED_PICTURES, counts)
    pictures = files_named(tree, [Wanted(line, lists.folder, Problem.NO_PICTURE) for line in lines], notes)
    for number, picture in enumerate(pictures):
        video = videos[number] if paired else None
        if picture is not None and video is not None:
            notes.first_frames[video] = picture
        elif picture is not None:
            notes.add(Problem.POSTER, picture)


def _lines(tree: Tree, name: str, wanted: int) -> list[str]:
    """The lines of a list, without empty ones at its end that are more than wanted; in between, they are captions."""
    lines = tree.text(name).replace("\r\n", "\n").split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    while len(lines) > wanted and not lines[-1].strip():
        lines.pop()
    return lines


# ---- tar shards ------------------------------------------------------------------------------------------------------

SUFFIXES = ("txt", "caption", "json")
ID = "id"
META = ".meta.jsonl"
SEVERAL = "-$#%@&"  # in SAT's shards it parts a record's key from the number of one of its clips
SHARD_BYTES = 1_000_000_000  # what readers of shards are made for
SHARD_CLIPS = 10_000


class WebDatasetShards(Layout):
    """Tar files in which a clip and its caption follow one another under one name: 000.mp4, 000.txt. Read one after
    the other, never unpacked. Captions in a .meta.jsonl beside a shard are taken, too.
    """

    name = "webdataset"
    title = "WebDataset shards (.tar)"
    reads = "texts"
    shards = True

    def recognize(self, tree: Tree) -> bool:
        if not tree.path.name.lower().endswith((".tar", ".tar.gz", ".tgz")):
            return False
        texts = {key for key, suffix in map(_split, tree.files) if suffix in (*_suffixes(tree), ID)}
        return any(tree.beside or _split(name)[0] in texts for name in tree.media)

    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        texts: dict[str, dict[str, str]] = defaultdict(dict)
        for name in tree.files:
            key, suffix = _split(name)
            if suffix in (*_suffixes(tree), ID):
                texts[key][suffix] = name
        meta, used = _meta(tree, notes), set[str]()
        found = {}
        for name in tree.media:
            of_clip = texts.pop(_split(name)[0], {})
            key = next((key for key in _keys(tree, name, of_clip) if key in meta), "")
            used.add(key)
            notes.read |= {of_clip[ID]} if ID in of_clip else set()
            texts_of_clip = [of_clip[suffix] for suffix in _suffixes(tree) if suffix in of_clip]
            inside = _caption_of(tree, name, texts_of_clip, notes)
            if ID in of_clip:  # a member of facts beside it lacks nothing
                for text in texts_of_clip:
                    notes.unread.pop(text, None)
            found[name] = notes.clean(name, meta[key]) if key else inside
            if key and inside and inside != found[name]:
                notes.add(Problem.DIFFERS, name)
        for key in meta.keys() - used:
            notes.add(Problem.NO_VIDEO, key)
        return found

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield clip.name, clip.file
            for suffix in ("txt", "caption"):
                yield f"{clip.stem}.{suffix}", one_line(clip.caption).encode()
            for kind, file in clip.companions.items():
                yield f"{clip.stem}.{kind}{file.suffix}", file
            yield f"{clip.stem}.json", json.dumps(clip.facts).encode()
            if (frames := clip.clip.frames) and (fps := clip.clip.fps):
                yield f"{clip.stem}.fps", repr(fps).encode()
                seconds = frames / fps
                while int(seconds * fps) < frames:  # by which SAT counts frames
                    seconds = math.nextafter(seconds, math.inf)
                yield f"{clip.stem}.duration", repr(seconds).encode()


def _split(name: str) -> tuple[str, str]:
    """("train/000", "mp4") of "train/000.mp4": WebDataset's key ends at the first dot of the file name."""
    folder, _, file = name.rpartition("/")
    key, _, suffix = file.partition(".")
    return f"{folder}/{key}", suffix.lower()


def _suffixes(tree: Tree) -> tuple[str, ...]:
    """The endings of members that hold captions, the one that counts first."""
    asked = tree.columns.caption.lower().lstrip(".")
    return tuple(dict.fromkeys((asked, *SUFFIXES) if asked else SUFFIXES))


def _meta(tree: Tree, notes: ReadingNotes) -> dict[str, str]:
    if not tree.beside:
        return {}
    found, name = dict[str, str](), tree.path.name.partition(".")[0] + META
    read = read_json(tree.beside, tree.columns, lambda _: True)
    for problem, where in read.problems:
        notes.add(problem, f"{name}, {where}")
    for where, row in read.rows:
        if (key := file_name(row.get("key"))) and (text := notes.cell(f"{name}, {where}", tree.columns.text(row))):
            found[key] = text
    if found and tree.columns.caption:
        notes.settings.add("caption_column")
    if read.columns and not found:
        notes.add(Problem.NO_COLUMN, f"{name} (keys: {column_names(read.columns)})")
    return found


def _keys(tree: Tree, name: str, texts: dict[str, str]) -> Iterator[str]:
    """What the record of a clip may be called: SAT's key first."""
    key = tree.full_name(name).partition(".")[0]
    yield key.partition(SEVERAL)[0]
    yield key.rpartition("/")[2].partition(SEVERAL)[0]
    if ID in texts:
        yield tree.text(texts[ID]).strip()


def shards_of(clips: Sequence[ExportedClip]) -> Iterator[list[ExportedClip]]:
    """The clips of each tar file, where there are several."""
    shard: list[ExportedClip] = []
    size = 0
    for clip in clips:
        length = clip.file.stat().st_size
        if shard and (size + length > SHARD_BYTES or len(shard) == SHARD_CLIPS):
            yield shard
            shard, size = [], 0
        shard.append(clip)
        size += length
    if shard:
        yield shard
