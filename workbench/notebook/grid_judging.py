"""Say what is good in a grid, in a notebook: stars and rejects, a blind vote between two videos, the best checkpoint.

Not covered: what becomes of it (compare.marks, runs.retention), showing the videos (grid_view).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import ipywidgets as widgets

from workbench.compare import Cell, Grid, GridState, marks
from workbench.compare.view import shape
from workbench.errors import ConfigError
from workbench.notebook import rendering
from workbench.notebook.live import Panel, button, visible, wrapped

WIDE = 300  # pixels of a video in a vote


class JudgingPart(Panel):
    """Three lines of widgets: a video, a vote, a checkpoint."""

    def __init__(self, opened: Callable[[], Grid]) -> None:
        """opened: the grid that is shown, raises ConfigError without one"""
        self._opened = opened
        self._pair: tuple[Cell, Cell] | None = None
        self.video = widgets.Dropdown(options=[], layout=widgets.Layout(width="380px", max_width="100%"))
        self.star_button = button("Star", "It is good; a star is a mark, nothing more", "star", width="90px")
        self.reject_button = button("Reject", "It is bad: votes leave it out", "ban", width="90px")
        self.unmark_button = button("Take back", "Neither star nor reject", width="100px")
        self.vote_button = button(
            "Vote blind", "Two videos of a row without their names: those compared least so far", "eye-slash"
        )
        self.pair = widgets.HTML()
        self.left_button = button("Left is better", "", "arrow-left", width="150px")
        self.neither_button = button("No difference", "", width="130px")
        self.right_button = button("Right is better", "", "arrow-right", width="150px")
        self.column = widgets.Dropdown(options=[], layout=widgets.Layout(width="220px"))
        self.why = widgets.Text(placeholder="why (optional)", layout=widgets.Layout(width="220px"))
        self.best_button = button(
            "This is the best checkpoint", "Star it in its run, and show it there as the best", "trophy"
        )
        self.marked = widgets.HTML()
        for each, action in (
            (self.star_button, lambda: self.mark(starred=True)),
            (self.reject_button, lambda: self.mark(rejected=True)),
            (self.unmark_button, lambda: self.mark(starred=False, rejected=False)),
            (self.vote_button, self.ask),
            (self.left_button, lambda: self.vote(0)),
            (self.neither_button, lambda: self.vote(None)),
            (self.right_button, lambda: self.vote(1)),
            (self.best_button, self.choose_best),
        ):
            each.on_click(self.doing(action))
        self.answers = wrapped(self.left_button, self.neither_button, self.right_button)
        super().__init__([])
        self.box.children = (
            wrapped(self.video, self.star_button, self.reject_button, self.unmark_button),
            wrapped(self.column, self.why, self.best_button),
            wrapped(self.vote_button), self.pair, self.answers, self.said, self.marked,
        )  # fmt: skip
        visible(self.answers, False)

    def show(self, grid: Grid, view: GridState) -> None:
        """List what can be judged, and what was said; what is chosen stays chosen."""
        names = _names(view)
        done = [(names[cell.key], cell.key) for cell in view.all if cell.video]
        columns = [
            (column.name, place) for place, column in enumerate(view.columns) if column.step is not None or column.final
        ]
        for choice, options in ((self.video, done), (self.column, columns if grid.settings.run else [])):
            if list(choice.options) != options:
                chosen, values = choice.value, [value for _, value in options]
                choice.options = options
                choice.value = chosen if chosen in values else next(iter(values), None)
        self.marked.value = "".join(map(rendering.note, _said(grid, view)))
        visible(self.box, bool(done))

    def mark(self, starred: bool | None = None, rejected: bool | None = None) -> None:
        """Mark the chosen video. Raises ConfigError, CannotWrite."""
        if self.video.value is None:
            raise ConfigError("no video is chosen: choose one of the list")
        grid = self._opened()
        grid.mark(self.video.value, starred=starred, rejected=rejected)
        self.show(grid, grid.look())

    def ask(self) -> None:
        """Show two videos of a row without saying which they are. Raises ConfigError where no row has two."""
        grid = self._opened()
        view = grid.look()
        self._pair = least_compared(view, grid.marked)
        self.pair.value = rendering.note(self._pair[0].settings.prompt) + _drawn(grid, self._pair, ("?", "?"))
        visible(self.answers, True)

    def vote(self, better: int | None) -> None:
        """Note the answer, and say which was which. better: 0 left, 1 right, None neither. Raises ConfigError."""
        if self._pair is None:
            raise ConfigError("no two videos are shown: press Vote blind")
        grid, two = self._opened(), self._pair
        grid.vote(two[0].key, two[1].key, "" if better is None else two[better].key)
        view = grid.look()
        columns = _columns(view)
        names = [f"{columns[cell.key]}{' ★' if side == better else ''}" for side, cell in enumerate(two)]
        self.pair.value = _drawn(grid, two, names)
        self._pair = None
        visible(self.answers, False)
        self.show(grid, view)

    def choose_best(self) -> str:
        """Tell the run that the chosen column is its best checkpoint; returns it in words. Raises ConfigError."""
        if self.column.value is None:
            raise ConfigError("no checkpoint is chosen: this grid compares none of a run")
        grid = self._opened()
        said = grid.choose_best(self.column.value, self.why.value.strip())
        self.show(grid, grid.look())
        self.say(said, "good")
        return said


def least_compared(view: GridState, marked: marks.Marks) -> tuple[Cell, Cell]:
    """Two videos of a row that were compared least, sides by chance. Raises ConfigError where no row has two."""
    counts = Counter(frozenset((vote["left"], vote["right"])) for vote in marked.votes)
    pairs = [
        (one, other)
        for row in view.cells
        for line in [[cell for cell in row if cell.video and not cell.rejected]]
        for place, one in enumerate(line)
        for other in line[place + 1 :]
    ]
    if not pairs:
        raise ConfigError("a vote needs two videos in one row: wait until they are drawn")
    least = min(counts[frozenset((one.key, other.key))] for one, other in pairs)
    one, other = random.choice([two for two in pairs if counts[frozenset((two[0].key, two[1].key))] == least])
    return (one, other) if random.random() < 0.5 else (other, one)


def _drawn(grid: Grid, cells: Sequence[Cell], names: Sequence[str]) -> str:
    """Videos side by side, each over its name."""
    width = shape(grid.base)["width"]
    named = zip(cells, names, strict=True)
    return rendering.row([rendering.figure(cell.video, name, WIDE, width) for cell, name in named if cell.video])


def _said(grid: Grid, view: GridState) -> list[str]:
    """What people said of the grid, a sentence each."""
    marked, names = grid.marked, _names(view)
    marks_of = {"Starred": [cell for cell in view.all if cell.starred], "Rejected": [c for c in view.all if c.rejected]}
    lines = [f"{word}: {'; '.join(names[cell.key] for cell in cells)}." for word, cells in marks_of.items() if cells]
    for column, tally in zip(view.columns, marks.tallies(view.plan, marked.votes), strict=True):
        if tally.votes:
            lines.append(f"{column.name}: won {tally.won} of {tally.votes} votes, {tally.word}.")
    if marked.best:
        lines.append(f"Best checkpoint: step {marked.best.get('step')}, {marked.best.get('why', '')}.")
    return lines


def _names(view: GridState) -> dict[str, str]:
    """Key of a video -> its row and column in words."""
    columns = _columns(view)
    return {
        cell.key: " · ".join(filter(None, (row.prompt[:48], row.label, columns[cell.key])))
        for row, cells in zip(view.rows, view.cells, strict=True)
        for cell in cells
    }


def _columns(view: GridState) -> dict[str, str]:
    """Key of a video -> its column in words."""
    return {cell.key: column.name for cells in view.cells for cell, column in zip(cells, view.columns, strict=True)}
