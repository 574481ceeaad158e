"""Layouts with captions in text files: beside each video, in a folder of their own, or in a list with a line a clip."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.clips import media
from workbench.dataset_builder.sources.columns import SIDECAR_SUFFIXES
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
from workbench.dataset_builder.sources.tree import Tree, without_suffix
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
    """Also videos without captions."""

    name = "sidecars"
    title = "A .txt file next to each video"
    description = (
        "Each caption is in a text file of the video's name beside it: a.mp4 and a.txt. Read by kohya's scripts, "
        "diffusion-pipe, finetrainers and most other tools."
    )
    reads = "texts"

    def recognise(self, tree: Tree) -> bool:
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


def sidecars(tree: Tree) -> dict[str, list[str]]:
    """Video or picture -> the caption files beside it, a.txt or a.mp4.txt of a.mp4, the one that counts first.

    Names that differ in case belong together where no other file fits better.
    """
    if "sidecars" not in tree.read:
        exact, folded = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for name in tree.named:
            for key in {name, without_suffix(name)}:
                exact[_spelled(key)].append(name)
                folded[_spelled(key).casefold()].append(name)
        found: dict[str, list[str]] = {name: [] for name in tree.named}
        texts = (one for one in tree.texts if one.lower().endswith(SIDECAR_SUFFIXES) or _has_asked_ending(tree, one))
        for text in sorted(texts, key=lambda text: _rank(tree, text)):
            key = _spelled(without_suffix(text))
            alike = folded[key.casefold()]
            for name in exact[key] or (alike if len({_spelled(without_suffix(name)) for name in alike}) == 1 else ()):
                found[name].append(text)
        tree.read["sidecars"] = {name: texts for name, texts in found.items() if texts}
    beside: dict[str, list[str]] = tree.read["sidecars"]
    return beside


def _has_asked_ending(tree: Tree, name: str) -> bool:
    """Whether a file ends as the setting caption_column says of caption files: a.longcap."""
    ending = tree.columns.caption.casefold().lstrip(".")
    return bool(ending) and name.casefold().endswith(f".{ending}")


def _rank(tree: Tree, text: str) -> tuple[bool, int, str]:
    """Which of several caption files of a video counts first."""
    suffix = text[text.rfind(".") :].lower()
    known = SIDECAR_SUFFIXES.index(suffix) if suffix in SIDECAR_SUFFIXES else -1
    return not _has_asked_ending(tree, text), known, text


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
    """What the "SAT" trainers read."""

    name = "labels"
    title = "Folders videos and labels"
    description = "Each caption is in a text file of the video's name in another folder: videos/a.mp4 and labels/a.txt."
    reads = "labels"

    def recognise(self, tree: Tree) -> bool:
        return bool(labels(tree))

    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        return {name: _caption_of(tree, name, texts, notes) for name, texts in labels(tree).items()}

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield VIDEO_FOLDER + clip.name, clip.file
            yield f"{LABEL_FOLDER}{clip.stem}.txt", clip.line


def labels(tree: Tree) -> dict[str, list[str]]:
    """Video -> the text of its name in a folder of labels that lies beside its own, at any depth, or inside it.

    "train/videos/x/a.mp4" -> ["train/labels/x/a.txt"]. Where several folders hold such a video, that of the folder
    `videos` is meant.
    """
    if "labels" not in tree.read:
        found = defaultdict[str, list[str]](list)
        beside = _beside(tree)
        texts = [
            text
            for text in tree.texts
            if text.lower().endswith(SIDECAR_SUFFIXES)
            and text not in beside
            and {*_parts(text)[:-1]} & {*LABEL_FOLDERS}
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
            if len({without_suffix(name) for name, _ in fits}) == 1:
                for name in dict.fromkeys(name for name, _ in fits):
                    found[name].append(text)
        tree.read["labels"] = {name: found[name] for name in tree.named if name in found}
    found_before: dict[str, list[str]] = tree.read["labels"]
    return found_before


def _parts(name: str) -> tuple[str, ...]:
    """The folders of a file and its name without the ending, as they are compared."""
    return tuple(_spelled(without_suffix(name)).casefold().split("/"))


def _beside(tree: Tree) -> set[str]:
    return {text for texts in sidecars(tree).values() for text in texts}


class Lists(Layout):
    """Lists of equal length, a line a clip."""

    name = "lists"
    title = "Lists prompts.txt and videos.txt"
    pictures = True
    description = (
        "A line a clip: its caption in prompts.txt, its path in videos.txt and, for image-to-video, the path of its "
        "first frame in images.txt. Read by the trainers of the diffusers examples."
    )
    reads = "lists"

    def recognise(self, tree: Tree) -> bool:
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


def _lists(tree: Tree) -> list[_ListFiles]:
    """The lists that belong together, of every folder that has a pair of them."""
    if "lists" not in tree.read:
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
        tree.read["lists"] = found
    lists: list[_ListFiles] = tree.read["lists"]
    return lists


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
