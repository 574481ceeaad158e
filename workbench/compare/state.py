"""What a grid shows at one moment: cells with where each is, how long it takes still. Plain data.

Not covered: finding it out (grid), what a browser is sent of it (view).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from workbench.compare.axes import Column, GridPlan, Row
from workbench.sampler.settings import SampleSettings


class CellState(StrEnum):
    """Where a video of the grid is, derived from files."""

    DONE = "done"
    MISSING = "missing"  # not asked for, or asked for and taken back
    WAITING = "waiting"
    DRAWING = "drawing"  # or its model is being loaded
    FAILED = "failed"

    @property
    def pending(self) -> bool:
        return self in (CellState.WAITING, CellState.DRAWING)


@dataclass(frozen=True)
class Cell:
    """One video.

    message: why it failed or waits;  picture: how it looks so far, roughly
    outdated: drawn with a LoRA whose file is another one by now
    numbers: what was measured (see numbers), {} before that
    """

    key: str
    settings: SampleSettings
    state: CellState
    step: int = 0
    total: int = 0
    seconds_left: float | None = None
    message: str = ""
    video: Path | None = None
    picture: Path | None = None
    record: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    starred: bool = False
    rejected: bool = False
    outdated: bool = False


@dataclass(frozen=True)
class GridState:
    """A whole grid.

    cells: [row][column];  seconds_left: measured on what is done, None before the first
    measured: whether every video that is done has its numbers;  against: see grid.references
    """

    name: str
    title: str
    plan: GridPlan
    cells: tuple[tuple[Cell, ...], ...]
    seconds_left: float | None
    measured: bool
    against: dict[str, str]

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.plan.rows

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.plan.columns

    @property
    def all(self) -> list[Cell]:
        return [cell for row in self.cells for cell in row]

    def count(self, *states: CellState) -> int:
        """How many videos are in one of these states."""
        return sum(cell.state in states for cell in self.all)

    @property
    def complete(self) -> bool:
        return self.count(CellState.DONE) == len(self.all)

    @property
    def going(self) -> bool:
        return any(cell.state.pending for cell in self.all)

    def cell(self, key: str) -> Cell | None:
        return next((cell for cell in self.all if cell.key == key), None)


def work(settings: SampleSettings, steps: int) -> float:
    """What a video costs beside others of its grid: passes of the model; a guided step takes two."""
    guided = settings.guidance_scale is None or settings.guidance_scale > 1
    return (settings.steps or steps) * (2 if guided else 1)


def seconds_left(cells: Iterable[Cell], steps: int, gaps: Sequence[float]) -> float | None:
    """Seconds for what is pending, at the pace of what is done; None before the first.

    steps: the model's own number;  gaps: seconds from one finished video to the next, decoding and writing included
    """
    every = list(cells)
    done = [cell for cell in every if cell.state is CellState.DONE]
    waiting = [cell for cell in every if cell.state.pending]
    if not waiting:
        return None
    if not done:
        return None
    drawn = sum(work(cell.settings, steps) for cell in done)
    seconds = sum(float(cell.record.get("seconds", 0.0)) for cell in done)
    # A pause between two sittings is no pace: a gap counts when it is about what drawing alone takes.
    alone = seconds / len(done)
    near = [gap for gap in gaps if gap < 3 * alone + 5]
    more = max(1.0, (sum(near) / len(near)) / alone) if near and alone else 1.0
    pace = more * seconds / drawn
    left = 0.0
    for cell in waiting:
        share = 1 - cell.step / cell.total if cell.total else 1.0
        left += share * work(cell.settings, steps) * pace
    return left
