"""Start, stop, command and watch a job from another process."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from workbench.errors import CannotWrite, ConfigError, ExitCode
from workbench.jobs import platform, processes, quota
from workbench.jobs.job import STACKS, START_LOCK, Command, clear, ended
from workbench.jobs.locks import locked
from workbench.jobs.log import LOG
from workbench.jobs.reading import CONTROL, PROCESS, RESULT, TICKET, State, Status, status, ticket
from workbench.workspace import disk, make_folder, read_object, write_json, writing

WITHDRAWN = "Stopped while it waited for its turn; start it again to put it into the queue."
EXIT_SECONDS = 10.0  # time for a process to exit after it has written its result
WITH_PASSWORD = re.compile(r"://[^/\s]*@")  # a proxy's address with a password, which must not be written to disk
ANSWER_SECONDS = 4.0  # time for a job to write its stacks
SAVING, SAVE_SECONDS = "saving", 60.0  # prefix of the phase of a job that is saving; time it gets to finish that
FORCED = "Killed before it could save. Start it again to resume from its last save."


def start(
    folder: Path,
    module: str,
    stdin: int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    before: Callable[[], None] = lambda: None,
) -> Status:
    """Start `python -m module FOLDER` detached, with its output in job.log, and return its status.

    The process inherits no secrets. A job that is already alive is left alone. Raises CannotWrite, or ConfigError if a
    visitor's quota forbids it.

    Args:
        stdin, env: an open file and extra variables for the process; they carry secrets without a trace.
        before: called once it is certain that this call starts the process.
    """
    make_folder(folder)
    with locked(folder / START_LOCK):
        now = status(folder)
        if now.state.alive:
            return now
        with quota.starting(module):
            before()
            _clear_earlier_start(folder)
            _spawn(folder, module, stdin, {**processes.environment(module=module), **(env or {})})
        return status(folder)


def put_off(
    folder: Path, module: str, env: Mapping[str, str], noting: AbstractContextManager[object], entry: Any = None
) -> Status:
    """Let a job wait until `start_waiting` gives it a process; otherwise like `start`.

    Args:
        noting: entered around the moment the job begins to wait.
        entry: its entry in the queue.
    """
    make_folder(folder)
    with locked(folder / START_LOCK):
        now = status(folder)
        if now.state.alive:
            return now
        with quota.starting(module), noting:
            _clear_earlier_start(folder)
            environment = {**processes.environment(module=module), **env}
            record = {
                "module": module,
                "environment": {name: value for name, value in environment.items() if not WITH_PASSWORD.search(value)},
                "entry": entry,
                "time": time.time(),
                "boot_id": platform.boot_id(),
                "inode": folder.stat().st_ino,
            }
            write_json(folder / TICKET, record, mode=0o600)
            (folder / PROCESS).unlink(missing_ok=True)  # the previous process may not have ended yet
        return status(folder)


def start_waiting(folder: Path) -> None:
    """Start the process of a waiting job, unless somebody else already has. Raises CannotWrite."""
    with locked(folder / START_LOCK):
        waits = ticket(folder)
        if waits is not None and waits.holds and waits.own:
            if not processes.alive(read_object(folder / PROCESS)):
                environment = {**processes.environment(module=waits.module), **waits.environment}
                _spawn(folder, waits.module, subprocess.DEVNULL, environment)
            disk.patiently(lambda: (folder / TICKET).unlink(missing_ok=True))


def withdraw(folder: Path) -> bool:
    """End a job that waits for a process; return False if it does not. Raises CannotWrite."""
    if not (folder / TICKET).exists():
        return False
    with locked(folder / START_LOCK):
        if ticket(folder) is None or processes.alive(read_object(folder / PROCESS)):
            return False
        write_json(folder / RESULT, ended(State.STOPPED, ExitCode.STOPPED, WITHDRAWN))
        disk.patiently(lambda: (folder / TICKET).unlink(missing_ok=True))
    return True


def forget(folder: Path) -> None:
    """Reset an ended job so that it counts as never started. A job that is alive is left alone."""
    with locked(folder / START_LOCK):
        if not status(folder).state.alive:
            clear(folder)
            (folder / PROCESS).unlink(missing_ok=True)


def _clear_earlier_start(folder: Path) -> None:
    """Wait for the previous process, which has its result but may still be fetching files, then remove what it left."""
    before, end = read_object(folder / PROCESS), time.monotonic() + EXIT_SECONDS
    while before.get("pid") != os.getpid() and processes.alive(before) and time.monotonic() < end:
        time.sleep(0.02)
    clear(folder)


def _spawn(folder: Path, module: str, stdin: int, environment: Mapping[str, str]) -> None:
    with writing(folder), (folder / LOG).open("ab") as output:
        process = subprocess.Popen(
            processes.command(module, folder),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            **platform.detached(),
        )
    write_json(folder / PROCESS, {"module": module, **processes.identity(process.pid), "started_at": time.time()})
    # Collect the exit code; otherwise a dead job stays a zombie as long as this process lives.
    threading.Thread(target=_collect, args=(folder, process, platform.memory_kills()), daemon=True).start()


def _collect(folder: Path, process: subprocess.Popen[bytes], memory_kills: int) -> None:
    """Wait for the process and record the signal that ended it, if one did."""
    if number := platform.death_signal(process.wait()):
        ran_out = number == processes.KILLED and platform.memory_kills() > memory_kills
        with contextlib.suppress(CannotWrite), locked(folder / START_LOCK):
            record = read_object(folder / PROCESS)
            if record.get("pid") == process.pid:
                write_json(folder / PROCESS, {**record, "signal": number, "memory_ran_out": ran_out})


def send(folder: Path, command: Command, payload: dict[str, Any] | None = None) -> None:
    """Send the job a command, which it takes at its next step. Raises CannotWrite."""
    if command == "stop" and withdraw(folder):
        return
    path = folder / CONTROL / command
    if payload:
        write_json(path, payload)
        return
    with writing(path):  # an empty file fits even on a full disk
        path.parent.mkdir(exist_ok=True)
        path.touch()


def stop(folder: Path, grace: float | None = None, payload: dict[str, Any] | None = None) -> None:
    """Ask the job to save and end. With `grace` (seconds), kill its process group if it has not ended by then.

    A job that is saving at that moment gets SAVE_SECONDS to finish. A killed job counts as stopped.
    """
    if not status(folder).state.alive:
        return
    send(folder, "stop", payload)
    if grace is None or not wait(folder, grace).state.alive:
        return
    kill(folder)
    with locked(folder / START_LOCK):
        if status(folder).state is State.DIED:
            write_json(folder / RESULT, ended(State.STOPPED, ExitCode.STOPPED, FORCED))


def kill(folder: Path) -> None:
    """Ask the job's process group to end, and kill it two seconds later. Never touches another process."""
    for force, patience in ((False, 2.0), (True, 5.0)):
        process = read_object(folder / PROCESS)
        if withdraw(folder) or not processes.alive(process):
            return
        if force:
            processes.end(process)
        elif not processes.request_end(process):
            send(folder, "stop")
        end = time.monotonic() + patience + SAVE_SECONDS
        while wait(folder, patience).phase.startswith(SAVING) and processes.alive(process) and time.monotonic() < end:
            patience = 0.1


def wait(folder: Path, seconds: float | None = None, poll: float = 0.05) -> Status:
    """Wait until the job has ended or the time is up, and return its status."""
    end = None if seconds is None else time.monotonic() + seconds
    while (now := status(folder)).state.alive and (end is None or time.monotonic() < end):
        time.sleep(poll)
    return now


def stacks(folder: Path) -> str:
    """Return the stack of every thread of a running job, as it writes them to its log.

    Raises ConfigError if the job cannot answer.
    """
    process, path = read_object(folder / PROCESS), folder / LOG
    size = before = path.stat().st_size if path.exists() else 0
    if not (processes.alive(process) and platform.request_stacks(process["pid"], folder / CONTROL / STACKS)):
        raise ConfigError(f"{folder.name} cannot show its stacks: it is not running, or has only just started")
    end, now = time.monotonic() + ANSWER_SECONDS, size
    while time.monotonic() < end and not now == size > before:  # until the log has grown and is quiet again
        size = now
        time.sleep(0.1)
        now = path.stat().st_size if path.exists() else 0
    return path.read_bytes()[before:].decode("utf-8", "replace") if path.exists() else ""
