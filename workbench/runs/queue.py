"""The queue of runs: who waits for the device, and in which order.

    runs/.queue.json      ["slug", ...] in the order in which waiting runs take the device; anyone may change it

A waiting run has no process, only its position here and a ticket in its folder (jobs.tickets). The next run of each
device is the exception: its process has begun, has not loaded torch, looks whether all before it are gone, and takes
the device's lock, which the kernel frees when its holder ends, however it ends. `advance` gives the next ones their
processes. It is called by whoever starts a run, and again and again by one small process (run_starter), which whoever
reads the queue, waits in it or holds a device starts anew when it is gone. So a run that fails or is killed stops
nobody, and a thousand that wait cost next to nothing.

A paused run lends its device (QueueSlot.lent): it stands first in the file meanwhile, so that the runs after it go on
waiting, while a person may sample. Not covered: which device (devices), the lock itself (gpu_lock).
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import gpu_lock, tickets
from workbench.jobs.devices import Device, gpus, pick_devices
from workbench.workspace import Workspace, is_slug, read_json, write_json

QUEUE, LOCK = ".queue.json", ".queue.lock"
STARTER, STARTER_MODULE = ".starter", "workbench.runs.queue_starter"  # the job that gives waiting runs their processes
LOOK_SECONDS = 0.2
GUARD_SECONDS = 5.0  # between two looks of a run's process whether the starter lives
POSITIONS_SECONDS = 1.0  # how old a known position in the queue may be
WAITING = jobs.WAITING  # how the phase of a waiting run begins
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def order(workspace: Workspace) -> list[str]:
    """The living runs that wait for the device, the next one first; paused ones are not among them."""
    keep_going(workspace)
    return [slug for slug, state in _living(workspace) if state is not jobs.State.PAUSED]


def enqueue(workspace: Workspace, slug: str, module: str, env: Mapping[str, str] | None = None) -> jobs.Status:
    """Put a run at the end of the queue, and start what is next; a living run is left alone.

    module, env: what its process runs, and variables that it gets in addition. Raises CannotWrite, ConfigError (policy)
    """
    jobs.put_off(workspace.runs / slug, module, env or {}, _noted(workspace, slug))
    if waits(workspace, slug):
        join(workspace, slug)  # it waits already, and somebody took it out of the file
    advance(workspace)
    keep_going(workspace)
    return with_position(workspace, jobs.status(workspace.runs / slug))


@contextlib.contextmanager
def _noted(workspace: Workspace, slug: str) -> Iterator[None]:
    """The run is at the end of the file; nobody takes it out again before it waits, too."""
    with jobs.locked(workspace.runs / LOCK):
        write_json(workspace.runs / QUEUE, [*(other for other in _listed(workspace) if other != slug), slug])
        yield


def join(workspace: Workspace, slug: str, first: bool = False) -> None:
    """Put a run at the end of the queue, or first; one that is in it keeps its position. Raises CannotWrite."""
    with jobs.locked(workspace.runs / LOCK):
        waiting = _listed(workspace)
        if slug not in waiting:
            write_json(workspace.runs / QUEUE, [slug, *waiting] if first else [*waiting, slug])


def leave(workspace: Workspace, *slugs: str) -> None:
    """Take runs out of the queue, where they are in it. Raises CannotWrite."""
    with jobs.locked(workspace.runs / LOCK):
        listed = _listed(workspace)
        if set(slugs) & set(listed):
            write_json(workspace.runs / QUEUE, [other for other in listed if other not in slugs])


def move(workspace: Workspace, slug: str, position: int) -> list[str]:
    """Give a waiting run another position, 1 being the next; returns the new order. Raises ConfigError, CannotWrite."""
    with jobs.locked(workspace.runs / LOCK):
        living = _living(workspace)
        waiting = [other for other, state in living if state is not jobs.State.PAUSED]
        if slug not in waiting:
            raise ConfigError(f"the run {slug!r} does not wait: only waiting runs have a position, {_names(waiting)}")
        waiting.remove(slug)
        waiting.insert(max(0, position - 1), slug)
        paused = [other for other, state in living if state is jobs.State.PAUSED]
        write_json(workspace.runs / QUEUE, [*paused, *waiting])
    advance(workspace)
    return waiting


# ---- who gets a process


def advance(workspace: Workspace) -> list[str]:
    """Give a process to every waiting run that no other one is before, on any of its devices; returns these runs.

    Raises CannotWrite.
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
        _prune(workspace, over)
    return first


