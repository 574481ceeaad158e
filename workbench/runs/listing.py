"""The list of runs: its entries, searching, sorting and grouping, and each run's summary.

    runs/NAME/.summary.json     {version, mark, step, loss, held_out, diagnosis, ...}; safe to delete at any time

A summary is cached beside the metrics until they change: reading the metrics of a thousand runs takes many seconds, and
nearly all of them ended long ago.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from workbench import jobs
from workbench.display import states
from workbench.display.quantities import moment
from workbench.display.states import Tone
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import State, Status
from workbench.runs.analysis.curves import Curves, curves_of, grouped, smoothed
from workbench.runs.analysis.diagnosis import diagnose
from workbench.runs.checkpoints import PARENT
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.settings import value_text
from workbench.workspace import disk, read_object, writing
from workbench.workspace.folders import GROUP, NOTES

Order = Literal["newest", "active", "name", "dataset", "state"]
SORT_KEYS: dict[Order, str] = {
    "newest": "Newest first",
    "active": "Last active first",
    "name": "By name",
    "dataset": "By dataset",
    "state": "By state",
}
NO_GROUP = "Without a group"
# Active runs, then those that need attention, then the rest.
STATES = ("running", "starting", "stopping", "paused", "waiting", "failed", "died", "new", "stopped", "finished")


@dataclass(frozen=True)
class RunEntry:
    """A run in the list. created, started, ended: Unix time, None before;  config: its settings, of any version"""

    name: str
    state: str
    tone: Tone
    group: str
    dataset: str
    model: str
    notes: str
    created: float
    started: float | None
    ended: float | None
    config: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    parent: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def text(self) -> str:
        """Everything a search looks at, in lower case."""
        return "\n".join((self.name, self.state, self.group, self.dataset, self.model, self.notes)).lower()

    @property
    def when(self) -> str:
        """Its latest date."""
        return self._dates[-1]

    @property
    def dates(self) -> str:
        """When it was created, started and ended."""
        return ", then ".join(self._dates)

    @property
    def _dates(self) -> list[str]:
        known = {"created": self.created, "started": self.started, "ended": self.ended}
        return [f"{what} {moment(time)}" for what, time in known.items() if time]


def headline(status: Status, waits: bool) -> str:
    """Return a run's state in one word; a run in the queue is waiting unless it is stopping."""
    return "waiting" if waits and status.state is not State.STOPPING else status.state.value


