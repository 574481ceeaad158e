"""The list of runs: its entries, searching, sorting and grouping, and each run's summary.

    runs/NAME/.summary.json     {version, mark, step, loss, held_out, diagnosis}; safe to delete at any time

A summary is cached beside the metrics until they change: reading the metrics of a thousand runs takes many seconds, and
nearly all of them ended long ago.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from workbench import jobs
from workbench.display import states
from workbench.display.quantities import moment
from workbench.display.states import Tone
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import State, Status
from workbench.runs.analysis.curves import curves_of
from workbench.runs.analysis.diagnosis import diagnose
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
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
    """A run in the list. created, started, ended: Unix time, None before"""

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
        self._kept: dict[str, tuple[Any, tuple[str, str, str, str, float]]] = {}

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
            self._kept[status.name] = (mark, (run.group, dataset, model, run.notes, mark[0] / 1e9))
        group, dataset, model, notes, created = self._kept[status.name][1]
        word = headline(status, waits)
        times = (created, status.started_at, None if status.state.alive else status.ended_at)
        return RunEntry(status.name, word, states.tone_of(word), group, dataset, model, notes, *times)


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


# ---- summaries

SUMMARY = ".summary.json"
SUMMARY_VERSION = 5  # increase it with any change to a summary


@dataclass(frozen=True)
class RunSummary:
    """A run's main numbers.

    step: the last step done;  loss: smoothed, None before the first step
    held_out: the first and the last measurement, () without any;  diagnosis: its kind, "" before the first step
    """

    step: int = 0
    loss: float | None = None
    held_out: tuple[float, ...] = ()
    diagnosis: str = ""


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
            return RunSummary(int(kept["step"]), loss, held_out, str(kept["diagnosis"]))
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
    return RunSummary(
        step=curves.last.get("step", 0),
        loss=curves.smoothed,
        held_out=(held_out[0], held_out[-1]) if held_out else (),
        diagnosis=diagnose(curves, run.checkpoints, ended).kind if curves.last else "",
    )
