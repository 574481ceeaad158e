"""The list of runs: its entries, searching and sorting, what differs between runs, and their summaries.

    runs/NAME/.summary.json     {version, mark, step, loss, held_out, diagnosis, ...}; safe to delete at any time

A summary is cached beside the metrics until they change, because reading the metrics of a thousand runs takes many
seconds, and nearly all of them ended long ago.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ValidationError

from workbench import jobs
from workbench.display.quantities import shortened
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import State, Status
from workbench.runs.analysis.curves import Curves, grouped, smoothed
from workbench.runs.analysis.diagnosis import diagnose
from workbench.runs.checkpoints import PARENT
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.settings import value_text
from workbench.snapshots import HIDDEN, Shown, Snapshot
from workbench.workspace import disk, read_object, writing
from workbench.workspace.folders import GROUP, NOTES
from workbench.workspace.records import read_once

Order = Literal["newest", "active", "name", "dataset", "state"]
# Active runs, then those that need attention, then the rest.
STATES = ("running", "starting", "stopping", "paused", "waiting", "failed", "died", "new", "stopped", "finished")


@dataclass(frozen=True)
class RunEntry:
    """A run in the list. Times are Unix times, None if not reached; `config` has its settings, of any version."""

    name: str
    state: str
    started: float | None
    ended: float | None
    group: str
    dataset: str
    model: str
    notes: str
    created: float
    config: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    parent: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def text(self) -> str:
        """The text to search in, in lower case."""
        return "\n".join((self.name, self.state, self.group, self.dataset, self.model, self.notes)).lower()


def headline(status: Status, waits: bool) -> str:
    """Return a run's state in one word; a run in the queue is waiting unless it is stopping."""
    return "waiting" if waits and status.state is not State.STOPPING else status.state.value


def entries_of(statuses: Iterable[Status], waiting: Collection[str]) -> list[RunEntry]:
    """Return an entry for each status, in the same order. Files are read again only if they have changed."""
    found = []
    for one in statuses:
        changed = [_changed(one.folder / name) for name in (GROUP, NOTES)]
        about = read_once(one.folder / jobs.CONFIG, _about, *changed)
        ended = None if one.state.alive else one.ended_at
        found.append(RunEntry(one.name, headline(one, one.name in waiting), one.started_at, ended, **about))
    return found


def _about(path: Path) -> dict[str, Any]:
    run, config = Run(path.parent), read_object(path)  # of any version
    dataset, model = (str(config.get(name) or "") for name in ("dataset", "model"))
    known = {"group": run.group, "dataset": dataset, "model": model, "notes": run.notes}
    return {**known, "created": _changed(path) / 1e9, "config": config, "parent": read_object(run.folder / PARENT)}


