"""Background jobs: start, stop, watch, re-attach. A job is a folder plus a detached process.

The folder holds everything; any process may read it at any time and derives the truth from it:

    config.json      the job's settings
    process.json     {module, pid, start_time, boot_id, started_at}: who runs it, by `start`; later {signal,
                     memory_ran_out} of a process that was killed, where its starter still lived
    heartbeat.json   {phase, step, total, time, still, step_seconds, message, paused}: where it is, written by the job
    control/NAME     a file a command (stop, pause, resume, save, preview); the job takes it by deleting it
    job.log          the job's output
    result.json      {status, exit_code, message, ended_at, ...}: how it ended, written last, by the job

State is derived, never stored: a result file says how it ended; else the process with that pid, start time and boot is
alive, or it died. Not covered: what a job does (dataset_builder, trainer, sampler), jobs on other machines, Windows.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from workbench import policy, processes
from workbench.errors import CannotWrite, ConfigError, ExitCode, explain
from workbench.workspace import read_json, write_json, writing

CONFIG, PROCESS, HEARTBEAT, RESULT = "config.json", "process.json", "heartbeat.json", "result.json"
LOG, CONTROL = "job.log", "control"
Command = Literal["stop", "pause", "resume", "save", "preview"]
HEARTBEAT_SECONDS = 1.0
STALE_SECONDS = 120.0  # a living process without a heartbeat for this long is shown as hanging
STALE_STEPS = 10  # so is one whose steps have a known pace, when it stands still for so many of them and that long


class State(StrEnum):
    """What a job is doing, derived from its folder."""

    NEW = "new"  # settings are there, never started
    STARTING = "starting"  # process alive, no heartbeat yet
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"  # asked to stop, still alive
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
    silent_seconds: float = 0.0  # since the job itself, not only its heartbeat, said anything
    hanging: bool = False

    @property
    def name(self) -> str:
        return self.folder.name


# ---- reading --------------------------------------------------------------------------------------------------------


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, or {} when the file is missing or not whole (it will be on the next look)."""
    with contextlib.suppress(ConfigError):
        value = read_json(path)
        return value if isinstance(value, dict) else {}
    return {}


def _number(values: dict[str, Any], name: str, default: float = 0.0) -> float:
    value = values.get(name)
    return value if isinstance(value, int | float) else default


def status(folder: Path) -> Status:
    """What the job in this folder is doing now. Never raises for a missing or broken file."""
    result, process, beat = _read(folder / RESULT), _read(folder / PROCESS), _read(folder / HEARTBEAT)
    if gone := bool(process) and not result and not processes.alive(process):
        result = _read(folder / RESULT)  # it may have ended between the two looks
    common: dict[str, Any] = {
        "folder": folder,
        "phase": str(beat.get("phase", "")),
        "step": int(_number(beat, "step")),
        "total": int(_number(beat, "total")),
        "pid": process.get("pid"),
        "started_at": process.get("started_at"),
    }
    if result:
        state = State(result["status"]) if result.get("status") in list(State) else State.FAILED
        return Status(
            **common, state=state, message=str(result.get("message", "")), exit_code=result.get("exit_code"),
            ended_at=result.get("ended_at"),
        )  # fmt: skip
    if not process:
        return Status(**common, state=State.NEW)
    if gone:
        return Status(**common, state=State.DIED, message=processes.death(process), ended_at=beat.get("time"))
    silent = max(0.0, time.time() - _number(beat, "time", _number(process, "started_at", time.time())))
    state = State.RUNNING if beat else State.STARTING
    if beat.get("paused"):
        state = State.PAUSED
    if (folder / CONTROL / "stop").exists() or beat.get("stopping"):
        state = State.STOPPING
    seconds_left = None
    if (step_seconds := _number(beat, "step_seconds")) and common["total"]:
        seconds_left = max(0.0, (common["total"] - common["step"]) * step_seconds)
    still = silent + _number(beat, "still")
    stuck = step_seconds > 0 and not beat.get("patient") and still > max(STALE_SECONDS, STALE_STEPS * step_seconds)
    return Status(
        **common,
        state=state,
        seconds_left=seconds_left,
        message=str(beat.get("message", "")),
        silent_seconds=still,
        hanging=state in (State.RUNNING, State.STOPPING) and (silent > STALE_SECONDS or stuck),
    )


