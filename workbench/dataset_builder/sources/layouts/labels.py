"""Two folders side by side, videos/ and labels/: a text file of the same name for each video (the "SAT" trainers)."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.dataset_builder.sources.layouts.base import ExportedClip, Layout, LayoutWriter, Problem, ReadingNotes
from workbench.dataset_builder.sources.text import one_line
from workbench.dataset_builder.sources.tree import Tree, without_suffix

VIDEOS, LABELS = "videos/", "labels/"


class Labels(Layout):
    name = "labels"
    title = "Folders videos and labels"
    description = "Each caption is in a text file of the video's name in another folder: videos/a.mp4 and labels/a.txt."

    def recognise(self, tree: Tree) -> bool:
        return bool(_labels(tree)) and any(name.startswith(VIDEOS) for name in tree.media)

    def captions(self, tree: Tree, report: ReadingNotes) -> dict[str, str]:
        labels = _labels(tree)
        found = {}
        for name in tree.media:
            if name.startswith(VIDEOS):
                stem = without_suffix(name.removeprefix(VIDEOS))
                if text := tree.text(labels.pop(stem)) if stem in labels else "":
                    found[name] = report.clean(name, text)
        for name in labels.values():
            report.add(Problem.NO_VIDEO, name)
        return found

    def write(self, items: Sequence[ExportedClip], writer: LayoutWriter, first_frames: bool) -> None:
        for item in items:
            writer.file(VIDEOS + item.name, item.file)
            writer.text(f"{LABELS}{item.stem}.txt", one_line(item.caption) + "\n")


def _labels(tree: Tree) -> dict[str, str]:
    """ "a" -> "labels/a.txt"."""
    return {
        without_suffix(name.removeprefix(LABELS)): name
        for name in tree.files
        if name.startswith(LABELS) and name.endswith(".txt")
    }
