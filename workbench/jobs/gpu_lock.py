"""One job per GPU: a lock file that the kernel releases when its holder ends, however it ends.

locks/gpu-UUID.lock      locked by the process that uses the GPU; its content names the holder
locks/gpu-UUID.wanted    names the process that waits, so that a worker keeping a model warm releases the GPU
locks/cpu.lock           the same for the CPU (uuid ""), which only jobs of the queue hold
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from workbench.errors import DeviceBusy
from workbench.jobs import processes
from workbench.jobs.locks import acquire
from workbench.workspace import read_object, write_json, writing

CHECK_SECONDS = 1.0  # how long somebody who only checks the lock may delay taking it
RETRY_SECONDS = 0.2  # between attempts while waiting


@contextlib.contextmanager
def hold(
    locks: Path,
    uuid: str,
    name: str,
    patience: float = CHECK_SECONDS,
    meanwhile: Callable[[str], None] = lambda holder: None,
) -> Iterator[int]:
    """Hold a device for this process and yield the lock's file descriptor. Raises DeviceBusy.

    A child that inherits the descriptor holds the device as well, until it ends.

    Args:
        name: of the holder, as others see it.
        patience: seconds to wait. Above CHECK_SECONDS, a worker that only keeps a model warm is asked to let go.
        meanwhile: called regularly with the holder while waiting; whatever it raises ends the wait.
    """
    path = _lock_path(locks, uuid)
    with contextlib.ExitStack() as held:
        with writing(path):
            file = held.enter_context(path.open("a+", encoding="utf-8"))
        if not _acquired(file, min(patience, CHECK_SECONDS)) and not _requested(file, path, patience, meanwhile):
            who = holder(locks, uuid) or "another process"
            kind = "GPU" if uuid else "CPU"
            raise DeviceBusy(f"the {kind} is held by {who}: wait until it ends, or stop it")
        file.truncate(0)
        file.write(" " + json.dumps({"holder": name, "pid": os.getpid()}))  # the first byte belongs to the lock
        file.flush()
        yield file.fileno()


def holder(locks: Path, uuid: str | None = None) -> str | None:
    """Return the name of the device's holder, or None when it is free. With uuid None, look at all GPUs."""
    paths = sorted(locks.glob("gpu-*.lock")) if uuid is None else [_lock_path(locks, uuid)]
    return next((name for path in paths if (name := _holder_of(path)) is not None), None)


def wanted(locks: Path, uuid: str) -> bool:
    """Whether a living job waits for this device, so that a worker keeping a model warm has to let go."""
    return processes.alive(_requester(_lock_path(locks, uuid)))


def _lock_path(locks: Path, uuid: str) -> Path:
    return locks / (f"gpu-{uuid}.lock" if uuid else "cpu.lock")


def _holder_of(path: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError), path.open("a+", encoding="utf-8") as file:
        try:
            acquire(file, shared=True, wait=False)
        except BlockingIOError:
            file.seek(1)
            with contextlib.suppress(ValueError):
                return str(json.loads(file.read()).get("holder"))
            return "another process"
    return None


def _requester(lock: Path) -> dict[str, Any]:
    return read_object(lock.with_suffix(".wanted"))


def _requested(file: IO[str], lock: Path, patience: float, meanwhile: Callable[[str], None]) -> bool:
    """Ask the holder for the lock and take it once it is free; return False when the time is up."""
    end, asking = time.monotonic() + patience, lock.with_suffix(".wanted")
    try:
        while True:
            if not processes.alive(_requester(lock)):  # an earlier request of another process stays
                write_json(asking, processes.identity(os.getpid()))
            meanwhile(_holder_of(lock) or "another process")
            if _acquired(file, min(RETRY_SECONDS, max(0.0, end - time.monotonic()))):
                return True
            if time.monotonic() >= end:
                return False
    finally:
        if _requester(lock).get("pid") == os.getpid():
            asking.unlink(missing_ok=True)


def _acquired(file: IO[str], patience: float) -> bool:
    """Lock the file, trying again until the time is up: a page that looks up the holder locks it for a moment."""
    end = time.monotonic() + patience
    while True:
        try:
            acquire(file, wait=False)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.01)
        else:
            return True
