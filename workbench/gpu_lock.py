"""One job a GPU: a lock file that the kernel frees when its holder ends, however it ends.

    locks/gpu-UUID.lock      held by the process that uses the GPU; its content names the holder
    locks/gpu-UUID.wanted    the process that waits for it: who only keeps a model warm lets go

Not covered: which GPU a job takes (devices), GPUs that programs of others use.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from workbench import processes
from workbench.errors import ConfigError, DeviceBusy
from workbench.workspace import read_json, write_json, writing

LOOK_SECONDS = 1.0  # how long a look at the lock may be in the way of whoever takes it


@contextlib.contextmanager
def hold(locks: Path, uuid: str, name: str, patience: float = LOOK_SECONDS) -> Iterator[None]:
    """Hold a GPU for this process, under a name for people. Raises DeviceBusy.

    With more `patience` (seconds) a holder that only keeps a model warm is asked to let go, and waited for.
    """
    path = _lock_path(locks, uuid)
    with contextlib.ExitStack() as held:
        with writing(path):
            file = held.enter_context(path.open("a+"))
        if not _taken(file, LOOK_SECONDS):
            asking = _wanted_path(locks, uuid)
            write_json(asking, processes.identity(os.getpid()))
            try:
                taken = _taken(file, patience)
            finally:
                asking.unlink(missing_ok=True)
            if not taken:
                who = holder(locks, uuid) or "another process"
                raise DeviceBusy(f"the GPU is held by {who}: wait until it ends, or stop it")
        file.truncate(0)
        file.write(json.dumps({"holder": name, "pid": os.getpid()}))
        file.flush()
        yield


def holder(locks: Path, uuid: str | None = None) -> str | None:
    """Who holds the GPU (any GPU when uuid is None): the holder's own words, or None when it is free."""
    for path in [_lock_path(locks, uuid)] if uuid else sorted(locks.glob("gpu-*.lock")):
        with contextlib.suppress(FileNotFoundError), path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                with contextlib.suppress(ValueError):
                    return str(json.loads(file.read()).get("holder"))
                return "another process"
    return None


def wanted(locks: Path, uuid: str) -> bool:
    """Whether another living job waits for this GPU: who only keeps a model warm lets go now."""
    with contextlib.suppress(ConfigError):
        return processes.alive(read_json(_wanted_path(locks, uuid)))
    return False


def _lock_path(locks: Path, uuid: str) -> Path:
    return locks / f"gpu-{uuid}.lock"


def _wanted_path(locks: Path, uuid: str) -> Path:
    return locks / f"gpu-{uuid}.wanted"


def _taken(file: IO[str], patience: float) -> bool:
    """Lock the file. A page that asks who holds the GPU has it for moments, so one refusal is no answer."""
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.01)
        else:
            return True
