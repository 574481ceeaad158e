"""The player of a wall as a component: what it shows, and what the browser may ask of it.

The browser's half is assets/wall.js. Not covered: which wall is shown, how one is made (tab, form).
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

NOTHING: dict[str, Any] = {"wall": ""}
KEY = r"^[0-9a-f]{0,64}$"


class Asked(BaseModel):
    """A wall, by its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wall: str = Field(max_length=64)


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
    """Builds the component. Its value is a wall (`value`); its event `use` carries {"wall", "key"}: a video's settings
    are wanted in the Sample tab."""

    def __init__(self, workspace: Workspace, elem_id: str = "wall-player") -> None:
        self.workspace = workspace
        self._kept: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.component = gr.HTML(
            value=NOTHING,
            html_template="",
            css_template=render.style("walls"),
            js_on_load=(render.ASSETS / "wall.js").read_text(encoding="utf-8"),
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

    def value(self, wall: Grid) -> dict[str, Any]:
        """The component's value for a wall; looks after its requests and numbers, too. Raises ConfigError.

        A wall at rest whose files did not change is not looked at again.
        """
        mark = _mark(wall)
        kept = self._kept.get(wall.name)
        if kept is not None and kept[0] == mark:
            return kept[1]
        view = wall.look()
        wall.follow(view)
        shown = data(wall, view, render.url)
        if view.going or not view.measured:
            self._kept.pop(wall.name, None)
        else:
            self._kept[wall.name] = (mark, shown)
        return shown

    # ---- what the browser asks for

    def mark(self, asked: Mark) -> dict[str, Any]:
        """Star or reject a video."""
        self._wall(asked).mark(asked.key, starred=asked.starred, rejected=asked.rejected)
        return {}

    def vote(self, asked: Vote) -> dict[str, Any]:
        """Note a vote; the answer says how the two columns stand now."""
        wall = self._wall(asked)
        wall.vote(asked.left, asked.right, asked.chosen)
        laid_out = wall.grid
        place = {key: number for keys in laid_out.keys for number, key in enumerate(keys)}
        found = marks.tallies(laid_out, wall.marked.votes)
        words = []
        for key in (asked.left, asked.right):
            column, one = laid_out.columns[place[key]], found[place[key]]
            words.append(f"{column.name}: {one.won} of {one.votes} votes ({one.word})")
        return {"counted": " · ".join(words)}

    def choose_best(self, asked: Best) -> dict[str, Any]:
        """Tell the run which of its checkpoints is the best."""
        return {"said": self._wall(asked).choose_best(asked.column)}

    def draw(self, asked: AskedCell) -> dict[str, Any]:
        """Ask for one video."""
        wall = self._wall(asked)
        wall.ask([asked.key])
        return {"said": ""}

    def details(self, asked: AskedCell) -> dict[str, Any]:
        """The settings that drew a video."""
        return {"details": details(cell_of(self._wall(asked), asked.key))}

    def _wall(self, asked: Asked) -> Grid:
        return Grid.open(self.workspace, asked.wall)


def cell_of(wall: Grid, key: str) -> Any:
    """One of a wall's videos. Raises ConfigError where it shows no such one."""
    cell = wall.look().cell(key)
    if cell is None or cell.state is not CellState.DONE:
        raise ConfigError("that video is no longer on the wall: look at it again")
    return cell


def _mark(wall: Grid) -> tuple[int, ...]:
    """What changes whenever a wall at rest does."""
    names = ("wall.json", "marks.json", "numbers.json", "requests.json", "cells")
    found = []
    for name in names:
        path = wall.folder / name
        found.append(path.stat().st_mtime_ns if path.exists() else 0)
    return tuple(found)
