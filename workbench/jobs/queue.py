"""The queue of runs: which ones wait for the device, and in which order.

    runs/.queue.json      ["slug", ...], the next run first; anyone may edit it
    python -m workbench.jobs.queue WORKSPACE/runs/.starter      the starter: starts the processes of waiting runs

A waiting run has no process, only a position in the queue and a ticket in its folder (jobs.tickets). The exception is
the next run of each device: its process is already running, without torch, waits until all runs before it are gone, and
takes the device's lock, which the kernel releases when its holder ends, however it ends. `advance` starts these
processes. Whoever starts a run calls it, and so does a small process, the starter, again and again; whoever reads the
queue, waits in it or holds a device restarts the starter if it is gone. So a run that fails or is killed blocks nobody,
and a thousand waiting runs cost next to nothing.

A paused run lends its device (QueueSlot.lent): it moves to the front of the queue, so that the runs behind it keep
waiting while the user samples.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import gpu_lock, tickets
from workbench.jobs.control import WITHDRAWN
from workbench.jobs.devices import Device, gpus, pick_devices
from workbench.workspace import Workspace, is_slug, read_json, write_json

QUEUE, LOCK = ".queue.json", ".queue.lock"
STARTER, STARTER_MODULE = ".starter", "workbench.jobs.queue"  # the job that starts the processes of waiting runs
LOOK_SECONDS = 0.2
GUARD_SECONDS = 5.0  # how often a run's process checks that the starter is alive
POSITIONS_SECONDS = 1.0  # how old a known position in the queue may be
WAITING = jobs.WAITING  # prefix of a waiting run's phase
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def order(workspace: Workspace) -> list[str]:
    """List the runs that wait for the device, the next one first, without paused ones."""
    keep_going(workspace)
    return [slug for slug, state in _living(workspace, _listed(workspace)) if state is not jobs.State.PAUSED]


def enqueue(workspace: Workspace, slug: str, module: str, env: Mapping[str, str] | None = None) -> jobs.Status:
    """Put a run at the end of the queue and start what is next. A run that is already alive is left alone.

    Args:
        module: What its process runs.
        env: Additional environment variables for it.

    Raises:
        CannotWrite
        ConfigError: If a visitor's quota forbids it.
    """
    jobs.put_off(workspace.runs / slug, module, env or {}, _noted(workspace, slug))
    if waits(workspace, slug):
        join(workspace, slug)  # it was waiting already, but somebody removed it from the file
    advance(workspace)
    keep_going(workspace)
    return with_position(workspace, jobs.status(workspace.runs / slug))


@contextlib.contextmanager
def _noted(workspace: Workspace, slug: str) -> Iterator[None]:
    """Add the run to the end of the file; nobody can remove it before it has its ticket."""
    with jobs.locked(workspace.runs / LOCK):
        write_json(workspace.runs / QUEUE, [*(other for other in _listed(workspace) if other != slug), slug])
        yield


@contextlib.contextmanager
def _changing(workspace: Workspace) -> Iterator[list[str]]:
    """Yield the file's content, to be changed in place under its lock. Raises CannotWrite."""
    with jobs.locked(workspace.runs / LOCK):
        listed = _listed(workspace)
        before = [*listed]
        yield listed
        if listed != before:
            write_json(workspace.runs / QUEUE, listed)


def join(workspace: Workspace, slug: str, first: bool = False) -> None:
    """Put a run at the end of the queue, or first; if it is queued, it keeps its position. Raises CannotWrite."""
    with _changing(workspace) as listed:
        if slug not in listed:
            listed.insert(0 if first else len(listed), slug)


def leave(workspace: Workspace, slug: str) -> None:
    """Remove a run from the queue, if it is there. Raises CannotWrite."""
    with _changing(workspace) as listed:
        listed[:] = [other for other in listed if other != slug]


