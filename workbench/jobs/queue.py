"""The queue: which jobs wait for a device or for a warm worker, and in which order.

    runs/.queue.json             the next job first; anyone may edit it. A run is listed as its slug, any other job as
                                 {job, title, devices}, with "brief": true if someone waits for its result
    runs/.starter                the starter, a job (python -m workbench.jobs.queue) that starts waiting jobs
    WORKER/requests/ID.json      one file for each request that waits for a warm worker (`Requests`)

`submit` starts a job at once if it needs no device. Otherwise the job waits: it has no process, only a position in the
queue and a ticket in its folder (waiting.json). The next job of each device is the exception: its process is already
running, without torch, and takes the device's lock when all jobs ahead of it are gone. The kernel releases the lock
when its holder ends, however it ends. `advance` starts these processes: it is called when a job is submitted and, again
and again, by the starter, which anyone who reads the queue, waits in it or holds a device restarts if it is gone. So a
job that fails or is killed blocks nobody, and a thousand waiting jobs cost next to nothing.

A free device goes, in this order, to

1. brief jobs, which take a few seconds while someone waits (a reconstruction, a prompt). They pass every other job,
   paused runs included, and give up after a while instead of waiting for a run to end.
2. the other jobs, in the order of the file. A paused run lends its device (QueueSlot.lent): it moves to the front of
   the queue, so that the jobs behind it keep waiting while the user samples.
3. a worker that keeps a model warm (`Lease`), which lets go of the device as soon as a job wants it.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError, ExitCode
from workbench.jobs import gpu_lock, reading
from workbench.jobs.control import WITHDRAWN
from workbench.jobs.devices import Device, gpus, pick_devices
from workbench.workspace import Workspace, disk, is_slug, make_folder, read_json, read_object, write_json, writing

T = TypeVar("T")
QUEUE, LOCK = ".queue.json", ".queue.lock"
STARTER, STARTER_MODULE = ".starter", "workbench.jobs.queue"  # the job that starts the processes of waiting jobs
LOOK_SECONDS = 0.2
GUARD_SECONDS = 5.0  # how often a process in the queue checks that the starter is alive
POSITIONS_SECONDS = 1.0  # how old a known position in the queue may be
WAITING = jobs.WAITING  # prefix of a waiting job's phase
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
PATH = re.compile(r"[\w.-]+(/[\w.-]+)+")  # of a job in the workspace
# Where to look for waiting jobs if the file is lost.
PLACES = (
    "runs/*",
    "datasets/*/.*",
    "cache/encoding/*/*",
    ".measuring/*",
    "cache/reconstructions/*",
    "cache/causes/*",
    ".what-if/*",
)


class Entry(NamedTuple):
    """A job in the queue.

    Attributes:
        name: a run's slug, or another job's path in the workspace.
        title: its name, shown to those that wait for it.
        devices: UUIDs of the devices it needs; None for a run, whose settings name them.
        brief: whether it takes seconds while someone waits, so that it goes ahead of all other jobs.
    """

    name: str
    title: str
    devices: frozenset[str] | None
    brief: bool = False

    @classmethod
    def of(
        cls, workspace: Workspace, folder: Path, title: str, devices: Sequence[Device], brief: bool = False
    ) -> Entry:
        name = folder.absolute().relative_to(workspace.root.absolute()).as_posix()
        if (slug := name.removeprefix("runs/")) != name and "/" not in slug:
            return cls(slug, f"run {slug}", None)
        return cls(name, title, frozenset(device.uuid for device in devices), brief)

    @classmethod
    def read(cls, value: Any) -> Entry | None:
        """Parse an entry of the file; None if it is not valid."""
        if isinstance(value, str):
            return cls(value, f"run {value}", None) if is_slug(value) else None
        if not isinstance(value, dict) or not isinstance(devices := value.get("devices"), list):
            return None
        name = str(value.get("job"))
        sound = PATH.fullmatch(name) and ".." not in name
        about = str(value.get("title", name)), frozenset(map(str, devices)), value.get("brief") is True
        return cls(name, *about) if sound else None

    def written(self) -> str | dict[str, Any]:
        if self.devices is None:
            return self.name
        known = {"job": self.name, "title": self.title, "devices": sorted(self.devices)}
        return {**known, "brief": True} if self.brief else known

    def folder(self, workspace: Workspace) -> Path:
        return (workspace.root if "/" in self.name else workspace.runs) / self.name

    def state(self, workspace: Workspace) -> jobs.State:
        return jobs.status(self.folder(workspace)).state

    def wanted(self, workspace: Workspace) -> frozenset[str]:
        """Return the UUIDs of the devices it needs; none if its settings cannot be read, as it will fail at once."""
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
    brief: bool = False,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> jobs.Status:
    """Start the job in a folder of the workspace, or queue it. A job that is already alive is left alone.

    Args:
        module: What its process runs (`python -m module folder`), which calls `acquired` with the same devices.
        devices: What it needs to itself. Without any, and if it is not a run, it starts at once.
        title: What it does, for those that wait for it.
        brief: Whether it goes ahead of all jobs that are not brief.
        env, stdin: As in `jobs.start`; the latter for a job that starts at once.

    Raises CannotWrite, or ConfigError if a visitor's quota forbids it.
    """
    entry = Entry.of(workspace, folder, title, devices, brief)
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
            now = f"now {', '.join(names)}" if names else "and now none is waiting"
            raise ConfigError(f"the run {name!r} is not waiting: only waiting runs have a position, {now}")
        names.remove(name)
        least = 0 if waiting[name].brief else sum(waiting[one].brief for one in names)
        names.insert(max(least, position - 1), name)
        paused = [entry for entry, state in living if state is jobs.State.PAUSED]
        listed[:] = [*paused, *(waiting[one] for one in names)]
    advance(workspace)
    return names


# ---- who gets a process


def advance(workspace: Workspace) -> list[Entry]:
    """Start a process for each waiting job that is first on all of its devices, and return them. Raises CannotWrite."""
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
def acquired(
    workspace: Workspace,
    devices: Sequence[Device],
    job: jobs.Job,
    title: str = "",
    brief_seconds: float | None = None,
) -> Iterator[QueueSlot]:
    """Wait in the queue, then hold the devices. Without devices, do not wait.

    Jobs on other devices do not matter, and a worker that only keeps a model warm has to release the device.
    `brief_seconds` is how long a brief job waits for running jobs, before it raises DeviceBusy; None for other jobs.
    Raises jobs.Stop when asked to stop while waiting.
    """
    slot, over = QueueSlot(workspace, devices, job, title, brief_seconds), threading.Event()
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
    """A job's position in the queue, then its hold on its devices. locks: file descriptors of the devices' locks."""

    def __init__(
        self,
        workspace: Workspace,
        devices: Sequence[Device],
        job: jobs.Job,
        title: str = "",
        brief_seconds: float | None = None,
    ) -> None:
        self._workspace, self._job, self._patience = workspace, job, brief_seconds
        self._entry = Entry.of(workspace, job.folder, title, devices, brief_seconds is not None)
        self._uuids = {device.uuid for device in devices}
        self._name = "GPU" if any(self._uuids) else "CPU"
        self._held = contextlib.ExitStack()
        self.locks: list[int] = []

    def take(self) -> None:
        """Wait in the queue, then for the devices. Raises jobs.Stop when asked to stop while waiting, DeviceBusy."""
        patience = math.inf if self._patience is None else self._patience

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
                    # Every job takes them in the same order, so two jobs cannot deadlock.
                    holds = (
                        gpu_lock.hold(self._workspace.locks, uuid, self._entry.title, patience, report)
                        for uuid in sorted(self._uuids)
                    )
                    self.locks = [taken.enter_context(hold) for hold in holds]
                    if not any(self._ahead()[1:]):  # a paused run may have moved ahead in the meantime
                        self._held.push(taken.pop_all())
                        break
        finally:
            leave(self._workspace, self._entry)

    def give_back(self) -> None:
        self._held.close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Release the devices, though not to queued jobs, then take them back; after an error they stay free.

        Raises jobs.Stop if asked to stop while waiting for them.
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


# ---- a warm worker: its device, and the requests that wait for it


class Lease:
    """A warm worker's hold on a device, given up as soon as a queued job wants it. Use as a context manager.

    device: what it computes on; None while it has no model. The CPU is not locked, so others may use it, too.
    """

    def __init__(self, workspace: Workspace, title: str) -> None:
        self._locks, self._title = workspace.locks, title
        self._held = contextlib.ExitStack()
        self.device: Device | None = None

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    @property
    def wanted(self) -> bool:
        """Whether a job waits for the device. It goes ahead of all requests."""
        return self.device is not None and gpu_lock.wanted(self._locks, self.device.uuid)

    def taken(self, device: Device) -> bool:
        """Whether a job holds this device or waits for it."""
        if not device.is_gpu or device == self.device:
            return False
        return gpu_lock.wanted(self._locks, device.uuid) or (
            gpu_lock.holder(self._locks, device.uuid) not in (None, self._title)
        )

    def take(self, device: Device) -> None:
        """Hold the device. Raises DeviceBusy."""
        if device.is_gpu:
            self._held.enter_context(gpu_lock.hold(self._locks, device.uuid, self._title))
        self.device = device

    def give_back(self) -> None:
        self.device = None
        self._held.close()


REQUESTS, ACTIVE, PROGRESS, CANCEL = "requests", "active", "progress", "cancel"
FAILED, DONE = "failed", "done"


@dataclass(frozen=True)
class Requests:
    """The requests of a warm worker: a job that keeps its model between requests and ends after some idle time.

        requests/ID.json    waiting; those with "bulk": true go last
        active/ID.json      taken by the worker
        progress/ID.*       its progress
        cancel/ID           asks the worker to cancel it
        failed/ID.json      the request, message, exit_code (90: canceled)
        done/ID.json        finished
        queue.lock          held while a request is added, taken or canceled, and while the worker ends

    A request only moves forward (requests, active, then done or failed), each step with one rename or one write. A
    worker that crashes loses only the request it was working on.

    Attributes:
        folder: of the worker's job.
        module: what its process runs.
        title: what people call the worker.
        product: what a request makes.
        ids: pattern of the requests' ids, which sort by time.
        configure: writes the worker's settings before its first start.
    """

    folder: Path
    module: str
    title: str
    product: str
    ids: re.Pattern[str]
    configure: Callable[[Path], object]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the requests for a moment, so that none reaches a worker that is ending and only one worker starts."""
        make_folder(self.folder)
        with jobs.locked(self.folder / "queue.lock"):
            yield

    def files(self, part: str) -> list[Path]:
        """List the requests in one of the folders, oldest first."""
        return sorted(path for path in (self.folder / part).glob("*.json") if self.ids.fullmatch(path.stem))

    def read(self, part: str, name: str) -> dict[str, Any]:
        """Return a request from one of the folders; {} if it is not there."""
        return read_object(self.folder / part / f"{name}.json")

    @property
    def waiting(self) -> bool:
        return bool(self.files(REQUESTS))

    def pending(self) -> list[str]:
        """List the ids of waiting and active requests, oldest first."""
        active = self.files(ACTIVE) if jobs.status(self.folder).state.alive else []
        return sorted({path.stem for path in (*self.files(REQUESTS), *active)})

    # for clients that hold `locked`

    def add(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Add requests, and start the worker if there is none. Raises CannotWrite."""
        for name, record in records.items():
            write_json(self.folder / REQUESTS / f"{name}.json", record)
            (self.folder / FAILED / f"{name}.json").unlink(missing_ok=True)
        if not (self.folder / jobs.CONFIG).exists():
            self.configure(self.folder / jobs.CONFIG)
        jobs.start(self.folder, self.module)

    def fail_active(self) -> bool:
        """Fail the request that a worker left active when it ended; return whether there was one."""
        message, active = self.ending(), self.files(ACTIVE)
        for path in active:
            self.fail(path.stem, message, ExitCode.BUG)
        return bool(active)

    def ending(self) -> str:
        """Say how the worker ended, for those who wait for a request."""
        worker, title = jobs.status(self.folder), f"{self.title[:1].upper()}{self.title[1:]}"
        if worker.state is jobs.State.FAILED:
            return f"{title} ended: {worker.message} Try again."
        if worker.state is jobs.State.STOPPED:
            return self.stopped
        cause = "killed, out of memory, or the machine went down"
        return f"{title} ended before this {self.product} was done ({cause}): try again."

    @property
    def stopped(self) -> str:
        """Say that the worker was stopped, for those who wait for a request."""
        return f"{self.title[:1].upper()}{self.title[1:]} was stopped before this {self.product} was done: try again."

    # for clients

    def revive(self) -> None:
        """Restart a crashed worker for its waiting requests. Cheap when there is nothing to do.

        Everything that shows requests calls this regularly. Raises CannotWrite.
        """
        if not (self.waiting or self.files(ACTIVE)) or jobs.status(self.folder).state.alive:
            return
        with self.locked():
            state = jobs.status(self.folder).state
            if state.alive:
                return
            cause = self.ending()
            # Each crash fails at least one request, so restarting comes to an end whatever the cause. A worker that
            # ended without a request would do so again, and one that was stopped is not restarted.
            if self.fail_active() and state is not jobs.State.STOPPED:
                if self.waiting:
                    self.add({})
                return
            for path in self.files(REQUESTS):
                self.fail(path.stem, cause, ExitCode.STOPPED if state is jobs.State.STOPPED else ExitCode.BUG)

    def cancel(self, name: str) -> bool:
        """Cancel a request, at once while it waits, otherwise through the worker; return False if there is none."""
        with self.locked():
            if (self.folder / REQUESTS / f"{name}.json").exists():
                self.fail(name, "Cancelled before it began.", ExitCode.STOPPED)
            elif (self.folder / ACTIVE / f"{name}.json").exists():
                write_json(self.folder / CANCEL / name, {})
            else:
                return False
        return True

    # for the worker

    def take(
        self, read: Callable[[dict[str, Any]], T | None], waits: Callable[[T], bool] = lambda wanted: False
    ) -> tuple[str, dict[str, Any], T] | None:
        """Take the oldest request, bulk requests last: move it from requests/ to active/.

        Args:
            read: Parses a record; None means that it is not valid, and the request fails.
            waits: Whether a request has to wait for its device while later ones are taken.

        Returns the request's id, its record and the parsed record; None if no request can be taken.
        """
        if not self.waiting:
            return None
        with self.locked():
            found = [(path, read_object(path)) for path in self.files(REQUESTS)]
            for path, record in sorted(found, key=lambda one: bool(one[1].get("bulk"))):
                if (wanted := read(record)) is None:
                    unreadable = "The request's file cannot be read: submit it again."
                    self.fail(path.stem, unreadable, ExitCode.BAD_CONFIG)
                elif not waits(wanted):
                    with writing(self.folder):
                        (self.folder / ACTIVE).mkdir(exist_ok=True)
                        disk.replace(path, self.folder / ACTIVE / path.name)
                    return path.stem, record, wanted
        return None

    def cancelled(self, name: str) -> bool:
        """Whether someone canceled an active request."""
        return (self.folder / CANCEL / name).exists()

    def finish(self, name: str, note: Mapping[str, Any] | None = None) -> None:
        """Remove a request whose product is on disk from the queue. note: what done/ keeps about it."""
        if note:
            write_json(self.folder / DONE / f"{name}.json", note)
        self.clear(name)

    def fail(self, name: str, message: str, exit_code: ExitCode) -> None:
        """Record why a request failed, then remove it from the queue."""
        request = self.read(ACTIVE, name) or self.read(REQUESTS, name)
        record = {**request, "message": message, "exit_code": int(exit_code)}
        write_json(self.folder / FAILED / f"{name}.json", record)
        self.clear(name)

    def clear(self, name: str) -> None:
        """Remove the files of a request whose product or failure is on disk already.

        Its picture stays until the next request is done, because a page may be about to load it.
        """
        for part in (REQUESTS, ACTIVE, PROGRESS):
            (self.folder / part / f"{name}.json").unlink(missing_ok=True)
        for picture in (self.folder / PROGRESS).glob("*.webp"):
            if picture.stem != name and not (self.folder / ACTIVE / f"{picture.stem}.json").exists():
                picture.unlink(missing_ok=True)
        (self.folder / CANCEL / name).unlink(missing_ok=True)


# ---- positions for readers


def waits_for(workspace: Workspace, slug: str) -> str:
    """Return what a run waits for: the job ahead of it on its devices, or the run at work there; "" for none."""
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


def with_position(workspace: Workspace, status: jobs.Status) -> jobs.Status:
    """Add the position in the queue to the status of a job that waits without a process."""
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
    """Format the phase of a waiting job. ahead, paused: the jobs it waits for; "" for none."""
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
    """Read the file; if it is missing or broken, list the waiting jobs in the order they were queued."""
    value: Any = None
    with contextlib.suppress(ConfigError):
        value = read_json(workspace.runs / QUEUE)
    if not isinstance(value, list):
        folders = (path.parent for place in PLACES for path in workspace.root.glob(f"{place}/{reading.TICKET}"))
        tickets = [(folder.name, found) for folder in folders if (found := reading.ticket(folder)) is not None]
        tickets.sort(key=lambda one: one[1].time or 0.0)
        value = [found.entry or name for name, found in tickets]
    by_name = {entry.name: entry for entry in map(Entry.read, value) if entry is not None}
    return sorted(by_name.values(), key=lambda entry: not entry.brief)


# ---- the starter: one per workspace
#
# `keep_going` starts it. It ends when no job waits and all jobs it started have ended, because only the parent of a
# process learns how that process ended.

START_SECONDS = 0.5
START_ANYWAY = 10.0  # seconds after which to read the queue even if nothing seems to have changed


def serve(job: jobs.Job) -> None:
    """Start the next jobs until none waits. Raises jobs.Stop when asked to stop."""
    workspace = Workspace.of(job.folder)
    seen, first, read_at = -1, list[Entry](), 0.0
    while workspace.runs.exists():
        job.check_stop("stopped as requested; it starts again when runs wait")
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
    sys.exit(jobs.Job.main(serve))
