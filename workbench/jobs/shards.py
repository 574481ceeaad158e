"""Work cut into shards, each claimed by exactly one worker. Workers may run on several machines that share a folder.

    shards/00007.0.claim    the worker on shard 7: {host, pid, start_time, boot_id, beat, count, released}
    shards/00007.1.claim    the worker that took it over; the highest number holds the shard
    shards/00007.done       {count}: finished, never claimed again

A claim is a hard link, whose creation is exclusive even on a network disk. Taking over makes the next number and never
removes one, so nobody takes over from the wrong worker. A worker on the same machine is gone when its process is; one
on another machine when its claim has not changed for LEASE_SECONDS by this machine's clock.

`Workers` runs the workers of one machine, each on a GPU of its own, until the work is done. A worker that dies is
restarted while another takes over its shard; if workers keep dying, the job fails with the last one's output. They end
with the process that started them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import CannotWrite, ProcessFailed, WorkbenchError, explain
from workbench.jobs import platform, processes
from workbench.jobs.devices import Device
from workbench.workspace import read_json, read_object, write_json, writing

FOLDER, CLAIM, DONE = "shards", ".claim", ".done"
BEAT_SECONDS = 5.0
LEASE_SECONDS = 120.0  # without a beat, after which a worker on another machine counts as gone


@dataclass
class Shards:
    """The shards of some work, numbered from 0."""

    folder: Path
    count: int
    _seen: dict[Path, tuple[Any, float]] = field(
        default_factory=dict
    )  # claim -> its beat, and when that was first seen

    def finished(self) -> dict[int, int]:
        """Return the number of pieces in each finished shard."""
        done = (self.folder / FOLDER).glob(f"*{DONE}")
        return {int(path.name.split(".")[0]): int(read_json(path).get("count", 0)) for path in done}

    def under_way(self) -> int:
        """Return the number of pieces done so far in unfinished shards."""
        over = self.finished()
        claims = [path for number, (_, path) in self._newest().items() if number not in over]
        return sum(int(read_object(path).get("count", 0)) for path in claims)

    def claim(self) -> Claim | None:
        """Claim a shard for this process; None when all are finished or held by living workers. Raises CannotWrite."""
        over, newest = self.finished(), self._newest()
        for number in range(self.count):
            if number in over:
                continue
            generation, path = newest.get(number, (-1, Path()))
            if generation >= 0 and not self._gone(path):
                continue
            target = self.folder / FOLDER / f"{number:05d}.{generation + 1}{CLAIM}"
            if _make(target, _record(0, 0, released=False)):
                claim = Claim(self, number, generation + 1, target)
                if number in self.finished():  # it was finished since the first look
                    claim.release()
                    continue
                return claim
        return None

    def _newest(self) -> dict[int, tuple[int, Path]]:
        found: dict[int, tuple[int, Path]] = {}
        for path in (self.folder / FOLDER).glob(f"*{CLAIM}"):
            number, generation = map(int, path.name.split(".")[:2])
            if generation > found.get(number, (-1, path))[0]:
                found[number] = (generation, path)
        return found

    def _gone(self, path: Path) -> bool:
        """Whether the worker that holds this claim has released it or is gone."""
        held = read_object(path)
        if held.get("released"):
            return True
        if held.get("host") == socket.gethostname() and held.get("boot_id") == platform.boot_id():
            return not processes.alive(held)
        beat, now = held.get("beat"), time.monotonic()
        before, since = self._seen.get(path, (None, now))
        if path not in self._seen or before != beat:
            self._seen[path] = (beat, now)
            return False
        return now - since > LEASE_SECONDS


class Overtaken(Exception):
    """Another worker took the shard over because this one seemed to be gone."""


class Claim:
    """A shard held by this process. The context manager beats, and releases the shard if it is left unfinished."""

    def __init__(self, shards: Shards, number: int, generation: int, path: Path) -> None:
        self.number, self.done = number, 0
        self._shards, self._generation, self._path = shards, generation, path
        self._beat = 0
        self._over = threading.Event()
        self._lost = False

    def __enter__(self) -> Claim:
        threading.Thread(target=self._keep_beating, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if not (self._shards.folder / FOLDER / f"{self.number:05d}{DONE}").exists():
            with contextlib.suppress(CannotWrite):
                self.release()

    def piece(self, count: int = 1) -> None:
        """Count pieces as done. Raises Overtaken."""
        self.done += count
        if self._lost:
            raise Overtaken(f"shard {self.number} was taken over")

    def finish(self) -> None:
        """Mark the whole shard as done. Raises CannotWrite."""
        write_json(self._shards.folder / FOLDER / f"{self.number:05d}{DONE}", {"count": self.done})

    def release(self) -> None:
        """Let another worker claim the shard right away. Raises CannotWrite."""
        write_json(self._path, _record(self._beat, self.done, released=True))

    def _keep_beating(self) -> None:
        following = self._path.with_name(f"{self.number:05d}.{self._generation + 1}{CLAIM}")
        while not self._over.wait(BEAT_SECONDS):
            self._lost = self._lost or following.exists()
            self._beat += 1
            if not self._lost and not self._over.is_set():
                with contextlib.suppress(CannotWrite):
                    write_json(self._path, _record(self._beat, self.done, released=False))


def work(shards: Shards) -> Iterator[Claim]:
    """Claim shards one after another until all are finished, waiting while other workers hold the rest."""
    while True:
        claim = shards.claim()
        if claim is not None:
            yield claim
        elif len(shards.finished()) >= shards.count:
            return
        else:
            time.sleep(0.5)


def make_once(path: Path, value: Any) -> Any:
    """Write a file unless it exists, and return its content. Of several processes, one writes. Raises CannotWrite."""
    _make(path, value)
    return read_json(path)


def _record(beat: int, count: int, released: bool) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        **processes.identity(os.getpid()),
        "beat": beat,
        "count": count,
        "released": released,
    }


def _make(path: Path, value: Any) -> bool:
    """Write a file atomically unless it exists; return whether it was written. Raises CannotWrite."""
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{threading.get_ident()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(value), encoding="utf-8")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
    return True


# ---- the workers of one machine

POLL_SECONDS = 0.3
DEATHS = 3  # deaths of workers without a finished shard in between, after which to give up
STOP_SECONDS = 60.0  # time for a worker to finish its piece after a stop
PARENT = "WORKBENCH_PARENT"


class Workers:
    """The workers of one job: `python -m module FOLDER NUMBER`, output to FOLDER/worker-NUMBER.log."""

    def __init__(
        self,
        job: jobs.Job,
        module: str,
        count: int,
        gpus: Sequence[Device],
        popen_arguments: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """gpus: empty on a CPU;  popen_arguments: yields a worker's own stdin and env, entered around its start."""
        self._job, self._module, self._count, self._gpus = job, module, count, gpus
        self._popen_arguments = popen_arguments
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._deaths = 0

    def run(
        self, shards: Shards, phase: str, total: int, already: int = 0, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Run the workers until every shard is finished, here or on another machine.

        Args:
            total: all pieces.
            already: pieces that were done before the shards were cut.
            meanwhile: called at every poll.

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
                self._job.check_stop(f"Stopped while {phase}, {done} of {total} done; start it again to continue.")
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
        with writing(path), path.open("ab") as log, self._popen_arguments() as more:
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
        """Restart workers that died before the work was done. Raises ProcessFailed."""
        for number, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[number]
            if code == 0:  # nothing was left for it
                continue
            self._deaths += 1
            path = self._log(number)
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
            last = next((line.strip()[:400] for line in reversed(lines) if line.strip()), "nothing")
            sys.stdout.write(f"worker {number} ended with {code}: {last}\n")
            if self._deaths >= DEATHS:
                raise ProcessFailed(f"workers keep failing, the last one with: {last}", code)
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
    """Work on one shard after another until none is left; return the worker's exit code.

    Also ends after a SIGTERM, and when the process that started it is gone.

    Args:
        pieces: works on a shard and yields, after each step, how many pieces that completed.
        ready: entered before the first shard.
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
