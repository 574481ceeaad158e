"""A child process with limits on time and memory, for small tasks on input that may be hostile.

The child runs `serve`. It writes READY; then each line on its stdin is a task (JSON), which it answers with one line on
stdout, after ALIVE lines while it makes progress. Each task limits the CPU seconds without progress, native code
included; the parent waits longer before it gives up on a child that hangs without computing. The child has low
priority and no tokens in its environment, and it ends with its parent.

The parent enforces with a guard what the child cannot limit itself:

    ChildGuard      nothing to do: the child sets kernel limits for itself (platform.limit_child)
    WatchingGuard   checks the child ten times a second
    JobGuard        puts the child into a Windows job object. Structures and constants are those of winnt.h for 64 bits,
                    with types of fixed width so that tests on Linux can check their size

On Windows the child enters its job after it has started and before its first task, so startup is not limited, but it
reads no foreign file before that. Windows does not count the time that the kernel spends for a child.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import psutil

from workbench.jobs import platform, processes
from workbench.paths import CODE
from workbench.workspace.disk import ON_WINDOWS, PORTABLE

READY, ALIVE = b"ready\n", b"alive\n"
MEMORY_BYTES = 6 * 1024**3
ALIVE_SECONDS = 1.0
STARTING_SECONDS = 300.0
WAITING = 20.0  # how many times its CPU seconds the parent waits for a child


class ChildLost(Exception):
    """The child ended without an answer. late: it made no progress in time;  code: its exit code."""

    def __init__(self, code: int | None, late: bool) -> None:
        super().__init__(f"the child is gone ({code})")
        self.code, self.late = code, late


class ChildClosed(Exception):
    """The child was ended with `kill`; no other one is started."""


class LimitedChild:
    """The parent's side. Starts a child for the first task, and a new one after a task that the child did not survive.

    The child runs `python -m module arguments`, which calls `serve`.
    """

    def __init__(self, module: str, *arguments: object) -> None:
        self._command = processes.command(module, *arguments)
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: ChildGuard | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()  # the child's output; b"" when it has ended
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, task: dict[str, object], seconds: float, waiting: float = WAITING) -> bytes:
        """Send one task and return the answer.

        Args:
            seconds: CPU seconds the child may use from one sign of progress to the next.
            waiting: how many times as long to wait for a child that does not compute.

        Raises ChildLost if the child ended, in which case the next task gets a new one, and ChildClosed.
        """
        child, guard = self._started()
        assert child.stdin is not None
        answer: bytes | None = b""
        with contextlib.suppress(OSError), guard.task(seconds):
            child.stdin.write(json.dumps({**task, "seconds": seconds}).encode() + b"\n")
            child.stdin.flush()
            while (answer := self._next(waiting * seconds)) == ALIVE:
                guard.progress()
        if answer:
            return answer
        if answer is None:
            child.kill()
        code = self.close()
        raise ChildLost(code, late=answer is None or guard.ended_late(code))

    def close(self) -> int | None:
        """Close the child's stdin so that it ends; return its exit code, None without a child."""
        with self._lock:
            child, guard, self._child, self._guard = self._child, self._guard, None, None
        if child is None or guard is None:
            return None
        assert child.stdin is not None
        with contextlib.suppress(OSError):
            child.stdin.close()
        code = child.wait()
        guard.close()
        return code

    def kill(self) -> None:
        """Kill the child and start no other. May be called from any thread."""
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
                self._lines = queue.SimpleQueue()
                threading.Thread(target=_read, args=(self._child.stdout, self._lines), daemon=True).start()
                self._next(STARTING_SECONDS)
                self._guard = guard(self._child.pid, MEMORY_BYTES)
            return self._child, self._guard

    def _next(self, seconds: float) -> bytes | None:
        """Return the child's next line; b"" when it has ended, None when the time is up."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        return line if line.endswith(b"\n") else b""


def _read(output: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Read a child's output to its end, in a thread: Windows cannot wait for a pipe with a timeout."""
    with output:
        for line in output:
            lines.put(line)
    lines.put(b"")


def environment() -> dict[str, str]:
    """Return the environment of such a child: if a hostile file takes over a decoder, it finds no tokens there."""
    own = {**platform.python()[1], "PYTHONPATH": str(CODE), "OPENBLAS_NUM_THREADS": "1"}
    return {**processes.bare_environment(), **own}


# ---- in the child ---------------------------------------------------------------------------------------------------


class Watch:
    """Ends the process when a task computes too long without progress. Counts CPU time, so load does not matter."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._reported = seconds, time.monotonic()
        platform.limit_computing(seconds)

    def progress(self) -> None:
        """Report progress: restart the limit and tell the parent, at most once a second."""
        if time.monotonic() - self._reported > ALIVE_SECONDS:
            self._reported = time.monotonic()
            platform.limit_computing(self._seconds)
            _write(ALIVE)

    def end(self) -> None:
        platform.limit_computing(0)


def serve(handle: Callable[[dict[str, Any], Watch], str], modules: Sequence[str]) -> None:
    """Handle tasks until stdin ends.

    Args:
        handle: returns the answer to a task, one line. Whatever it raises ends the child.
        modules: imported before the first task, so that no task pays for it.
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


# ---- the parent's guard ---------------------------------------------------------------------------------------------

GUARD_SECONDS = 0.1  # between checks of a child
EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
JOB_TIME, ACTIVE_PROCESSES, PROCESS_MEMORY = 0x4, 0x8, 0x100  # JOB_OBJECT_LIMIT_...
NO_CRASH_WINDOW, END_ON_CLOSE = 0x400, 0x2000  # ..._DIE_ON_UNHANDLED_EXCEPTION, ..._KILL_ON_JOB_CLOSE
ALWAYS = ACTIVE_PROCESSES | PROCESS_MEMORY | NO_CRASH_WINDOW | END_ON_CLOSE
SET_QUOTA, TERMINATE = 0x100, 0x1  # PROCESS_...: the rights needed to put a process into a job
OUT_OF_TIME = 1816  # ERROR_NOT_ENOUGH_QUOTA: the exit code of a process that exceeded its job's time limit
TICKS = 10_000_000  # per second
HANDLE, BOOL, DWORD = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32


