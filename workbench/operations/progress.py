"""Progress: what the page of a run shows, in parts that change at their own pace: state, previews, curves, log.

`runs show` has all of it in one answer, for programs. Here nothing long is sent again while it stays the same, and a
run's files are read once for all who watch it.
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
from workbench.operations.registry import Snapshot, operation
from workbench.operations.run_list import Name, Names
from workbench.operations.runs import RunFacts, facts_of
from workbench.paths import without_folders
from workbench.runs.checkpoints import folder_of
from workbench.runs.failures import LOG_LINES
from workbench.runs.report import REPORT
from workbench.runs.run import EXPORT, Run, forks_of
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, SnapshotReader, verdict_of
from workbench.runs.view import compared_charts, drawn, main_charts, more_charts, videos
from workbench.workspace import Workspace
from workbench.workspace.records import Kept

FRESH_SECONDS = 0.5
KEPT_RUNS = 24
DISTINCT = 300  # steps that can be told apart in a chart
MOST_COMPARED = 8  # more runs cannot be told apart by their lines
RECENT_SECONDS = 86400.0  # how long a run that is over is told of
MOST_TEXT = 200  # characters of a notification
Records = tuple[dict[str, Any], ...]


class _Reader:
    """A run's reader, which several parts and tabs share."""

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
    """Return a run as it was half a second ago at most. Raises Unknown."""
    run = Run.open(workspace, name)
    with _lock:
        reader = _readers.pop(str(run.folder), None) or _Reader(run)
        _readers[str(run.folder)] = reader
        for oldest in list(_readers)[:-KEPT_RUNS]:
            del _readers[oldest]
    return reader.read()


# ---- the head of a run, and its checkpoints


class RunState(RunFacts):
    """What a run is doing, how it goes, and what can be done with it."""

    alive: bool
    """Whether it is at work or waits for it."""

    share: float | None
    """The share of its steps that is done; null while unknown."""

    step_seconds: float | None
    """Seconds for one step; null while unknown."""

    time_left: str
    """In words; "" while unknown."""

    started_at: float | None
    """Unix time; null before."""

    ended_at: float | None
    """Unix time; null before."""

    verdict: dict[str, Any] | None
    """What is said of it: tone, claim, evidence, action (kind, label, settings, step; null for none)."""

    checkpoints: Records
    """Step, bytes, reasons, held_out, change, drift, starred, best, file (of its LoRA, or null), the newest first."""

    log: str
    """The last lines of the log of a failed run; "" for others."""

    model: str
    """Name of its model; "" if its settings cannot be read."""

    dataset: str
    """Name of its dataset."""

    target: str
    """Where it trains; "" for this machine."""

    report: dict[str, Any] | None
    """The report that was written last: file, written (a date in words); null before."""

    tracker: dict[str, Any] | None
    """Where its measurements go beside the page: text, and frame (an address below the page's own) or null."""


@operation(shell=False, watch=True)
def state(workspace: Workspace, name: Name) -> RunState:
    """Show what a run is doing, how it goes, and what can be done with it: without videos and curves."""
    now = seen(workspace, name)
    status, verdict, settings = now.status, verdict_of(now), now.settings
    if verdict and settings and now.waits:
        with contextlib.suppress(WorkbenchError):  # where it cannot be estimated, nothing is said of it
            verdict = replace(verdict, evidence=estimate(workspace, settings).summary)
    report = now.run.folder / REPORT
    # Until the first step a job counts clips that it encodes, not steps.
    begun = bool(now.curves.last) or (settings is not None and status.total == settings.steps)
    steps = status.total if begun else settings.steps if settings and not settings.epochs else None
    return RunState(
        **{**facts_of(now), "name": name, "steps": steps},
        alive=status.state.alive,
        share=now.share if begun or not status.state.alive or now.waits else None,
        step_seconds=now.curves.last.get("seconds"),
        time_left=now.time_left,
        started_at=status.started_at,
        ended_at=None if status.state.alive else status.ended_at,
        verdict=asdict(verdict) if verdict else None,
        checkpoints=_checkpoints(now),
        log=now.failure.tail if now.failure else "",
        model=settings.model if settings else "",
        dataset=settings.dataset if settings else "",
        target=now.run.target,
        report={"file": str(report), "written": moment(report.stat().st_mtime)} if report.exists() else None,
        tracker=_tracker(now.run, settings) if settings else None,
    )


def _checkpoints(now: RunSnapshot) -> Records:
    """The checkpoints, with what was measured at their step."""
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


TRACKIO = "trackio"  # below the page's address: its dashboard
ADVICE = {
    "tensorboard": "TensorBoard is a program of its own: tensorboard --logdir {runs}",
    "wandb": "Weights & Biases shows its runs on its own site. Send what was kept offline there: "
    "wandb sync {run}/wandb/offline-*",
    "comet_ml": "Comet shows its runs on its own site. Send what was kept offline there: "
    "comet upload {run}/comet_ml/*.zip",
}


def _tracker(run: Run, settings: TrainSettings) -> dict[str, Any] | None:
    if settings.tracker == "none":
        return None
    named = [*ADVICE, "trackio"] if settings.tracker == "all" else [settings.tracker]
    texts = [ADVICE[name].format(runs=run.folder.parent, run=run.folder) for name in named if name in ADVICE]
    there = "trackio" in named and importlib.util.find_spec("trackio") is not None
    if settings.tracker == "trackio" and not there:
        texts.append("trackio is not installed where this page runs: pip install trackio")
    return {
        "text": " ".join(texts),
        "frame": f"{TRACKIO}/?project={quote(settings.tracker_project)}" if there else None,
    }


# ---- previews


