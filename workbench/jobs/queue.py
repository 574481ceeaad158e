"""The queue: which jobs wait for a device, and in which order.

    runs/.queue.json      the next job first; anyone may edit it. A run is its slug, any other job {job, title, devices}
    python -m workbench.jobs.queue WORKSPACE/runs/.starter      the starter: starts the processes of waiting jobs

`submit` starts a job that needs no device at once. One that does waits: it has no process, only a position in the queue
and a ticket in its folder (waiting.json). The exception is the next job of each device: its process is already running,
without torch, waits until all jobs before it are gone, and takes the device's lock, which the kernel releases when its
holder ends, however it ends. `advance` starts these processes. Whoever submits a job calls it, and so does a small
process, the starter, again and again; whoever reads the queue, waits in it or holds a device restarts the starter if it
is gone. So a job that fails or is killed blocks nobody, and a thousand waiting jobs cost next to nothing.

A paused run lends its device (QueueSlot.lent): it moves to the front of the queue, so that the jobs behind it keep
waiting while the user samples.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import gpu_lock, reading
from workbench.jobs.control import WITHDRAWN
from workbench.jobs.devices import Device, gpus, pick_devices
from workbench.workspace import Workspace, is_slug, read_json, write_json

QUEUE, LOCK = ".queue.json", ".queue.lock"
STARTER, STARTER_MODULE = ".starter", "workbench.jobs.queue"  # the job that starts the processes of waiting jobs
LOOK_SECONDS = 0.2
GUARD_SECONDS = 5.0  # how often a process in the queue checks that the starter is alive
POSITIONS_SECONDS = 1.0  # how old a known position in the queue may be
WAITING = jobs.WAITING  # prefix of a waiting job's phase
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
PATH = re.compile(r"[\w.-]+(/[\w.-]+)+")  # of a job in the workspace
# Where jobs wait, for when the file is lost.
PLACES = ("runs/*", "datasets/*/.*", "cache/encoding/*/*", ".measuring/*")


class Entry(NamedTuple):
    """A job in the queue.

    name: a run's slug, or the path of another job in the workspace
    title: what it is called where others wait for it
    devices: the UUIDs of those that it needs; None of a run, whose settings name them
    """

    name: str
    title: str
    devices: frozenset[str] | None

    @classmethod
    def of(cls, workspace: Workspace, folder: Path, title: str, devices: Sequence[Device]) -> Entry:
        name = folder.absolute().relative_to(workspace.root.absolute()).as_posix()
        if (slug := name.removeprefix("runs/")) != name and "/" not in slug:
            return cls(slug, f"run {slug}", None)
        return cls(name, title, frozenset(device.uuid for device in devices))

    @classmethod
    def read(cls, value: Any) -> Entry | None:
        """What `written` gave, or a person wrote; None for anything else."""
        if isinstance(value, str):
            return cls(value, f"run {value}", None) if is_slug(value) else None
        if not isinstance(value, dict) or not isinstance(devices := value.get("devices"), list):
            return None
        name = str(value.get("job"))
        sound = PATH.fullmatch(name) and ".." not in name
        return cls(name, str(value.get("title", name)), frozenset(map(str, devices))) if sound else None

    def written(self) -> str | dict[str, Any]:
        if self.devices is None:
            return self.name
        return {"job": self.name, "title": self.title, "devices": sorted(self.devices)}

    def folder(self, workspace: Workspace) -> Path:
        return (workspace.root if "/" in self.name else workspace.runs) / self.name

    def state(self, workspace: Workspace) -> jobs.State:
        return jobs.status(self.folder(workspace)).state

    def wanted(self, workspace: Workspace) -> frozenset[str]:
        """The devices it needs; none if its settings cannot be read, as it will fail at once."""
        if self.devices is not None:
            return self.devices
        try:
            settings = read_json(self.folder(workspace) / jobs.CONFIG)
            return _uuids_of(settings.get("device", "auto"), settings.get("gpus", 1))
        except (ConfigError, AttributeError, TypeError):
            return frozenset()


def submit(
    workspace: Workspace,
    folder: Path,
    module: str,
    devices: Sequence[Device] = (),
    title: str = "",
    *,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> jobs.Status:
    """Start the job in a folder of the workspace, or let it wait its turn. One that is already alive is left alone.

    Args:
        module: What its process runs (`python -m module folder`), which calls `acquired` with the same devices.
        devices: What it needs to itself. Without any, and if it is not a run, it starts at once.
        title: What it does, for those that wait for it.
        env: Additional environment variables.
        stdin: An open file for a job that starts at once: how a secret reaches it without a trace.

    Raises:
        CannotWrite
        ConfigError: If a visitor's quota forbids it.
    """
    entry = Entry.of(workspace, folder, title, devices)
    if entry.devices == frozenset():
        return jobs.start(folder, module, stdin, env)

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        """Add it to the end of the file; nobody can remove it before it has its ticket."""
        with jobs.locked(workspace.runs / LOCK):
            listed = [*(other for other in _listed(workspace) if other.name != entry.name), entry]
            write_json(workspace.runs / QUEUE, [one.written() for one in listed])
            yield

    jobs.put_off(folder, module, env or {}, noted(), entry.written())
    if waits(folder):
        join(workspace, entry)  # it was waiting already, but somebody removed it from the file
    advance(workspace)
    keep_going(workspace)
    return with_position(workspace, jobs.status(folder))


def order(workspace: Workspace) -> list[str]:
    """List the jobs that wait for a device by their names, the next one first, without paused runs."""
    keep_going(workspace)
    return [entry.name for entry, state in _living(workspace, _listed(workspace)) if state is not jobs.State.PAUSED]


@contextlib.contextmanager
def _changing(workspace: Workspace) -> Iterator[list[Entry]]:
    """Yield the file's content, to be changed in place under its lock. Raises CannotWrite."""
    with jobs.locked(workspace.runs / LOCK):
        listed = _listed(workspace)
        before = [*listed]
        yield listed
        if listed != before:
            write_json(workspace.runs / QUEUE, [entry.written() for entry in listed])


