"""Background jobs: start, stop, watch, re-attach. A job is a folder plus a detached process.

The folder holds everything; any process may read it at any time and derives the truth from it:

    config.json      the job's settings
    process.json     {module, pid, start_time, boot_id, started_at}: who runs it, by `start`; later {signal,
                     memory_ran_out} of a process that was killed, where its starter still lived
    heartbeat.json   {phase, step, total, time, still, step_seconds, message, paused}: where it is, written by the job
    control/NAME     a file a command (stop, pause, resume, save, preview); the job takes it by deleting it
    waiting.json     of a job that waits and has no process yet (tickets)
    job.log          the job's output (log)
    result.json      {status, exit_code, message, ended_at, ...}: how it ended, written last, by the job (room)

State is derived, never stored: a result file says how it ended; else the process with that pid, start time and boot is
alive, or it waits for one, or it died. Not covered: what a job does (dataset_builder, trainer, sampler), jobs on other
machines, Windows.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

from workbench.errors import CannotWrite, ConfigError, ExitCode, explain
from workbench.jobs import admission, leftovers, log, processes, reserve, tickets
from workbench.jobs.locks import locked
from workbench.jobs.log import LOG, log_tail
from workbench.jobs.reading import (  # fmt: skip
    CONFIG,
    CONTROL,
    HEARTBEAT,
    PROCESS,
    RESULT,
    STALE_SECONDS,
    WAITING,
    State,
    Status,
    ago,
    duration,
    folders_in,
    jobs_in,
    result,
    status,
)
from workbench.workspace import read_object, write_json, writing

START_LOCK = ".start.lock"
WITHDRAWN = "Stopped while it waited for its turn; start it again to put it into the queue."
Command = Literal["stop", "pause", "resume", "save", "preview"]
HEARTBEAT_SECONDS = 1.0
LEAVE_SECONDS = 10.0  # that a process which has written its result may take to end
SAVING, SAVE_SECONDS = "saving", 60.0  # how the phase of a job begins that saves; so long it may take when it is to end
FORCED = "Ended by force before it could save. Start it again: it goes on from what it saved last."


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
    with locked(folder / START_LOCK):
        now = status(folder)
        if now.state.alive:
            return now
        with admission.starting(module):
            before()
            _let_leave(folder)
            _clear(folder)
            _spawn(folder, module, pass_fds, {**processes.environment(), **(env or {})})
        return status(folder)


def put_off(folder: Path, module: str, env: Mapping[str, str], noting: AbstractContextManager[object]) -> Status:
    """As `start`, but the job gets its process from `start_waiting`; until then it waits, and costs nothing.

    noting: is entered around the moment from which on it waits
    """
    with locked(folder / START_LOCK):
        now = status(folder)
        if now.state.alive:
            return now
        with admission.starting(module), noting:
            _let_leave(folder)
            _clear(folder)
            tickets.write(folder, module, {**processes.environment(), **env})
            (folder / PROCESS).unlink(missing_ok=True)  # the one before may still be on its way out
        return status(folder)


def start_waiting(folder: Path) -> None:
    """Give a job that waits its process. Whoever else did so before is no harm. Raises CannotWrite."""
    with locked(folder / START_LOCK):
        ticket = tickets.read(folder)
        if ticket is not None and ticket.holds and ticket.own:
            if not processes.alive(read_object(folder / PROCESS)):
                _spawn(folder, ticket.module, (), {**processes.environment(), **ticket.environment})
            tickets.remove(folder)


def withdraw(folder: Path) -> bool:
    """End a job that waits and has no process; whether it was one. Raises CannotWrite."""
    if not tickets.there(folder):
        return False
    with locked(folder / START_LOCK):
        if tickets.read(folder) is None or processes.alive(read_object(folder / PROCESS)):
            return False
        write_json(folder / RESULT, _ended(State.STOPPED, ExitCode.STOPPED, WITHDRAWN))
        tickets.remove(folder)
    return True


def _let_leave(folder: Path) -> None:
    """Wait until the process before, which has said how it ended, is gone: a mirror may still bring files."""
    before, end = read_object(folder / PROCESS), time.monotonic() + LEAVE_SECONDS
    while before.get("pid") != os.getpid() and processes.alive(before) and time.monotonic() < end:
        time.sleep(0.02)


def _clear(folder: Path) -> None:
    """Take away what an earlier start left, and commands for it."""
    for name in (RESULT, HEARTBEAT):
        (folder / name).unlink(missing_ok=True)
    for path in (folder / CONTROL).glob("*"):
        path.unlink(missing_ok=True)


def _spawn(folder: Path, module: str, pass_fds: tuple[int, ...], environment: Mapping[str, str]) -> None:
    """Start the process, and write down which it is."""
    with writing(folder), (folder / LOG).open("ab") as output:
        process = subprocess.Popen(
            processes.command(module, folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            pass_fds=pass_fds,
        )
    record = {"module": module, **processes.identity(process.pid), "started_at": time.time()}
    write_json(folder / PROCESS, record)
    # Collect the exit code, else a dead job stays behind as a zombie for as long as this process lives.
    threading.Thread(target=_bury, args=(folder, process, processes.memory_kills()), daemon=True).start()


def _ended(state: State, code: int, message: str) -> dict[str, Any]:
    """result.json of a job that ended just now."""
    return {"status": state, "exit_code": int(code), "message": message, "ended_at": time.time()}


def _bury(folder: Path, process: subprocess.Popen[bytes], memory_kills: int) -> None:
    """Wait for the process and, when a signal ended it, note which."""
    if (code := process.wait()) < 0:
        ran_out = -code == signal.SIGKILL and processes.memory_kills() > memory_kills
        with contextlib.suppress(CannotWrite), locked(folder / START_LOCK):
            record = read_object(folder / PROCESS)
            if record.get("pid") == process.pid:
                write_json(folder / PROCESS, {**record, "signal": -code, "memory_ran_out": ran_out})


def send(folder: Path, command: Command, payload: dict[str, Any] | None = None) -> None:
    """Leave a command for the job; it takes it at its next step. Raises CannotWrite."""
    if command == "stop" and withdraw(folder):
        return
    path = folder / CONTROL / command
    if payload:
        write_json(path, payload)
        return
    with writing(path):  # an empty file: a full disk has room for it
        path.parent.mkdir(exist_ok=True)
        path.touch()


def stop(folder: Path, grace: float | None = None) -> None:
    """Ask the job to save and end. With `grace` (seconds): wait, then end its whole process group.

    A job that is saving by then is given SAVE_SECONDS to finish that. One that is ended by force counts as stopped.
    """
    if not status(folder).state.alive:
        return
    send(folder, "stop")
    if grace is None or wait(folder, grace).state.alive is False:
        return
    kill(folder)
    with locked(folder / START_LOCK):
        if status(folder).state is State.DIED:
            write_json(folder / RESULT, _ended(State.STOPPED, ExitCode.STOPPED, FORCED))


def kill(folder: Path) -> None:
    """End the job's process group at once (SIGTERM, two seconds, SIGKILL). Only ever touches that very process."""
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        process = read_object(folder / PROCESS)
        if withdraw(folder) or not processes.alive(process):
            return
        processes.signal_group(process, number)
        end = time.monotonic() + patience + SAVE_SECONDS
        while wait(folder, patience).phase.startswith(SAVING) and processes.alive(process) and time.monotonic() < end:
            patience = 0.1


