"""The player of a grid as a component: what it is given, and what its half in the browser asks (assets/grid.js)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.compare import Grid
from workbench.compare.export import export_cell
from workbench.compare.snapshot import details_of, snapshot
from workbench.paths import ASSETS
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.widgets import component
from workbench.workspace import Workspace

NOTHING: dict[str, Any] = {"grid": ""}
KEY = r"^[0-9a-f]{0,64}$"


class OfGrid(BaseModel):
    """A request about a grid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grid: str = Field(max_length=64)


class OfCell(OfGrid):
    """A request about one of its videos."""

    key: str = Field(pattern=KEY)


class Mark(OfCell):
    """A star or a reject, given or taken back; None leaves it."""

    starred: bool | None = None
    rejected: bool | None = None


class Vote(OfGrid):
    """Two videos whose names were hidden, and the better one; "" for neither."""

    left: str = Field(pattern=KEY)
    right: str = Field(pattern=KEY)
    chosen: str = Field(pattern=KEY)


class Best(OfGrid):
    """The index of a column."""

    column: int = Field(ge=0, le=10_000)


class Player:
    """Builds the component. Its value is a grid (`value`); its event `use` carries {"grid", "key"}: a video's settings
    are wanted in the Sample tab."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._kept: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.component = component(
            "grid-player",
            NOTHING,
            (ASSETS / "grid.js").read_text(encoding="utf-8"),
            "grid",
            [
                answering("mark", Mark, self.mark),
                answering("vote", Vote, self.vote),
                answering("choose_best", Best, self.choose_best),
                answering("generate", OfCell, self.generate),
                answering("details", OfCell, self.details),
                answering("gif", OfCell, self.gif),
            ],
        )

    def value(self, grid: Grid) -> dict[str, Any]:
        """The component's value for a grid, whose requests and measurements it keeps going. Raises ConfigError.

        A grid at rest is read again only after its files changed.
        """
        version = _version(grid)
        kept = self._kept.get(grid.name)
        if kept is not None and kept[0] == version:
            return kept[1]
        state = grid.state()
        grid.maintain(state)
        value = snapshot(grid, state, render.url)
        if state.going or not state.measured:
            self._kept.pop(grid.name, None)
        else:
            self._kept[grid.name] = (version, value)
        return value

    # ---- requests of the browser

    def mark(self, request: Mark) -> dict[str, Any]:
        """Star or reject a video."""
        self._grid(request).mark(request.key, starred=request.starred, rejected=request.rejected)
        return {}

    def vote(self, request: Vote) -> dict[str, Any]:
        """Note a vote; the answer has the votes of both columns."""
        grid = self._grid(request)
        grid.vote(request.left, request.right, request.chosen)
        found = snapshot(grid)
        keys = next(keys for keys in grid.plan.keys if request.left in keys)
        columns = [found["columns"][keys.index(key)] for key in (request.left, request.right)]
        parts = [f"{one['name']}: {one['won']} of {one['votes']} votes ({one['confidence']})" for one in columns]
        return {"votes": " · ".join(parts)}

    def choose_best(self, request: Best) -> dict[str, Any]:
        """Make a checkpoint the best of its run."""
        return {"message": self._grid(request).choose_best(request.column)}

    def generate(self, request: OfCell) -> dict[str, Any]:
        """Request one video."""
        self._grid(request).generate([request.key])
        return {}

    def details(self, request: OfCell) -> dict[str, Any]:
        """The settings of a video."""
        return {"details": details_of(self._grid(request).state().cell(request.key))}

    def gif(self, request: OfCell) -> dict[str, Any]:
        """A video as GIF; the answer has its address."""
        return {"url": render.url(export_cell(self._grid(request), request.key, "gif"))}

    def _grid(self, request: OfGrid) -> Grid:
        return Grid.open(self.workspace, request.grid)


def _version(grid: Grid) -> tuple[int, ...]:
    """Other numbers whenever the files of a grid at rest change."""
    paths = [grid.folder / name for name in ("grid.json", "marks.json", "measurements.json", "requests.json", "cells")]
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
