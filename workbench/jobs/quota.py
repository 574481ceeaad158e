"""The limits of a visitor of the demo: which jobs may start, how many at once, and how much memory and disk they get.

demo_space.sessions puts a quota into the environment of a visitor's page, and its jobs inherit it. A process without a
quota has no such limits.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench.errors import ConfigError
from workbench.jobs import platform, processes
from workbench.jobs.locks import locked
from workbench.workspace import read_object, size_of

VARIABLE = "WORKBENCH_QUOTA"
OFF = "is switched off in this demo: run the workbench yourself, or duplicate the Space, to use it"
TRAINER, RUNS = "workbench.trainer", "workspace/runs/*"
STARTER, LOCK = "workbench.jobs.queue", ".starting"


@dataclass(frozen=True)
class Quota:
    """The limits of a visitor whose folder is `home`, below the folder of all visitors' homes.

    Attributes:
        modules: Modules that may run in the background.
        runs: Most runs kept.
        waiting: Most samples that may wait.
        size: Bytes of all files together, of any one file, and of an unpacked archive.
        text: Bytes of an archive's captions.
        entries: Members of an archive.
        memory: Bytes of data memory per process.
        at_once: Jobs of one visitor at the same time.
        together: Runs of all visitors training at the same time.
        all_at_once: Jobs of all visitors at the same time.
    """

    home: str
    modules: tuple[str, ...]
    runs: int = 6
    waiting: int = 32
    size: int = 200 * 1024**2
    text: int = 8 * 1024**2
    entries: int = 4000
    memory: int = 3000 * 1024**2
    at_once: int = 4
    together: int = 2
    all_at_once: int = 16

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that put a process under this quota."""
        return {VARIABLE: json.dumps(asdict(self))}


def current() -> Quota | None:
    """Return the quota of this process; None unless it is a visitor's."""
    return Quota(**json.loads(given)) if (given := os.environ.get(VARIABLE)) else None


def limit_process() -> None:
    """Apply a visitor's limits on memory and file size to this process and every job that it starts."""
    if (quota := current()) is not None:
        platform.limit_visitor(quota.memory, quota.size)


@contextlib.contextmanager
def starting(module: str) -> Iterator[None]:
    """Enter around the start of a job, so that jobs started at the same time are counted one after the other.

    Raises ConfigError if this process may not start a job of this module now.
    """
    if (quota := current()) is None:
        yield
        return
    with locked(Path(quota.home).parent / LOCK):
        _check_start(quota, module)
        yield


def _check_start(quota: Quota, module: str) -> None:
    home = Path(quota.home)
    if module not in quota.modules:
        raise ConfigError(f"this {OFF}")
    if module == STARTER:  # the runs it starts were counted when they were queued
        return
    if size_of(home) > quota.size:
        limit = f"{quota.size // 10**6} MB per visitor"
        raise ConfigError(f"your workspace is full: this demo keeps {limit}; remove runs or clips")
    mine = _living(home)
    if len(mine) >= quota.at_once:
        raise ConfigError(f"{len(mine)} of your jobs are running, the most this demo allows: wait until one is done")
    others = [job for one in home.parent.glob("*/") if one != home for job in _living(one)]
    if len(mine) + len(others) >= quota.all_at_once:
        raise ConfigError(
            f"{len(others)} jobs of other visitors are running, the most this machine can do: try again soon"
        )
    if module != TRAINER:
        return
    if TRAINER in mine:
        raise ConfigError("you have a run in training, and this demo allows one at a time: wait for it, or stop it")
    if (runs := len(list(home.glob(RUNS)))) > quota.runs:
        raise ConfigError(f"you have {runs - 1} runs, and this demo allows {quota.runs}: remove one first")
    if (count := others.count(TRAINER)) >= quota.together:
        raise ConfigError(f"{count} other visitors are training, the most this machine can do: try again in a minute")


def _living(home: Path) -> list[str]:
    """List the modules of a visitor's jobs that run or wait for a process."""
    found = []
    for path in (home / "workspace").rglob("process.json"):
        record = read_object(path)
        if processes.alive(record) and record.get("module") != STARTER:
            found.append(str(record.get("module")))
    waiting = (str(read_object(path).get("module")) for path in (home / "workspace").rglob("waiting.json"))
    return [*found, *waiting]
