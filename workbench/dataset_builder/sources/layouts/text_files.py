"""Layouts with captions in text files: beside each video, in another folder, in a list with one line per clip, or in
tar files.

In WebDataset's tar files, the members of a clip share a name: 000.mp4 with 000.txt, 000.caption or 000.json. The
setting caption_column may name another extension, such as longcap for 000.longcap. As in SAT's datasets, captions may
also be beside the tar, in a shard-000.meta.jsonl with one line per clip whose `key` is the members' name (or the text
of the clip's member 000.id). Exported shards have the members that SAT's reader needs: caption, fps and duration (see
its data_video.py and sgm/webds.py).
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

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
from workbench.dataset_builder.sources.tree import Tree, companion_kind_of, folded_parts, once_a_tree, without_suffix
from workbench.errors import DataError

VIDEO_FOLDER, LABEL_FOLDER = "videos/", "labels/"
LABEL_FOLDERS = ("labels", "label", "captions", "caption", "texts", "text", "prompts", "prompt", "txt", "annotations")
# Names of lists, ignoring case. The diffusers training examples use `video` and `text` by default.
VIDEOS = ("videos.txt", "video.txt", "videos", "video")
PROMPTS = ("prompts.txt", "prompt.txt", "captions.txt", "caption.txt", "texts.txt", "text.txt") + (
    *("prompts", "captions", "texts", "text"),
)
IMAGES = ("images.txt", "image.txt")


class Sidecars(Layout):
    """Each video has a text file with its caption beside it: a.mp4 and a.txt. kohya's scripts, diffusion-pipe,
    finetrainers and most other tools read it.
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
    """Return video or picture -> caption files beside it (a.txt or a.mp4.txt for a.mp4), in order of precedence.

    Names that differ only in case match if no other file matches exactly.
    """
    exact, folded = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for name in tree.named:
        for key in {name, without_suffix(name)}:
            exact[_spelled(key)].append(name)
            folded[_spelled(key).casefold()].append(name)
    found: dict[str, list[str]] = {name: [] for name in tree.named}
    texts = (one for one in tree.texts if one.lower().endswith(SIDECAR_SUFFIXES) or _has_asked_ending(tree, one))

    def rank(text: str) -> tuple[bool, int, str]:
        """Sort the caption files of a video by precedence."""
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
    """Whether a file has the extension in the setting caption_column: a.longcap."""
    ending = tree.columns.caption.casefold().lstrip(".")
    return bool(ending) and name.casefold().endswith(f".{ending}")


def _caption_of(tree: Tree, name: str, texts: Sequence[str], notes: ReadingNotes) -> str:
    """Return a video's caption from the first text file that has one, and note others that differ."""
    caption = ""
    for text in texts:
        if tree.columns.caption and _has_asked_ending(tree, text):
            notes.settings.add("caption_column")
        found = notes.clean(name, caption_in(tree, text, notes))
        if caption and found and found != caption:
            notes.add(Problem.DIFFERS, f"{name} ({text})")
        caption = caption or found
    for text in texts if caption or len(texts) > 1 else ():
        notes.unread.pop(text, None)  # a JSON file of metadata beside a caption needs no caption itself
    return caption


def _spelled(name: str) -> str:
    return unicodedata.normalize("NFC", name)


class Labels(Layout):
    """Each video has a text file with its caption in another folder: videos/a.mp4 and labels/a.txt."""

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
    """Return video -> text files of its name in a folder of labels, beside its own folder at any depth or inside it.

    "train/videos/x/a.mp4" -> ["train/labels/x/a.txt"]. If several folders have a matching video, the one in a folder
    `videos` is meant.
    """
    found = defaultdict[str, list[str]](list)
    beside = _beside(tree)
    candidates = [text for text in tree.texts if text.lower().endswith(SIDECAR_SUFFIXES) and text not in beside]
    texts = [text for text in candidates if {*folded_parts(text)[:-1]} & {*LABEL_FOLDERS}]
    files = defaultdict[tuple[str, ...], list[tuple[str, str]]](list)  # path -> matching videos and their folders
    for name in tree.named if texts else ():
        parts = folded_parts(name)
        files[parts].append((name, ""))
        for at, folder in enumerate(parts[:-1]):
            if folder not in LABEL_FOLDERS:
                files[(*parts[:at], "*", *parts[at + 1 :])].append((name, folder))
    for text in texts:
        parts = folded_parts(text)
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


def _beside(tree: Tree) -> set[str]:
    return {text for texts in sidecars(tree).values() for text in texts}