class RunListReader:
    """Reads the list repeatedly, but a run's files only when they change."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, tuple[str, str, str, str, float], dict[str, Any], dict[str, Any]]] = {}

    def read(self, statuses: Iterable[Status], waiting: Collection[str]) -> list[RunEntry]:
        """Return an entry for each status, in the same order."""
        found = [self._entry(status, status.name in waiting) for status in statuses]
        self._kept = {one.name: self._kept[one.name] for one in found}
        return found

    def _entry(self, status: Status, waits: bool) -> RunEntry:
        mark = [_changed(status, name) for name in (jobs.CONFIG, GROUP, NOTES)]
        if status.name not in self._kept or self._kept[status.name][0] != mark:
            run, config = Run(status.folder), read_object(status.folder / jobs.CONFIG)  # of any version
            dataset, model = (str(config.get(name) or "") for name in ("dataset", "model"))
            known = (run.group, dataset, model, run.notes, mark[0] / 1e9)
            self._kept[status.name] = (mark, known, config, read_object(status.folder / PARENT))
        _, (group, dataset, model, notes, created), config, parent = self._kept[status.name]
        word = headline(status, waits)
        times = (created, status.started_at, None if status.state.alive else status.ended_at)
        return RunEntry(status.name, word, states.tone_of(word), group, dataset, model, notes, *times, config, parent)


def _changed(status: Status, name: str) -> int:
    """Return when a file of the run was written, in nanoseconds; 0 if there is none."""
    with contextlib.suppress(OSError):
        return (status.folder / name).stat().st_mtime_ns
    return 0


def matching(entries: Iterable[RunEntry], search: str = "", group: str | None = None) -> list[RunEntry]:
    """Filter entries by the words of `search`, all of which must occur, and by group ("" for runs without one)."""
    words = search.lower().split()
    return [one for one in entries if all(word in one.text for word in words) and (group is None or one.group == group)]


def ordered(entries: Iterable[RunEntry], order: Order = "newest") -> list[RunEntry]:
    """Sort entries, ties newest first. Raises ConfigError for an unknown order."""
    keys: dict[str, Callable[[RunEntry], Any]] = {
        "newest": lambda one: 0,
        "active": lambda one: -(one.ended or one.started or one.created),
        "name": lambda one: one.name,
        "dataset": lambda one: one.dataset,
        "state": lambda one: STATES.index(one.state) if one.state in STATES else len(STATES),
    }
    if order not in keys:
        raise ConfigError(f"runs cannot be ordered by {order!r}: choose one of {', '.join(keys)}")
    return sorted(sorted(entries, key=lambda one: -one.created), key=keys[order])


def by_group(entries: Sequence[RunEntry]) -> list[tuple[str, list[RunEntry]]]:
    """Group entries as (heading, runs), in order of first appearance; one heading, "", if no run has a group."""
    sections: dict[str, list[RunEntry]] = {}
    for one in entries:
        sections.setdefault(one.group, []).append(one)
    if list(sections) == [""]:
        return [("", list(entries))]
    return [(group or NO_GROUP, found) for group, found in sections.items()]


def groups(entries: Iterable[RunEntry]) -> list[str]:
    """List the groups, by name."""
    return sorted({one.group for one in entries} - {""})


# ---- what differs

FEW = 3  # settings that are named
# What people write for a setting: before its value, or after it.
SHORT = {"learning_rate": "lr {}", "batch_size": "batch {}", "frames": "{} frames", "steps": "{} steps"}
# Named first; where runs are and what they are made of is said elsewhere, and how they look at themselves is no matter.
FIRST = ("learning_rate", "rank", "steps", "batch_size", "frames", "method")
ELSEWHERE = frozenset({"dataset", "model", "preview_prompts", "preservation_prompts", "device", "loader_threads"})


def differences(entries: Sequence[RunEntry]) -> list[str]:
    """Say of each run in a few words what tells it from the others of its group, or, without one, from the defaults."""
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
        words += [_words(name, config[name]) for name in ordered[:FEW]]
        found.append(", ".join(words) + (" ..." if len(ordered) > FEW else ""))
    return found


def _words(name: str, value: Any) -> str:
    text = value_text(value)
    if isinstance(value, float):  # 1e-4 rather than 0.0001
        text = f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-") if 0 < value < 0.01 else f"{value:g}"
    return SHORT.get(name, f"{name.replace('_', ' ')} {{}}").format(text if len(text) <= 24 else f"{text[:23]}…")


# ---- summaries

SUMMARY = ".summary.json"
SUMMARY_VERSION = 6  # increase it with any change to a summary
SPARK = 40  # points of the smallest curve


@dataclass(frozen=True)
class RunSummary:
    """A run's main numbers.

    step: the last step done;  loss: smoothed, None before the first step
    held_out: the first and the last measurement, () without any;  diagnosis: its kind, "" before the first step
    claim, tone: the diagnosis in a word or two, and whether it is good news;  spark: the smoothed loss, few points
    """

    step: int = 0
    loss: float | None = None
    held_out: tuple[float, ...] = ()
    diagnosis: str = ""
    claim: str = ""
    tone: str = "plain"
    spark: tuple[float, ...] = ()


def summary_of(run: Run, ended: bool = False) -> RunSummary:
    """Summarize a run; nothing is cached if its folder is read-only. ended: whether the run is over"""
    kept = read_object(run.folder / SUMMARY)
    mark: list[Any] = [0, 0, run.checkpoints, ended]  # changes whenever the summary does
    with contextlib.suppress(OSError):
        stat = (run.folder / METRICS).stat()
        mark[:2] = stat.st_size, stat.st_mtime_ns
    if kept.get("version") == SUMMARY_VERSION and kept.get("mark") == mark:
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            loss = None if kept["loss"] is None else float(kept["loss"])
            held_out = tuple(map(float, kept["held_out"]))
            spark = tuple(map(float, kept["spark"]))
            kind, claim, tone = (str(kept[name]) for name in ("diagnosis", "claim", "tone"))
            return RunSummary(int(kept["step"]), loss, held_out, kind, claim, tone, spark)
    found = _summarize(run, ended)
    record = {"version": SUMMARY_VERSION, "mark": mark, **found.__dict__}
    temporary = run.folder / f"{SUMMARY}.{os.getpid()}.tmp"
    with contextlib.suppress(CannotWrite), writing(temporary):  # no fsync: a lost summary is made again
        temporary.write_text(json.dumps(record), encoding="utf-8")
        try:
            disk.replace(temporary, run.folder / SUMMARY)
        finally:
            temporary.unlink(missing_ok=True)
    return found


def _summarize(run: Run, ended: bool) -> RunSummary:
    curves = curves_of(run)
    held_out = list(curves.held_out.values())
    found = diagnose(curves, run.checkpoints, ended) if curves.last else None
    claim = ""
    if found:
        drift = list(curves.changes.values())[-1:]
        claim = f"{found.claim}, drift {drift[0][1]:.0%}" if found.kind == "levelled off" and drift else found.claim
    return RunSummary(
        step=curves.last.get("step", 0),
        loss=curves.smoothed,
        held_out=(held_out[0], held_out[-1]) if held_out else (),
        diagnosis=found.kind if found else "",
        claim=claim,
        tone=found.tone if found else "plain",
        spark=spark_of(curves),
    )


def spark_of(curves: Curves) -> tuple[float, ...]:
    """Return the smoothed loss in few points."""
    points = smoothed(grouped(curves.detrended() or curves.losses.means(), SPARK))
    return tuple(float(f"{value:.4g}") for _, value in points)
