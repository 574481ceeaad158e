"""sessions.jsonl: a line for each session of a run, from when its process was ready to train. No torch.

Keys: time, step (the last one done before: 0, or the checkpoint's), before (when the session before this one wrote its
last line of metrics, 0 where there was none), device, precision, versions (package -> version), trained (values that
are adjusted), dropped (a sentence per clip left out), note (what a person should know of where it began, such as a
checkpoint that is damaged). Not covered: how a run ended (jobs).
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
from workbench.workspace import append_line, from_json

SESSIONS = "sessions.jsonl"
TAIL = 1 << 20  # bytes; a line is far shorter


Moment = Annotated[float, Field(ge=0.0, le=LATEST)]


@dataclass(frozen=True)
class RunSession:
    """One session of a run; see the module for the fields."""

    time: Moment
    step: int
    before: Moment = 0.0
    device: str = ""
    precision: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    trained: int = 0
    dropped: Sequence[str] = ()
    note: str = ""


_SESSION = TypeAdapter(RunSession)


def record_session(run: Path, step: int, **facts: object) -> None:
    """Add a line for this session; facts are the other fields of `RunSession`. Raises CannotWrite.

    Call it before the metrics are cut back to the checkpoint: the steps that are lost took time as well.
    """
    session = RunSession(time.time(), step, _last_metrics_time(run), **facts)  # type: ignore[arg-type]
    append_line(run / SESSIONS, json.dumps(asdict(session), ensure_ascii=False))


def read_sessions(run: Path) -> list[RunSession]:
    """Every session, the first one first; torn lines and records of another form are left out."""
    known, found = {one.name for one in fields(RunSession)}, []
    for values in read_json_lines(run / SESSIONS):
        with contextlib.suppress(ValueError):
            found.append(_SESSION.validate_python({name: value for name, value in values.items() if name in known}))
    return found


def seconds_used(run: Path, sessions: Sequence[RunSession] | None = None) -> float:
    """How long the run's processes worked, all sessions together; the time between them does not count."""
    status, sessions = jobs.status(run), read_sessions(run) if sessions is None else sessions
    now = status.ended_at or (time.time() if status.state.alive else 0.0)
    began = [session.time for session in sessions] or [now]
    began[-1] = min(began[-1], status.started_at or began[-1])  # before that it encoded and loaded
    ended = [*(session.before for session in sessions[1:]), now]
    return sum(max(0.0, end - start) for start, end in zip(began, ended, strict=True))


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