class ChildGuard:
    """The parent's limits on a child. This base class relies on the kernel limits that the child sets for itself."""

    @contextlib.contextmanager
    def task(self, seconds: float) -> Iterator[None]:
        """Enter around a task; seconds: CPU time from one sign of progress to the next. Raises OSError."""
        self.begin(seconds)
        try:
            yield
        finally:
            self.end()

    def begin(self, seconds: float) -> None:
        """Called when a task begins."""

    def end(self) -> None:
        """Called when the task has ended."""

    def close(self) -> None:
        """Called when the child has ended."""

    def progress(self) -> None:
        """Called when the child made progress: its time starts again."""

    def ended_late(self, code: int | None) -> bool:
        """Whether the child, which exited with this code, was killed because it computed too long."""
        return sys.platform != "win32" and code == -signal.SIGPROF


def guard(pid: int, memory: int) -> ChildGuard:
    """Guard a child before its first task, with what this system offers. memory: its limit in bytes."""
    if not PORTABLE:
        return ChildGuard()
    if ON_WINDOWS:
        with contextlib.suppress(OSError):  # it has ended, or is in a job that does not nest
            return JobGuard(pid, memory, kernel32())
    return WatchingGuard(pid, memory)


class WatchingGuard(ChildGuard):
    """Checks a child during a task and kills it above its limits. Misses memory peaks between two checks."""

    def __init__(self, pid: int, memory: int) -> None:
        self._pid, self._memory, self._seconds = pid, memory, 0.0
        self._over = threading.Event()
        self._since: float | None = None  # its CPU time at the last sign of progress
        self._late = False
        self._thread = threading.Thread()

    def begin(self, seconds: float) -> None:
        self._seconds, self._since = seconds, None
        self._over.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def progress(self) -> None:
        self._since = None

    def ended_late(self, code: int | None) -> bool:
        return self._late

    def _watch(self) -> None:
        with contextlib.suppress(psutil.Error):
            child = psutil.Process(self._pid)
            while not self._over.wait(GUARD_SECONDS):
                times = child.cpu_times()
                computed = times.user + times.system
                since = self._since = computed if self._since is None else self._since
                self._late = computed - since > self._seconds
                if self._late or child.memory_info().rss > self._memory:
                    child.kill()
                    return


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", DWORD),
        ("SchedulingClass", DWORD),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("BasicLimitInformation", BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


def kernel32() -> Any:
    """Load the library with these functions. Raises OSError except on Windows."""
    if sys.platform == "win32":
        return declared(ctypes.WinDLL("kernel32"))
    else:  # mypy skips this branch on Windows
        raise OSError("only Windows has job objects")


def declared(library: Any) -> Any:
    """Declare the types of the functions used here: by default ctypes would cut a handle to 32 bits."""
    for name, result, arguments in (
        ("CreateJobObjectW", HANDLE, (ctypes.c_void_p, ctypes.c_wchar_p)),
        ("SetInformationJobObject", BOOL, (HANDLE, ctypes.c_int32, ctypes.c_void_p, DWORD)),
        ("OpenProcess", HANDLE, (DWORD, BOOL, DWORD)),
        ("AssignProcessToJobObject", BOOL, (HANDLE, HANDLE)),
        ("CloseHandle", BOOL, (HANDLE,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class JobGuard(ChildGuard):
    """Holds a child in a job object that limits its memory and its CPU time per task and forbids it to start processes.

    Only this process has the handle, so the child cannot change its limits, and it ends when its parent ends.
    """

    def __init__(self, pid: int, memory: int, library: Any) -> None:
        """library: `kernel32()`. Raises OSError if Windows refuses; the child is unchanged then."""
        self._library, self._memory, self._seconds = library, memory, 0.0
        self._job = _granted(library.CreateJobObjectW(None, None), "CreateJobObjectW")
        try:
            self._limit(0.0)
            process = _granted(library.OpenProcess(SET_QUOTA | TERMINATE, False, pid), "OpenProcess")
            try:
                _granted(library.AssignProcessToJobObject(self._job, process), "AssignProcessToJobObject")
            finally:
                library.CloseHandle(process)
        except OSError:
            self.close()
            raise

    def begin(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit(seconds)

    def progress(self) -> None:
        with contextlib.suppress(OSError):  # the earlier limit stays
            self._limit(self._seconds)

    def end(self) -> None:
        self._limit(0.0)

    def ended_late(self, code: int | None) -> bool:
        return code == OUT_OF_TIME

    def close(self) -> None:
        self._library.CloseHandle(self._job)

    def _limit(self, seconds: float) -> None:
        """Set all limits. seconds: CPU time from now on (Windows adds the time used so far); 0 for no limit."""
        limits = ExtendedLimits()
        limits.ProcessMemoryLimit = self._memory
        limits.BasicLimitInformation.ActiveProcessLimit = 1
        limits.BasicLimitInformation.PerJobUserTimeLimit = round(seconds * TICKS)
        limits.BasicLimitInformation.LimitFlags = ALWAYS | (JOB_TIME if seconds else 0)
        arguments = (self._job, EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits))
        _granted(self._library.SetInformationJobObject(*arguments), "SetInformationJobObject")


def _granted(result: int | None, function: str) -> int:
    if not result:
        raise OSError(f"Windows refuses {function}")
    return result
