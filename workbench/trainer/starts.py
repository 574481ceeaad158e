"""starts.jsonl: a line each time a run's process was ready to train. What a report says of machine and time. No torch.

Keys: time, step (the last one done before: 0, or the checkpoint's), device, precision, versions (package -> version),
trained (values that are adjusted), dropped (a sentence per clip left out). Not covered: how a run ended (jobs).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from workbench import jobs
from workbench.trainer.metrics import read_metrics
from workbench.workspace import append_line

STARTS = "starts.jsonl"


@dataclass(frozen=True)
class Start:
    """One start of a run; see the module for the fields."""

    time: float
    step: int
    device: str = ""
    precision: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    trained: int = 0
    dropped: Sequence[str] = ()


def record_start(run: Path, step: int, **facts: object) -> None:
    """Add a line for this start; facts are the fields of `Start`. Raises CannotWrite."""
    start = Start(time.time(), step, **facts)  # type: ignore[arg-type]
    append_line(run / STARTS, json.dumps(asdict(start), ensure_ascii=False))


def read_starts(run: Path) -> list[Start]:
    """Every start, the first one first; what a power cut tore is left out."""
    path, known = run / STARTS, {one.name for one in fields(Start)}
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            values = json.loads(line)
            found.append(Start(**{name: value for name, value in values.items() if name in known}))
        except (ValueError, TypeError, AttributeError):
            continue
    return found


def seconds_used(run: Path) -> float:
    """How long the run's processes worked, all starts together; the time between them does not count."""
    status = jobs.status(run)
    began = [start.time for start in read_starts(run)]
    if not began:
        return (status.ended_at or time.time()) - status.started_at if status.started_at else 0.0
    began[-1] = min(began[-1], status.started_at or began[-1])  # before that it encoded and loaded
    told = sorted(line["time"] for line in read_metrics(run)[0] if line.get("time"))
    total = 0.0
    for start, end in zip(began, [*began[1:], float("inf")], strict=True):
        last = max((moment for moment in told if start <= moment < end), default=start)
        if end == float("inf"):
            last = max(last, status.ended_at or (time.time() if status.state.alive else start))
        total += last - start
    return total
