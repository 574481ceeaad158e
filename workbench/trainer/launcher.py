"""The processes of a run on several GPUs: who starts them, what they inherit, how they end.

    launcher    `python -m workbench.trainer RUN` for a run on more than one GPU, the process that workbench.jobs knows.
                It waits in the queue, holds the locks of all its GPUs and starts one process (rank) per GPU
    rank 0      is the run to all readers: heartbeat, commands, metrics, checkpoints, log. It writes how it ended to
                RUN/ranks/0.json, from which the launcher makes the run's result.json once all ranks have exited
    the others  only compute. If one fails, it writes the reason to RUN/ranks/NUMBER.json, in the form of a result.json

Under the user's own `accelerate launch` or torchrun, the ranks exist already (RANK and WORLD_SIZE in the environment)
and this launcher is not used: rank 0 is the job, waits in the queue and holds the locks of its machine. If that
launcher is ended by a signal, which it may not pass on, the ranks treat it as a signal to stop.

Why not torchrun's agent, which accelerate launch uses: it puts every rank in its own session, out of reach of a signal
to the job's process group; killed with -9, it leaves the ranks running; it reports a rank's exit code, but not what a
signal meant; and it loads torch. Here a rank is a child in the launcher's own process group, dies with the launcher
(the kernel sees to it), holds the GPUs' locks as long as it lives, and meets the others on a port that is open to this
machine only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from workbench import jobs
from workbench.errors import ConfigError, ExitCode, ProcessFailed, WorkbenchError
from workbench.jobs import platform, processes
from workbench.workspace import read_json, write_json

RANKS = "ranks"  # folder in the run: how each rank ended
LAUNCHER_PID = "WORKBENCH_LAUNCHER_PID"  # environment of ranks: the launcher's pid
STORE = "WORKBENCH_STORE"  # environment of rank 0: the file descriptor of the open port
CHECK_SECONDS = 0.05
GRACE_SECONDS = 10.0  # for the other ranks to exit once one has


@dataclass(frozen=True)
class ProcessRank:
    """Which of a run's processes this one is. launcher_pid: None if our launcher did not start it"""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1
    launcher_pid: int | None = None

    @property
    def first(self) -> bool:
        return self.rank == 0


SINGLE = ProcessRank()


def rank_failed(rank: int, count: int, reason: str, code: int = ExitCode.BUG) -> ProcessFailed:
    """Return the error for a rank that ended too early."""
    return ProcessFailed(f"Process {rank + 1} of {count}: {reason}", code)


def launched_process() -> ProcessRank | None:
    """Return the rank that a launcher gave this process, or None without a launcher.

    Also tie this process to its launcher: when the launcher dies, our own ranks end at once, others after saving.
    """
    env = os.environ
    launcher_pid = int(env[LAUNCHER_PID]) if LAUNCHER_PID in env else None
    together = int(env.get("WORLD_SIZE", "1")) > 1 and "RANK" in env
    # `accelerate launch` sets no rank for a single process. Our own jobs run in their own session.
    alone = any(name.startswith("ACCELERATE_") for name in env) and not platform.detached_here()
    if together or alone:
        platform.end_with_parent(launcher_pid)
        if launcher_pid is not None and os.getppid() != launcher_pid:  # it died before the kernel was asked
            os._exit(int(ExitCode.BUG))
    if not together:
        return None
    rank, count = int(env["RANK"]), int(env["WORLD_SIZE"])
    return ProcessRank(
        rank, count, int(env.get("LOCAL_RANK", rank)), int(env.get("LOCAL_WORLD_SIZE", count)), launcher_pid
    )


# ---- the job as each rank sees it


class FirstRank(jobs.Job):
    """The job in rank 0. Readers still look for the launcher's process, if there is one."""

    def __init__(self, folder: Path, process: ProcessRank) -> None:
        super().__init__(folder)
        self.process, self._began = process, time.time()
        if process.launcher_pid is not None:
            self._result = _ending(folder, 0)

    def _announce(self) -> None:
        if self.process.launcher_pid is None:
            super()._announce()

    def fail(self, error: BaseException) -> None:
        """Report the error of another rank instead, if losing that rank is what made this one fail."""
        if not isinstance(error, WorkbenchError):
            error = error_of_another(self.folder, self.process.count, self._began) or error
        super().fail(error)


class Follower(jobs.Job):
    """The job in every other rank: no heartbeat, no commands but the stop signal, no result unless it fails."""

    def __init__(self, folder: Path, process: ProcessRank) -> None:
        super().__init__(folder)
        self.process, self._result = process, _ending(folder, process.rank)

    def _announce(self) -> None:
        """Do nothing: readers look for rank 0 or the launcher."""

    def _write_beat(self) -> None:
        """Do nothing: only this process's stall timeout reads the heartbeat."""

    def take(self, command: jobs.Command) -> dict[str, object] | None:
        return {} if command == "stop" and self._stop_signal.is_set() else None

    def _end(self, status: jobs.State, message: str) -> None:
        if status is jobs.State.FAILED:
            super()._end(status, message)


def _ending(folder: Path, rank: int) -> Path:
    return folder / RANKS / f"{rank}.json"


def job_of(folder: Path, process: ProcessRank) -> jobs.Job:
    """Return the job for this rank. Only rank 0 prints; the others keep nothing but stderr."""
    if process.first:
        return FirstRank(folder, process)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return Follower(folder, process)


