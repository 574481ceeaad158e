"""Captions in text files beside the videos: kohya's scripts, diffusion-pipe, finetrainers. Also videos without any."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.dataset_builder.sources.layouts.base import ExportedClip, Layout, LayoutWriter, Problem, ReadingNotes
from workbench.dataset_builder.sources.text import one_line
from workbench.dataset_builder.sources.tree import Tree, without_suffix

CAPTION_SUFFIXES = (".txt", ".caption")


class Sidecars(Layout):
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

    def write(self, items: Sequence[ExportedClip], writer: LayoutWriter, first_frames: bool) -> None:
        for item in items:
            writer.file(item.name, item.file)
            writer.text(f"{item.stem}.txt", one_line(item.caption) + "\n")


def sidecar(tree: Tree, name: str) -> str:
    """The text beside a file, "" when there is none."""
    stem = without_suffix(name)
    for suffix in CAPTION_SUFFIXES:
        beside = stem + suffix
        if beside in tree.files and (text := tree.text(beside)).strip():
            return text
    return ""
