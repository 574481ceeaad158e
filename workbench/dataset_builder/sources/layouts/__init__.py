"""Common layouts of video datasets, and which of them match a tree."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.dataset_builder.sources.layouts.base import Layout, Problem, ReadingNotes
from workbench.dataset_builder.sources.layouts.tables import Csv, DiffSynth, LtxTrainer, Musubi, VideoFolder, VideoXFun
from workbench.dataset_builder.sources.layouts.text_files import Labels, Lists, Sidecars, WebDatasetShards
from workbench.dataset_builder.sources.tree import Tree
from workbench.errors import ConfigError

# The most specific first. Text files beside videos occur in most other layouts too.
LAYOUTS: tuple[Layout, ...] = (
    *(Lists(), Labels(), VideoXFun(), Musubi(), LtxTrainer(), DiffSynth()),
    *(VideoFolder(), Csv(), WebDatasetShards(), Sidecars()),
)
# What layouts read, in order of precedence -> wording in messages.
PRECEDENCE = {
    "lists": "in a list",
    "labels": "among the labels",
    "texts": "next to it",
    "tables": "in a table",
    "around": "next to the archive",
}


def captions_of(tree: Tree, layouts: Sequence[Layout], notes: ReadingNotes) -> dict[str, str]:
    """Read file name -> caption with several layouts, each of which may have captions for some of the files.

    If a file has several captions, the order of PRECEDENCE decides. Files in archives inside the tree are included.
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
    """Return the layout with this name. Raises ConfigError."""
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    raise ConfigError(f"layout is {name!r}, must be one of {', '.join(layout.name for layout in LAYOUTS)}")
