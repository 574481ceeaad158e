"""The queue of runs: who waits for the device, and in which order.

    runs/.queue.json      ["slug", ...] in the order in which waiting runs take the device; anyone may change it

There is nobody who serves it. Every waiting run is a process of its own (without torch: a few dozen MB), that looks
whether all before it are gone, and then takes the device's lock, which the kernel frees when its holder ends, however
it ends. So a run that fails or is killed stops nobody, and the queue needs nothing to keep it going. A paused run lends
its device (Turn.lent): it stands first in the file meanwhile, so that the runs after it go on waiting, while a person
may sample. Not covered: which device (devices), the lock itself (gpu_lock).
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Iterator, Sequence

from workbench import gpu_lock, jobs
from workbench.devices import Device, pick_devices
from workbench.errors import ConfigError
from workbench.workspace import Workspace, read_json, write_json

QUEUE, LOCK = ".queue.json", ".queue.lock"
LOOK_SECONDS = 0.2
WAITING = "waiting"  # how the phase of a waiting run begins
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def order(workspace: Workspace) -> list[str]:
    """The living runs that wait for the device, the next one first; paused ones are not among them."""
    return [slug for slug, state in _living(workspace) if state is not jobs.State.PAUSED]


def join(workspace: Workspace, slug: str, first: bool = False) -> None:
    """Put a run at the end of the queue, or first; a living one that is in it keeps its place. Raises CannotWrite."""
    with jobs.locked(workspace.runs / LOCK):
        waiting = [other for other, _ in _living(workspace)]
        if slug not in waiting:
            write_json(workspace.runs / QUEUE, [slug, *waiting] if first else [*waiting, slug])


def leave(workspace: Workspace, slug: str) -> None:
    """Take a run out of the queue, if it is in it. Raises CannotWrite."""
    with jobs.locked(workspace.runs / LOCK):
        listed = _listed(workspace)
        if slug in listed:
            write_json(workspace.runs / QUEUE, [other for other in listed if other != slug])


def move(workspace: Workspace, slug: str, place: int) -> list[str]:
    """Give a waiting run another place, 1 being the next; returns the new order. Raises ConfigError, CannotWrite."""
    with jobs.locked(workspace.runs / LOCK):
        waiting = order(workspace)
        if slug not in waiting:
            raise ConfigError(f"the run {slug!r} does not wait: only waiting runs have a place, {_names(waiting)}")
        waiting.remove(slug)
        waiting.insert(max(0, place - 1), slug)
        paused = [other for other, state in _living(workspace) if state is jobs.State.PAUSED]
        write_json(workspace.runs / QUEUE, [*paused, *waiting])
        return waiting


@contextlib.contextmanager
def turn(workspace: Workspace, devices: Sequence[Device], job: jobs.Job) -> Iterator[Turn]:
    """Wait until it is this run's turn, then hold its devices.

    Runs of other devices are not waited for. A program that only keeps a model warm is asked to let go of it.
    Raises jobs.Stop when asked to stop while waiting.
    """
    taken = Turn(workspace, devices, job)
    taken.take()
    try:
        yield taken
    finally:
        taken.give_back()


class Turn:
    """A run's hold on its devices. `locks`: file descriptors of their locks."""

    def __init__(self, workspace: Workspace, devices: Sequence[Device], job: jobs.Job) -> None:
        self._workspace, self._slug, self._place = workspace, job.folder.name, _Place(workspace, devices, job)
        self._held = contextlib.ExitStack()
        self.locks: list[int] = []

    def take(self) -> None:
        """Wait in the queue, and for whoever holds the devices. Raises jobs.Stop when asked to stop while waiting."""
        try:
            join(self._workspace, self._slug)
            while True:
                self._place.wait_for_those_ahead()
                with contextlib.suppress(_Overtaken), contextlib.ExitStack() as taken:
                    # All take them in the same order, so that no two wait for one another.
                    locks = [
                        taken.enter_context(
                            gpu_lock.hold(self._workspace.locks, uuid, f"run {self._slug}", math.inf, self._place.look)
                        )
                        for uuid in sorted(self._place.uuids)
                    ]
                    self._place.check()  # a run that is being paused went ahead while this one asked
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

        After an error they stay free. Raises jobs.Stop when asked to stop while waiting for them.
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


class _Place:
    """A run's place in the queue, as its own process sees it."""

    def __init__(self, workspace: Workspace, devices: Sequence[Device], job: jobs.Job) -> None:
        self._workspace, self._job = workspace, job
        self.uuids = {device.uuid for device in devices}
        self._name = "GPU" if devices[0].kind == "cuda" else "processor"

    def wait_for_those_ahead(self) -> None:
        while ahead := self._ahead():
            self._stop_if_asked()
            self._say(f"{_ordinal(len(ahead) + 1)} in the queue, after run {ahead[-1]}")
            time.sleep(LOOK_SECONDS)
        self._say(f"first in the queue for the {self._name}")

    def look(self, holder: str) -> None:
        """What is done every now and then while the device is held by someone."""
        self._stop_if_asked()
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
            if jobs.status(self._workspace.runs / other).state.alive and self._wants_the_same(other)
        ]

    def _wants_the_same(self, slug: str) -> bool:
        try:
            settings = read_json(self._workspace.runs / slug / jobs.CONFIG)
            return bool(self.uuids & _uuids_of(settings.get("device", "auto"), settings.get("gpus", 1)))
        except ConfigError:  # it will not get far
            return False

    def _say(self, words: str) -> None:
        self._job.beat(f"{WAITING}: {words}", patient=True)

    def _stop_if_asked(self) -> None:
        if self._job.take("stop") is not None:
            raise jobs.Stop("Stopped while it waited for its turn; start it again to put it into the queue.")


@functools.cache
def _uuids_of(choice: str, count: int) -> frozenset[str]:
    return frozenset(device.uuid for device in pick_devices(choice, count))


def _living(workspace: Workspace) -> list[tuple[str, jobs.State]]:
    """The runs of the file that are alive, in its order."""
    states = [(slug, jobs.status(workspace.runs / slug).state) for slug in _listed(workspace)]
    return [(slug, state) for slug, state in states if state.alive]


def _listed(workspace: Workspace) -> list[str]:
    """What the file says; a file that somebody broke counts as empty, the runs in it put themselves in again."""
    path = workspace.runs / QUEUE
    if path.exists():
        with contextlib.suppress(ConfigError):
            value = read_json(path)
            return [slug for slug in value if isinstance(slug, str)] if isinstance(value, list) else []
    return []


def _ordinal(number: int) -> str:
    return ORDINALS[number - 1] if number <= len(ORDINALS) else f"number {number}"


def _names(slugs: list[str]) -> str:
    return "now " + ", ".join(slugs) if slugs else "and now none does"