def move(workspace: Workspace, slug: str, position: int) -> list[str]:
    """Move a waiting run to another position (1 is next); return the new order. Raises ConfigError, CannotWrite."""
    with _changing(workspace) as listed:
        living = _living(workspace, listed)
        waiting = [other for other, state in living if state is not jobs.State.PAUSED]
        if slug not in waiting:
            names = f"now {', '.join(waiting)}" if waiting else "and now none does"
            raise ConfigError(f"the run {slug!r} does not wait: only waiting runs have a position, {names}")
        waiting.remove(slug)
        waiting.insert(max(0, position - 1), slug)
        listed[:] = [*(other for other, state in living if state is jobs.State.PAUSED), *waiting]
    advance(workspace)
    return waiting


# ---- who gets a process


def advance(workspace: Workspace) -> list[str]:
    """Start a process for each waiting run that is first on all of its devices; return these runs.

    Raises:
        CannotWrite
    """
    taken, every, over, first = set[str](), _every_device(), list[str](), list[str]()
    for slug in _listed(workspace):
        if taken >= every:
            break
        folder = workspace.runs / slug
        state = jobs.status(folder).state
        if not state.alive:
            over.append(slug)
        elif state is not jobs.State.PAUSED:
            if not taken & (wanted := _wanted(workspace, slug)):
                jobs.start_waiting(folder)
                first.append(slug)
            taken |= wanted
    if over:
        with _changing(workspace) as listed:  # check again now that nobody can queue one
            gone = {slug for slug in over if not jobs.status(workspace.runs / slug).state.alive}
            listed[:] = [slug for slug in listed if slug not in gone]
    return first


def keep_going(workspace: Workspace) -> None:
    """Start the starter if it is not alive and a run of this user waits without a process. Never raises."""
    folder = workspace.runs / STARTER
    with contextlib.suppress(CannotWrite, ConfigError):
        if any(waits(workspace, slug) for slug in _listed(workspace)) and not jobs.status(folder).state.alive:
            jobs.start(folder, STARTER_MODULE)


def waits(workspace: Workspace, slug: str) -> bool:
    """Whether a run of this user waits without a process."""
    ticket = tickets.read(workspace.runs / slug)
    return ticket is not None and ticket.holds and ticket.own