def join(workspace: Workspace, entry: Entry, first: bool = False) -> None:
    """Put a job at the end of the queue, or first; if it is queued, it keeps its position. Raises CannotWrite."""
    with _changing(workspace) as listed:
        if entry.name not in (other.name for other in listed):
            listed.insert(0 if first else len(listed), entry)


def leave(workspace: Workspace, entry: Entry) -> None:
    """Remove a job from the queue, if it is there. Raises CannotWrite."""
    with _changing(workspace) as listed:
        listed[:] = [other for other in listed if other.name != entry.name]


def move(workspace: Workspace, name: str, position: int) -> list[str]:
    """Move a waiting run to another position (1 is next); return the new order. Raises ConfigError, CannotWrite."""
    with _changing(workspace) as listed:
        living = _living(workspace, listed)
        waiting = {entry.name: entry for entry, state in living if state is not jobs.State.PAUSED}
        names = list(waiting)
        if name not in waiting:
            now = f"now {', '.join(names)}" if names else "and now none does"
            raise ConfigError(f"the run {name!r} does not wait: only waiting runs have a position, {now}")
        names.remove(name)
        names.insert(max(0, position - 1), name)
        paused = [entry for entry, state in living if state is jobs.State.PAUSED]
        listed[:] = [*paused, *(waiting[one] for one in names)]
    advance(workspace)
    return names


# ---- who gets a process


def advance(workspace: Workspace) -> list[Entry]:
    """Start a process for each waiting job that is first on all of its devices; return these jobs.

    Raises:
        CannotWrite
    """
    taken, every, over, first = set[str](), _every_device(), list[Entry](), list[Entry]()
    for entry in _listed(workspace):
        if taken >= every:
            break
        state = entry.state(workspace)
        if not state.alive:
            over.append(entry)
        elif state is not jobs.State.PAUSED:
            if not taken & (wanted := entry.wanted(workspace)):
                jobs.start_waiting(entry.folder(workspace))
                first.append(entry)
            taken |= wanted
    if over:
        with _changing(workspace) as listed:  # check again now that nobody can queue one
            gone = [entry for entry in over if not entry.state(workspace).alive]
            listed[:] = [entry for entry in listed if entry not in gone]
    return first


def keep_going(workspace: Workspace) -> None:
    """Start the starter if it is not alive and a job of this user waits without a process. Never raises."""
    starter = workspace.runs / STARTER
    with contextlib.suppress(CannotWrite, ConfigError):
        waiting = any(waits(entry.folder(workspace)) for entry in _listed(workspace))
        if waiting and not jobs.status(starter).state.alive:
            jobs.start(starter, STARTER_MODULE)


def waits(folder: Path) -> bool:
    """Whether a job of this user waits without a process."""
    ticket = reading.ticket(folder)
    return ticket is not None and ticket.holds and ticket.own


# ---- a job's own process


