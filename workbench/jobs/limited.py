"""A child process with limits on time and memory that does one small task after another: for what may be hostile.

The child runs `serve`: it says READY, then each line on its stdin is a task (JSON), each line on its stdout the answer,
after lines of ALIVE while it makes progress. Its argument limits the seconds of computing without progress, also in
native code; the parent waits longer, for a child that hangs without computing. It has low priority, no
tokens in its environment, and ends with its parent.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from workbench.jobs import platform, processes
from workbench.jobs.guards import ChildGuard, guard
from workbench.paths import CODE

READY, ALIVE = b"ready\n", b"alive\n"
MEMORY_BYTES = 6 * 1024**3
ALIVE_SECONDS = 1.0
STARTING_SECONDS = 300.0
WAITING = 20.0  # times as long on the clock as the child may compute


class ChildLost(Exception):
    """The child is gone without an answer. late: it made no progress in time;  code: its exit code otherwise."""

    def __init__(self, code: int | None, late: bool) -> None:
        super().__init__(f"the child is gone ({code})")
        self.code, self.late = code, late


class ChildClosed(Exception):
    """The child was killed by `kill`, and no other one is started."""


class LimitedChild:
    """The parent's side: starts the child with the first task, and anew after one that it did not survive."""

    def __init__(self, module: str, *arguments: object) -> None:
        """The child runs `python -m module arguments`, which calls `serve`."""
        self._command = processes.command(module, *arguments)
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: ChildGuard | None = None
        self._lines = _Lines()
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, task: dict[str, object], seconds: float, waiting: float = WAITING) -> bytes:
        """The answer to one task. seconds: of computing from one sign of progress to the next.

        Raises ChildLost, after which the next task gets a new child, and ChildClosed.
        """
        child, watched = self._started()
        assert child.stdin is not None
        answer: bytes | None = b""
        with contextlib.suppress(OSError), watched.task(seconds):
            child.stdin.write(json.dumps({**task, "seconds": seconds}).encode() + b"\n")
            child.stdin.flush()
            while (answer := self._lines.next(waiting * seconds)) == ALIVE:
                watched.progress()
        if answer:
            return answer
        if answer is None:
            child.kill()
        code = self.close()
        raise ChildLost(code, late=answer is None or watched.ended_late(code))

    def close(self) -> int | None:
        """Close the child's pipes, upon which it ends; its exit code, None when there is none."""
        with self._lock:
            child, watched, self._child, self._guard = self._child, self._guard, None, None
        if child is None or watched is None:
            return None
        assert child.stdin is not None
        with contextlib.suppress(OSError):
            child.stdin.close()
        code = child.wait()
        watched.close()
        return code

    def kill(self) -> None:
        """End the child now, from any thread, and start no other."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()

    def _started(self) -> tuple[subprocess.Popen[bytes], ChildGuard]:
        with self._lock:
            if self._closed:
                raise ChildClosed
            if self._child is None or self._guard is None:
                self._child = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment(),
                )
                assert self._child.stdout is not None
                self._lines = _Lines()
                threading.Thread(target=self._lines.read, args=(self._child.stdout,), daemon=True).start()
                self._lines.next(STARTING_SECONDS)
                self._guard = guard(self._child.pid, MEMORY_BYTES)
            return self._child, self._guard


def environment() -> dict[str, str]:
    """Of such a child: a decoder that a file has taken over finds no tokens there."""
    own = {**platform.python()[1], "PYTHONPATH": str(CODE), "OPENBLAS_NUM_THREADS": "1"}
    return {**processes.bare_environment(), **own}


class _Lines:
    """A child's output, line by line, with a limit on the waiting. A thread reads it: Windows waits for no pipe."""

    def __init__(self) -> None:
        self._read: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read(self, output: IO[bytes]) -> None:
        """Read until the child ends; then b"" follows its last line."""
        with output:
            for line in output:
                self._read.put(line)
        self._read.put(b"")

    def next(self, seconds: float) -> bytes | None:
        """The child's next line; b"" when it ended, None when the time is up."""
        try:
            line = self._read.get(timeout=seconds)
        except queue.Empty:
            return None
        return line if line.endswith(b"\n") else b""


# ---- in the child ---------------------------------------------------------------------------------------------------


class Watch:
    """Ends the process when a task takes too long to the next sign of progress.

    It counts computing time: a busy machine makes no task bad.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._reported = seconds, time.monotonic()
        platform.limit_computing(seconds)

    def progress(self) -> None:
        """Note some progress: the time starts anew, and now and then the parent hears of it."""
        if time.monotonic() - self._reported > ALIVE_SECONDS:
            self._reported = time.monotonic()
            platform.limit_computing(self._seconds)
            _write(ALIVE)

    def end(self) -> None:
        platform.limit_computing(0)


def serve(handle: Callable[[dict[str, Any], Watch], str], modules: Sequence[str]) -> None:
    """Handle tasks until stdin ends; handle: task -> its answer, one line. What it raises ends the child.

    modules: loaded before the first task, because starting up is no task's fault
    """
    platform.lower_priority(10)
    platform.limit_child(MEMORY_BYTES)
    for module in modules:
        importlib.import_module(module)
    _write(READY)
    for line in sys.stdin:
        task = json.loads(line)
        watch = Watch(task["seconds"])
        answer = handle(task, watch)
        watch.end()
        _write(answer.encode() + b"\n")


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
