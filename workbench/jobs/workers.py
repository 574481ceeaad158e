"""Workers of this machine: a given number of processes, each on a GPU of its own, watched until the work is done.

A worker that dies is started again, its shard is taken over meanwhile; one that dies again and again ends the job with
its last words. Workers end with the process that started them. Not covered: who works on what (shards), workers of
other machines, which simply do the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ProcessFailed
from workbench.jobs import processes
from workbench.jobs.devices import Device
from workbench.jobs.shards import Shards
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
        """handing: gives what Popen gets for each worker besides (pass_fds, env); gpus: empty on a processor"""
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
                self._look_after_them()
                meanwhile()
                done = already + _pieces(shards)
                seconds = (time.monotonic() - began) / (done - before) if done > before else None
                more: dict[str, Any] = {} if seconds is None else {"step_seconds": seconds}
                words = f"{len(self._running)} workers here, shard {now} of {shards.count} done"
                self._job.beat(phase, min(done, total), total, message=words, **more)
                if self._job.take("stop") is not None:
                    raise jobs.Stop(f"Stopped while {phase}, {done} of {total} done; start it again to go on.")
                time.sleep(POLL_SECONDS)
            meanwhile()
            self._job.beat(phase, min(already + _pieces(shards), total), total)
        finally:
            self._end()

    def _start(self, number: int) -> None:
        environment = {**processes.environment(), PARENT: str(os.getpid())}
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[number % len(self._gpus)].uuid
        else:
            environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self._count)))
        path = self._log(number)
        with writing(path), path.open("ab") as log, self._handing() as more:
            given = more or {}
            self._running[number] = subprocess.Popen(
                processes.command(self._module, self._job.folder, number),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment, **given.get("env", {})},
                pass_fds=given.get("pass_fds", ()),
            )

    def _log(self, number: int) -> Path:
        return self._job.folder / f"worker-{number}.log"

    def _look_after_them(self) -> None:
        """Start those again that died before the work was done. Raises ProcessFailed."""
        for number, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[number]
            if code == 0:  # nothing was left for it
                continue
            self._deaths += 1
            words = _last_line(self._log(number))
            sys.stdout.write(f"worker {number} ended with {code}: {words}\n")
            if self._deaths >= DEATHS:
                raise ProcessFailed(f"workers end again and again, the last one with: {words}", code)
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


def orphaned() -> bool:
    """Whether the process that started this worker is gone."""
    return os.environ.get(PARENT, str(os.getppid())) != str(os.getppid())


def _pieces(shards: Shards) -> int:
    return sum(shards.finished().values()) + shards.under_way()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return next((line.strip()[:400] for line in reversed(lines) if line.strip()), "nothing")