@contextlib.contextmanager
def _guarded(workspace: Workspace) -> Iterator[None]:
    """Keep the starter alive while a run's process waits or trains."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(GUARD_SECONDS):
            keep_going(workspace)

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        keep_going(workspace)


# ---- a run's own process


@contextlib.contextmanager
def acquired(workspace: Workspace, devices: Sequence[Device], job: jobs.Job) -> Iterator[QueueSlot]:
    """Wait in the queue, then hold the devices.

    It does not wait for runs on other devices. A program that only keeps a model warm has to release the device.

    Raises:
        jobs.Stop: When asked to stop while waiting.
    """
    slot = QueueSlot(workspace, devices, job)
    with _guarded(workspace):
        try:
            slot.take()
            yield slot
        finally:
            slot.give_back()


class _Overtaken(Exception):
    """Another run was moved ahead of this one."""


class QueueSlot:
    """A run's position in the queue, then its hold on its devices. locks: their file descriptors"""

    def __init__(self, workspace: Workspace, devices: Sequence[Device], job: jobs.Job) -> None:
        self._workspace, self._job, self._slug = workspace, job, job.folder.name
        self._uuids = {device.uuid for device in devices}
        self._name = "GPU" if devices[0].is_gpu else "processor"
        self._held = contextlib.ExitStack()
        self.locks: list[int] = []

    def take(self) -> None:
        """Wait in the queue, then for the devices. Raises jobs.Stop when asked to stop while waiting."""
        owner = f"run {self._slug}"
        try:
            join(self._workspace, self._slug)
            while True:
                self._wait_for_those_ahead()
                with contextlib.suppress(_Overtaken), contextlib.ExitStack() as taken:
                    # Every run takes them in the same order, so that no two deadlock.
                    self.locks = [
                        taken.enter_context(gpu_lock.hold(self._workspace.locks, uuid, owner, math.inf, self._look))
                        for uuid in sorted(self._uuids)
                    ]
                    self._check()  # a run that paused may have moved ahead meanwhile
                    self._held.push(taken.pop_all())
                    break
        finally:
            leave(self._workspace, self._slug)

    def give_back(self) -> None:
        self._held.close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Release the devices for anything but queued runs, then take them back; after an error they stay free.

        Raises:
            jobs.Stop: When asked to stop while waiting for them.
        """
        join(self._workspace, self._slug, first=True)
        self.give_back()
        try:
            yield
        except BaseException:
            leave(self._workspace, self._slug)
            raise
        self.take()

    def _wait_for_those_ahead(self) -> None:
        while True:
            began = time.monotonic()
            position, ahead, paused = self._ahead()
            if not ahead and not paused:
                break
            self._stop_if_requested()
            self._job.beat(_words(position, ahead, paused), patient=True)
            time.sleep(max(LOOK_SECONDS, 20 * (time.monotonic() - began)))  # hundreds may have been moved ahead
        self._job.beat(f"{_words(position)} for the {self._name}", patient=True)

    def _look(self, holder: str) -> None:
        """Report progress while someone else holds the device."""
        self._stop_if_requested()
        position = self._check()
        self._job.beat(f"{_words(position)}, the {self._name} is held by {holder}", patient=True)

    def _check(self) -> int:
        """Return its position. Raises _Overtaken."""
        position, ahead, paused = self._ahead()
        if ahead or paused:
            raise _Overtaken
        return position

    def _ahead(self) -> tuple[int, str, str]:
        """Return its position, the last run ahead of it on any of its devices, and a paused one; "" for none."""
        listed = _listed(self._workspace)
        before = _living(self._workspace, listed[: listed.index(self._slug)] if self._slug in listed else listed)
        position, ahead, paused = 1, "", ""
        for other, state in before:
            position += state is not jobs.State.PAUSED
            if self._uuids & _wanted(self._workspace, other):
                ahead, paused = (ahead, other) if state is jobs.State.PAUSED else (other, paused)
        return position, ahead, paused

    def _stop_if_requested(self) -> None:
        self._job.check_stop(WITHDRAWN)


def waits_for(workspace: Workspace, slug: str) -> str:
    """Find the run that another one waits for: ahead of it on its devices, or training there; "" for none."""
    listed, wanted = order(workspace), _wanted(workspace, slug)
    before = listed[: listed.index(slug)] if slug in listed else []
    ahead = [other for other in before if wanted & _wanted(workspace, other)]
    if ahead:
        return ahead[-1]
    holders = [gpu_lock.holder(workspace.locks, uuid) or "" for uuid in sorted(wanted)]
    names = [holder.removeprefix("run ") for holder in holders if holder.startswith("run ")]
    return next((name for name in names if name != slug), "")


# ---- positions for readers


def with_position(workspace: Workspace, status: jobs.Status) -> jobs.Status:
    """Add its position in the queue to the status of a run that waits without a process."""
    if status.phase != WAITING or not status.state.alive:
        return status
    return replace(status, phase=_positions(workspace).get(status.name, status.phase))


_KNOWN_POSITIONS: dict[Path, tuple[float, dict[str, str]]] = {}


def _positions(workspace: Workspace) -> dict[str, str]:
    """Return the phase of every queued run, cached for a second."""
    made, positions = _KNOWN_POSITIONS.get(workspace.root, (-math.inf, {}))
    if time.monotonic() > made + POSITIONS_SECONDS:
        positions, position = {}, 0
        ahead, paused = dict[frozenset[str], tuple[int, str]](), dict[frozenset[str], str]()  # by the devices they want
        for slug, state in _living(workspace, _listed(workspace)):
            wanted = _wanted(workspace, slug)
            if state is jobs.State.PAUSED:
                paused[wanted] = slug
                continue
            position += 1
            _, last = max((found for devices, found in ahead.items() if devices & wanted), default=(0, ""))
            holder = next((found for devices, found in paused.items() if devices & wanted), "")
            positions[slug] = _words(position, last, holder)
            ahead[wanted] = (position, slug)
        _KNOWN_POSITIONS[workspace.root] = time.monotonic(), positions
    return positions


def _words(position: int, ahead: str = "", paused: str = "") -> str:
    """Format the phase of a waiting run. ahead, paused: the runs it waits for, "" for none"""
    ordinal = ORDINALS[position - 1] if position <= len(ORDINALS) else f"number {position}"
    words = f"{WAITING}: {ordinal} in the queue" + (f", after run {ahead}" if ahead else "")
    return words + (f"; run {paused} is paused and goes first: resume or stop it" if paused else "")


# ---- the file


@functools.cache
def _uuids_of(choice: str, count: int) -> frozenset[str]:
    return frozenset(device.uuid for device in pick_devices(choice, count))


@functools.cache
def _every_device() -> frozenset[str]:
    return frozenset({"", *(device.uuid for device in gpus())})


def _wanted(workspace: Workspace, slug: str) -> frozenset[str]:
    """Return the devices a run wants; none if its settings cannot be read, as it will fail at once."""
    try:
        settings = read_json(workspace.runs / slug / jobs.CONFIG)
        return _uuids_of(settings.get("device", "auto"), settings.get("gpus", 1))
    except (ConfigError, AttributeError, TypeError):
        return frozenset()


def _living(workspace: Workspace, slugs: Sequence[str]) -> list[tuple[str, jobs.State]]:
    states = [(slug, jobs.status(workspace.runs / slug).state) for slug in slugs]
    return [(slug, state) for slug, state in states if state.alive]


def _listed(workspace: Workspace) -> list[str]:
    """Read the file; if it is missing or broken, list the waiting runs by when they were queued."""
    with contextlib.suppress(ConfigError):
        value = read_json(workspace.runs / QUEUE)
        if isinstance(value, list):
            return [slug for slug in dict.fromkeys(map(str, value)) if is_slug(slug)]
    found = [path.parent for path in workspace.runs.glob(f"*/{tickets.WAITING}")]
    times = {folder.name: ticket.time or 0.0 for folder in found if (ticket := tickets.read(folder)) is not None}
    return sorted(times, key=lambda slug: times[slug])


# ---- the starter: one per workspace
#
# `keep_going` starts it. It ends when no run waits and every run that it started is over; until then it stays, because
# only the parent of a process learns how that process ended.

START_SECONDS = 0.5
START_ANYWAY = 10.0  # seconds after which it reads the queue even if nothing seems to have changed


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with jobs.Job(folder) as job:
        serve(Workspace.of(folder), job)
    return int(job.exit_code)


def serve(workspace: Workspace, job: jobs.Job) -> None:
    """Start what is next until no run waits. Raises jobs.Stop when asked to stop."""
    seen, first, read_at = -1, list[str](), 0.0
    while workspace.runs.exists():
        job.check_stop("stopped as asked; it starts again when runs wait")
        now = 0
        with contextlib.suppress(OSError):
            now = (workspace.runs / QUEUE).stat().st_mtime_ns
        waiting = [slug for slug in first if jobs.status(workspace.runs / slug).state.alive]
        if now != seen or waiting != first or time.monotonic() > read_at + START_ANYWAY:
            seen, read_at = now, time.monotonic()
            with contextlib.suppress(CannotWrite):  # the disk is full: try again
                first = advance(workspace)
            if not first and not psutil.Process().children():
                return
        job.beat("starting runs that wait", patient=True)
        time.sleep(START_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