def _prune(workspace: Workspace, slugs: Sequence[str]) -> None:
    """Take those out of the file that are over, and still are now that nobody puts one in."""
    with jobs.locked(workspace.runs / LOCK):
        over = {slug for slug in slugs if not jobs.status(workspace.runs / slug).state.alive}
        write_json(workspace.runs / QUEUE, [slug for slug in _listed(workspace) if slug not in over])


def keep_going(workspace: Workspace) -> None:
    """Start the starter, if a run of this user waits without a process and it does not live. Raises nothing."""
    folder = workspace.runs / STARTER
    with contextlib.suppress(CannotWrite, ConfigError):
        if any(waits(workspace, slug) for slug in _listed(workspace)) and not jobs.status(folder).state.alive:
            jobs.start(folder, STARTER_MODULE)


def waits(workspace: Workspace, slug: str) -> bool:
    """Whether a run of this user waits without a process."""
    ticket = tickets.read(workspace.runs / slug)
    return ticket is not None and ticket.holds and ticket.own


class _Guard:
    """Looks now and then whether the starter lives, as long as a run's process waits or trains."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._over = workspace, threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(GUARD_SECONDS):
            keep_going(self._workspace)

    def end(self) -> None:
        """Look for the last time."""
        self._over.set()
        keep_going(self._workspace)


# ---- a run's own process


@contextlib.contextmanager
def acquired(workspace: Workspace, devices: Sequence[Device], job: jobs.Job) -> Iterator[QueueSlot]:
    """Wait in the queue, then hold the devices.

    Runs of other devices are not waited for. A program that only keeps a model warm has to let go of it.
    Raises jobs.Stop when told to stop while waiting.
    """
    guard, taken = _Guard(workspace), QueueSlot(workspace, devices, job)
    try:
        taken.take()
        yield taken
    finally:
        taken.give_back()
        guard.end()


class QueueSlot:
    """A run's hold on its devices. `locks`: file descriptors of their locks."""

    def __init__(self, workspace: Workspace, devices: Sequence[Device], job: jobs.Job) -> None:
        self._workspace, self._slug, self._position = (
            workspace,
            job.folder.name,
            _QueuePosition(workspace, devices, job),
        )
        self._held = contextlib.ExitStack()
        self.locks: list[int] = []

    def take(self) -> None:
        """Wait in the queue, and for whoever holds the devices. Raises jobs.Stop when told to stop while waiting."""
        try:
            join(self._workspace, self._slug)
            while True:
                self._position.wait_for_those_ahead()
                with contextlib.suppress(_Overtaken), contextlib.ExitStack() as taken:
                    # All take them in the same order, so that no two wait for one another.
                    locks = [
                        taken.enter_context(
                            gpu_lock.hold(
                                self._workspace.locks, uuid, f"run {self._slug}", math.inf, self._position.look
                            )
                        )
                        for uuid in sorted(self._position.uuids)
                    ]
                    self._position.check()  # a run that is being paused went ahead while this one waited
                    self.locks = locks
                    self._held.push(taken.pop_all())
                    break
        finally:
            leave(self._workspace, self._slug)

    def give_back(self) -> None:
        self._held.close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """The devices are free meanwhile, but for the runs of the queue; then they are taken again.

        After an error they stay free. Raises jobs.Stop when told to stop while waiting for them.
        """
        join(self._workspace, self._slug, first=True)
        self.give_back()
        try:
            yield
        except BaseException:
            leave(self._workspace, self._slug)
            raise
        self.take()


class _Overtaken(Exception):
    """Another run was moved ahead of the one that waits for the device."""


