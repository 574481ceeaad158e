"""metrics.jsonl: one line a step, and one a measurement. Written by the run, read by anyone at any time.

Keys: step, time (seconds since the epoch), then either
    loss, lr, grad_norm, seconds, memory_gb                            a training step
    preservation_loss                                                   with a preservation weight
    samples: [[quantile of noise, loss], ...]                             its clips, one pair each, unweighted
or, with step 0 for the base model,
    held_out_loss                                                       a measurement on fixed noise
    held_out_bands: [loss, ...]                                           the same by noise, low to high
    change_own, change_others                                             what the LoRA does to the model's output on
                                                                          its own captions, and on preservation prompts
    preview_changes: [levels of 255, ...]                                 how much each preview differs from the base
                                                                          model's with the same noise
    control_changes: [levels of 255, ...]                                 the same of the controls, previews of
                                                                          preservation prompts
    visible_effects: [ratio, ...], visible_effect                         of each preview, its change by the controls';
                                                                          and the median (analysis.visible_effect)
A torn last line is ignored on reading and removed on resume. A number that is none (a gradient that overflowed) is
written as null, which JSON has, and left out on reading. Not covered: what the numbers mean (analysis),
trackers (TensorBoard and the like).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.workspace import finite, write_bytes, writing

METRICS = "metrics.jsonl"
BLOCK = 1 << 20  # bytes read at once: a long run's lines never stand in memory together
MOST_STEPS, LARGEST = 10**9, 10**300  # what a line may hold at most: beyond it, arithmetic on floats fails
TAIL = 256  # bytes by which a file is known again
DECODER = json.JSONDecoder(parse_constant=lambda _: None)  # NaN and Infinity, which are no JSON


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Every line, of a run that is over or whose reader comes once."""
    return list(MetricsReader(run).lines())


@dataclass
class MetricsReader:
    """Reads each line once, block after block. A run that went back to a checkpoint is read from the start again."""

    run: Path
    offset: int = 0
    _tail: bytes = b""

    def restarted(self) -> bool:
        """Whether what was read is no longer in the file; then reading begins anew."""
        path = self.run / METRICS
        if not self.offset:
            return False
        if path.is_file():
            with path.open("rb") as file:
                file.seek(self.offset - len(self._tail))
                if file.read(len(self._tail)) == self._tail:
                    return False
        self.offset, self._tail = 0, b""
        return True

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines since the last call."""
        path = self.run / METRICS
        if not path.is_file():
            return
        for whole in _blocks(path, self.offset):
            yield from parse_lines(whole)
            self.offset += len(whole)
            self._tail = (self._tail + whole)[-TAIL:]


def _blocks(path: Path, offset: int) -> Iterator[bytes]:
    """Whole lines from an offset on, about BLOCK bytes at a time."""
    with path.open("rb") as file:
        file.seek(offset)
        torn = b""
        while data := file.read(BLOCK):
            data = torn + data
            end = data.rfind(b"\n") + 1
            torn = data[end:]
            if end:
                yield data[:end]


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """What each line holds that is sound; damaged lines are left out."""
    for line in data.splitlines():
        try:
            value = DECODER.decode(line.decode())
        except (ValueError, RecursionError):
            continue
        step = value.get("step") if isinstance(value, dict) else None
        if type(step) is int and 0 <= step <= MOST_STEPS:
            yield {key: each for key, each in value.items() if SOUND.get(key, _is_number)(each)}


def _is_number(value: Any) -> bool:
    return math.isfinite(value) if type(value) is float else type(value) is int and abs(value) < LARGEST


def _numbers(values: Any) -> bool:
    return type(values) is list and all(one is None or _is_number(one) for one in values)


def _pairs(values: Any) -> bool:
    return type(values) is list and all(_numbers(one) and len(one) == 2 for one in values)


# By key, whether a value of a line is what its key says, so that whoever reads it need not ask; else it is one number.
SOUND = {
    "samples": _pairs,
    **dict.fromkeys(("held_out_bands", "preview_changes", "control_changes", "visible_effects"), _numbers),
}


def _until(path: Path, step: int) -> bytes:
    """The whole lines up to a step, as they are."""
    lines = (line for whole in _blocks(path, 0) for line in whole.splitlines(keepends=True))
    return b"".join(line for line in lines if any(each["step"] <= step for each in parse_lines(line)))


class MetricsWriter:
    """Appends lines; each reaches the file with one write, so readers see whole lines.

    What a full disk refuses waits in memory and is written with the next line.
    """

    def __init__(self, run: Path, resume_step: int) -> None:
        self._path = run / METRICS
        kept = _until(self._path, resume_step) if resume_step and self._path.exists() else b""
        write_bytes(self._path, kept)
        self._waiting = b""
        with writing(self._path):
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def write(self, **line: Any) -> None:
        """Append a line of numbers, or of lists of them. Raises CannotWrite."""
        self._waiting += (json.dumps(finite(line), allow_nan=False) + "\n").encode()
        with writing(self._path):
            while self._waiting:  # of a disk with little room left, a part of a line may be all that fits
                self._waiting = self._waiting[os.write(self._file, self._waiting) :]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._file, self._waiting)
        os.close(self._file)
