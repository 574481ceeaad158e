"""The parts of a run's page, each of which updates at its own pace: state, previews, curves, log.

`runs show` returns all of it at once, for programs. The parts here avoid sending unchanged data again, and all watchers
of a run share one reader of its files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field

from workbench import jobs
from workbench.display.quantities import moment
from workbench.errors import ConfigError, WorkbenchError
from workbench.fit.estimate import estimate
from workbench.jobs.log import LOG
from workbench.operations.registry import operation
from workbench.operations.run_list import Name, Names
from workbench.operations.runs import RunFacts
from workbench.paths import without_folders
from workbench.runs.checkpoints import folder_of
from workbench.runs.failures import LOG_LINES
from workbench.runs.report import REPORT
from workbench.runs.run import EXPORT, Run, forks_of
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, SnapshotReader, verdict_of
from workbench.runs.view import compared_charts, drawn, main_charts, more_charts, videos
from workbench.snapshots import Snapshot, Values
from workbench.workspace import Workspace
from workbench.workspace.records import Kept

FRESH_SECONDS = 0.5
KEPT_RUNS = 24  # runs whose readers are kept
DISTINCT = 300  # points that can be told apart in a chart
MOST_COMPARED = 8  # lines that can be told apart in a chart
RECENT_SECONDS = 86400.0  # how long `endings` lists a run that is over
MOST_TEXT = 200  # characters in a notification
Records = tuple[dict[str, Any], ...]


class _Reader:
    """The reader of a run, shared by several parts and tabs."""

    def __init__(self, run: Run) -> None:
        self._reader, self._lock = SnapshotReader(run), threading.Lock()
        self._until = 0.0
        self._seen: RunSnapshot

    def read(self) -> RunSnapshot:
        with self._lock:
            if time.monotonic() > self._until:
                began = time.monotonic()
                self._seen = self._reader.read()
                ended = time.monotonic()
                self._until = ended + max(FRESH_SECONDS, 5 * (ended - began))
            return self._seen


_readers: dict[str, _Reader] = {}
_lock = threading.Lock()


def seen(workspace: Workspace, name: str) -> RunSnapshot:
    """Return a run's snapshot, at most half a second old unless reading it is slow. Raises Unknown."""
    run = Run.open(workspace, name)
    with _lock:
        reader = _readers.pop(str(run.folder), None) or _Reader(run)
        _readers[str(run.folder)] = reader
        for oldest in list(_readers)[:-KEPT_RUNS]:
            del _readers[oldest]
    return reader.read()


# ---- state and checkpoints


class RunState(RunFacts):
    """The state of a run: what it is doing, how well it is going, and what you can do with it."""

    alive: bool
    """Whether it is running or waiting to run."""

    share: float | None
    """Share of its steps that is done, 0 to 1; null while unknown."""

    step_seconds: float | None
    """Duration of one step in seconds; null while unknown."""

    time_left: str
    """Time left, in words; "" while unknown."""

    started_at: float | None
    """When it started, as Unix time; null until then."""

    ended_at: float | None
    """When it ended, as Unix time; null until then."""

    verdict: Values | None
    """The verdict on the run: tone, claim, evidence, action (kind, label, settings, step; null for none)."""

    checkpoints: Records
    """For each checkpoint, newest first: step, bytes, reasons, held_out, change, drift, starred, best, file (its LoRA,
    or null)."""

    log: str
    """The last lines of its log if it failed; otherwise ""."""

    model: str
    """Name of its model; "" if its settings cannot be read."""

    dataset: str
    """Name of its dataset; "" if its settings cannot be read."""

    target: str
    """The target it trains on; "" for this machine."""

    report: dict[str, Any] | None
    """Its newest report: file, written (the date in words); null if there is none."""

    tracker: dict[str, Any] | None
    """Its experiment tracker: text, frame (the address of its dashboard relative to the page, or null)."""


