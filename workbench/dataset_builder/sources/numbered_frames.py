"""Folders of numbered pictures that are the frames of one video: walk/frame_0001.png to frame_0024.png.

Such a row is a video only when a person says so, since the photos of a camera are numbered as well. It then stands in
the tree under its folder's name, so that each layout finds its caption as it does for a file. Not covered: reading the
pictures (ingest.animations).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from workbench.dataset_builder.sources.columns import CAPTION_SUFFIXES, IMAGE_SUFFIXES
from workbench.dataset_builder.sources.text import clean_caption
from workbench.dataset_builder.sources.tree import SourceFile, Tree, stem, without_suffix

FEWEST = 5  # pictures in a row
NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>\d+)(?P<ending>\.\w+)", re.DOTALL)
CAPTIONS = ("caption.txt", "prompt.txt", "caption.caption")


@dataclass(frozen=True)
class Row:
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


def rows(tree: Tree) -> list[Row]:
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
    return [Row(folder, names, count[folder] == 1) for folder, names in cut]


def _without_gaps(numbers: dict[int, str]) -> list[tuple[str, ...]]:
    """The pictures parted where a number is missing; pieces of fewer than FEWEST are left out.

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
    return [tuple(piece) for piece in pieces if len(piece) >= FEWEST]


def group(tree: Tree, fps: float) -> None:
    """Put each row of the tree in place of its pictures, as one video of that frame rate."""
    used: set[str] = set()
    for row in rows(tree):
        folder = row.folder.rstrip("/")
        texts = [f"{folder}{end}" for end in CAPTION_SUFFIXES if folder] + [row.folder + name for name in CAPTIONS]
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
        tree.add_video(f"{name}{part}", row.names, source)
    for name in used:
        del tree.files[name]
    tree.forget()