def error_of_another(folder: Path, count: int, since: float = 0.0) -> ProcessFailed | None:
    """Return the error of the other rank that failed first, or None if none did."""
    failed = []
    for rank in range(1, count):
        with contextlib.suppress(ConfigError):
            record = read_json(_ending(folder, rank))
            failed.append((record["ended_at"], rank, record["message"], record["exit_code"]))
    first = min((one for one in failed if one[0] >= since), default=None)
    return rank_failed(first[1], count, first[2], first[3]) if first else None


class Launcher(jobs.Job):
    """The job of a run in the process that started it, which hands the job over to rank 0 if it needs several ranks."""

    _handed_over = False

    def hand_over(self) -> None:
        """Leave the heartbeat and the commands to rank 0. The result is still written here."""
        self._over.set()
        self._handed_over = True
        self._result.unlink(missing_ok=True)

    def _write_beat(self) -> None:
        if not self._handed_over:
            super()._write_beat()

    def _end(self, status: jobs.State, message: str) -> None:
        if status is not jobs.State.FINISHED or not self._handed_over:  # `launch` wrote rank 0's result
            super()._end(status, message)


# ---- the launcher


def launch(job: Launcher, count: int, held: Sequence[int]) -> None:
    """Start `count` ranks of this run, wait until they exit, and write the run's result as rank 0 reported it.

    Args:
        held: File descriptors of the device locks. The ranks inherit them, so no lock is free before all ranks exit.

    Raises:
        ProcessFailed: A rank died, and rank 0 could not report it.
        jobs.Stop: A stop was requested before any rank started.
    """
    signals = set[int]()
    for number in (signal.SIGTERM, signal.SIGINT, platform.STACKS_SIGNAL):
        signal.signal(number, lambda number, _: signals.add(signal.SIGTERM if number == signal.SIGINT else number))
    job.check_stop("Stopped before it began; start it again.")
    job.hand_over()
    shutil.rmtree(job.folder / RANKS, ignore_errors=True)
    memory_kills = platform.memory_kills()
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        with socket.create_server(("127.0.0.1", 0)) as port:
            for rank in range(count):
                ranks.append(_start_rank(job.folder, rank, count, port, held))
        while ranks[0].poll() is None and not any(one.poll() for one in ranks):
            _pass_on(signals, ranks)
            time.sleep(CHECK_SECONDS)
        # If one rank stalled, the log should show what the others were doing.
        stalled = any(one.poll() == ExitCode.STALLED for one in ranks)
        _pass_on({signal.SIGTERM, platform.STACKS_SIGNAL} if stalled else {signal.SIGTERM}, ranks)
        end = time.monotonic() + GRACE_SECONDS
        while any(one.poll() is None for one in ranks):
            saving = ranks[0].poll() is None and jobs.status(job.folder).phase.startswith("saving")
            if time.monotonic() >= end and not saving:
                break
            time.sleep(CHECK_SECONDS)
        codes = [one.poll() for one in ranks]
    finally:
        for one in ranks:
            one.kill()
            one.wait()
    result = _result(job.folder, codes, platform.memory_kills() > memory_kills)
    job.exit_code = ExitCode(result["exit_code"])
    write_json(job.folder / jobs.RESULT, result)


def _pass_on(signals: set[int], ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Pass signals on to the ranks, but not before rank 0 has its signal handlers and would survive them."""
    for number in sorted(signals):
        taking = [rank for rank in ranks if platform.takes_signal(rank.pid, number)]
        if ranks[0] in taking or ranks[0].poll() is not None:
            for rank in taking:
                rank.send_signal(number)
            signals.discard(number)


def _start_rank(
    folder: Path, rank: int, count: int, port: socket.socket, held: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a rank. It stays in this process group, so a signal to the group reaches it."""
    own: Mapping[str, str] = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port.getsockname()[1]),
        LAUNCHER_PID: str(os.getpid()),
    }
    threads = str(max(1, (psutil.cpu_count() or 1) // count))
    environment = {"OMP_NUM_THREADS": threads, **processes.environment(), **own}
    descriptors = tuple(held)
    if rank == 0:
        environment[STORE] = str(port.fileno())
        descriptors += (port.fileno(),)
    command = processes.command("workbench.trainer", folder)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, **platform.inherited(descriptors))


def _result(folder: Path, codes: Sequence[int | None], memory_ran_out: bool) -> dict[str, Any]:
    """Return the run's result as rank 0 wrote it. Raises ProcessFailed if another rank's failure explains the end.

    codes: exit codes of the ranks; None for those that had to be killed
    """
    count, result = len(codes), dict[str, Any]()
    with contextlib.suppress(ConfigError):
        result = read_json(_ending(folder, 0))
    if result and result["status"] != jobs.State.FAILED:
        return result
    for rank, code in enumerate(codes):
        # One rank does not make another crash, except with SIGABRT: NCCL may abort when a rank is gone.
        if code is not None and code < 0 and code != -signal.SIGABRT:
            raise rank_failed(rank, count, processes.death({"signal": -code, "memory_ran_out": memory_ran_out}))
    if result:
        return result
    if (error := error_of_another(folder, count)) is not None:
        raise error
    rank = next((rank for rank, code in enumerate(codes) if code), 0)
    code = codes[rank] or 0
    raise rank_failed(rank, count, f"it ended with exit code {code} and no message. The log may have more.", code)
