"""The runs of a workspace as a list: what each is about, its group and its dates, searched and in order.

Below it the numbers of each run in one line, kept beside its metrics until these change: reading the metrics of a
thousand runs takes many seconds, and nearly all of them ended long ago.

    runs/NAME/.summary.json     {version, mark, step, loss, held_out, diagnosis}; may be removed at any time
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from workbench import jobs, states
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import State, Status
from workbench.notes import GROUP, NOTES
from workbench.operating_system import system
from workbench.quantities import moment
from workbench.runs.analysis.curves import curves_of
from workbench.runs.analysis.diagnosis import diagnose
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
from workbench.states import Tone
from workbench.workspace import read_object, writing

Order = Literal["newest", "active", "name", "dataset", "state"]
SORT_KEYS: dict[Order, str] = {
    "newest": "Newest first",
    "active": "Last active first",
    "name": "By name",
    "dataset": "By dataset",
    "state": "By state",
}
NO_GROUP = "Without a group"
# What goes on, then what needs a person, then what is over.
STATES = ("running", "starting", "stopping", "paused", "waiting", "failed", "died", "new", "stopped", "finished")


@dataclass(frozen=True)
class RunEntry:
    """A run of the list. created, started, ended: Unix time, None before"""

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
        """All that a search looks at, in small letters."""
        return "\n".join((self.name, self.state, self.group, self.dataset, self.model, self.notes)).lower()

    @property
    def when(self) -> str:
        """The newest of its dates."""
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
    """The state of a run in one word; a run of the queue waits unless it is to stop."""
    return "waiting" if waits and status.state is not State.STOPPING else status.state.value


class RunListReader:
    """Reads the entries again and again, the files of each run once until they change."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, tuple[str, str, str, str, float]]] = {}

    def read(self, statuses: Iterable[Status], waiting: Collection[str]) -> list[RunEntry]:
        """An entry for each status, in their order."""
        found = [self._entry(status, status.name in waiting) for status in statuses]
        self._kept = {one.name: self._kept[one.name] for one in found}
        return found

    def _entry(self, status: Status, waits: bool) -> RunEntry:
        mark = [_changed(status, name) for name in (jobs.CONFIG, GROUP, NOTES)]
        if status.name not in self._kept or self._kept[status.name][0] != mark:
            run, config = Run(status.folder), read_object(status.folder / jobs.CONFIG)  # not checked: of any version
            dataset, model = (str(config.get(name) or "") for name in ("dataset", "model"))
            self._kept[status.name] = (mark, (run.group, dataset, model, run.notes, mark[0] / 1e9))
        group, dataset, model, notes, created = self._kept[status.name][1]
        word = headline(status, waits)
        times = (created, status.started_at, None if status.state.alive else status.ended_at)
        return RunEntry(status.name, word, states.tone_of(word), group, dataset, model, notes, *times)


def _changed(status: Status, name: str) -> int:
    """When a file of the run was written, in nanoseconds; 0 where there is none."""
    with contextlib.suppress(OSError):
        return (status.folder / name).stat().st_mtime_ns
    return 0


def matching(entries: Iterable[RunEntry], search: str = "", group: str | None = None) -> list[RunEntry]:
    """The entries that have every word of `search` somewhere, and that group, "" being none."""
    words = search.lower().split()
    return [one for one in entries if all(word in one.text for word in words) and (group is None or one.group == group)]


def ordered(entries: Iterable[RunEntry], order: Order = "newest") -> list[RunEntry]:
    """In that order; equal ones newest first. Raises ConfigError for an order that there is not."""
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
    """(heading, its runs), in the order of their first runs; one with the heading "" where no run has a group."""
    sections: dict[str, list[RunEntry]] = {}
    for one in entries:
        sections.setdefault(one.group, []).append(one)
    if list(sections) == [""]:
        return [("", list(entries))]
    return [(group or NO_GROUP, found) for group, found in sections.items()]


def groups(entries: Iterable[RunEntry]) -> list[str]:
    """The groups that there are, by name."""
    return sorted({one.group for one in entries} - {""})


# ---- the numbers of a run in one line

SUMMARY = ".summary.json"
SUMMARY_VERSION = 5  # rises with any change of what is found


@dataclass(frozen=True)
class RunSummary:
    """step: the last one done;  loss: smoothed, None before the first step
    held_out: the first and the last measurement, () without one;  diagnosis: its kind, "" before the first step
    """

    step: int = 0
    loss: float | None = None
    held_out: tuple[float, ...] = ()
    diagnosis: str = ""


def summary_of(run: Run, ended: bool = False) -> RunSummary:
    """The run as it is now. A folder that cannot be written is read anew each time. ended: whether the run has"""
    kept, mark = (
        read_object(run.folder / SUMMARY),
        [0, 0, run.checkpoints, ended],
    )  # changes whenever what is found does
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
    with contextlib.suppress(CannotWrite), writing(temporary):  # no fsync: it is made anew where it is gone
        temporary.write_text(json.dumps(record), encoding="utf-8")
        try:
            system.replace(temporary, run.folder / SUMMARY)
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
