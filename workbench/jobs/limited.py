"""A child process with limits on time and memory that does one small task after another: for what may be hostile.

The child runs `serve`: it says READY, then each line on its stdin is a task (JSON), each line on its stdout the answer,
after lines of ALIVE while it makes progress. It is told how many seconds of computing may pass without progress, which
holds in native code, too; the parent waits longer, for a child that hangs without computing. It has low priority, no
tokens in its environment, and ends with its parent. Not covered: what the tasks are, and what becomes of a lost one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from workbench.jobs import processes
from workbench.paths import CODE

READY, ALIVE = b"ready\n", b"alive\n"
MEMORY_BYTES = 6 * 1024**3
ALIVE_SECONDS = 1.0
STARTING_SECONDS = 300.0
WAITING = 20.0  # times as long on the clock as the child may compute
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


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
        self._lines = _Lines(-1)
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, task: dict[str, object], seconds: float, waiting: float = WAITING) -> bytes:
        """The answer to one task. seconds: of computing from one sign of progress to the next.

        Raises ChildLost, after which the next task gets a new child, and ChildClosed.
        """
        child = self._started()
        assert child.stdin is not None
        answer: bytes | None = ALIVE
        try:
            child.stdin.write(json.dumps({**task, "seconds": seconds}).encode() + b"\n")
            child.stdin.flush()
            while answer == ALIVE:
                answer = self._lines.next(waiting * seconds)
        except BrokenPipeError:
            answer = b""
        if answer:
            return answer
        if answer is None:
            child.kill()
        code = self.close()
        raise ChildLost(code, late=answer is None or code == -signal.SIGPROF)

    def close(self) -> int | None:
        """Close the child's pipes, upon which it ends; its exit code, None when there is none."""
        with self._lock:
            child, self._child = self._child, None
        if child is None:
            return None
        with contextlib.suppress(BrokenPipeError):
            child.communicate()
        return child.wait()

    def kill(self) -> None:
        """End the child now, from any thread, and start no other."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise ChildClosed
            if self._child is None:
                # A decoder that a file has taken over finds no tokens in its environment.
                kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
                self._child = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**kept, "PYTHONPATH": str(CODE), "OPENBLAS_NUM_THREADS": "1"},
                )
                assert self._child.stdout is not None
                self._lines = _Lines(self._child.stdout.fileno())
                self._lines.next(STARTING_SECONDS)
            return self._child


class _Lines:
    """A child's output, line by line, with a limit on the waiting."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._read = descriptor, b""

    def next(self, seconds: float) -> bytes | None:
        """The child's next line; b"" when it ended, None when the time is up."""
        end = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._descriptor], [], [], left)[0]:
                return None
            piece = os.read(self._descriptor, 65536)
            if not piece:
                return b""
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        return line + b"\n"


# ---- in the child ---------------------------------------------------------------------------------------------------


class Watch:
    """Ends the process when a task takes too long to the next sign of progress.

    The timer's default action works in native code too, so that even an orphan cannot spin for ever. It counts
    computing time: a busy machine makes no task bad.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._reported = seconds, time.monotonic()
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def progress(self) -> None:
        """Note some progress: the time starts anew, and now and then the parent hears of it."""
        if time.monotonic() - self._reported > ALIVE_SECONDS:
            self._reported = time.monotonic()
            signal.setitimer(signal.ITIMER_PROF, self._seconds)
            _write(ALIVE)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve(handle: Callable[[dict[str, Any], Watch], str], modules: Sequence[str]) -> None:
    """Handle tasks until stdin ends; handle: task -> its answer, one line. What it raises ends the child.

    modules: loaded before the first task, because starting up is no task's fault
    """
    os.nice(10)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses the limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
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
