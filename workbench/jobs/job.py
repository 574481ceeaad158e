"""The job's side of the protocol, inside its process: heartbeats, commands, result.

While the job runs, `.result.json.room` reserves space for the result, so that a full disk does not hide why it ended.
Copy-on-write file systems (btrfs, zfs) may run out all the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

from workbench.errors import CannotWrite, ExitCode, explain
from workbench.jobs import leftovers, log, platform, processes
from workbench.jobs.locks import locked
from workbench.jobs.reading import CONTROL, HEARTBEAT, PROCESS, RESULT, TICKET, State
from workbench.workspace import disk, read_object, sync_folder, write_bytes, write_json, writing

START_LOCK = ".start.lock"
STACKS = "stacks"  # a file beside the commands that requests stacks on systems without the signal
HEARTBEAT_SECONDS = 1.0
RESERVED_BYTES = 16 * 1024
ENDING = {"status", "exit_code", "message", "ended_at"}  # the keys of a result that are always kept
MOST_MESSAGE = 2000  # characters of the message when the disk is full
Command = Literal["stop", "pause", "resume", "save", "preview"]


class Stop(Exception):
    """Raised inside a job to end it on request; its text is shown to the user."""


class Job:
    """A running job, as its own process sees it. Use as a context manager in the job's main.

        with Job(folder) as job:
            job.beat("train", step, total)
            job.check_stop("Stopped; what was done is kept.")

    On exit, result.json is written: "finished" normally, "stopped" after `Stop`, otherwise "failed" with the error's
    sentence. `exit_code` then holds the process's exit code. SIGTERM and SIGINT act like the stop command.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exit_code = ExitCode.FINISHED
        self.outcome: dict[str, Any] = {}  # merged into result.json
        self._beat: dict[str, Any] = {"phase": "starting", "step": 0, "total": 0}
        self._beat_at = time.monotonic()
        self._stop_signal = threading.Event()
        self._over = threading.Event()
        self._result = folder / RESULT
        self._lock = threading.Lock()

    @classmethod
    def main(cls, work: Callable[[Self], object]) -> int:
        """Run `work` as the job in the folder on the command line (`python -m MODULE FOLDER`). Return the exit code."""
        with cls(Path(sys.argv[1]).resolve()) as job:
            work(job)
        return int(job.exit_code)

    def __enter__(self) -> Self:
        (self.folder / CONTROL).mkdir(exist_ok=True)
        self._announce()
        with contextlib.suppress(CannotWrite):
            write_bytes(self._reserved, b" " * RESERVED_BYTES)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop_signal.set())
        platform.prepare_stacks()
        self._write_beat()
        threading.Thread(target=self._keep_beating, daemon=True).start()
        return self

    def _announce(self) -> None:
        """Write process.json, which has no starter to write it when the job is run by hand (python -m ...).

        Exits if another process already runs this job.
        """
        with locked(self.folder / START_LOCK):
            known = read_object(self.folder / PROCESS)
            if known.get("pid") != os.getpid():  # run by hand
                if processes.alive(known) and not (self.folder / RESULT).exists():
                    who = f"{self.folder.name} is already running as process {known['pid']}"
                    sys.stderr.write(f"{who}: stop it first, or leave it alone\n")
                    sys.exit(int(ExitCode.DEVICE_BUSY))
                clear(self.folder)
                known = {"module": "", "started_at": time.time()}
            write_json(self.folder / PROCESS, known | processes.identity(os.getpid()))
            disk.patiently(lambda: (self.folder / TICKET).unlink(missing_ok=True))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self._over.set()
        if error is None:
            self._end(State.FINISHED, "")
        elif isinstance(error, Stop):
            self.exit_code = ExitCode.STOPPED
            self._end(State.STOPPED, str(error))
        else:
            import traceback

            # First, because the result tells readers that the log is complete.
            with contextlib.suppress(OSError):  # the disk may be full
                traceback.print_exception(error)
            self.fail(error)
        self._reserved.unlink(missing_ok=True)
        return isinstance(error, Exception)

    def fail(self, error: BaseException) -> None:
        """Write that the job failed. Also called by the stall timeout's thread, which ends the process itself."""
        self.exit_code, message = explain(error)
        self._end(State.FAILED, message)

    def _end(self, status: State, message: str) -> None:
        self._write_result({**self.outcome, **ended(status, self.exit_code, message)})

    def _write_result(self, result: dict[str, Any]) -> None:
        self._write_beat()  # the last one may be a second old
        try:
            write_json(self._result, result)
        except CannotWrite:
            with contextlib.suppress(CannotWrite), writing(self._result):
                data = _shortened(result)
                with self._reserved.open("r+b") as file:
                    file.write(data)
                    file.truncate(len(data))
                    file.flush()
                    os.fsync(file.fileno())
                disk.replace(self._reserved, self._result)
                sync_folder(self._result.parent)

    @property
    def _reserved(self) -> Path:
        return self._result.with_name(f".{self._result.name}.room")

    def beat(self, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        """Report progress. Cheap: a thread writes it.

        more: step_seconds (to estimate the time left), message, paused, and patient (a long silence is not a hang).
        """
        with self._lock:
            self._beat = {"phase": phase, "step": step, "total": total, **more}
            self._beat_at = time.monotonic()

    @property
    def last_beat(self) -> tuple[dict[str, Any], float]:
        """The last `beat` and its time (time.monotonic)."""
        with self._lock:
            return dict(self._beat), self._beat_at

    def take(self, command: Command) -> dict[str, Any] | None:
        """Take a command: return its payload, or None if it was not sent since the last call."""
        if command == "stop" and self._stop_signal.is_set():
            return {}
        path = self.folder / CONTROL / command
        if not path.exists():
            return None
        payload = read_object(path)
        with self._lock:
            if command == "stop":
                self._beat["stopping"] = True
        self._write_beat()
        disk.patiently(lambda: path.unlink(missing_ok=True))
        return payload

    def check_stop(self, message: str) -> None:
        """Raise Stop with this message once a stop was requested."""
        if self.take("stop") is not None:
            raise Stop(message)

    def _keep_beating(self) -> None:
        leftovers.sweep(self.folder)
        while not self._over.wait(HEARTBEAT_SECONDS):
            self._write_beat()
            platform.answer_stacks(self.folder / CONTROL / STACKS)
            with contextlib.suppress(CannotWrite):
                log.bound(self.folder)

    def _write_beat(self) -> None:
        with self._lock:
            beat = {**self._beat, "time": time.time(), "still": round(time.monotonic() - self._beat_at, 1)}
        temporary = self.folder / f".{HEARTBEAT}.{threading.get_ident()}"
        # No fsync: a heartbeat is worthless after a power cut. On a full disk it is skipped.
        with contextlib.suppress(CannotWrite), writing(temporary):
            temporary.write_text(json.dumps(beat), encoding="utf-8")
            disk.replace(temporary, self.folder / HEARTBEAT)


def _shortened(result: dict[str, Any]) -> bytes:
    """Return the result as JSON that fits into the reserved space, dropping its longest values if needed.

    How the job ended is always kept; `left_out` names the keys that were dropped.
    """
    kept, left_out = {**result, "message": str(result["message"])[:MOST_MESSAGE]}, list[str]()

    def encoded(value: object) -> bytes:
        return json.dumps(value, ensure_ascii=False).encode()

    while len(data := encoded(kept)) > RESERVED_BYTES:
        longest = max(set(kept) - ENDING - {"left_out"}, key=lambda name: len(encoded(kept[name])))
        left_out.append(longest)
        del kept[longest]
        kept["left_out"] = left_out
    return data


def clear(folder: Path) -> None:
    """Remove the result, heartbeat and commands of an earlier start."""
    for name in (RESULT, HEARTBEAT):
        (folder / name).unlink(missing_ok=True)
    for path in (folder / CONTROL).glob("*"):
        path.unlink(missing_ok=True)


def ended(state: State, code: int, message: str) -> dict[str, Any]:
    """Return the part of result.json that says how a job ended just now."""
    return {"status": state, "exit_code": int(code), "message": message, "ended_at": time.time()}
