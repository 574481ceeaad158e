"""The player of a grid as a component: what it shows, and what the browser may ask of it.

The browser's half is assets/grid.js. Not covered: which grid is shown, how one is made (tab, form).
"""

from __future__ import annotations

from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field

from workbench.compare import CellState, Grid, marks
from workbench.compare.view import data, details
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.workspace import Workspace

NOTHING: dict[str, Any] = {"grid": ""}
KEY = r"^[0-9a-f]{0,64}$"


class Asked(BaseModel):
    """A grid, by its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grid: str = Field(max_length=64)


class AskedCell(Asked):
    """One of its videos."""

    key: str = Field(pattern=KEY)


class Mark(AskedCell):
    """A star or a reject, given or taken back; None leaves it."""

    starred: bool | None = None
    rejected: bool | None = None


class Vote(Asked):
    """Two videos whose names were hidden, and the better one; "" for neither."""

    left: str = Field(pattern=KEY)
    right: str = Field(pattern=KEY)
    chosen: str = Field(pattern=KEY)


class Best(Asked):
    """The place of a column."""

    column: int = Field(ge=0, le=10_000)


class Player:
    """Builds the component. Its value is a grid (`value`); its event `use` carries {"grid", "key"}: a video's settings
    are wanted in the Sample tab."""

    def __init__(self, workspace: Workspace, elem_id: str = "grid-player") -> None:
        self.workspace = workspace
        self._kept: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.component = gr.HTML(
            value=NOTHING,
            html_template="",
            css_template=render.style("grid"),
            js_on_load=(render.ASSETS / "grid.js").read_text(encoding="utf-8"),
            apply_default_css=False,
            server_functions=[
                answering("mark", Mark, self.mark),
                answering("vote", Vote, self.vote),
                answering("choose_best", Best, self.choose_best),
                answering("draw", AskedCell, self.draw),
                answering("details", AskedCell, self.details),
            ],
            elem_id=elem_id,
        )

    def value(self, grid: Grid) -> dict[str, Any]:
        """The component's value for a grid; looks after its requests and numbers, too. Raises ConfigError.

        A grid at rest whose files did not change is not looked at again.
        """
        mark = _mark(grid)
        kept = self._kept.get(grid.name)
        if kept is not None and kept[0] == mark:
            return kept[1]
        view = grid.look()
        grid.follow(view)
        shown = data(grid, view, render.url)
        if view.going or not view.measured:
            self._kept.pop(grid.name, None)
        else:
            self._kept[grid.name] = (mark, shown)
        return shown

    # ---- what the browser asks for

    def mark(self, asked: Mark) -> dict[str, Any]:
        """Star or reject a video."""
        self._grid(asked).mark(asked.key, starred=asked.starred, rejected=asked.rejected)
        return {}

    def vote(self, asked: Vote) -> dict[str, Any]:
        """Note a vote; the answer says how the two columns stand now."""
        grid = self._grid(asked)
        grid.vote(asked.left, asked.right, asked.chosen)
        plan = grid.plan
        place = {key: number for keys in plan.keys for number, key in enumerate(keys)}
        found = marks.tallies(plan, grid.marked.votes)
        words = []
        for key in (asked.left, asked.right):
            column, one = plan.columns[place[key]], found[place[key]]
            words.append(f"{column.name}: {one.won} of {one.votes} votes ({one.word})")
        return {"counted": " · ".join(words)}

    def choose_best(self, asked: Best) -> dict[str, Any]:
        """Tell the run which of its checkpoints is the best."""
        return {"said": self._grid(asked).choose_best(asked.column)}

    def draw(self, asked: AskedCell) -> dict[str, Any]:
        """Ask for one video."""
        grid = self._grid(asked)
        grid.ask([asked.key])
        return {"said": ""}

    def details(self, asked: AskedCell) -> dict[str, Any]:
        """The settings that drew a video."""
        return {"details": details(cell_of(self._grid(asked), asked.key))}

    def _grid(self, asked: Asked) -> Grid:
        return Grid.open(self.workspace, asked.grid)


def cell_of(grid: Grid, key: str) -> Any:
    """One of a grid's videos. Raises ConfigError where it shows no such one."""
    cell = grid.look().cell(key)
    if cell is None or cell.state is not CellState.DONE:
        raise ConfigError("that video is no longer in the grid: look at it again")
    return cell


def _mark(grid: Grid) -> tuple[int, ...]:
    """What changes whenever a grid at rest does."""
    names = ("grid.json", "marks.json", "numbers.json", "requests.json", "cells")
    found = []
    for name in names:
        path = grid.folder / name
        found.append(path.stat().st_mtime_ns if path.exists() else 0)
    return tuple(found)
