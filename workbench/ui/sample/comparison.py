"""Chosen samples side by side, all on one clock: the player of grids, with a button that closes it.

The browser's half is assets/sample_comparison.js around assets/grid.js.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.compare.snapshot import side_by_side
from workbench.paths import ASSETS
from workbench.sampler.samples import Sample
from workbench.ui.core import render
from workbench.ui.core.widgets import component

NOTHING: dict[str, Any] = {"grid": ""}


class SideBySide:
    """Builds the component, which is hidden until samples are given to it (`value`)."""

    def __init__(self) -> None:
        grid = (ASSETS / "grid.js").read_text(encoding="utf-8")
        player = f"const player = (element, trigger, props, server, watch) => {{\n{grid}\n}};\n"
        self.component = component("sample-comparison", NOTHING, player + render.script("sample_comparison"), "grid")

    def value(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """The component's value. Raises ConfigError for fewer or more samples than fit."""
        return side_by_side(samples, render.url)
