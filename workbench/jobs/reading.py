"""What a job does now: its status, derived from the files in its folder at every call, never stored."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from workbench.display.quantities import duration
from workbench.jobs import processes, tickets
from workbench.workspace import is_slug, read_json, read_object

CONFIG, PROCESS, HEARTBEAT, RESULT = "config.json", "process.json", "heartbeat.json", "result.json"
CONTROL = "control"
WAITING = "waiting"  # how the phase of a job that waits begins
MOST = 1e11  # of a number that a file may hold: as a time it is in the year 5138
STALE_SECONDS = 120.0  # a living process without a heartbeat for this long is shown as hanging
CLOCK_SECONDS = 60.0  # clocks of machines that share a folder differ by less; a later moment tells of a changed clock
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
    ticket = tickets.read(folder) if not result else None
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
    if ticket is not None and (gone or not process):
        return _waiting(folder, ticket)
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


def _waiting(folder: Path, ticket: tickets.Ticket) -> Status:
    if not ticket.holds:
        return Status(folder, State.DIED, message=tickets.LOST, started_at=ticket.time)
    state = State.STOPPING if (folder / CONTROL / "stop").exists() else State.RUNNING
    return Status(folder, state, WAITING, started_at=ticket.time)


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
