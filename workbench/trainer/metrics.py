"""metrics.jsonl: one line a step, and one a measurement. Written by the run, read by anyone at any time.

Keys: step, time (seconds since the epoch), then either
    loss, lr, grad_norm, timestep (mean), seconds, memory_gb            a training step
    held_out_loss                                                       a measurement on fixed noise (step 0: the base)
A torn last line is ignored on reading and removed on resume. Not covered: trackers (TensorBoard and the like).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.workspace import write_text, writing

METRICS = "metrics.jsonl"


def read_metrics(run: Path, after_byte: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Lines from a byte offset on, and the offset to continue from (so that a live view reads each line once)."""
    path = run / METRICS
    if not path.exists():
        return [], 0
    if path.stat().st_size < after_byte:  # cut back by a resume
        after_byte = 0
    with path.open("rb") as file:
        file.seek(after_byte)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    return list(_parse(whole)), after_byte + len(whole)


def _parse(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and "step" in value:
            yield value


class MetricsWriter:
    """Appends lines; each reaches the file with one write, so readers see whole lines."""

    def __init__(self, run: Path, resume_step: int) -> None:
        self._path = run / METRICS
        kept = [line for line in read_metrics(run)[0] if line["step"] <= resume_step] if resume_step else []
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in kept))
        with writing(self._path):
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def write(self, **line: float) -> None:
        with writing(self._path):
            os.write(self._file, (json.dumps(line) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


def smooth(values: list[float], weight: float = 0.9) -> list[float]:
    """Exponential moving average without the bias of its start."""
    smoothed, total, norm = [], 0.0, 0.0
    for value in values:
        total, norm = weight * total + (1 - weight) * value, weight * norm + (1 - weight)
        smoothed.append(total / norm)
    return smoothed
