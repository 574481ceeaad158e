"""Two lists of equal length, prompts.txt and videos.txt: a line a clip (the trainers among the diffusers examples)."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.dataset_builder.sources.layouts.base import ExportedClip, Layout, LayoutWriter, Problem, ReadingNotes
from workbench.dataset_builder.sources.text import one_line
from workbench.dataset_builder.sources.tree import Tree

VIDEOS, IMAGES = "videos.txt", "images.txt"
PROMPTS = ("prompts.txt", "prompt.txt", "captions.txt")


class Lists(Layout):
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
        names = _lines(tree, VIDEOS)
        while names and not names[-1].strip():
            names.pop()
        list_of_prompts = next((name for name in PROMPTS if name in tree.files), "")
        texts = _lines(tree, list_of_prompts) if list_of_prompts else []
        while len(texts) > len(names) and not texts[-1].strip():
            texts.pop()
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

    def write(self, items: Sequence[ExportedClip], writer: LayoutWriter, first_frames: bool) -> None:
        first_frames = first_frames or any(item.first_frame for item in items)
        for item in items:
            writer.file(f"videos/{item.name}", item.file)
            if first_frames:
                writer.picture(f"images/{item.stem}.png", item)
        writer.text(PROMPTS[0], "".join(f"{one_line(item.caption)}\n" for item in items))
        writer.text(VIDEOS, "".join(f"videos/{item.name}\n" for item in items))
        if first_frames:
            writer.text(IMAGES, "".join(f"images/{item.stem}.png\n" for item in items))


def _pair(tree: Tree, videos: Sequence[str], report: ReadingNotes) -> None:
    """Which picture is the first frame of which video, by line. An empty line leaves its video without one."""
    lines = _lines(tree, IMAGES)
    while len(lines) > len(videos) and not lines[-1].strip():
        lines.pop()
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


def _lines(tree: Tree, name: str) -> list[str]:
    """The lines of a list; an empty one in between is an empty caption."""
    lines = tree.text(name).replace("\r\n", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines
