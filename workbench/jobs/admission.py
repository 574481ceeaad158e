"""Whether this process may start a job now, and what its processes may use: the limits of a demo's session, enforced.

Without a policy (workbench.policy) everything may.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from workbench import policy
from workbench.errors import ConfigError
from workbench.jobs import platform, processes
from workbench.jobs.locks import locked
from workbench.policy import OFF, Policy
from workbench.workspace import read_object

TRAINER, RUNS = "workbench.trainer", "workspace/runs/*"
STARTER, LOCK = "workbench.jobs.queue", ".starting"


@contextlib.contextmanager
def starting(module: str) -> Iterator[None]:
    """Around the start of a job: whoever asks at the same time is counted afterwards.

    Raises ConfigError when this process may not start a job of this module now.
    """
    limits = policy.current()
    if limits is None:
        yield
        return
    with locked(Path(limits.everybody or limits.home) / LOCK):
        _check_start(limits, module)
        yield


def _check_start(limits: Policy, module: str) -> None:
    home = Path(limits.home)
    if module not in limits.jobs:
        raise ConfigError(f"this {OFF}")
    if module == STARTER:  # of runs that were counted when they began to wait
        return
    if policy.size_of(home) > limits.size:
        raise ConfigError(
            f"your workspace is full: this demo keeps {limits.size // 10**6} MB a visitor; remove runs or clips"
        )
    mine = _living(home)
    if len(mine) >= limits.at_once:
        raise ConfigError(f"{len(mine)} jobs of yours are at work, all that this demo allows: wait until one is done")
    others = [job for one in Path(limits.everybody).glob("*/") if one != home for job in _living(one)]
    if limits.everybody and len(mine) + len(others) >= limits.all_at_once:
        raise ConfigError(f"{len(others)} jobs of other visitors are at work, all this machine can do: try in a minute")
    if module != TRAINER:
        return
    if TRAINER in mine:
        raise ConfigError("a run of yours trains already: one at a time in this demo; wait for it, or stop it")
    if (runs := len(list(home.glob(RUNS)))) > limits.runs:
        raise ConfigError(f"you have {runs - 1} runs, at most {limits.runs} in this demo: remove one first")
    if limits.everybody and (count := others.count(TRAINER)) >= limits.together:
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


def limit_process() -> None:
    """Hold this process, and every job that it starts, to a visitor's memory and largest file."""
    limits = policy.current()
    if limits is not None:
        platform.limit_visitor(limits.memory, limits.size)
