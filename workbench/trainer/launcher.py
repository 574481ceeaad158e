"""The processes of a run that computes on several GPUs: who starts them, what they get, how they end.

    launcher    `python -m workbench.trainer RUN` of a run on more than one GPU, the process that workbench.jobs knows.
                It waits in the queue, holds the locks of all its GPUs and starts a process (rank) for each
    rank 0      is the run for all readers: heartbeat, commands, metrics, checkpoints, log. It writes how it ended to
                RUN/ranks/0.json; the launcher makes the run's result.json of it when no process is left
    the others  compute. They write only why they failed: RUN/ranks/NUMBER.json, which is like a result.json

Under somebody's own `accelerate launch` or torchrun the ranks are there already (RANK and WORLD_SIZE in the
environment) and need none of ours: rank 0 is the job, waits in the queue and holds the locks of its machine. A signal
that ends such a launcher, which may not pass it on, is a signal to stop for them.

The launcher starts the ranks itself. torchrun's agent, which accelerate launch uses, gives every rank a session of its
own, so that ending the job's process group would miss them; killed with -9 it leaves them all behind; it reports a
rank's exit code, not its signal's meaning; and it loads torch. Here a rank is a child in the launcher's own group, the
kernel ends it when the launcher is gone, it holds the GPUs' locks as long as it lives, and the port where ranks meet is
open to this machine alone.
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

RANKS = "ranks"  # folder of a run: how a rank ended, where it failed
LAUNCHER_PID = "WORKBENCH_LAUNCHER_PID"  # for ranks: the launcher's pid
STORE = "WORKBENCH_STORE"  # for rank 0: the open port's number
CHECK_SECONDS = 0.05
GRACE_SECONDS = 10.0  # for the others to end by themselves once one has


@dataclass(frozen=True)
class ProcessRank:
    """Which of a run's processes this one is. `launcher`: its pid, None where nobody of ours started it."""

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
    """One of the run's processes ended before its time: which, and why."""
    return ProcessFailed(f"Process {rank + 1} of {count}: {reason}", code)


def launched_process() -> ProcessRank | None:
    """The rank that a launcher has given this process, None where there is no launcher.

    Whoever was started by a launcher ends with it: a rank of ours at once, another process after saving.
    """
    values = os.environ
    launcher_pid = int(values[LAUNCHER_PID]) if LAUNCHER_PID in values else None
    together = int(values.get("WORLD_SIZE", "1")) > 1 and "RANK" in values
    # `accelerate launch` sets no rank for a process that it starts alone. A job of ours has its own session.
    alone = any(name.startswith("ACCELERATE_") for name in values) and not platform.detached_here()
    if together or alone:
        platform.end_with_parent(launcher_pid)
        if launcher_pid is not None and os.getppid() != launcher_pid:  # it was gone before the kernel knew
            os._exit(int(ExitCode.BUG))
    if not together:
        return None
    rank, count = int(values["RANK"]), int(values["WORLD_SIZE"])
    return ProcessRank(
        rank, count, int(values.get("LOCAL_RANK", rank)), int(values.get("LOCAL_WORLD_SIZE", count)), launcher_pid
    )


# ---- the ranks' side of the job -------------------------------------------------------------------------------------


class FirstRank(jobs.Job):
    """The job in rank 0. The launcher's process stays the one that readers look for."""

    def __init__(self, folder: Path, process: ProcessRank) -> None:
        super().__init__(folder)
        self.process, self._began = process, time.time()
        if process.launcher_pid is not None:
            self._result = _ending(folder, 0)

    def _announce(self) -> None:
        if self.process.launcher_pid is None:
            super()._announce()

    def fail(self, error: BaseException) -> None:
        """A rank that lost another one fails because of that; the run fails with the error of the other one."""
        ours = isinstance(error, WorkbenchError)
        super().fail(error if ours else error_of_another(self.folder, self.process.count, self._began) or error)


class Follower(jobs.Job):
    """The job in every other rank: writes no heartbeat, takes no command but a signal, and writes why it failed."""

    def __init__(self, folder: Path, process: ProcessRank) -> None:
        super().__init__(folder)
        self.process, self._result = process, _ending(folder, process.rank)

    def _announce(self) -> None:
        """Rank 0, or the launcher, is the process that readers look for."""

    def _write_beat(self) -> None:
        """Only its own stall timeout reads this one."""

    def take(self, command: jobs.Command) -> dict[str, object] | None:
        return {} if command == "stop" and self._stop_signal.is_set() else None

    def _end(self, status: jobs.State, message: str) -> None:
        if status is jobs.State.FAILED:
            super()._end(status, message)


