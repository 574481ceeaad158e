"""What a job does now: its status, derived from the files in its folder at every call, never stored.

A job that waits for a process has a ticket, waiting.json: {module, environment, entry, time, boot_id, inode}. It holds
on the machine, since the start of it and for the folder that it was written for: in a copy of the folder and after a
restart the job does not wait, it died. Only its owner may read it.
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
WAITING = "waiting"  # how the phase of a job that waits begins
MOST = 1e11  # of a number that a file may hold: as a time it is in the year 5138
STALE_SECONDS = 120.0  # a living process without a heartbeat for this long is shown as hanging
CLOCK_SECONDS = 60.0  # clocks of machines that share a folder differ by less; a later moment tells of a changed clock
LOST = (
    "It waited for its turn when the machine rebooted, or its folder is a copy of one that waited: start it again to "
    "put it into the queue."
)
STALE_STEPS = 10  # so is one whose steps have a known pace, when it stands still for so many of them and that long


class State(StrEnum):
    """What a job is doing, derived from its folder."""

    NEW = "new"  # settings are there, never started
    STARTING = "starting"  # process alive, no heartbeat yet
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"  # a stop was requested, still alive
    FINISHED = "finished"
    STOPPED = "stopped"  # ended on request
    FAILED = "failed"  # ended with an error, result.json says which
    DIED = "died"  # no result and no process: killed, power cut, or copied from another machine

    @property
    def alive(self) -> bool:
        return self in (State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING)


@dataclass(frozen=True)
class Status:
    """A job as its folder tells it. `message` is a sentence for people; seconds_left is None while unknown."""

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
    silent_seconds: float = 0.0  # since the job itself, not only its heartbeat thread, reported anything
    hanging: bool = False

    @property
    def name(self) -> str:
        return self.folder.name


def _number(values: dict[str, Any], name: str) -> float | None:
    """A number of a file that anybody may have written; None for anything else."""
    value = values.get(name)
    return value if isinstance(value, int | float) and -MOST < value < MOST else None


def _whole(values: dict[str, Any], name: str) -> int | None:
    value = _number(values, name)
    return None if value is None else int(value)


def status(folder: Path) -> Status:
    """What the job in this folder is doing now. Never raises for a missing or broken file."""
    result, process, beat = (read_object(folder / name) for name in (RESULT, PROCESS, HEARTBEAT))
    waits = ticket(folder) if not result else None
    if gone := bool(process) and not result and not processes.alive(process):
        result = read_object(folder / RESULT)  # it may have ended between the two looks
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
    """What a job left in its folder while it waits for a process.

    module, environment: of that process;  entry: in the queue
    holds: whether the job waits;  own: whether it is ours to start, and no other user's
    """

    module: str
    environment: Mapping[str, str]
    entry: Any
    time: float | None
    holds: bool
    own: bool


def ticket(folder: Path) -> Ticket | None:
    """A job's ticket, None where it has none. What is in that of another user cannot be read."""
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
    """How the job ended (result.json with what it made), {} while it is not over. Raises ConfigError when broken."""
    path = folder / RESULT
    return read_json(path) if path.exists() else {}


def jobs_in(parent: Path) -> list[Status]:
    """The status of every job folder below parent, newest first."""
    return [status(folder) for folder in folders_in(parent)]


def folders_in(parent: Path) -> list[Path]:
    """Every job folder below parent, newest first; folders that are not named as ours are left out."""
    found = []
    for path in parent.glob(f"*/{CONFIG}"):
        with contextlib.suppress(OSError):  # removed while we looked
            if is_slug(path.parent.name):
                found.append((path.stat().st_mtime, path.parent))
    return [folder for _, folder in sorted(found, reverse=True)]


def ago(moment: float) -> str:
    """How long ago a moment (seconds since the epoch) was: "3 min 20 s ago"."""
    seconds = time.time() - moment
    return f"{duration(max(0.0, seconds))} ago" if seconds > -CLOCK_SECONDS else "before the clock was set back"
