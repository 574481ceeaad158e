"""The files that a run appends to while others read them: metrics.jsonl (steps and measurements) and sessions.jsonl.

docs/file_formats.md has their keys. Readers ignore a torn last line; resuming removes it. A number that is not finite
(an overflowed gradient) is written as null and skipped when reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import pydantic_core
from pydantic import Field, TypeAdapter

from workbench import jobs
from workbench.workspace import append_line, finite, from_json, read_object, write_bytes, writing
from workbench.workspace.records import LATEST, read_json_lines

METRICS = "metrics.jsonl"
BLOCK = 1 << 20  # bytes to read at once, so that a long run's file is never in memory as a whole
MOST_STEPS, LARGEST = 10**9, 10**300  # larger values are dropped, because float arithmetic would overflow
TAIL = 256  # last bytes read, which tell whether the file was rewritten
DECODER = json.JSONDecoder(parse_constant=lambda _: None)  # NaN and Infinity are not JSON


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Read every line at once. Use a MetricsReader to follow a run."""
    return list(MetricsReader(run).lines())


@dataclass
class MetricsReader:
    """Reads each line once, block by block, and starts over if the run went back to a checkpoint."""

    run: Path
    offset: int = 0
    _tail: bytes = b""
    _hash: Any = field(default_factory=hashlib.sha256)

    def restarted(self) -> bool:
        """Whether the file was rewritten since the last read. If so, the next read starts over."""
        path = self.run / METRICS
        if not self.offset:
            return False
        if path.is_file():
            with path.open("rb") as file:
                file.seek(self.offset - len(self._tail))
                if file.read(len(self._tail)) == self._tail:
                    return False
        self.offset, self._tail, self._hash = 0, b"", hashlib.sha256()
        return True

    @property
    def digest(self) -> str:
        """SHA-256 of what was read."""
        return str(self._hash.hexdigest())

    def skip(self, length: int, digest: str) -> bool:
        """Start behind the first bytes of the file, if they have this digest."""
        seen, tail = hashlib.sha256(), b""
        with (self.run / METRICS).open("rb") as file:
            for block in iter(lambda: file.read(min(BLOCK, length - file.tell())), b""):
                seen.update(block)
                tail = (tail + block)[-TAIL:]
            if file.tell() != length or seen.hexdigest() != digest:
                return False
        self.offset, self._tail, self._hash = length, tail, seen
        return True

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines since the last call."""
        path = self.run / METRICS
        if not path.is_file():
            return
        for whole in _blocks(path, self.offset):
            yield from parse_lines(whole)
            self.offset += len(whole)
            self._tail = (self._tail + whole)[-TAIL:]
            self._hash.update(whole)


def _blocks(path: Path, offset: int) -> Iterator[bytes]:
    """Yield whole lines from an offset on, about BLOCK bytes at a time."""
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
    """Yield the sound values of each line; skip damaged lines."""
    for line in data.splitlines():
        try:
            value = pydantic_core.from_json(line, allow_inf_nan=False)
        except ValueError:
            try:
                value = DECODER.decode(line.decode())  # slower, and more lenient
            except (ValueError, RecursionError):
                continue
        step = value.get("step") if isinstance(value, dict) else None
        if type(step) is int and 0 <= step <= MOST_STEPS:
            yield {key: each for key, each in value.items() if SOUND.get(key, _is_number)(each)}


def _is_number(value: Any) -> bool:
    return isfinite(value) if type(value) is float else type(value) is int and abs(value) < LARGEST


def _numbers(values: Any) -> bool:
    if type(values) is not list:
        return False
    for one in values:
        if one is not None and not (isfinite(one) if type(one) is float else _is_number(one)):
            return False
    return True


# Checks by key, so that readers can rely on the types; every other key holds a single number.
SOUND = {
    "samples": lambda values: type(values) is list and all(_numbers(one) and len(one) == 2 for one in values),
    **dict.fromkeys(("held_out_bands", "effects", "preview_changes", "control_changes", "visible_effects"), _numbers),
}


class MetricsWriter:
    """Appends lines, each in a single write, so that readers see whole lines.

    If the disk is full, the rest stays in memory and is written with the next line.
    """

    def __init__(self, run: Path, resume_step: int) -> None:
        """Keep the whole lines up to the step that the run resumes from, unchanged."""
        self._path = run / METRICS
        blocks = _blocks(self._path, 0) if resume_step and self._path.exists() else ()
        lines = (line for block in blocks for line in block.splitlines(keepends=True))
        kept = [line for line in lines if any(each["step"] <= resume_step for each in parse_lines(line))]
        write_bytes(self._path, b"".join(kept))
        self._waiting = b""
        with writing(self._path):
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def write(self, **line: Any) -> None:
        """Append a line of numbers or lists of numbers. Raises CannotWrite."""
        self._waiting += (json.dumps(finite(line), allow_nan=False) + "\n").encode()
        with writing(self._path):
            while self._waiting:  # on a nearly full disk, only part of a line may fit
                self._waiting = self._waiting[os.write(self._file, self._waiting) :]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._file, self._waiting)
        os.close(self._file)


# ---- sessions

SESSIONS = "sessions.jsonl"
LAST_LINE = 1 << 20  # bytes; lines are far shorter
Moment = Annotated[float, Field(ge=0.0, le=LATEST)]


@dataclass(frozen=True)
class RunSession:
    """One session of a run, from when its process was ready to train.

    step: the last step done before it: 0, or the checkpoint's.
    before: when the previous session ended, by its last line of metrics or its pause; 0 without one.
    paused: whether it follows a pause of the same process.
    trained: number of trained parameters.
    dropped: a sentence for each clip that was left out.
    stops_at: when the time limit ends it; None without a limit.
    note: what to tell the user about where it started, such as a damaged checkpoint.
    """

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
    """Append a line for this session.

    Call it before the metrics are cut back to the checkpoint: the lost steps took time, too. Raises CannotWrite.

    Args:
        paused_at: When the preceding pause began; None if there was none.
        facts: The other fields of `RunSession`.
    """
    before = _last_metrics_time(run) if paused_at is None else paused_at
    session = RunSession(time.time(), step, before, paused_at is not None, **facts)  # type: ignore[arg-type]
    append_line(run / SESSIONS, json.dumps(finite(asdict(session)), ensure_ascii=False))


def read_sessions(run: Path) -> list[RunSession]:
    """Read every session, oldest first; skip torn lines and malformed records."""
    found = []
    for values in read_json_lines(run / SESSIONS):
        with contextlib.suppress(ValueError):
            found.append(_SESSION.validate_python(values))
    return found


def training_seconds(run: Path, sessions: Sequence[RunSession] | None = None) -> float:
    """Sum up how long the run trained, over all sessions.

    Excludes queueing, loading, encoding, pauses and the time between sessions.
    """
    sessions = read_sessions(run) if sessions is None else sessions
    if not sessions:
        return 0.0
    ended = [*(session.before for session in sessions[1:]), _end(run, sessions[-1])]
    return sum(max(0.0, end - session.time) for session, end in zip(sessions, ended, strict=True))


def _end(run: Path, last: RunSession) -> float:
    """Return when the last session ended; now if it is still training."""
    status = jobs.status(run)
    over = last.time < (status.started_at or 0.0)  # a later start is waiting or loading, or ended before it was ready
    waits = status.phase.startswith(jobs.WAITING)  # resumed, and waiting for its device
    if over or waits or read_object(run / jobs.HEARTBEAT).get("paused"):
        return _last_metrics_time(run)
    return status.ended_at or time.time()


def _last_metrics_time(run: Path) -> float:
    """Return the time of the newest whole line of metrics.jsonl; 0 without one."""
    path = run / METRICS
    if not path.is_file():
        return 0.0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_LINE))
        lines = file.read().split(b"\n")[:-1]
    with contextlib.suppress(ValueError, IndexError, KeyError):
        return float(from_json(lines[-1])["time"])
    return 0.0