def result(folder: Path) -> dict[str, Any]:
    """How the job ended (result.json with what it made), {} while it is not over. Raises ConfigError when broken."""
    path = folder / RESULT
    return read_json(path) if path.exists() else {}


def jobs_in(parent: Path) -> list[Status]:
    """The status of every job folder below parent, newest first."""
    folders = [path.parent for path in parent.glob(f"*/{CONFIG}")]
    return [status(folder) for folder in sorted(folders, key=lambda f: (f / CONFIG).stat().st_mtime, reverse=True)]


def duration(seconds: float) -> str:
    """45 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def log_tail(folder: Path, lines: int = 50, limit: int = 65536) -> str:
    """The last lines of the job's log; progress bars shortened to their last state."""
    path = folder / LOG
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - limit))
        text = file.read().decode("utf-8", "replace")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in text.rstrip("\r\n").split("\n")[-lines:])


# ---- starting and commanding ----------------------------------------------------------------------------------------


def start(
    folder: Path,
    module: str,
    pass_fds: tuple[int, ...] = (),
    env: Mapping[str, str] | None = None,
    before: Callable[[], None] = lambda: None,
) -> Status:
    """Start `python -m module FOLDER` detached: own session, output to job.log, no inherited secrets.

    pass_fds, env: open files and variables that it gets in addition (how a secret reaches a job without a trace).
    before: done once it is certain that this call starts the process.
    Starting a job that is alive changes nothing: its status is returned. Raises CannotWrite; ConfigError (policy).
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".start.lock"):
        now = status(folder)
        if now.state.alive:
            return now
        policy.check_start(module)
        before()
        for name in (RESULT, HEARTBEAT):
            (folder / name).unlink(missing_ok=True)
        for path in (folder / CONTROL).glob("*"):
            path.unlink(missing_ok=True)
        with writing(folder), (folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**processes.environment(), **(env or {})},
                pass_fds=pass_fds,
            )
        record = {"module": module, **processes.identity(process.pid), "started_at": time.time()}
        write_json(folder / PROCESS, record)
        # Collect the exit code, else a dead job stays behind as a zombie for as long as this process lives.
        threading.Thread(target=_bury, args=(folder, process, processes.memory_kills()), daemon=True).start()
        return status(folder)


def _bury(folder: Path, process: subprocess.Popen[bytes], memory_kills: int) -> None:
    """Wait for the process and, when a signal ended it, note which."""
    if (code := process.wait()) < 0:
        ran_out = -code == signal.SIGKILL and processes.memory_kills() > memory_kills
        with contextlib.suppress(CannotWrite), locked(folder / ".start.lock"):
            record = _read(folder / PROCESS)
            if record.get("pid") == process.pid:
                write_json(folder / PROCESS, {**record, "signal": -code, "memory_ran_out": ran_out})


def send(folder: Path, command: Command, payload: dict[str, Any] | None = None) -> None:
    """Leave a command for the job; it takes it at its next step. Raises CannotWrite."""
    write_json(folder / CONTROL / command, payload or {})


def stop(folder: Path, grace: float | None = None) -> None:
    """Ask the job to save and end. With `grace` (seconds): wait, then end its whole process group."""
    if not status(folder).state.alive:
        return
    send(folder, "stop")
    if grace is None or wait(folder, grace).state.alive is False:
        return
    kill(folder)


def kill(folder: Path) -> None:
    """End the job's process group at once (SIGTERM, two seconds, SIGKILL). Only ever touches that very process."""
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        process = _read(folder / PROCESS)
        if not processes.alive(process):
            return
        processes.signal_group(process, number)
        wait(folder, patience)


def wait(folder: Path, seconds: float | None = None, poll: float = 0.05) -> Status:
    """Wait until the job is over or the time is up, and return its status."""
    end = None if seconds is None else time.monotonic() + seconds
    while (now := status(folder)).state.alive and (end is None or time.monotonic() < end):
        time.sleep(poll)
    return now


