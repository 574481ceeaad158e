"""The layouts that the field keeps its video datasets in, and which of them a tree has."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.dataset_builder.sources.layouts.base import Layout, Problem, ReadingNotes
from workbench.dataset_builder.sources.layouts.tables import Csv, VideoFolder
from workbench.dataset_builder.sources.layouts.text_files import Labels, Lists, Sidecars, WebDatasetShards
from workbench.dataset_builder.sources.layouts.trainers import DiffSynth, LtxTrainer, Musubi, VideoXFun
from workbench.dataset_builder.sources.tree import Tree
from workbench.errors import ConfigError

# The clearest signs first: text files beside videos are found in most of the others, too.
LAYOUTS: tuple[Layout, ...] = (
    *(Lists(), Labels(), VideoXFun(), Musubi(), LtxTrainer(), DiffSynth()),
    *(VideoFolder(), Csv(), WebDatasetShards(), Sidecars()),
)
# What layouts read, the one that counts first, and how it is called in a message.
PRECEDENCE = {
    "lists": "in a list",
    "labels": "among the labels",
    "texts": "next to it",
    "tables": "in a table",
    "around": "next to the archive",
}


def fitting(tree: Tree) -> list[Layout]:
    """The layouts that the tree may be read as, the likeliest first; none when it holds no videos or pictures."""
    return [layout for layout in LAYOUTS if layout.recognize(tree)]


def captions_of(tree: Tree, layouts: Sequence[Layout], notes: ReadingNotes) -> dict[str, str]:
    """File name -> caption, in the order that the layouts have, each of which may hold captions of some of the files.

    Those of the archives inside the tree are among them. Where a file has captions in several kinds of files, a text
    file beside it counts before a table, and that before what lies around an archive.
    """
    kinds: dict[str, dict[str, str]] = {}
    for layout in layouts:
        if layout.reads not in kinds:
            kinds[layout.reads] = layout.captions(tree, notes)
    kinds["around"] = tree.handed.captions
    media = set(tree.named)
    found = {name: "" for captions in kinds.values() for name in captions if name in media}
    for kind in sorted(kinds, key=list(PRECEDENCE).index):
        for name, caption in kinds[kind].items():
            if name in media and caption and found[name] not in ("", caption):
                notes.add(Problem.DIFFERS, f"{name} ({PRECEDENCE[kind]})")
            elif name in media:
                found[name] = found[name] or caption
    return found


def layout_named(name: str) -> Layout:
    """The layout of that name. Raises ConfigError."""
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    raise ConfigError(f"layout is {name!r}, must be one of {', '.join(layout.name for layout in LAYOUTS)}")