class _QueuePosition:
    """A run's position in the queue, as its own process sees it."""

    def __init__(self, workspace: Workspace, devices: Sequence[Device], job: jobs.Job) -> None:
        self._workspace, self._job = workspace, job
        self.uuids = {device.uuid for device in devices}
        self._name = "GPU" if devices[0].kind == "cuda" else "processor"

    def wait_for_those_ahead(self) -> None:
        while True:
            began = time.monotonic()
            ahead = self._ahead()
            if not ahead:
                break
            self._stop_if_requested()
            self._job.beat(_words(len(ahead), ahead[-1]), patient=True)
            time.sleep(max(LOOK_SECONDS, 20 * (time.monotonic() - began)))  # hundreds may have been moved ahead
        self._say(f"first in the queue for the {self._name}")

    def look(self, holder: str) -> None:
        """What is done every now and then while the device is held by someone."""
        self._stop_if_requested()
        self.check()
        self._say(f"first in the queue, the {self._name} is held by {holder}")

    def check(self) -> None:
        """Raises _Overtaken when another one is first."""
        if self._ahead():
            raise _Overtaken

    def _ahead(self) -> list[str]:
        listed = _listed(self._workspace)
        slug = self._job.folder.name
        before = listed[: listed.index(slug)] if slug in listed else listed
        return [
            other
            for other in before
            if jobs.status(self._workspace.runs / other).state.alive and self.uuids & _wanted(self._workspace, other)
        ]

    def _say(self, words: str) -> None:
        self._job.beat(f"{WAITING}: {words}", patient=True)

    def _stop_if_requested(self) -> None:
        if self._job.take("stop") is not None:
            raise jobs.Stop(jobs.WITHDRAWN)


# ---- positions for readers


def with_position(workspace: Workspace, status: jobs.Status) -> jobs.Status:
    """The status of a run, with its position in the queue where it waits without a process."""
    if status.phase != WAITING or not status.state.alive:
        return status
    return replace(status, phase=_positions(workspace).get(status.name, status.phase))


_KNOWN_POSITIONS: dict[Path, tuple[float, dict[str, str]]] = {}


def _positions(workspace: Workspace) -> dict[str, str]:
    """The phase of every run of the queue; of several looks within a second the first one counts."""
    made, positions = _KNOWN_POSITIONS.get(workspace.root, (-math.inf, {}))
    if time.monotonic() > made + POSITIONS_SECONDS:
        positions, ahead = {}, dict[frozenset[str], list[tuple[int, str]]]()  # by the devices that they want
        for number, (slug, _) in enumerate(_living(workspace)):
            wanted = _wanted(workspace, slug)
            before = [found for devices, found in ahead.items() if devices & wanted]
            _, last = max((found[-1] for found in before), default=(0, ""))
            positions[slug] = _words(sum(map(len, before)), last)
            ahead.setdefault(wanted, []).append((number, slug))
        _KNOWN_POSITIONS[workspace.root] = time.monotonic(), positions
    return positions


def _words(ahead: int, last: str) -> str:
    return f"{WAITING}: {_ordinal(ahead + 1)} in the queue" + (f", after run {last}" if ahead else "")


# ---- the file


@functools.cache
def _uuids_of(choice: str, count: int) -> frozenset[str]:
    return frozenset(device.uuid for device in pick_devices(choice, count))


@functools.cache
def _every_device() -> frozenset[str]:
    """What runs can want here: each GPU, and the processor."""
    return frozenset({"", *(device.uuid for device in gpus())})


def _wanted(workspace: Workspace, slug: str) -> frozenset[str]:
    """The devices that a run wants; none where its settings cannot be read: it will not get far."""
    try:
        settings = read_json(workspace.runs / slug / jobs.CONFIG)
        return _uuids_of(settings.get("device", "auto"), settings.get("gpus", 1))
    except (ConfigError, AttributeError, TypeError):
        return frozenset()


def _living(workspace: Workspace) -> list[tuple[str, jobs.State]]:
    """The runs of the file that are alive, in its order."""
    states = [(slug, jobs.status(workspace.runs / slug).state) for slug in _listed(workspace)]
    return [(slug, state) for slug, state in states if state.alive]


def _listed(workspace: Workspace) -> list[str]:
    """The file's content; where it is gone or somebody broke it, the runs that wait, as they came."""
    with contextlib.suppress(ConfigError):
        value = read_json(workspace.runs / QUEUE)
        if isinstance(value, list):
            return [slug for slug in dict.fromkeys(map(str, value)) if is_slug(slug)]
    found = [path.parent for path in workspace.runs.glob(f"*/{tickets.WAITING}")]
    times = {folder.name: ticket.time or 0.0 for folder in found if (ticket := tickets.read(folder)) is not None}
    return sorted(times, key=lambda slug: times[slug])


def _ordinal(number: int) -> str:
    return ORDINALS[number - 1] if number <= len(ORDINALS) else f"number {number}"


def _names(slugs: list[str]) -> str:
    return "now " + ", ".join(slugs) if slugs else "and now none does"
