"""What the page shows of runs, read from their folders: each line of metrics once, each folder at most twice a second.

However many browser tabs look at a run, its files are read as often as for one. Nothing here is the truth: a server
that starts anew reads the same folders and shows the same. Not covered: the metrics (runs.analysis.curves), how it is
rendered (ui.train).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from workbench import jobs
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs.devices import Load, load, pick_device
from workbench.runs import queue as run_queue
from workbench.runs import retention
from workbench.runs.analysis.curves import TIMESTEPS, Curves
from workbench.runs.analysis.diagnosis import Diagnosis, judge
from workbench.runs.retention import Doomed
from workbench.runs.run import Preview, Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, read_object, step_folders

FRESH_SECONDS = 0.5
KEPT_RUNS = 24
KEPT_TRIES = 12
DECODING = ".decode"  # the folder of a run in which Run.decode_previews works
T = TypeVar("T")


def thinned(points: list[T], most: int) -> list[T]:
    """Evenly spaced points, first and last among them."""
    if len(points) <= most:
        return points
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


@dataclass(frozen=True)
class Kept:
    """Steps of checkpoints that are starred, those that go with the next save, and the one found best by looking."""

    starred: tuple[int, ...] = ()
    doomed: tuple[Doomed, ...] = ()
    chosen: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Scaled:
    """A preview at another strength of the LoRA than 1."""

    step: int
    index: int
    scale: float
    prompt: str
    video: Path


@dataclass(frozen=True)
class ShownVideos:
    """Videos beside the previews, and how many previews are there as latents only.

    inputs: (what a clip is, the clip as it goes in, what the VAE keeps of it)
    tries: what a person asked the living run for, newest first, each with its record
    """

    inputs: tuple[tuple[str, Path, Path], ...] = ()
    scaled: tuple[Scaled, ...] = ()
    tries: tuple[tuple[Path, dict[str, Any]], ...] = ()
    latents: int = 0


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment.

    kept: why checkpoints stay or go;  shown: what lies beside the previews
    queue: the waiting runs, next first;  parent: of a fork, where it began and what differs
    decoding: the job that makes videos of previews kept as latents, None when there is none
    """

    run: Run
    status: jobs.Status
    settings: TrainSettings | None
    width: int
    curves: Curves
    verdict: Diagnosis
    previews: list[Preview]
    checkpoints: list[int]
    kept: Kept
    shown: ShownVideos
    queue: list[str]
    parent: dict[str, Any]
    decoding: jobs.Status | None
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
                began = time.monotonic()
                self._value = self._make()
                ended = time.monotonic()
                # A thousand runs take a while to look at: looking takes a tenth of the time at most.
                self._until = ended + max(self._seconds, 10 * (ended - began))
            return self._value


class Live:
    """The runs of a workspace and the load of the machine."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._list = Recent(lambda: jobs.jobs_in(workspace.runs))
        self._queue = Recent(lambda: run_queue.order(workspace))
        self._load = Recent(self._measure, 1.0)
        self._lock = threading.Lock()
        self._runs: dict[str, Recent[Snapshot]] = {}

    def statuses(self, now: bool = False) -> list[jobs.Status]:
        """Every run, newest first."""
        return self._list.get(now)

    def waiting(self, now: bool = False) -> list[str]:
        """Names of the runs that wait for the device, the next one first."""
        return self._queue.get(now)

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
                look = RunReader(Run.open(self.workspace, name), self._queue)
                self._runs[name] = Recent(look.now)
                for oldest in list(self._runs)[:-KEPT_RUNS]:
                    del self._runs[oldest]
            recent = self._runs[name]
        self.waiting(now)
        return recent.get(now)

    def load(self) -> tuple[str, Load]:
        """The device that jobs take by default, and how busy it is."""
        return self._load.get()

    def _measure(self) -> tuple[str, Load]:
        device = pick_device("auto")
        return device.name, load(device)


class RunReader:
    """Looks at one run again and again, and reads of it only what is new."""

    def __init__(self, run: Run, queue: Recent[list[str]]) -> None:
        self._run, self._queue = run, queue
        self._curves = Curves(run.folder, _timesteps(run))
        self._seen: list[tuple[str, int]] = []
        self._previews: list[Preview] = []
        self._shown = ShownVideos()
        self._kept: tuple[tuple[object, ...], Kept] = ((), Kept())

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
        self._look_at_previews()
        return Snapshot(
            run=run,
            status=run.status,
            settings=settings,
            width=width,
            curves=curves,
            verdict=judge(curves, saved),
            previews=self._previews,
            checkpoints=saved,
            kept=self._keeping(saved) if settings else Kept(),
            shown=self._shown,
            queue=self._queue.get(),
            parent=run.parent,
            decoding=self._decoding(),
            log=jobs.log_tail(run.folder, 200),
            lora=run.lora,
        )

    def _decoding(self) -> jobs.Status | None:
        folder = self._run.folder / DECODING
        return jobs.status(folder) if self._shown.latents and folder.exists() else None

    def _keeping(self, saved: list[int]) -> Kept:
        """Judged again only after something was saved or starred: the best one is found by reading all measurements."""
        starred = tuple(retention.starred(self._run.folder))
        chosen = retention.chosen_best(self._run.folder)
        mark = (tuple(saved), starred, str(chosen))
        if mark != self._kept[0]:
            doomed = tuple(self._run.doomed())
            self._kept = (mark, Kept(starred, doomed, chosen.get("step"), chosen.get("why", "")))
        return self._kept[1]

    def _look_at_previews(self) -> None:
        """Read them again only after a folder of theirs has changed: a long run has thousands."""
        folders = [(one.name, one.stat().st_mtime_ns) for one in step_folders(self._run.folder / "previews").values()]
        if folders != self._seen:
            self._seen, self._previews, self._shown = folders, self._run.previews, shown_beside(self._run.folder)


def shown_beside(run: Path) -> ShownVideos:
    """What lies in a run's folder of previews beside the previews themselves."""
    inputs = []
    for shown in sorted(run.glob("previews/step-00000000/input-*.mp4")):
        back = shown.with_name(shown.name.replace("input-", "reconstruction-"))
        if back.exists():
            inputs.append((str(_record(shown).get("prompt", "")), shown, back))
    scaled, folders = [], step_folders(run / "previews")
    for step, video in ((step, one) for step, place in folders.items() for one in sorted(place.glob("*-scale-*.mp4"))):
        index, _, scale = video.stem.partition("-scale-")
        with contextlib.suppress(ValueError):  # a file of another name
            scaled.append(Scaled(step, int(index), float(scale), str(_record(video).get("prompt", "")), video))
    latents = [one for place in folders.values() for one in place.glob("*.safetensors")]
    latents = [one for one in latents if not one.with_suffix(".mp4").exists()]
    tried = [video for place in folders.values() for video in place.glob("try-*.mp4")]
    videos = sorted(tried, key=lambda video: video.stat().st_mtime, reverse=True)
    tries = tuple((video, _record(video)) for video in videos[:KEPT_TRIES])
    return ShownVideos(tuple(inputs), tuple(scaled), tries, len(latents))


def _record(video: Path) -> dict[str, Any]:
    return read_object(video.with_suffix(".json"))


def _timesteps(run: Run) -> int:
    try:
        return find_model(run.settings.model)[0].timesteps
    except ConfigError:
        return TIMESTEPS
