"""A grid's videos in a notebook: one by one while they are drawn, then in lock-step by the page's own player.

The player travels inside the notebook's page as a frame of its own, for the page cannot reach the kernel's files
everywhere. Not covered: asking for videos (grid_panel), saying what is good (grid_judging).
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.compare import Cell, CellState, Grid, GridState, html_page
from workbench.compare.grid import MEASURING
from workbench.compare.view import heads, shape
from workbench.notebook import rendering

PLAYER_LIMIT = 48 * 1024 * 1024  # bytes of videos; a page that carries more gets slow to open
TILE = 176  # pixels that a video is wide while the grid is drawn
LOWEST, ROW, HIGHEST = 420, 240, 860  # pixels of the player's height: at least, more for each row, at most
TOO_LARGE = (
    "These videos are too large to be played together inside a notebook: export the grid as a page or a video, or open "
    "it in the web app."
)


class GridView:
    """The videos of a grid. `show` brings it up to date and sends only what is new."""

    def __init__(self) -> None:
        self.player = widgets.HTML()
        self.videos = widgets.GridBox([], layout=widgets.Layout(grid_gap="6px", overflow="auto"))
        self.box = widgets.VBox([self.videos, self.player])
        self._plan: Any = None
        self._cells: dict[str, tuple[widgets.HTML, Any]] = {}
        self._played: Any = None

    def clear(self) -> None:
        """Show nothing."""
        self._plan = self._played = None
        self._cells, self.videos.children, self.player.value = {}, (), ""

    def show(self, grid: Grid, view: GridState) -> None:
        """Show the grid as it is now. Raises OSError for a video that goes meanwhile."""
        drawn = [cell for cell in view.all if cell.video]
        # With the numbers that are being measured the player would be made anew, and begin anew.
        rests = bool(drawn) and not view.going and (view.measured or not _measures(grid))
        small = sum(cell.video.stat().st_size for cell in drawn if cell.video) <= PLAYER_LIMIT
        if rests and small:
            self._play(grid, view)
        else:
            self._lay_out(grid, view)
        if rests and not small:
            self.player.value = rendering.note(TOO_LARGE)

    def _play(self, grid: Grid, view: GridState) -> None:
        shown = (grid.folder, view.title, view.plan, [_mark(cell, with_numbers=True) for cell in view.all])
        if shown == self._played:
            return
        page = "".join(html_page.page(grid, view))
        height = min(HIGHEST, LOWEST + ROW * (len(view.rows) - 1))
        self.clear()
        self._played = shown
        self.player.value = (
            f'<iframe srcdoc="{rendering.escaped(page)}" title="{rendering.escaped(view.title)}" '
            f'style="width:100%;height:{height}px;border:0;resize:vertical" allowfullscreen></iframe>'
        )

    def _lay_out(self, grid: Grid, view: GridState) -> None:
        """A cell each, of which only those that changed are sent."""
        plan = (grid.folder, view.plan)
        if plan != self._plan:
            self.clear()
            self._plan = plan
            self._cells = {cell.key: (widgets.HTML(), None) for cell in view.all}
            head = [widgets.HTML(_said(" · ".join(texts))) for texts in _heads(view)]
            lines: list[widgets.Widget] = [widgets.HTML(), *head]
            for row, cells in zip(view.rows, view.cells, strict=True):
                lines += [widgets.HTML(_said(f"{row.prompt} {row.label}")), *(self._cells[one.key][0] for one in cells)]
            self.videos.layout.grid_template_columns = f"140px repeat({len(view.columns)}, {TILE}px)"
            self.videos.children = tuple(lines)
        width = shape(grid.base)["width"]
        for cell in view.all:
            widget, known = self._cells[cell.key]
            if (now := _mark(cell)) != known:
                widget.value = _drawn(cell, width)
                self._cells[cell.key] = (widget, now)


def _heads(view: GridState) -> list[list[str]]:
    """The words above each column, those of the outer line first."""
    spread = [[head["text"] for head in line for _ in range(head["span"])] for line in heads(view)]
    return [[text for text in column if text] for column in zip(*spread, strict=True)]


def _mark(cell: Cell, with_numbers: bool = False) -> Any:
    """Changes when the cell looks different."""
    video = cell.video.stat().st_mtime_ns if cell.video else None
    return cell.key, cell.state, cell.step, cell.message, video, cell.numbers if with_numbers else None


def _drawn(cell: Cell, width: int) -> str:
    if cell.video:
        return rendering.video(cell.video, TILE, width)
    if cell.state is CellState.DRAWING and cell.total:
        rough = rendering.picture(cell.picture, "", TILE) if cell.picture else ""
        return rough + rendering.note(f"step {cell.step} of {cell.total}")
    return rendering.note(
        f"{cell.state}. {cell.message}" if cell.message else str(cell.state),
        "error" if cell.state is CellState.FAILED else "plain",
    )


def _said(text: str) -> str:
    return f'<div style="line-height:1.3;overflow-wrap:anywhere">{rendering.escaped(text)}</div>'


def _measures(grid: Grid) -> bool:
    return jobs.status(grid.folder / MEASURING).state.alive
