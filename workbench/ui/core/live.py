"""The snapshots of a workspace's runs, each read at most twice a second.

However many browser tabs show a run, its files are read as often as for one. Nothing here is the truth: a server that
starts anew reads the same folders and shows the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from workbench import jobs
from workbench.jobs import queue
from workbench.runs.listing import RunEntry, RunListReader
from workbench.runs.run import Run
from workbench.runs.snapshot import RunSnapshot, SnapshotReader, machine_load
from workbench.workspace import Workspace

FRESH_SECONDS = 0.5
LOAD_SECONDS = 1.0
KEPT_RUNS = 24
T = TypeVar("T")


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
                # A thousand runs take a while to read: reading takes a tenth of the time at most.
                self._until = ended + max(self._seconds, 10 * (ended - began))
            return self._value


@dataclass(frozen=True)
class RunEntries:
    """The runs as a list shows them. version: changes whenever they do"""

    entries: list[RunEntry]
    version: str


class Live:
    """The runs of a workspace, each read once for all tabs that show it."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._list = Recent(lambda: jobs.jobs_in(workspace.runs))
        self._queue = Recent(lambda: queue.order(workspace))
        self._reader = RunListReader()
        self._entries = Recent(self._read_entries)
        self._load = Recent(machine_load, LOAD_SECONDS)
        self._lock = threading.Lock()
        self._runs: dict[str, Recent[RunSnapshot]] = {}

    def statuses(self, now: bool = False) -> list[jobs.Status]:
        """Every run, newest first."""
        return self._list.get(now)

    def entries(self, now: bool = False) -> RunEntries:
        """Every run as a list shows it, newest first."""
        return self._entries.get(now)

    def _read_entries(self) -> RunEntries:
        found = self._reader.read(self.statuses(), self.waiting())
        return RunEntries(found, str(hash(repr(found))))

    def waiting(self, now: bool = False) -> list[str]:
        """Names of the runs that wait for the device, the next one first."""
        return self._queue.get(now)

    def default(self) -> str | None:
        """The run to show when none was chosen: the newest one that is alive, else the newest."""
        known = self.statuses()
        alive = [status for status in known if status.state.alive]
        return next((status.name for status in [*alive, *known]), None)

    def chosen(self, name: str | None) -> RunSnapshot | None:
        """The run of that name, else the one to show when none was chosen; None when there is no run."""
        return self.snapshot(name) or self.snapshot(self.default())

    def refresh(self, name: str | None) -> None:
        """Read the list of runs anew, and that one."""
        self.statuses(now=True)
        self.entries(now=True)
        self.snapshot(name, now=True)

    def snapshot(self, name: str | None, now: bool = False) -> RunSnapshot | None:
        """One run; None when there is none of that name."""
        if not name or name not in {status.name for status in self.statuses()}:
            return None
        with self._lock:
            if name not in self._runs:
                reader = SnapshotReader(Run.open(self.workspace, name), self._queue.get, self._load.get)
                self._runs[name] = Recent(reader.read)
                for oldest in list(self._runs)[:-KEPT_RUNS]:
                    del self._runs[oldest]
            recent = self._runs[name]
        self.waiting(now)
        return recent.get(now)
