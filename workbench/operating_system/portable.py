"""What runs on Windows, and on Linux for the tests. Where a line differs between the two, sys.platform decides.

Signals are replaced by files in a job's folder, process groups by the tree that psutil sees, limits of a child by job
objects of Windows, elsewhere by a parent that looks at it every GUARD_SECONDS. Not covered: what cannot be had so
(docs/platforms.md).
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from workbench.operating_system import job_objects
from workbench.operating_system.job_objects import JobGuard
from workbench.operating_system.system import ChildGuard, System, T

ON_WINDOWS = sys.platform == "win32"
LOCK_SECONDS = 0.02  # between two attempts to take a lock
SHARED_TRIES = 5  # of who only looks whether a lock is held: another one may be looking, too
PATIENCE_SECONDS = 2.0  # for a file that another process has open; it reads a few kilobytes
RETRY_SECONDS = 0.01
GUARD_SECONDS = 0.1
PARENT_SECONDS = 0.5
MAX_PATH, FILE_SYSTEM = 259, r"SYSTEM\CurrentControlSet\Control\FileSystem"  # of Windows
DEATHS = {0xC0000005: signal.SIGSEGV, 0xC0000409: signal.SIGABRT}  # NTSTATUS codes of Windows


class Portable(System):
    end_signals = (signal.SIGTERM,)
    limits_visitors = False
    inherits = False
    stacks_signal = 0

    # ---- files

    def lock(self, file: IO[Any], shared: bool, wait: bool) -> None:
        from filelock import lock_descriptor

        tries = SHARED_TRIES if shared and not wait else 1
        for number in range(tries):
            if lock_descriptor(file.fileno(), blocking=wait, poll_interval=LOCK_SECONDS):
                return
            if number + 1 < tries:
                time.sleep(LOCK_SECONDS)
        raise BlockingIOError(errno.EAGAIN, "another process holds the lock")

    def patiently(self, action: Callable[[], T]) -> T:
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return action()
            except PermissionError:
                if time.monotonic() >= end:
                    raise
                time.sleep(RETRY_SECONDS)

    def replace(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        if os.path.isdir(source) and os.path.isdir(target):
            os.rmdir(target)  # raises what a rename raises where it is not empty
        self.patiently(lambda: os.replace(source, target))

    def longest_path(self) -> int:
        if sys.platform == "win32":
            import winreg

            with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, FILE_SYSTEM) as key:
                return 32767 if winreg.QueryValueEx(key, "LongPathsEnabled")[0] else MAX_PATH
        return MAX_PATH if ON_WINDOWS else 4096

    def sync(self) -> None:
        """Windows flushes single files alone."""

    def link(self, source: Path, target: Path) -> None:
        # A symbolic link needs a right on Windows that few accounts have.
        real = source.resolve()
        try:
            os.link(real, target)
        except OSError:
            shutil.copyfile(real, target)

    def link_folder(self, source: Path, target: Path) -> None:
        if sys.platform == "win32":
            import _winapi

            _winapi.CreateJunction(os.path.abspath(target.parent / source), str(target))  # needs no right
        else:
            target.symlink_to(source)

    def open_ordinary(self, path: Path) -> int:
        kind = path.lstat().st_mode
        if stat.S_ISLNK(kind):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if not stat.S_ISREG(kind):  # opening a pipe would wait for its writer
            return os.open(os.devnull, os.O_RDONLY)
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def owns(self, facts: os.stat_result) -> bool:
        return True  # Windows gives no number of a user; what another one owns cannot be read

    # ---- processes

    def boot_id(self) -> str:
        # Start times are absolute where the first process has none that can be read, and differ from boot to boot.
        return "windows" if ON_WINDOWS else str(self.start_time(1))

    def start_time(self, pid: int) -> str | None:
        try:
            process = psutil.Process(pid)
            gone = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            return None if gone else f"{process.create_time():.2f}"
        except psutil.Error:
            return None

    def python(self) -> tuple[str, dict[str, str]]:
        utf8, base = {"PYTHONUTF8": "1"}, getattr(sys, "_base_executable", sys.executable)
        if ON_WINDOWS and os.path.normcase(base) != os.path.normcase(sys.executable):
            # A virtual environment's python.exe only starts another process, whose pid nobody would know.
            # multiprocessing of Python's library goes round it in the same way.
            return base, {**utf8, "__PYVENV_LAUNCHER__": sys.executable}
        return sys.executable, utf8

    def detached(self) -> dict[str, Any]:
        if sys.platform == "win32":
            # A console that nobody sees, and not none: programs that it starts would each open a window.
            return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
        return {"start_new_session": True}

    def inherited(self, descriptors: Sequence[int]) -> dict[str, Any]:
        raise NotImplementedError("ask `inherits` first")

    def detached_here(self) -> bool:
        return True

    def request_end(self, pid: int) -> bool:
        return False

    def end(self, pid: int) -> None:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            process.suspend()  # so that it starts nothing more
            for one in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    one.kill()

    def takes_signal(self, pid: int, number: int) -> bool:
        return False

    def end_with_parent(self, parent: int | None) -> None:
        if parent is None:  # this process cannot be asked to end
            return

        def watch() -> None:
            began = self.start_time(parent)
            while began is not None and self.start_time(parent) == began:
                time.sleep(PARENT_SECONDS)
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()

    def death_signal(self, code: int) -> int:
        return DEATHS.get(code & 0xFFFFFFFF, 0) if ON_WINDOWS else max(0, -code)

    def memory_kills(self) -> int:
        return 0

    def lower_priority(self, steps: int) -> None:
        process = psutil.Process()
        if sys.platform == "win32":
            process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        else:
            process.nice(min(19, process.nice() + steps))

    # ---- the stacks of a job's threads

    def prepare_stacks(self) -> None:
        """The request is looked for every second."""

    def request_stacks(self, pid: int, request: Path) -> bool:
        if there := request.parent.is_dir():
            request.touch()
        return there

    def answer_stacks(self, request: Path) -> None:
        if request.exists():
            request.unlink(missing_ok=True)
            faulthandler.dump_traceback(file=2, all_threads=True)

    # ---- limits

    def limit_visitor(self, memory: int, file_size: int) -> None:
        raise NotImplementedError("ask `limits_visitors` first")

    def limit_child(self, memory: int) -> None:
        """The parent's guard does it."""

    def limit_computing(self, seconds: float) -> None:
        """The parent's guard does it."""

    def guard(self, pid: int, memory: int) -> ChildGuard:
        if ON_WINDOWS:
            with contextlib.suppress(OSError):  # it has ended, or is in a job that holds no other
                return JobGuard(pid, memory, job_objects.kernel32())
        return WatchingGuard(pid, memory)

    # ---- memory

    def reset_peak_memory(self) -> None:
        """The system keeps one peak a process."""

    def peak_memory(self) -> int:
        facts = psutil.Process().memory_info()
        return int(getattr(facts, "peak_wset", facts.rss))


class WatchingGuard(ChildGuard):
    """Looks at a child during a task and ends it above its limits. What it allocates between two looks is not seen."""

    def __init__(self, pid: int, memory: int) -> None:
        self._pid, self._memory, self._seconds = pid, memory, 0.0
        self._over = threading.Event()
        self._since: float | None = None  # its computing time at its last sign of progress
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

    def close(self) -> None:
        """Nothing is held."""

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