@operation(shell=False, watch=True)
def state(workspace: Workspace, name: Name) -> RunState:
    """Show the state of a run without its videos and curves: what it is doing, how well, and what to do next."""
    now = seen(workspace, name)
    status, verdict, settings = now.status, verdict_of(now), now.settings
    if verdict and settings and now.waits:
        with contextlib.suppress(WorkbenchError):  # keep the verdict's own evidence if there is no estimate
            verdict = replace(verdict, evidence=estimate(workspace, settings).summary)
    report = now.run.folder / REPORT
    # Before the first step, the job's progress counts encoded clips, not steps.
    begun = bool(now.curves.last) or (settings is not None and status.total == settings.steps)
    steps = status.total if begun else settings.steps if settings and not settings.epochs else None
    return RunState.from_objects(
        now,
        steps=steps,
        alive=status.state.alive,
        share=now.share if begun or not status.state.alive or now.waits else None,
        step_seconds=now.curves.last.get("seconds"),
        started_at=status.started_at,
        ended_at=None if status.state.alive else status.ended_at,
        verdict=verdict,
        checkpoints=_checkpoints(now),
        log=now.failure.tail if now.failure else "",
        model=settings.model if settings else "",
        dataset=settings.dataset if settings else "",
        target=now.run.target,
        report={"file": str(report), "written": moment(report.stat().st_mtime)} if report.exists() else None,
        tracker=_tracker(now.run, settings) if settings else None,
    )


def _checkpoints(now: RunSnapshot) -> Records:
    """Return the checkpoints, newest first, with the measurements at their steps."""
    found = []
    for one in reversed(now.checkpoints):
        change, drift = now.curves.changes.get(one.step, (None, None))
        file = folder_of(now.run.folder, one.step) / EXPORT
        found.append(
            {
                **asdict(one),
                "change": change,
                "drift": drift,
                "starred": "starred" in one.reasons,
                "best": one.step == now.best_step,
                "file": str(file) if file.exists() else None,
            }
        )
    return tuple(found)


TRACKIO = "trackio"  # address of its dashboard, relative to the page
ADVICE = {
    "tensorboard": "To view this run in TensorBoard, run: tensorboard --logdir {runs}",
    "wandb": "View this run on the Weights & Biases site. To upload offline data, run: "
    "wandb sync {run}/wandb/offline-*",
    "comet_ml": "View this run on the Comet site. To upload offline data, run: comet upload {run}/comet_ml/*.zip",
}


def _tracker(run: Run, settings: TrainSettings) -> dict[str, Any] | None:
    if settings.tracker == "none":
        return None
    named = [*ADVICE, "trackio"] if settings.tracker == "all" else [settings.tracker]
    texts = [ADVICE[name].format(runs=run.folder.parent, run=run.folder) for name in named if name in ADVICE]
    installed = "trackio" in named and importlib.util.find_spec("trackio") is not None
    if settings.tracker == "trackio" and not installed:
        texts.append("trackio is not installed on the server of this page: pip install trackio")
    return {
        "text": " ".join(texts),
        "frame": f"{TRACKIO}/?project={quote(settings.tracker_project)}" if installed else None,
    }


# ---- previews


class RunVideos(Snapshot):
    """The videos of a run."""

    width: int
    """Width of its videos in pixels; 0 while unknown."""

    height: int
    """Height of its videos in pixels; 0 while unknown."""

    frames: int
    """Number of frames in each video; 0 while unknown."""

    steps: tuple[int, ...]
    """Steps with previews. Step 0 is the base model."""

    rows: Records
    """For each prompt: prompt, control (whether it is a preservation prompt), videos (one for each of `steps`, or
    null), sample (the newest video that includes its settings, for `samples/read-file`; or null), told (what the model
    was given and from which clip; or "")."""

    scaled: dict[str, Any] | None
    """The newest previews at several LoRA scales: step, scales, rows (prompt, videos); null if there are none."""

    live: Records
    """Live samples, newest first: prompt, facts, video."""

    inputs: Records
    """Training clips as the model sees them: caption, clip, reconstruction (null if it was not kept)."""

    note: str
    """Why previews are missing or not decoded; "" if none are."""

    every: int
    """Steps between previews; 0 for no previews."""

    last: int
    """The run's last step, which also has previews."""

    coming: tuple[int, ...]
    """The next steps with previews while it is running; otherwise []."""

    preview_seconds: float | None
    """Estimated duration of generating one video in seconds; null while unknown."""


@operation(shell=False, watch=True)
def previews(workspace: Workspace, name: Name) -> RunVideos:
    """Show the videos of a run: previews by step, live samples, training inputs."""
    now, cost = seen(workspace, name), None
    if (settings := now.settings) and settings.preview_every:
        with contextlib.suppress(WorkbenchError):  # there may be no estimate
            spent = estimate(workspace, settings).times.parts.get("previews", 0.0)
            times = settings.steps // settings.preview_every + 1
            cost = round(spent / times / settings.previews_at_once, 1) or None
    return RunVideos(**videos(now), preview_seconds=cost)