def _changed(path: Path) -> int:
    """Return when a file was written, in nanoseconds; 0 if there is none."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def matching(entries: Iterable[RunEntry], search: str = "", group: str | None = None) -> list[RunEntry]:
    """Filter entries by the words of `search`, all of which must occur, and by group ("" for runs without one)."""
    words = search.lower().split()
    return [one for one in entries if all(word in one.text for word in words) and (group is None or one.group == group)]


def ordered(entries: Iterable[RunEntry], order: Order = "newest") -> list[RunEntry]:
    """Sort entries, groups together and ties newest first. Raises ConfigError for an unknown order."""
    keys: dict[str, Callable[[RunEntry], Any]] = {
        "newest": lambda one: 0,
        "active": lambda one: -(one.ended or one.started or one.created),
        "name": lambda one: one.name,
        "dataset": lambda one: one.dataset,
        "state": lambda one: STATES.index(one.state) if one.state in STATES else len(STATES),
    }
    if order not in keys:
        raise ConfigError(f"runs cannot be ordered by {order!r}: choose one of {', '.join(keys)}")
    found = sorted(sorted(entries, key=lambda one: -one.created), key=keys[order])
    groups = list(dict.fromkeys(one.group for one in found))
    return sorted(found, key=lambda one: groups.index(one.group))


# ---- what differs

FEW = 3  # how many settings to name
SHORT = {"learning_rate": "lr {}", "batch_size": "batch {}", "frames": "{} frames", "steps": "{} steps"}
FIRST = ("learning_rate", "rank", "steps", "batch_size", "frames", "method")  # named first
# Never named: shown elsewhere in the list, or without effect on the result.
ELSEWHERE = frozenset({"dataset", "model", "preview_prompts", "preservation_prompts", "device", "loader_threads"})


def differences(entries: Sequence[RunEntry]) -> list[str]:
    """Say in a few words how each run differs from others in its group or, without a group, from the defaults."""
    usual = TrainSettings().model_dump(mode="json")
    given = [{name: one.config.get(name, value) for name, value in usual.items()} for one in entries]
    varied: dict[str, set[str]] = {}
    for group in {one.group for one in entries} - {""}:
        configs = [config for one, config in zip(entries, given, strict=True) if one.group == group]
        if len(configs) > 1:
            varied[group] = {name for name in usual if any(config[name] != configs[0][name] for config in configs)}
    found = []
    for one, config in zip(entries, given, strict=True):
        names = varied.get(one.group, {name for name in usual if config[name] != usual[name]}) - ELSEWHERE
        ordered = sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
        words = [f"from {one.parent.get('run')}@{one.parent.get('step')}"] if one.parent else []
        words += [_words(name, config[name]) for name in ordered]
        found.append(shortened(words, FEW + bool(one.parent)))
    return found


def _words(name: str, value: Any) -> str:
    text = value_text(value)
    if isinstance(value, float):  # 1e-4 rather than 0.0001
        text = f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-") if 0 < value < 0.01 else f"{value:g}"
    return SHORT.get(name, f"{name.replace('_', ' ')} {{}}").format(text if len(text) <= 24 else f"{text[:23]}…")


# ---- summaries

SUMMARY = ".summary.json"
SUMMARY_VERSION = 7  # increase it with any change to a summary
SPARK = 40  # points of the smallest curve


class RunSummary(Snapshot):
    """A run's main numbers."""

    step: Annotated[int, Shown(right=True)] = 0
    """The last completed step."""

    loss: Annotated[float | None, Shown(text="{:.4f}".format, right=True)] = None
    """Smoothed training loss; null before the first step."""

    held_out: Annotated[
        tuple[float, ...], Shown("held-out loss", lambda losses: f"{losses[0]:.4f} > {losses[-1]:.4f}", right=True)
    ] = ()
    """The first and the last held-out loss; [] without held-out clips."""

    diagnosis: str = ""
    """Kind of diagnosis; "" before the first step."""

    spark: Annotated[tuple[float, ...], HIDDEN] = ()
    """The smoothed loss in at most 40 points, for a sparkline."""

    claim: Annotated[str, HIDDEN] = ""
    """The diagnosis, or why it failed, in a few words; "" before the first step."""

    tone: Annotated[str, HIDDEN] = "plain"
    """How to color the claim: `good`, `warn`, `bad` or `plain`."""


def summary_of(run: Run, ended: bool = False, curves: Curves | None = None) -> RunSummary:
    """Summarize a run, which `ended` says is over or not. Nothing is cached if its folder is read-only.

    curves: of the run, from the last time, of which only what is new is read.
    """
    kept = read_object(run.folder / SUMMARY)
    mark: list[Any] = [0, 0, run.checkpoints, ended]  # changes whenever the summary does
    with contextlib.suppress(OSError):
        stat = (run.folder / METRICS).stat()
        mark[:2] = stat.st_size, stat.st_mtime_ns
    if kept.get("version") == SUMMARY_VERSION and kept.get("mark") == mark:
        with contextlib.suppress(ValidationError):
            return RunSummary.model_validate(kept)
    curves = curves or Curves(run.folder)
    curves.refresh()
    held_out = list(curves.held_out.values())
    diagnosis = diagnose(curves, run.checkpoints, ended) if curves.last else None
    claim = diagnosis.claim if diagnosis else ""
    if diagnosis and diagnosis.kind == "leveled off" and curves.changes:
        claim += f", drift {list(curves.changes.values())[-1][1]:.0%}"
    spark = smoothed(grouped(curves.detrended() or curves.losses.means(), SPARK))
    found = RunSummary(
        step=curves.last.get("step", 0),
        loss=curves.smoothed,
        held_out=(held_out[0], held_out[-1]) if held_out else (),
        diagnosis=diagnosis.kind if diagnosis else "",
        claim=claim,
        tone=diagnosis.tone if diagnosis else "plain",
        spark=tuple(float(f"{value:.4g}") for _, value in spark),
    )
    record = {"version": SUMMARY_VERSION, "mark": mark, **found.model_dump(mode="json")}
    temporary = run.folder / f"{SUMMARY}.{os.getpid()}.tmp"
    with contextlib.suppress(CannotWrite), writing(temporary):  # no fsync: a lost summary is simply made again
        temporary.write_text(json.dumps(record), encoding="utf-8")
        try:
            disk.replace(temporary, run.folder / SUMMARY)
        finally:
            temporary.unlink(missing_ok=True)
    return found
