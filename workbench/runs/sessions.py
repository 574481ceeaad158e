"""sessions.jsonl: a line for each session of a run, from when its process was ready to train. No torch.

Keys: time, step (the last one done before: 0, or the checkpoint's), before (when the session before this one ended: its
last line of metrics, or the pause; 0 where there was none), paused (it follows a pause of the same process), device,
precision, versions (package -> version), trained (values that are adjusted), dropped (a sentence per clip left out),
stops_at (when its time limit ends it, null without one), note (what a person should know of where it began, such as a
checkpoint that is damaged).

Not covered: how a run ended (jobs).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from workbench import jobs
from workbench.records import LATEST, read_json_lines
from workbench.runs.metrics import METRICS
from workbench.workspace import append_line, finite, from_json, read_object

SESSIONS = "sessions.jsonl"
TAIL = 1 << 20  # bytes; a line is far shorter


Moment = Annotated[float, Field(ge=0.0, le=LATEST)]


@dataclass(frozen=True)
class RunSession:
    """One session of a run; see the module for the fields."""

    time: Moment
    step: int
    before: Moment = 0.0
    paused: bool = False
    device: str = ""
    precision: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    trained: int = 0
    dropped: Sequence[str] = ()
    stops_at: Moment | None = None
    note: str = ""


_SESSION = TypeAdapter(RunSession)


def record_session(run: Path, step: int, paused_at: float | None = None, **facts: object) -> None:
    """Add a line for this session; facts are the other fields of `RunSession`. Raises CannotWrite.

    paused_at: when the pause that it follows began. Call it before the metrics are cut back to the checkpoint: the
    steps that are lost took time as well.
    """
    before = _last_metrics_time(run) if paused_at is None else paused_at
    session = RunSession(time.time(), step, before, paused_at is not None, **facts)  # type: ignore[arg-type]
    append_line(run / SESSIONS, json.dumps(finite(asdict(session)), ensure_ascii=False))


def read_sessions(run: Path) -> list[RunSession]:
    """Every session, the first one first; torn lines and records of another form are left out."""
    known, found = {one.name for one in fields(RunSession)}, []
    for values in read_json_lines(run / SESSIONS):
        with contextlib.suppress(ValueError):
            found.append(_SESSION.validate_python({name: value for name, value in values.items() if name in known}))
    return found


def training_seconds(run: Path, sessions: Sequence[RunSession] | None = None) -> float:
    """How long the run trained, all sessions together.

    The queue, loading and encoding, a pause, and the time between a stop and the next start do not count.
    """
    sessions = read_sessions(run) if sessions is None else sessions
    if not sessions:
        return 0.0
    ended = [*(session.before for session in sessions[1:]), _end(run, sessions[-1])]
    return sum(max(0.0, end - session.time) for session, end in zip(sessions, ended, strict=True))


def _end(run: Path, last: RunSession) -> float:
    """When the last session ended; now while it trains."""
    status = jobs.status(run)
    over = last.time < (status.started_at or 0.0)  # a later start waits or loads, or ended before it was ready
    waits = status.phase.startswith(jobs.WAITING)  # a paused run that was resumed, for its device
    if over or waits or read_object(run / jobs.HEARTBEAT).get("paused"):
        return _last_metrics_time(run)
    return status.ended_at or time.time()


def _last_metrics_time(run: Path) -> float:
    """The time of the newest whole line of the metrics; 0 without one."""
    path = run / METRICS
    if not path.is_file():
        return 0.0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        lines = file.read().split(b"\n")[:-1]
    with contextlib.suppress(ValueError, IndexError, KeyError):
        return float(from_json(lines[-1])["time"])
    return 0.0
