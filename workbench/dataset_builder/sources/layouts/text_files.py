"""Layouts with captions in text files: beside each video, in a folder of their own, or in a list with a line a clip."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.clips import media
from workbench.dataset_builder.sources.layouts.base import (
    ExportedClip,
    ExportedFiles,
    Layout,
    Problem,
    ReadingNotes,
)
from workbench.dataset_builder.sources.tree import Tree, without_suffix

CAPTION_SUFFIXES = (".txt", ".caption")
VIDEO_FOLDER, LABEL_FOLDER = "videos/", "labels/"
VIDEOS, IMAGES = "videos.txt", "images.txt"
PROMPTS = ("prompts.txt", "prompt.txt", "captions.txt")


class Sidecars(Layout):
    """Also videos without captions."""

    name = "sidecars"
    title = "A .txt file beside each video"
    description = (
        "Each caption is in a text file of the video's name beside it: a.mp4 and a.txt. Read by kohya's scripts, "
        "diffusion-pipe, finetrainers and most other tools."
    )

    def recognise(self, tree: Tree) -> bool:
        return bool(tree.media)

    def captions(self, tree: Tree, report: ReadingNotes) -> dict[str, str]:
        found = {name: report.clean(name, text) for name in tree.media if (text := sidecar(tree, name))}
        if tree.whole:
            stems = {without_suffix(name) for name in tree.media}
            for name in tree.files:
                if name.endswith(CAPTION_SUFFIXES) and without_suffix(name) not in stems:
                    report.add(Problem.NO_VIDEO, name)
        return found

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield clip.name, clip.file
            yield f"{clip.stem}.txt", clip.line


def sidecar(tree: Tree, name: str) -> str:
    """The text beside a file, "" when there is none."""
    stem = without_suffix(name)
    for suffix in CAPTION_SUFFIXES:
        beside = stem + suffix
        if beside in tree.files and (text := tree.text(beside)).strip():
            return text
    return ""


class Labels(Layout):
    """What the "SAT" trainers read."""

    name = "labels"
    title = "Folders videos and labels"
    description = "Each caption is in a text file of the video's name in another folder: videos/a.mp4 and labels/a.txt."

    def recognise(self, tree: Tree) -> bool:
        return bool(_labels(tree)) and any(name.startswith(VIDEO_FOLDER) for name in tree.media)

    def captions(self, tree: Tree, report: ReadingNotes) -> dict[str, str]:
        labels = _labels(tree)
        found = {}
        for name in tree.media:
            if name.startswith(VIDEO_FOLDER):
                stem = without_suffix(name.removeprefix(VIDEO_FOLDER))
                if text := tree.text(labels.pop(stem)) if stem in labels else "":
                    found[name] = report.clean(name, text)
        for name in labels.values():
            report.add(Problem.NO_VIDEO, name)
        return found

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield VIDEO_FOLDER + clip.name, clip.file
            yield f"{LABEL_FOLDER}{clip.stem}.txt", clip.line


def _labels(tree: Tree) -> dict[str, str]:
    """ "a" -> "labels/a.txt"."""
    return {
        without_suffix(name.removeprefix(LABEL_FOLDER)): name
        for name in tree.files
        if name.startswith(LABEL_FOLDER) and name.endswith(".txt")
    }


class Lists(Layout):
    """Lists of equal length, a line a clip."""

    name = "lists"
    title = "Lists prompts.txt and videos.txt"
    pictures = True
    description = (
        "A line a clip: its caption in prompts.txt, its path in videos.txt and, for image-to-video, the path of its "
        "first frame in images.txt. Read by the trainers of the diffusers examples."
    )

    def recognise(self, tree: Tree) -> bool:
        return VIDEOS in tree.files and any(name in tree.files for name in PROMPTS)

    def captions(self, tree: Tree, report: ReadingNotes) -> dict[str, str]:
        names = _lines(tree, VIDEOS, 0)
        list_of_prompts = next((name for name in PROMPTS if name in tree.files), "")
        texts = _lines(tree, list_of_prompts, len(names)) if list_of_prompts else []
        if len(texts) != len(names):
            report.add(Problem.UNPAIRED, f"{VIDEOS} ({len(names)} lines), {list_of_prompts} ({len(texts)} lines)")
            texts = [""] * len(names)
        found: dict[str, str] = {}
        for line, text in zip(names, texts, strict=True):
            name = tree.match(line) if line.strip() else None
            if name is None:
                if line.strip() and tree.whole:
                    report.add(Problem.NO_VIDEO, line.strip())
                continue
            if name in found:
                report.add(Problem.TWICE, name)
            found[name] = report.clean(name, text)
        if IMAGES in tree.files:
            _pair(tree, names, report)
        return found

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        first_frames = first_frames or any(clip.first_frame for clip in clips)
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            if first_frames:
                yield f"images/{clip.stem}.png", clip.first_frame or media.first_frame_png(clip.file)
        yield PROMPTS[0], b"".join(clip.line for clip in clips)
        yield VIDEOS, "".join(f"videos/{clip.name}\n" for clip in clips).encode()
        if first_frames:
            yield IMAGES, "".join(f"images/{clip.stem}.png\n" for clip in clips).encode()


def _pair(tree: Tree, videos: Sequence[str], report: ReadingNotes) -> None:
    """Which picture is the first frame of which video, by line. An empty line leaves its video without one."""
    lines = _lines(tree, IMAGES, len(videos))
    paired = len(lines) == len(videos)
    if not paired:
        counts = f"{VIDEOS} ({len(videos)} lines), {IMAGES} ({len(lines)} lines)"
        report.add(Problem.UNPAIRED_PICTURES, counts)
    for number, line in enumerate(lines):
        picture = tree.match(line) if line.strip() else None
        video = tree.match(videos[number]) if paired and videos[number].strip() else None
        if picture is not None and video is not None:
            report.first_frames[video] = picture
        elif picture is not None:
            report.add(Problem.POSTER, picture)
        elif line.strip() and tree.whole:
            report.add(Problem.NO_PICTURE, line.strip())


def _lines(tree: Tree, name: str, wanted: int) -> list[str]:
    """The lines of a list, without empty ones at its end that are more than wanted; in between, they are captions."""
    lines = tree.text(name).replace("\r\n", "\n").split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    while len(lines) > wanted and not lines[-1].strip():
        lines.pop()
    return lines