def wait(folder: Path, seconds: float | None = None, poll: float = 0.05) -> Status:
    """Wait until the job is over or the time is up, and return its status."""
    end = None if seconds is None else time.monotonic() + seconds
    while (now := status(folder)).state.alive and (end is None or time.monotonic() < end):
        time.sleep(poll)
    return now


def stacks(folder: Path) -> str:
    """What every thread of a living job is doing now; it goes on. Raises ConfigError when it cannot be asked."""
    process = read_object(folder / PROCESS)
    if not processes.handles(process, signal.SIGUSR1):
        raise ConfigError(f"{folder.name} cannot be asked for its stacks: it does not run, or has only just begun")
    return processes.said_on(process, signal.SIGUSR1, folder / LOG)


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
        with contextlib.suppress(CannotWrite):
            reserve.reserve(self._result)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop_signal.set())
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        self._write_beat()
        threading.Thread(target=self._keep_beating, daemon=True).start()
        return self

    def _announce(self) -> None:
        """The starter writes this, too; a job run by hand (python -m ...) must be found as well.

        Ends the process where another one is this job.
        """
        with locked(self.folder / START_LOCK):
            known = read_object(self.folder / PROCESS)
            if known.get("pid") != os.getpid():  # run by hand
                if processes.alive(known) and not (self.folder / RESULT).exists():
                    who = f"{self.folder.name} runs already, as process {known['pid']}"
                    sys.stderr.write(f"{who}: stop it first, or leave it alone\n")
                    sys.exit(int(ExitCode.DEVICE_BUSY))
                _clear(self.folder)
                known = {"module": "", "started_at": time.time()}
            write_json(self.folder / PROCESS, known | processes.identity(os.getpid()))
            tickets.remove(self.folder)

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
            with contextlib.suppress(OSError):  # a full disk has no room for it in the log
                traceback.print_exception(error)
        reserve.release(self._result)
        return isinstance(error, Exception)

    def fail(self, error: BaseException) -> None:
        """Write how the job ended; for a thread that ends the process itself (the watchdog), and for `__exit__`."""
        self.exit_code, message = explain(error)
        self._end(State.FAILED, message)

    def _end(self, status: State, message: str) -> None:
        result = {**self.outcome, **_ended(status, self.exit_code, message)}
        self._write_beat()  # where it ended; the last one may be a second old
        try:
            write_json(self._result, result)
        except CannotWrite:
            with contextlib.suppress(CannotWrite):
                reserve.use(self._result, result)

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
        payload = read_object(path)
        with self._lock:
            if command == "stop":
                self._beat["stopping"] = True
        self._write_beat()
        path.unlink(missing_ok=True)
        return payload

    def _keep_beating(self) -> None:
        leftovers.sweep(self.folder)
        while not self._over.wait(HEARTBEAT_SECONDS):
            self._write_beat()
            with contextlib.suppress(CannotWrite):
                log.bound(self.folder)

    def _write_beat(self) -> None:
        with self._lock:
            beat = {**self._beat, "time": time.time(), "still": round(time.monotonic() - self._said, 1)}
        temporary = self.folder / f".{HEARTBEAT}.{threading.get_ident()}"
        # No fsync: a heartbeat is worth nothing after a power cut. A full disk misses one.
        with contextlib.suppress(CannotWrite), writing(temporary):
            temporary.write_text(json.dumps(beat))
            os.replace(temporary, self.folder / HEARTBEAT)


class Stop(Exception):
    """Raised inside a job to end it as asked; its text is shown to the person who asked."""


__all__ = [
    "CONFIG", "CONTROL", "FORCED", "HEARTBEAT", "LOG", "PROCESS", "RESULT", "STALE_SECONDS", "WAITING", "Command",
    "Job", "State", "Status", "Stop", "ago", "duration", "folders_in", "jobs_in", "kill", "locked", "log_tail",
    "put_off", "result", "send", "stacks", "start", "start_waiting", "status", "stop", "wait", "withdraw",
]  # fmt: skip