class RunVideos(Snapshot):
    """The videos that a run has made."""

    width: int
    """Width of its videos, in pixels; 0 while unknown."""

    height: int
    """Height of its videos, in pixels; 0 while unknown."""

    frames: int
    """Frames of each video; 0 while unknown."""

    steps: tuple[int, ...]
    """Steps with previews; 0 is the base model."""

    rows: Records
    """Of each prompt: prompt, control (whether the LoRA should leave it alone), videos (one for each of `steps`; null
    where there is none), sample (the newest of them with the settings of a sample, which `samples/read-file` reads;
    null without one), told (what the model was told of which clip; "" for nothing)."""

    scaled: dict[str, Any] | None
    """The newest previews at several LoRA scales: step, scales, rows (prompt, videos); null without any."""

    live: Records
    """Live samples, newest first: prompt, facts, video."""

    inputs: Records
    """Training clips as the model reads them: caption, clip, reconstruction (null where it was not kept)."""

    note: str
    """Why previews are missing or not decoded; "" if there is nothing to say."""

    every: int
    """Steps between previews; 0 for none."""

    last: int
    """The run's last step, at which there are previews, too."""

    coming: tuple[int, ...]
    """The next steps with previews while it runs; otherwise []."""

    preview_seconds: float | None
    """About what one video takes; null while unknown."""


@operation(shell=False, watch=True)
def previews(workspace: Workspace, name: Name) -> RunVideos:
    """Show the videos that a run has made: previews by step, live samples, training inputs."""
    now, cost = seen(workspace, name), None
    if (settings := now.settings) and settings.preview_every:
        with contextlib.suppress(WorkbenchError):  # where it cannot be estimated
            spent = estimate(workspace, settings).times.parts.get("previews", 0.0)
            times = settings.steps // settings.preview_every + 1
            cost = round(spent / times / settings.previews_at_once, 1) or None
    return RunVideos(**videos(now), preview_seconds=cost)


# ---- curves


class Charts(Snapshot):
    """Curves, ready to be drawn."""

    charts: Records
    """Title, note, small (true for one of many), lines: name, points ([step, value]), tone, style, marked, end."""

    note: str
    """Why there is no chart; "" if there are some."""


def _watched_curves(workspace: Workspace, name: str, more: bool = False) -> Callable[[], Charts]:
    """Made again when they would look different: after a measurement, or a step the width of a pixel or two."""
    kept = Kept[Charts]()

    def read() -> Charts:
        now = seen(workspace, name)
        curves, step = now.curves, now.curves.last.get("step", 0)
        width = 1 << max(0, (step // DISTINCT).bit_length() - 1)
        alive = now.status.state.alive
        mark = (alive, len(curves.held_out), len(curves.changes), now.best_step, step // width if alive else step)
        return kept.of(
            name, mark, lambda: Charts(**drawn(more_charts(curves) if more else main_charts(curves, now.best_step)))
        )

    return read


@operation(shell=False, watch=_watched_curves)
def curves(
    workspace: Workspace,
    name: Name,
    *,
    more: Annotated[bool, Field(description="The charts that say less, instead of those that say most.")] = False,
) -> Charts:
    """Show a run's curves, at most 1,000 points each."""
    return _watched_curves(workspace, name, more)()


@operation(path="/run-curves", shell=False)
def compared(workspace: Workspace, names: Names) -> Charts:
    """Show the curves of several runs over one another."""
    if len(names) > MOST_COMPARED:
        raise ConfigError(f"{len(names)} runs are chosen, at most {MOST_COMPARED} can be told apart: choose fewer")
    return Charts(**drawn(compared_charts([(name, seen(workspace, name).curves) for name in dict.fromkeys(names)])))


# ---- log, settings, and runs that end


class Log(Snapshot):
    """The end of a run's log."""

    tail: str
    """Its last lines; "" before the first."""

    file: str | None
    """The whole log; null before the first line."""


@operation(shell=False, watch=True)
def log(workspace: Workspace, name: Name) -> Log:
    """Show the end of a run's log."""
    folder = Run.open(workspace, name).folder
    file = folder / LOG
    return Log(tail=jobs.log_tail(folder, LOG_LINES), file=str(file) if file.exists() else None)


class RunSettings(Snapshot):
    """The settings of a run, for a list of them or for the form of another run."""

    settings: dict[str, Any]
    """Settings that differ from the defaults."""

    checkpoints: tuple[int, ...]
    """Steps of its checkpoints, oldest first."""

    forks: tuple[str, ...]
    """Runs that were forked from it."""


@operation(shell=False)
def settings(workspace: Workspace, name: Name) -> RunSettings:
    """Show the settings of a run that differ from the defaults."""
    run = Run.open(workspace, name)
    given = run.settings.model_dump(mode="json", exclude_defaults=True)
    return RunSettings(settings=given, checkpoints=tuple(run.checkpoints), forks=tuple(forks_of(workspace, name)))


class Ending(Snapshot):
    """A run that is alive, or ended lately."""

    name: str
    """What commands take."""

    ended: bool
    """Whether it is over."""

    mark: str
    """Changes when it starts and when it ends."""

    title: str
    """How a notification is headed."""

    body: str
    """What it says."""


@operation(path="/run-endings", shell=False)
def endings(workspace: Workspace) -> list[Ending]:
    """List the living runs and those that ended within a day, for notifications."""
    since = time.time() - RECENT_SECONDS
    found = []
    for one in jobs.jobs_in(workspace.runs):
        over = not one.state.alive
        if not over or (one.ended_at or 0) > since:
            mark = f"{one.state} {one.ended_at}" if over else f"began {one.started_at}"
            text = without_folders(one.message)[:MOST_TEXT]
            found.append(Ending(name=one.name, ended=over, mark=mark, title=f"{one.name}: {one.state}", body=text))
    return found
