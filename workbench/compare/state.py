"""A grid at one moment: the state of each cell, and how long the rest takes. Plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from workbench.compare.axes import Column, GridPlan, Row
from workbench.errors import ConfigError
from workbench.sampler.settings import SampleSettings


class CellState(StrEnum):
    """How far a video of the grid is, derived from files."""

    DONE = "done"
    MISSING = "missing"  # not requested, or cancelled
    WAITING = "waiting"
    GENERATING = "generating"  # or its model is being loaded
    FAILED = "failed"

    @property
    def pending(self) -> bool:
        return self in (CellState.WAITING, CellState.GENERATING)


@dataclass(frozen=True)
class Cell:
    """One video.

    message: why it failed or waits;  preview: a picture of the latents so far
    outdated: generated with a LoRA whose file has changed since
    measurements: as measurements.json keeps them, {} before that
    """

    key: str
    settings: SampleSettings
    state: CellState
    step: int = 0
    total: int = 0
    seconds_left: float | None = None
    message: str = ""
    video: Path | None = None
    preview: Path | None = None
    record: dict[str, Any] = field(default_factory=dict)
    measurements: dict[str, Any] = field(default_factory=dict)
    starred: bool = False
    rejected: bool = False
    outdated: bool = False

    @property
    def incomplete(self) -> bool:
        """Whether `Grid.generate` requests it."""
        return not self.state.pending and (self.state is not CellState.DONE or self.outdated)


@dataclass(frozen=True)
class GridState:
    """A whole grid.

    cells: [row][column];  seconds_left: measured on what is done, None before the first
    references: key -> the video of its row that a cell is measured against, and its version; "" for none (yet)
    """

    name: str
    title: str
    plan: GridPlan
    cells: tuple[tuple[Cell, ...], ...]
    seconds_left: float | None
    references: dict[str, str]

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

    def is_measured(self, cell: Cell) -> bool:
        """Whether its measurements are those of this version of the video and of its reference."""
        return bool(cell.measurements.get("reference") == self.references[cell.key])

    @property
    def measured(self) -> bool:
        """Whether every video that is done was measured."""
        return all(self.is_measured(cell) for cell in self.all if cell.video)

    @property
    def complete(self) -> bool:
        return self.count(CellState.DONE) == len(self.all)

    @property
    def going(self) -> bool:
        return any(cell.state.pending for cell in self.all)

    def cell(self, key: str) -> Cell:
        """The cell of a video. Raises ConfigError where the grid has no such video (yet)."""
        found = next((cell for cell in self.all if cell.key == key and cell.video), None)
        if found is None:
            raise ConfigError(f"the grid {self.name} has no such video: choose one that is done")
        return found


def work(settings: SampleSettings, steps: int) -> float:
    """Passes of the model that a video takes; a guided step takes two."""
    guided = settings.guidance_scale is None or settings.guidance_scale > 1
    return (settings.steps or steps) * (2 if guided else 1)


def seconds_left(cells: Iterable[Cell], steps: int, gaps: Sequence[float]) -> float | None:
    """Seconds for what is pending, at the pace of what is done; None before the first.

    steps: the model's own number;  gaps: seconds from one finished video to the next, decoding and writing included
    """
    every = list(cells)
    done = [cell for cell in every if cell.state is CellState.DONE]
    waiting = [cell for cell in every if cell.state.pending]
    if not waiting or not done:
        return None
    passes = sum(work(cell.settings, steps) for cell in done)
    seconds = sum(float(cell.record.get("seconds", 0.0)) for cell in done)
    # A gap counts when it is about as long as a video takes: a longer one is a pause of the queue.
    alone = seconds / len(done)
    near = [gap for gap in gaps if gap < 3 * alone + 5]
    more = max(1.0, (sum(near) / len(near)) / alone) if near and alone else 1.0
    pace = more * seconds / passes
    left = 0.0
    for cell in waiting:
        share = 1 - cell.step / cell.total if cell.total else 1.0
        left += share * work(cell.settings, steps) * pace
    return left
