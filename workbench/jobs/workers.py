"""Workers of this machine: a given number of processes, each on a GPU of its own, watched until the work is done.

A worker that dies is started again, its shard is taken over meanwhile; one that dies again and again ends the job with
its last output. Workers end with the process that started them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ProcessFailed, WorkbenchError, explain
from workbench.jobs import platform, processes
from workbench.jobs.devices import Device
from workbench.jobs.shards import Overtaken, Shards, work
from workbench.workspace import writing

POLL_SECONDS = 0.3
DEATHS = 3  # of workers, without a finished shard in between
STOP_SECONDS = 60.0  # that a worker has for its piece after a stop
PARENT = "WORKBENCH_PARENT"
Handing = Callable[[], AbstractContextManager[Any]]


class Workers:
    """The workers of one job: `python -m module FOLDER NUMBER`, output to FOLDER/worker-NUMBER.log."""

    def __init__(
        self, job: jobs.Job, module: str, count: int, gpus: Sequence[Device], handing: Handing = nullcontext
    ) -> None:
        """handing: gives what Popen gets for each worker besides (stdin, env); gpus: empty on a processor"""
        self._handing = handing
        self._job, self._module, self._count, self._gpus = job, module, count, gpus
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._deaths = 0

    def run(
        self, shards: Shards, phase: str, total: int, already: int = 0, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Until every shard is finished, here or elsewhere; total: pieces, already: those done before the shards were
        cut; meanwhile: called at every poll.

        Raises jobs.Stop on request, ProcessFailed, and what `meanwhile` raises.
        """
        began, before = time.monotonic(), already + _pieces(shards)
        finished = len(shards.finished())
        try:
            for number in range(self._count):
                self._start(number)
            while (now := len(shards.finished())) < shards.count:
                if now > finished:
                    finished, self._deaths = now, 0
                self._restart_dead()
                meanwhile()
                done = already + _pieces(shards)
                seconds = (time.monotonic() - began) / (done - before) if done > before else None
                more: dict[str, Any] = {} if seconds is None else {"step_seconds": seconds}
                message = f"{len(self._running)} workers here, shard {now} of {shards.count} done"
                self._job.beat(phase, min(done, total), total, message=message, **more)
                self._job.check_stop(f"Stopped while {phase}, {done} of {total} done; start it again to go on.")
                time.sleep(POLL_SECONDS)
            meanwhile()
            self._job.beat(phase, min(already + _pieces(shards), total), total)
        finally:
            self._end()

    def _start(self, number: int) -> None:
        environment = {**processes.environment(), PARENT: str(os.getpid())}
        if self._gpus:
            environment |= self._gpus[number % len(self._gpus)].alone
        else:
            environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self._count)))
        path = self._log(number)
        with writing(path), path.open("ab") as log, self._handing() as more:
            given = more or {}
            self._running[number] = subprocess.Popen(
                processes.command(self._module, self._job.folder, number),
                stdin=given.get("stdin", subprocess.DEVNULL),
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment, **given.get("env", {})},
            )

    def _log(self, number: int) -> Path:
        return self._job.folder / f"worker-{number}.log"

    def _restart_dead(self) -> None:
        """Start those again that died before the work was done. Raises ProcessFailed."""
        for number, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[number]
            if code == 0:  # nothing was left for it
                continue
            self._deaths += 1
            last = _last_line(self._log(number))
            sys.stdout.write(f"worker {number} ended with {code}: {last}\n")
            if self._deaths >= DEATHS:
                raise ProcessFailed(f"workers end again and again, the last one with: {last}", code)
            self._start(number)

    def _end(self) -> None:
        for process in self._running.values():
            process.terminate()
        end = time.monotonic() + STOP_SECONDS
        for process in self._running.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def take_shards(shards: Shards, pieces: Callable[[int], Iterable[int]], ready: AbstractContextManager[object]) -> int:
    """What a worker does: shard after shard until none is left, or it is to end; its exit code.

    pieces: works on a shard and gives, after each piece, how many are done by it;  ready: entered before the first
    shard. It ends after a SIGTERM, and when the process that started it is gone.
    """
    stop, parent = threading.Event(), int(os.environ.get(PARENT, os.getppid()))
    began = platform.start_time(parent)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        with ready:
            for claim in work(shards):
                with claim, suppress(Overtaken):
                    for count in pieces(claim.number):
                        claim.piece(count)
                        if stop.is_set() or platform.start_time(parent) != began:
                            return 0
                    claim.finish()
    except (WorkbenchError, RuntimeError, OSError, ValueError) as error:
        code, sentence = explain(error)
        sys.stdout.write(f"{sentence}\n")
        return int(code)
    return 0


def _pieces(shards: Shards) -> int:
    return sum(shards.finished().values()) + shards.under_way()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return next((line.strip()[:400] for line in reversed(lines) if line.strip()), "nothing")