@contextlib.contextmanager
def acquired(workspace: Workspace, devices: Sequence[Device], job: jobs.Job, title: str = "") -> Iterator[QueueSlot]:
    """Wait in the queue, then hold the devices; no waiting where there are none.

    It does not wait for jobs on other devices. A program that only keeps a model warm has to release the device.

    Args:
        title: As in `submit`.

    Raises:
        jobs.Stop: When asked to stop while waiting.
    """
    slot, over = QueueSlot(workspace, devices, job, title), threading.Event()
    if not devices:
        yield slot
        return

    def guard() -> None:
        while not over.wait(GUARD_SECONDS):
            keep_going(workspace)

    threading.Thread(target=guard, daemon=True).start()
    try:
        slot.take()
        yield slot
    finally:
        slot.give_back()
        over.set()
        keep_going(workspace)


class _Overtaken(Exception):
    """Another job was moved ahead of this one."""


class QueueSlot:
    """A job's position in the queue, then its hold on its devices. locks: their file descriptors"""

    def __init__(self, workspace: Workspace, devices: Sequence[Device], job: jobs.Job, title: str = "") -> None:
        self._workspace, self._job = workspace, job
        self._entry = Entry.of(workspace, job.folder, title, devices)
        self._uuids = {device.uuid for device in devices}
        self._name = "GPU" if any(self._uuids) else "processor"
        self._held = contextlib.ExitStack()
        self.locks: list[int] = []

    def take(self) -> None:
        """Wait in the queue, then for the devices. Raises jobs.Stop when asked to stop while waiting."""

        def report(holder: str) -> None:
            self._job.check_stop(WITHDRAWN)
            position, *others = self._ahead()
            if any(others):
                raise _Overtaken
            self._job.beat(f"{_words(position)}, the {self._name} is held by {holder}", patient=True)

        try:
            join(self._workspace, self._entry)
            while True:
                self._wait_for_those_ahead()
                with contextlib.suppress(_Overtaken), contextlib.ExitStack() as taken:
                    # Every job takes them in the same order, so that no two deadlock.
                    holds = (
                        gpu_lock.hold(self._workspace.locks, uuid, self._entry.title, math.inf, report)
                        for uuid in sorted(self._uuids)
                    )
                    self.locks = [taken.enter_context(hold) for hold in holds]
                    if not any(self._ahead()[1:]):  # a run that paused may have moved ahead meanwhile
                        self._held.push(taken.pop_all())
                        break
        finally:
            leave(self._workspace, self._entry)

    def give_back(self) -> None:
        self._held.close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Release the devices for anything but queued jobs, then take them back; after an error they stay free.

        Raises:
            jobs.Stop: When asked to stop while waiting for them.
        """
        join(self._workspace, self._entry, first=True)
        self.give_back()
        try:
            yield
        except BaseException:
            leave(self._workspace, self._entry)
            raise
        self.take()

    def _wait_for_those_ahead(self) -> None:
        while True:
            began = time.monotonic()
            position, ahead, paused = self._ahead()
            if not ahead and not paused:
                break
            self._job.check_stop(WITHDRAWN)
            self._job.beat(_words(position, ahead, paused), patient=True)
            time.sleep(max(LOOK_SECONDS, 20 * (time.monotonic() - began)))  # hundreds may have been moved ahead
        self._job.beat(f"{_words(position)} for the {self._name}", patient=True)

    def _ahead(self) -> tuple[int, str, str]:
        """Return its position, the last job ahead of it on any of its devices, and a paused one; "" for none."""
        listed = _listed(self._workspace)
        at = next((index for index, other in enumerate(listed) if other.name == self._entry.name), len(listed))
        position, ahead, paused = 1, "", ""
        for other, state in _living(self._workspace, listed[:at]):
            position += state is not jobs.State.PAUSED
            if self._uuids & other.wanted(self._workspace):
                ahead, paused = (ahead, other.title) if state is jobs.State.PAUSED else (other.title, paused)
        return position, ahead, paused


def waits_for(workspace: Workspace, slug: str) -> str:
    """Find what a run waits for: the job ahead of it on its devices, or the one at work there; "" for none."""
    wanted, ahead = Entry(slug, "", None).wanted(workspace), ""
    for entry, state in _living(workspace, _listed(workspace)):
        if entry.name == slug:
            break
        if state is not jobs.State.PAUSED and wanted & entry.wanted(workspace):
            ahead = entry.title
    if not ahead:
        holders = [gpu_lock.holder(workspace.locks, uuid) or "" for uuid in sorted(wanted)]
        ahead = next((one for one in holders if one.startswith("run ") and one != f"run {slug}"), "")
    return ahead.removeprefix("run ")


# ---- positions for readers


def with_position(workspace: Workspace, status: jobs.Status) -> jobs.Status:
    """Add its position in the queue to the status of a job that waits without a process."""
    if status.phase != WAITING or not status.state.alive:
        return status
    return replace(status, phase=_positions(workspace).get(status.folder.absolute(), status.phase))


_KNOWN_POSITIONS: dict[Path, tuple[float, dict[Path, str]]] = {}


def _positions(workspace: Workspace) -> dict[Path, str]:
    """Return the phase of every queued job by its folder, cached for a second."""
    made, positions = _KNOWN_POSITIONS.get(workspace.root, (-math.inf, {}))
    if time.monotonic() > made + POSITIONS_SECONDS:
        positions, position = {}, 0
        ahead, paused = dict[frozenset[str], tuple[int, str]](), dict[frozenset[str], str]()  # by the devices they want
        for entry, state in _living(workspace, _listed(workspace)):
            wanted = entry.wanted(workspace)
            if state is jobs.State.PAUSED:
                paused[wanted] = entry.title
                continue
            position += 1
            _, last = max((found for devices, found in ahead.items() if devices & wanted), default=(0, ""))
            holder = next((found for devices, found in paused.items() if devices & wanted), "")
            positions[entry.folder(workspace).absolute()] = _words(position, last, holder)
            ahead[wanted] = (position, entry.title)
        _KNOWN_POSITIONS[workspace.root] = time.monotonic(), positions
    return positions


def _words(position: int, ahead: str = "", paused: str = "") -> str:
    """Format the phase of a waiting job. ahead, paused: the jobs it waits for, "" for none"""
    ordinal = ORDINALS[position - 1] if position <= len(ORDINALS) else f"number {position}"
    words = f"{WAITING}: {ordinal} in the queue" + (f", after {ahead}" if ahead else "")
    return words + (f"; {paused} is paused and goes first: resume or stop it" if paused else "")


# ---- the file


@functools.cache
def _uuids_of(choice: str, count: int) -> frozenset[str]:
    return frozenset(device.uuid for device in pick_devices(choice, count))


@functools.cache
def _every_device() -> frozenset[str]:
    return frozenset({"", *(device.uuid for device in gpus())})


def _living(workspace: Workspace, entries: Sequence[Entry]) -> list[tuple[Entry, jobs.State]]:
    states = [(entry, entry.state(workspace)) for entry in entries]
    return [(entry, state) for entry, state in states if state.alive]


def _listed(workspace: Workspace) -> list[Entry]:
    """Read the file; if it is missing or broken, list the waiting jobs by when they were queued."""
    value: Any = None
    with contextlib.suppress(ConfigError):
        value = read_json(workspace.runs / QUEUE)
    if not isinstance(value, list):
        folders = (path.parent for place in PLACES for path in workspace.root.glob(f"{place}/{reading.TICKET}"))
        tickets = [(folder.name, found) for folder in folders if (found := reading.ticket(folder)) is not None]
        tickets.sort(key=lambda one: one[1].time or 0.0)
        value = [found.entry or name for name, found in tickets]
    by_name = {entry.name: entry for entry in map(Entry.read, value) if entry is not None}
    return list(by_name.values())


# ---- the starter: one per workspace
#
# `keep_going` starts it. It ends when no job waits and every job that it started is over; until then it stays, because
# only the parent of a process learns how that process ended.

START_SECONDS = 0.5
START_ANYWAY = 10.0  # seconds after which it reads the queue even if nothing seems to have changed


def serve(job: jobs.Job) -> None:
    """Start what is next until no job waits. Raises jobs.Stop when asked to stop."""
    workspace = Workspace.of(job.folder)
    seen, first, read_at = -1, list[Entry](), 0.0
    while workspace.runs.exists():
        job.check_stop("stopped as asked; it starts again when runs wait")
        now = 0
        with contextlib.suppress(OSError):
            now = (workspace.runs / QUEUE).stat().st_mtime_ns
        waiting = [entry for entry in first if entry.state(workspace).alive]
        if now != seen or waiting != first or time.monotonic() > read_at + START_ANYWAY:
            seen, read_at = now, time.monotonic()
            with contextlib.suppress(CannotWrite):  # the disk is full: try again
                first = advance(workspace)
            if not first and not psutil.Process().children():
                return
        job.beat("starting runs that wait", patient=True)
        time.sleep(START_SECONDS)


if __name__ == "__main__":
    sys.exit(jobs.main(serve))
