"""What the page shows of runs, read from their folders: each line of metrics once, each folder at most twice a second.

However many browser tabs look at a run, its files are read as often as for one. Nothing here is the truth: a server
that starts anew reads the same folders and shows the same. Not covered: what becomes of the metrics (trainer.curves),
how it is drawn (run_view, train_tab).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from workbench import jobs
from workbench.devices import Load, load, pick_device
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.trainer.curves import TIMESTEPS, Curves
from workbench.trainer.runs import Preview, Run
from workbench.trainer.settings import TrainSettings
from workbench.trainer.verdict import Verdict, judge
from workbench.workspace import Workspace

FRESH_SECONDS = 0.5
KEPT_RUNS = 24
T = TypeVar("T")


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
    verdict: Verdict
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
                look = Look(Run.open(self.workspace, name))
                self._runs[name] = Recent(look.now)
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


class Look:
    """Looks at one run again and again, and reads of it only what is new."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._curves = Curves(run.folder, _timesteps(run))
        self._seen: list[tuple[str, int]] = []
        self._previews: list[Preview] = []

    def now(self) -> Snapshot:
        run, curves = self._run, self._curves
        curves.refresh()
        settings, width = None, 0
        try:
            settings = run.settings
            width = settings.width or find_model(settings.model)[1].width
        except ConfigError:  # a run of a later version, or a model folder that is gone: show what can be shown
            pass
        saved = run.checkpoints
        return Snapshot(
            run,
            run.status,
            settings,
            width,
            curves,
            judge(curves, saved),
            self._newest_previews(),
            saved,
            jobs.log_tail(run.folder, 200),
            run.lora,
        )

    def _newest_previews(self) -> list[Preview]:
        """The previews, read again only after a folder of theirs has changed: a long run has thousands."""
        folders = sorted((one.name, one.stat().st_mtime_ns) for one in self._run.folder.glob("previews/step-*"))
        if folders != self._seen:
            self._seen, self._previews = folders, self._run.previews
        return self._previews


def _timesteps(run: Run) -> int:
    try:
        return find_model(run.settings.model)[0].timesteps
    except ConfigError:
        return TIMESTEPS
