"""The layouts that the field keeps its video datasets in, and which of them a tree has."""

from __future__ import annotations

from workbench.dataset_builder.sources.layouts.base import Layout
from workbench.dataset_builder.sources.layouts.shards import WebDatasetShards
from workbench.dataset_builder.sources.layouts.tables import Csv, VideoFolder
from workbench.dataset_builder.sources.layouts.text_files import Labels, Lists, Sidecars
from workbench.dataset_builder.sources.tree import Tree
from workbench.errors import ConfigError

# The clearest signs first: text files beside videos are found in most of the others, too.
LAYOUTS: tuple[Layout, ...] = (Lists(), Labels(), VideoFolder(), Csv(), WebDatasetShards(), Sidecars())


def fitting(tree: Tree) -> list[Layout]:
    """The layouts that the tree may be read as, the likeliest first; none when it holds no videos or pictures."""
    return [layout for layout in LAYOUTS if layout.recognise(tree)]


def layout_named(name: str) -> Layout:
    """The layout of that name. Raises ConfigError."""
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    raise ConfigError(f"layout is {name!r}, must be one of {', '.join(layout.name for layout in LAYOUTS)}")
