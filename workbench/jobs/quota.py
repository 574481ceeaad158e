"""What one visitor of the demo may use: which jobs may start, how many at once, how much each may hold.

Whoever starts a visitor's page (demo_space.sessions) gives it a quota in its environment, which its jobs inherit. A
process without one, which is every other, has no such limits.
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
OFF = "is switched off in this demo: run the workbench yourself, or duplicate the Space, to have it"
TRAINER, RUNS = "workbench.trainer", "workspace/runs/*"
STARTER, LOCK = "workbench.jobs.queue", ".starting"


@dataclass(frozen=True)
class Quota:
    """The limits of a visitor whose folder is `home`, below the folder of all visitors' homes.

    Attributes:
        modules: What may run in the background.
        runs: Runs that are kept at most.
        waiting: Samples that may wait.
        size: Bytes of all files; also of one, and of what an archive unpacks to.
        text: Bytes of the captions of an archive.
        entries: Members of an archive.
        memory: Bytes that one process may have for its data.
        at_once: Jobs of one visitor.
        together: Trainings of all visitors.
        all_at_once: Jobs of all visitors.
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
        """What a process has in its environment that is held to it."""
        return {VARIABLE: json.dumps(asdict(self))}


def current() -> Quota | None:
    """Return the quota of this process; None for everybody but a visitor."""
    return Quota(**json.loads(given)) if (given := os.environ.get(VARIABLE)) else None


def limit_process() -> None:
    """Hold this process, and every job that it starts, to a visitor's memory and largest file."""
    if (quota := current()) is not None:
        platform.limit_visitor(quota.memory, quota.size)


@contextlib.contextmanager
def starting(module: str) -> Iterator[None]:
    """Enter this around the start of a job: whoever asks at the same time is counted afterwards.

    Raises:
        ConfigError: This process may not start a job of this module now.
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
    if module == STARTER:  # of runs that were counted when they began to wait
        return
    if size_of(home) > quota.size:
        raise ConfigError(
            f"your workspace is full: this demo keeps {quota.size // 10**6} MB a visitor; remove runs or clips"
        )
    mine = _living(home)
    if len(mine) >= quota.at_once:
        raise ConfigError(f"{len(mine)} jobs of yours are at work, all that this demo allows: wait until one is done")
    others = [job for one in home.parent.glob("*/") if one != home for job in _living(one)]
    if len(mine) + len(others) >= quota.all_at_once:
        raise ConfigError(f"{len(others)} jobs of other visitors are at work, all this machine can do: try in a minute")
    if module != TRAINER:
        return
    if TRAINER in mine:
        raise ConfigError("a run of yours trains already: one at a time in this demo; wait for it, or stop it")
    if (runs := len(list(home.glob(RUNS)))) > quota.runs:
        raise ConfigError(f"you have {runs - 1} runs, at most {quota.runs} in this demo: remove one first")
    if (count := others.count(TRAINER)) >= quota.together:
        raise ConfigError(f"{count} other visitors train now, which is all this machine can do: try in a minute")


def _living(home: Path) -> list[str]:
    """The modules of a visitor's jobs that are at work, or wait for their process."""
    found = []
    for path in (home / "workspace").rglob("process.json"):
        record = read_object(path)
        if processes.alive(record) and record.get("module") != STARTER:
            found.append(str(record.get("module")))
    waiting = (str(read_object(path).get("module")) for path in (home / "workspace").rglob("waiting.json"))
    return [*found, *waiting]