class Lists(Layout):
    """One line per clip: its caption in prompts.txt, its path in videos.txt and, for image-to-video, the path of its
    first frame in images.txt. The diffusers training examples read it.
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
                    notes.unread[name] = f"a list without a matching list of {other}"
        return found

    def _read(self, tree: Tree, lists: tuple[str, str, str], notes: ReadingNotes, found: dict[str, str]) -> None:
        videos, prompts, images = lists
        folder = videos[: videos.rfind("/") + 1]
        names = _lines(tree, videos, 0)
        texts = _lines(tree, prompts, len(names))
        notes.read |= {videos, prompts}
        for setting, asked, file in (
            ("video_column", tree.columns.video, videos),
            ("caption_column", tree.columns.caption, prompts),
        ):
            if asked and _is_asked_list(tree, asked, file):
                notes.settings.add(setting)
        if len(texts) != len(names):
            notes.add(Problem.UNPAIRED, f"{videos} ({len(names)} lines), {prompts} ({len(texts)} lines)")
            texts = [""] * len(names)
        files = files_named(tree, [Wanted(line, folder) for line in names], notes)
        for name, text in zip(files, texts, strict=True):
            if name is not None:
                if name in found:
                    notes.add(Problem.TWICE, name)
                found[name] = notes.clean(name, text)
        if not images:
            return
        notes.read.add(images)
        lines = _lines(tree, images, len(files))  # an empty one means that the video has no first frame
        paired = len(lines) == len(files)
        if not paired:
            counts = f"{videos} ({len(files)} lines), {images} ({len(lines)} lines)"
            notes.add(Problem.UNPAIRED_PICTURES, counts)
        pictures = files_named(tree, [Wanted(line, folder, Problem.NO_PICTURE) for line in lines], notes)
        for number, picture in enumerate(pictures):
            video = files[number] if paired else None
            if picture is not None and video is not None:
                notes.add_first_frame(video, picture)
            elif picture is not None:
                notes.add(Problem.POSTER, picture)

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        first_frames = first_frames or any(clip.first_frame for clip in clips)
        if first_frames and (bare := [one for one in clips if one.clip.is_latents and not one.first_frame]):
            sentence = f"{bare[0].clip.name} consists of latents without a first frame, which this layout needs"
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


@once_a_tree
def _lists(tree: Tree) -> list[tuple[str, str, str]]:
    """Return the lists of videos, prompts and, or "", images of every folder that has a pair."""
    columns, beside = tree.columns, _beside(tree)
    folders = defaultdict[str, list[str]](list)
    for name in tree.texts:
        if name not in beside:
            folders[name[: name.rfind("/") + 1]].append(name)
    asked_videos = [name for name in tree.texts if _is_asked_list(tree, columns.video, name)]
    asked_prompts = [name for name in tree.texts if _is_asked_list(tree, columns.caption, name)]
    if len(asked_videos) == len(asked_prompts) == 1:  # they may be in different folders
        folder = asked_videos[0][: asked_videos[0].rfind("/") + 1]
        return [(asked_videos[0], asked_prompts[0], _called(folders[folder], IMAGES))]
    found = []
    for names in folders.values():
        videos = next((name for name in names if name in asked_videos), "") or _called(names, VIDEOS)
        prompts = next((name for name in names if name in asked_prompts), "") or _called(names, PROMPTS)
        if videos and prompts:
            found.append((videos, prompts, _called(names, IMAGES)))
    return found


def paired(tree: Tree) -> set[str]:
    """Return the names of all lists that belong to a pair."""
    return {name for lists in _lists(tree) for name in lists if name}


def _called(files: Sequence[str], names: Sequence[str]) -> str:
    """Return the file with the first of these names, ignoring case; "" if there is none."""
    by_name = {file.rpartition("/")[2].casefold(): file for file in reversed(files)}
    return next((by_name[name] for name in names if name in by_name), "")


def _is_asked_list(tree: Tree, asked: str, file: str) -> bool:
    """Whether a setting names this file as a list, by name or by path from the root."""
    path = asked.replace("\\", "/").removeprefix(f"{tree.path.as_posix()}/").removeprefix("./").casefold()
    return bool(path) and path in (file.casefold(), file.rpartition("/")[2].casefold())


def _lines(tree: Tree, name: str, wanted: int) -> list[str]:
    """Return a list's lines, without surplus empty lines at the end. Other empty lines are empty captions."""
    lines = tree.text(name).replace("\r\n", "\n").split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    while len(lines) > wanted and not lines[-1].strip():
        lines.pop()
    return lines


# ---- tar shards ------------------------------------------------------------------------------------------------------

SUFFIXES = ("txt", "caption", "json")
ID = "id"
META = ".meta.jsonl"
CLIP_SEPARATOR = "-$#%@&"  # in SAT's shards, separates a record's key from a clip's number
SHARD_BYTES = 1_000_000_000  # a common size for shards
SHARD_CLIPS = 10_000


class WebDatasetShards(Layout):
    """Tar files in which a clip and its caption follow each other and share a name: 000.mp4, 000.txt. They are read in
    order and never unpacked. Captions in a .meta.jsonl beside a shard are read too.
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
            if ID in of_clip:  # metadata beside the id needs no caption itself
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
                while int(seconds * fps) < frames:  # SAT computes the number of frames this way
                    seconds = math.nextafter(seconds, math.inf)
                yield f"{clip.stem}.duration", repr(seconds).encode()


def _split(name: str) -> tuple[str, str]:
    """Split a member into WebDataset key and extension at the file name's first dot: "train/000", "mp4"."""
    folder, _, file = name.rpartition("/")
    key, _, suffix = file.partition(".")
    return f"{folder}/{key}", suffix.lower()


def _suffixes(tree: Tree) -> tuple[str, ...]:
    """Return the extensions of caption members, in order of precedence."""
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
    """Yield the keys that a clip's record may have: SAT's key first."""
    key = tree.full_name(name).partition(".")[0]
    yield key.partition(CLIP_SEPARATOR)[0]
    yield key.rpartition("/")[2].partition(CLIP_SEPARATOR)[0]
    if ID in texts:
        yield tree.text(texts[ID]).strip()


def shards_of(clips: Sequence[ExportedClip]) -> Iterator[list[ExportedClip]]:
    """Split clips into shards."""
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
