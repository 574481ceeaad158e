"""What the page shows of runs, read from their folders: each line of metrics once, each folder at most twice a second.

However many browser tabs look at a run, its files are read as often as for one. Nothing here is the truth: a server
that starts anew reads the same folders and shows the same. Not covered: how it is drawn (run_view, train_tab).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from workbench import jobs
from workbench.devices import Load, load, pick_device
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.trainer.metrics import METRICS, read_metrics, smooth
from workbench.trainer.runs import Preview, Run
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace

FRESH_SECONDS = 0.5
POINTS = 1000
KEPT_RUNS = 24
T = TypeVar("T")


@dataclass
class Curves:
    """The numbers of a run so far. Lines are read once; a run that went back to a checkpoint is read anew."""

    folder: Path
    losses: dict[int, float] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    held_out: dict[int, float] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    version: int = 0
    _file: int = 0
    _offset: int = 0

    def refresh(self) -> None:
        path = self.folder / METRICS
        file = path.stat().st_ino if path.exists() else 0
        if file != self._file:  # resuming replaces the file
            for numbers in (self.losses, self.rates, self.held_out, self.last):
                numbers.clear()
            self._file, self._offset = file, 0
        lines, self._offset = read_metrics(self.folder, self._offset)
        for line in lines:
            step = int(line["step"])
            if "held_out_loss" in line:
                self.held_out[step] = line["held_out_loss"]
            if "loss" in line:
                self.losses[step], self.last = line["loss"], line
                self.rates[step] = line.get("lr", 0.0)
        self.version += bool(lines)

    def loss_rows(self) -> list[tuple[int, float, str]]:
        """(step, loss, series) to draw, at most POINTS of them."""
        steps = list(self.losses)
        soft = smooth(list(self.losses.values()))
        kept = thinned(list(zip(steps, self.losses.values(), soft, strict=True)), POINTS * 2 // 5)
        measured = thinned(list(self.held_out.items()), POINTS // 5)
        return [
            *((step, raw, "each step") for step, raw, _ in kept),
            *((step, value, "smoothed") for step, _, value in kept),
            *((step, value, "held-out clips") for step, value in measured),
        ]

    def rate_rows(self) -> list[tuple[int, float]]:
        """(step, learning rate) to draw."""
        return thinned(list(self.rates.items()), POINTS // 2)

    @property
    def smoothed(self) -> float | None:
        """The newest smoothed loss."""
        return smooth(list(self.losses.values())[-200:])[-1] if self.losses else None


def thinned(points: list[T], most: int) -> list[T]:
    """Evenly spaced points, first and last among them."""
    if len(points) <= most:
        return points
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment."""

    run: Run
    status: jobs.Status
    settings: TrainSettings | None
    width: int
    curves: Curves
    previews: list[Preview]
    checkpoints: list[int]
    log: str
    lora: Path | None


class Recent(Generic[T]):
    """A value that is worth keeping for a moment, because several browser tabs ask for it at once."""

    def __init__(self, make: Callable[[], T], seconds: float = FRESH_SECONDS) -> None:
        self._make, self._seconds = make, seconds
        self._lock = threading.Lock()
        self._until = 0.0
        self._value: T

    def get(self, now: bool = False) -> T:
        """The value, made anew when it is old, or at once."""
        with self._lock:
            if now or time.monotonic() > self._until:
                self._value = self._make()
                self._until = time.monotonic() + self._seconds
            return self._value


class Live:
    """The runs of a workspace and the load of the machine."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._list = Recent(lambda: jobs.jobs_in(workspace.runs))
        self._load = Recent(self._measure, 1.0)
        self._lock = threading.Lock()
        self._runs: dict[str, Recent[Snapshot]] = {}

    def statuses(self, now: bool = False) -> list[jobs.Status]:
        """Every run, newest first."""
        return self._list.get(now)

    def default(self) -> str | None:
        """The run to show when none was chosen: the newest one that is alive, else the newest."""
        known = self.statuses()
        alive = [status for status in known if status.state.alive]
        return next((status.name for status in [*alive, *known]), None)

    def snapshot(self, name: str | None, now: bool = False) -> Snapshot | None:
        """One run; None when there is none of that name."""
        if not name or name not in {status.name for status in self.statuses()}:
            return None
        with self._lock:
            if name not in self._runs:
                run = Run.open(self.workspace, name)
                curves = Curves(run.folder)
                self._runs[name] = Recent(lambda: _look(run, curves))
                for oldest in list(self._runs)[:-KEPT_RUNS]:
                    del self._runs[oldest]
            recent = self._runs[name]
        return recent.get(now)

    def load(self) -> tuple[str, Load]:
        """The device that jobs take by default, and how busy it is."""
        return self._load.get()

    def _measure(self) -> tuple[str, Load]:
        device = pick_device("auto")
        return device.name, load(device)


def _look(run: Run, curves: Curves) -> Snapshot:
    curves.refresh()
    settings, width = None, 0
    try:
        settings = run.settings
        width = settings.width or find_model(settings.model)[1].width
    except ConfigError:  # a run of a later version, or a model folder that is gone: show what can be shown
        pass
    return Snapshot(
        run,
        run.status,
        settings,
        width,
        curves,
        run.previews,
        run.checkpoints,
        jobs.log_tail(run.folder, 200),
        run.lora,
    )