# ---- curves


class Charts(Snapshot):
    """Charts, ready to draw."""

    charts: Records
    """For each chart: title, note, small (true for one of many), lines (name, points, tone, style, marked, end). Points
    are [step, value]."""

    note: str
    """Why there are no charts; "" if there are."""


def _watched_curves(workspace: Workspace, name: str, more: bool = False) -> Callable[[], Charts]:
    """Watch a run's charts. They change after a measurement, or after enough steps to move a line by a pixel or two."""
    kept = Kept[Charts]()

    def read() -> Charts:
        now = seen(workspace, name)
        curves, step = now.curves, now.step
        width = 1 << max(0, (step // DISTINCT).bit_length() - 1)
        alive = now.status.state.alive
        mark = (
            alive,
            len(curves.held_out),
            len(curves.changes),
            len(curves.points),
            now.best_step,
            step // width if alive else step,
        )

        def charts() -> Charts:
            return Charts(**drawn(more_charts(curves) if more else main_charts(curves, now.best_step, now.forecast)))

        return kept.of(name, mark, charts)

    return read


@operation(shell=False, watch=_watched_curves)
def curves(
    workspace: Workspace,
    name: Name,
    *,
    more: Annotated[bool, Field(description="Show the less important charts instead of the main ones.")] = False,
) -> Charts:
    """Show a run's curves with at most 1,000 points each."""
    return _watched_curves(workspace, name, more)()


@operation(path="/run-curves", shell=False)
def compared(workspace: Workspace, names: Names) -> Charts:
    """Show the curves of several runs in the same charts."""
    if len(names) > MOST_COMPARED:
        raise ConfigError(f"{len(names)} runs are chosen, but charts can show at most {MOST_COMPARED}: choose fewer")
    return Charts(**drawn(compared_charts([(name, seen(workspace, name).curves) for name in dict.fromkeys(names)])))


# ---- log, settings, notifications


class Log(Snapshot):
    """The end of a run's log."""

    tail: str
    """Its last lines; "" if there are none yet."""

    file: str | None
    """Path of the whole log; null if there is none yet."""


@operation(shell=False, watch=True)
def log(workspace: Workspace, name: Name) -> Log:
    """Show the end of a run's log."""
    folder = Run.open(workspace, name).folder
    file = folder / LOG
    return Log(tail=jobs.log_tail(folder, LOG_LINES), file=str(file) if file.exists() else None)


class RunSettings(Snapshot):
    """The settings of a run, with its checkpoints and forks."""

    settings: dict[str, Any]
    """Settings that differ from their defaults."""

    checkpoints: tuple[int, ...]
    """Steps of its checkpoints, oldest first."""

    forks: tuple[str, ...]
    """Runs that were forked from it."""


@operation(shell=False)
def settings(workspace: Workspace, name: Name) -> RunSettings:
    """Show the settings of a run that differ from their defaults."""
    run = Run.open(workspace, name)
    given = run.settings.model_dump(mode="json", exclude_defaults=True)
    return RunSettings(settings=given, checkpoints=tuple(run.checkpoints), forks=tuple(forks_of(workspace, name)))


class Ending(Snapshot):
    """A run that is alive or ended recently, with the text of its notification."""

    name: str
    """Name of the run."""

    ended: bool
    """Whether it has ended."""

    mark: str
    """A text that changes when the run starts and when it ends."""

    title: str
    """Title of the notification."""

    body: str
    """Text of the notification."""


@operation(path="/run-endings", shell=False)
def endings(workspace: Workspace) -> list[Ending]:
    """List the runs that are alive or ended in the last day, for notifications."""
    since = time.time() - RECENT_SECONDS
    found = []
    for one in jobs.jobs_in(workspace.runs):
        over = not one.state.alive
        if not over or (one.ended_at or 0) > since:
            mark = f"{one.state} {one.ended_at}" if over else f"began {one.started_at}"
            text = without_folders(one.message)[:MOST_TEXT]
            found.append(Ending(name=one.name, ended=over, mark=mark, title=f"{one.name}: {one.state}", body=text))
    return found