def stacks(folder: Path) -> str:
    """What every thread of a living job is doing now; it goes on. Raises ConfigError when it cannot be asked."""
    process = _read(folder / PROCESS)
    if not processes.handles(process, signal.SIGUSR1):
        raise ConfigError(f"{folder.name} cannot be asked for its stacks: it does not run, or has only just begun")
    return processes.said_on(process, signal.SIGUSR1, folder / LOG)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file while something is read and written as one: two who press Start at once get one process."""
    with writing(path):
        file = path.open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---- inside the job -------------------------------------------------------------------------------------------------


class Job:
    """The job's own side of the protocol: heartbeats, commands, result. Use as a context manager in the job's main.

        with Job(folder) as job:
            job.beat("train", step, total)
            if job.take("stop") is not None: raise Stop

    On leaving, result.json is written: "finished" for a normal end, "stopped" after `Stop`, "failed" with the error's
    sentence otherwise. `exit_code` then holds the process's exit code. SIGTERM and SIGINT count as the stop command,
    SIGUSR1 writes every thread's stack to the log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exit_code = ExitCode.FINISHED
        self.outcome: dict[str, Any] = {}  # merged into result.json
        self._beat: dict[str, Any] = {"phase": "starting", "step": 0, "total": 0}
        self._said = time.monotonic()
        self._stop_signal = threading.Event()
        self._over = threading.Event()
        self._result = folder / RESULT
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        (self.folder / CONTROL).mkdir(exist_ok=True)
        self._announce()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop_signal.set())
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        self._write_beat()
        threading.Thread(target=self._keep_beating, daemon=True).start()
        return self

    def _announce(self) -> None:
        # The starter writes this too; a job run by hand (python -m ...) must be found as well.
        record = {"module": "", "started_at": time.time(), **_read(self.folder / PROCESS)}
        write_json(self.folder / PROCESS, record | processes.identity(os.getpid()))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self._over.set()
        if error is None:
            self._end(State.FINISHED, "")
        elif isinstance(error, Stop):
            self.exit_code = ExitCode.STOPPED
            self._end(State.STOPPED, str(error))
        else:
            import traceback

            self.fail(error)
            traceback.print_exception(error)
        return isinstance(error, Exception)

    def fail(self, error: BaseException) -> None:
        """Write how the job ended; for a thread that ends the process itself (the watchdog), and for `__exit__`."""
        self.exit_code, message = explain(error)
        self._end(State.FAILED, message)

    def _end(self, status: State, message: str) -> None:
        result = {"status": status, "exit_code": int(self.exit_code), "message": message, "ended_at": time.time()}
        with contextlib.suppress(CannotWrite):
            self._write_beat()  # where it ended; the last one may be a second old
            write_json(self._result, {**self.outcome, **result})

    def beat(self, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        """Say where the job is. Cheap: written by a thread.

        More: step_seconds (for the time left), message, paused; patient: a long silence is no hang (a download).
        """
        with self._lock:
            self._beat = {"phase": phase, "step": step, "total": total, **more}
            self._said = time.monotonic()

    @property
    def last_beat(self) -> tuple[dict[str, Any], float]:
        """What `beat` said last, and when (time.monotonic)."""
        with self._lock:
            return dict(self._beat), self._said

    def take(self, command: Command) -> dict[str, Any] | None:
        """The command's payload if it was given since the last look, else None. A command is taken once."""
        if command == "stop" and self._stop_signal.is_set():
            return {}
        path = self.folder / CONTROL / command
        if not path.exists():
            return None
        payload = _read(path)
        with self._lock:
            if command == "stop":
                self._beat["stopping"] = True
        self._write_beat()
        path.unlink(missing_ok=True)
        return payload

    def _keep_beating(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(CannotWrite):
                self._write_beat()

    def _write_beat(self) -> None:
        with self._lock:
            beat = {**self._beat, "time": time.time(), "still": round(time.monotonic() - self._said, 1)}
        temporary = self.folder / f".{HEARTBEAT}.{threading.get_ident()}"
        # No fsync: a heartbeat is worth nothing after a power cut.
        with writing(temporary):
            temporary.write_text(json.dumps(beat))
            os.replace(temporary, self.folder / HEARTBEAT)


class Stop(Exception):
    """Raised inside a job to end it as asked; its text is shown to the person who asked."""
