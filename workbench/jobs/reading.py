"""Read a job's status, derived from the files in its folder at every call and never stored.

A job that waits for a process has a ticket, waiting.json: {module, environment, entry, time, boot_id, inode}. A ticket
is valid only in the folder it was written for and until the machine reboots; after that, or in a copy of the folder,
the job counts as died. Only its owner may read it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from workbench.display.quantities import duration
from workbench.jobs import platform, processes
from workbench.workspace import disk, is_slug, read_json, read_object

CONFIG, PROCESS, HEARTBEAT, RESULT = "config.json", "process.json", "heartbeat.json", "result.json"
CONTROL, TICKET = "control", "waiting.json"
WAITING = "waiting"  # prefix of a waiting job's phase
MOST = 1e11  # larger numbers in a file are ignored: as a time this is the year 5138
STALE_SECONDS = 120.0  # a living process without a heartbeat for this long is shown as hanging
STALE_STEPS = 10  # and so is a job that made no step for this long and for the time of this many steps
CLOCK_SECONDS = 60.0  # clocks of machines that share a folder differ by less; more means that a clock was set back
LOST = (
    "It was waiting for its turn when the machine rebooted, or its folder is a copy of one that was waiting: start it "
    "again to put it into the queue."
)


class State(StrEnum):
    """What a job is doing, derived from its folder."""

    NEW = "new"  # has settings, never started
    STARTING = "starting"  # process alive, no heartbeat yet
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"  # a stop was requested, still alive
    FINISHED = "finished"
    STOPPED = "stopped"  # ended on request
    FAILED = "failed"  # ended with an error, which result.json has
    DIED = "died"  # no result and no process: killed, power cut, or copied from another machine

    @property
    def alive(self) -> bool:
        return self in (State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING)


@dataclass(frozen=True)
class Status:
    """The status of a job. `message` is a sentence for people; `seconds_left` is None while unknown."""

    folder: Path
    state: State
    phase: str = ""
    step: int = 0
    total: int = 0
    seconds_left: float | None = None
    message: str = ""
    exit_code: int | None = None
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    silent_seconds: float = 0.0  # since the job itself reported anything, not just its heartbeat thread
    hanging: bool = False

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def share(self) -> float | None:
        """The share of its steps that is done, 0 to 1; None while unknown."""
        return self.step / self.total if self.total else None

    @property
    def left(self) -> str:
        """The time left in words; "" while unknown."""
        return "" if self.seconds_left is None else f"about {duration(self.seconds_left)} left"


def _number(values: dict[str, Any], name: str) -> float | None:
    """Read a number from a file that anybody may have written; None for anything else."""
    value = values.get(name)
    return value if isinstance(value, int | float) and -MOST < value < MOST else None


def _whole(values: dict[str, Any], name: str) -> int | None:
    value = _number(values, name)
    return None if value is None else int(value)


def status(folder: Path) -> Status:
    """Return the status of the job in this folder. Never raises for a missing or broken file."""
    result, process, beat = (read_object(folder / name) for name in (RESULT, PROCESS, HEARTBEAT))
    waits = ticket(folder) if not result else None
    if gone := bool(process) and not result and not processes.alive(process):
        result = read_object(folder / RESULT)  # it may have ended since the first look
    common: dict[str, Any] = {
        "folder": folder,
        "phase": str(beat.get("phase", "")),
        "step": _whole(beat, "step") or 0,
        "total": _whole(beat, "total") or 0,
        "pid": _whole(process, "pid"),
        "started_at": _number(process, "started_at"),
    }
    if result:
        state = State(result["status"]) if result.get("status") in list(State) else State.FAILED
        return Status(
            **common,
            state=state,
            message=str(result.get("message", "")),
            exit_code=_whole(result, "exit_code"),
            ended_at=_number(result, "ended_at"),
        )
    if waits is not None and (gone or not process):
        if not waits.holds:
            return Status(folder, State.DIED, message=LOST, started_at=waits.time)
        state = State.STOPPING if (folder / CONTROL / "stop").exists() else State.RUNNING
        return Status(folder, state, WAITING, started_at=waits.time)
    if not process:
        return Status(**common, state=State.NEW)
    if gone:
        return Status(**common, state=State.DIED, message=processes.death(process), ended_at=_number(beat, "time"))
    now = time.time()
    silent = max(0.0, now - (_number(beat, "time") or _number(process, "started_at") or now))
    state = State.RUNNING if beat else State.STARTING
    if beat.get("paused"):
        state = State.PAUSED
    if (folder / CONTROL / "stop").exists() or beat.get("stopping"):
        state = State.STOPPING
    seconds_left = None
    if (step_seconds := _number(beat, "step_seconds") or 0.0) and common["total"]:
        seconds_left = max(0.0, (common["total"] - common["step"]) * step_seconds)
    still = silent + (_number(beat, "still") or 0.0)
    stuck = step_seconds > 0 and not beat.get("patient") and still > max(STALE_SECONDS, STALE_STEPS * step_seconds)
    return Status(
        **common,
        state=state,
        seconds_left=seconds_left,
        message=str(beat.get("message", "")),
        silent_seconds=still,
        hanging=state in (State.RUNNING, State.STOPPING) and (silent > STALE_SECONDS or stuck),
    )


@dataclass(frozen=True)
class Ticket:
    """What a waiting job keeps in its folder.

    Attributes:
        module, environment: of the process it waits for.
        entry: its entry in the queue.
        holds: whether the ticket is valid, so that the job waits.
        own: whether the job is this user's, who may start it.
    """

    module: str
    environment: Mapping[str, str]
    entry: Any
    time: float | None
    holds: bool
    own: bool


def ticket(folder: Path) -> Ticket | None:
    """Return a job's ticket, or None. The content of another user's ticket cannot be read."""
    path = folder / TICKET
    try:
        stat, inode = path.stat(), folder.stat().st_ino
    except OSError:
        return None
    if not disk.owns(stat):
        return Ticket("", {}, None, stat.st_mtime, holds=True, own=False)
    values = read_object(path)
    environment, module, moment = (values.get(name) for name in ("environment", "module", "time"))
    known = values.get("boot_id") == platform.boot_id() and values.get("inode") == inode
    return Ticket(
        module=str(module),
        environment={str(k): str(value) for k, value in environment.items()} if isinstance(environment, dict) else {},
        entry=values.get("entry"),
        time=moment if isinstance(moment, float) else None,
        holds=known and isinstance(module, str),
        own=True,
    )


def result(folder: Path) -> dict[str, Any]:
    """Return result.json, or {} while the job has not ended. Raises ConfigError if it is broken."""
    path = folder / RESULT
    return read_json(path) if path.exists() else {}


def jobs_in(parent: Path) -> list[Status]:
    """Return the status of every job in a folder, newest first."""
    return [status(folder) for folder in folders_in(parent)]


def folders_in(parent: Path) -> list[Path]:
    """List the folders of all jobs in a folder, newest first. Folders whose name is not a slug are left out."""
    found = []
    for path in parent.glob(f"*/{CONFIG}"):
        with contextlib.suppress(OSError):  # it was just removed
            if is_slug(path.parent.name):
                found.append((path.stat().st_mtime, path.parent))
    return [folder for _, folder in sorted(found, reverse=True)]


def ago(moment: float) -> str:
    """Say how long ago a Unix time was: "3 min 20 s ago"."""
    seconds = time.time() - moment
    return f"{duration(max(0.0, seconds))} ago" if seconds > -CLOCK_SECONDS else "before the clock was set back"
