"""sessions.jsonl: a line each time a run's process was ready to train. No torch.

Keys: time, step (the last one done before: 0, or the checkpoint's), before (when the start before this one wrote its
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
from workbench.records import LATEST
from workbench.runs.metrics import METRICS
from workbench.workspace import append_line, from_json

STARTS = "sessions.jsonl"
TAIL = 1 << 20  # bytes; a line is far shorter


Moment = Annotated[float, Field(ge=0.0, le=LATEST)]


@dataclass(frozen=True)
class Start:
    """One start of a run; see the module for the fields."""

    time: Moment
    step: int
    before: Moment = 0.0
    device: str = ""
    precision: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    trained: int = 0
    dropped: Sequence[str] = ()
    note: str = ""


_START = TypeAdapter(Start)


def record_start(run: Path, step: int, **facts: object) -> None:
    """Add a line for this start; facts are the other fields of `Start`. Raises CannotWrite.

    To be called before the metrics are cut back to the checkpoint: the steps that are lost took time as well.
    """
    start = Start(time.time(), step, _last_moment(run), **facts)  # type: ignore[arg-type]
    append_line(run / STARTS, json.dumps(asdict(start), ensure_ascii=False))


def read_starts(run: Path) -> list[Start]:
    """Every start, the first one first; what a power cut tore, or is no such record, is left out."""
    path, known = run / STARTS, {one.name for one in fields(Start)}
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            values = from_json(line)
            found.append(_START.validate_python({name: value for name, value in values.items() if name in known}))
        except (ValueError, AttributeError):
            continue
    return found


def last_note(run: Path) -> str:
    """What a person should know of where the last start began, "" if nothing."""
    starts = read_starts(run)
    return starts[-1].note if starts else ""


def seconds_used(run: Path) -> float:
    """How long the run's processes worked, all starts together; the time between them does not count."""
    status, starts = jobs.status(run), read_starts(run)
    now = status.ended_at or (time.time() if status.state.alive else 0.0)
    began = [start.time for start in starts] or [now]
    began[-1] = min(began[-1], status.started_at or began[-1])  # before that it encoded and loaded
    ended = [*(start.before for start in starts[1:]), now]
    return sum(max(0.0, end - start) for start, end in zip(began, ended, strict=True))


def _last_moment(run: Path) -> float:
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