def _ending(folder: Path, rank: int) -> Path:
    return folder / RANKS / f"{rank}.json"


def job_of(folder: Path, process: ProcessRank) -> jobs.Job:
    """The job's side of this process. What others than rank 0 print goes nowhere, but for errors."""
    if process.first:
        return FirstRank(folder, process)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return Follower(folder, process)


def error_of_another(folder: Path, count: int, since: float = 0.0) -> ProcessFailed | None:
    """The error of the first of the other ranks that failed; None when none did."""
    failed = []
    for rank in range(1, count):
        with contextlib.suppress(ConfigError):
            record = read_json(_ending(folder, rank))
            failed.append((record["ended_at"], rank, record["message"], record["exit_code"]))
    first = min((one for one in failed if one[0] >= since), default=None)
    return rank_failed(first[1], count, first[2], first[3]) if first else None


class Launcher(jobs.Job):
    """The job of a run that may turn out to need several processes; then it is handed over to rank 0."""

    _handed_over = False

    def hand_over(self) -> None:
        """From here on rank 0 writes the heartbeat and follows commands. How the job ended is still written here."""
        self._over.set()
        self._handed_over = True
        self._result.unlink(missing_ok=True)

    def _write_beat(self) -> None:
        if not self._handed_over:
            super()._write_beat()

    def _end(self, status: jobs.State, message: str) -> None:
        if status is not jobs.State.FINISHED or not self._handed_over:  # `launch` has written how rank 0 ended
            super()._end(status, message)


# ---- the launcher ---------------------------------------------------------------------------------------------------


def launch(job: Launcher, count: int, held: Sequence[int]) -> None:
    """Start `count` ranks of this run, wait for their end, and write how rank 0 says that the run ended.

    held: file descriptors of the locks, which the ranks hold as well, so that none is free before all are gone.
    Raises ProcessFailed when one died without rank 0 being able to write it, jobs.Stop when nothing was started yet.
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
                ranks.append(_started(job.folder, rank, count, port, held))
        while ranks[0].poll() is None and not any(one.poll() for one in ranks):
            _pass_on(signals, ranks)
            time.sleep(CHECK_SECONDS)
        # What the others were doing when one stalled belongs into the log, too.
        stalled = any(one.poll() == ExitCode.STALLED for one in ranks)
        _pass_on({signal.SIGTERM, platform.STACKS_SIGNAL} if stalled else {signal.SIGTERM}, ranks)
        end = time.monotonic() + GRACE_SECONDS
        while any(one.poll() is None for one in ranks):
            saves = ranks[0].poll() is None and jobs.status(job.folder).phase.startswith("saving")
            if time.monotonic() >= end and not saves:
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
    """Send the signals to the ranks, once rank 0 handles them rather than dying of them."""
    for number in sorted(signals):
        taking = [rank for rank in ranks if platform.takes_signal(rank.pid, number)]
        if ranks[0] in taking or ranks[0].poll() is not None:
            for rank in taking:
                rank.send_signal(number)
            signals.discard(number)


def _started(folder: Path, rank: int, count: int, port: socket.socket, held: Sequence[int]) -> subprocess.Popen[bytes]:
    """A rank. It stays in this process's group, so that whoever ends the group ends it."""
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
    """How the run ended, as rank 0 wrote it. Raises ProcessFailed where another cause is nearer to the truth.

    codes: as the ranks ended by themselves; None of those that had to be ended
    """
    count, result = len(codes), dict[str, Any]()
    with contextlib.suppress(ConfigError):
        result = read_json(_ending(folder, 0))
    if result and result["status"] != jobs.State.FAILED:
        return result
    for rank, code in enumerate(codes):
        # No rank is killed, or crashes, because of another; an abort may be how NCCL reports that one is gone.
        if code is not None and code < 0 and code != -signal.SIGABRT:
            raise rank_failed(rank, count, processes.death({"signal": -code, "memory_ran_out": memory_ran_out}))
    if result:
        return result
    if (error := error_of_another(folder, count)) is not None:
        raise error
    rank = next((rank for rank, code in enumerate(codes) if code), 0)
    code = codes[rank] or 0
    raise rank_failed(
        rank, count, f"it ended with exit code {code} and without a message: the log may have more.", code
    )
