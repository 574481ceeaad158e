"""Linux and macOS. What Linux alone has (/proc, prctl) is left out elsewhere.

Not covered: Windows (portable).
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from workbench.operating_system.system import ChildGuard, System, T

assert sys.platform != "win32"  # for mypy: it reads the rest for the systems that have these names

PATH_MAX = 4096 if sys.platform.startswith("linux") else 1024
PARENT_DEATH = 1  # PR_SET_PDEATHSIG of prctl(2)
HIGH_WATER = re.compile(r"VmHWM:\s+(\d+) kB")


class Posix(System):
    end_signals = (signal.SIGTERM, signal.SIGHUP)
    limits_visitors = True
    inherits = True
    stacks_signal = signal.SIGUSR1

    # ---- files

    def lock(self, file: IO[Any], shared: bool, wait: bool) -> None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))

    def patiently(self, action: Callable[[], T]) -> T:
        return action()

    def replace(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        os.replace(source, target)

    def longest_path(self) -> int:
        return PATH_MAX

    def sync(self) -> None:
        os.sync()

    def link(self, source: Path, target: Path) -> None:
        target.symlink_to(os.path.relpath(source.resolve(), target.parent.resolve()))

    def link_folder(self, source: Path, target: Path) -> None:
        target.symlink_to(source)

    def open_ordinary(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)

    def owns(self, facts: os.stat_result) -> bool:
        return facts.st_uid == os.getuid()

    # ---- processes

    def boot_id(self) -> str:
        with contextlib.suppress(OSError):
            return _proc("/proc/sys/kernel/random/boot_id").strip()
        return str(int(psutil.boot_time()))

    def start_time(self, pid: int) -> str | None:
        try:
            process = psutil.Process(pid)
            if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
            if sys.platform.startswith("linux"):  # changes of the clock do not move this one
                return _proc(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]
            return f"{process.create_time():.2f}"
        except (psutil.Error, OSError, IndexError, ValueError):
            return None

    def python(self) -> tuple[str, dict[str, str]]:
        return sys.executable, {}

    def detached(self) -> dict[str, Any]:
        return {"start_new_session": True}

    def inherited(self, descriptors: Sequence[int]) -> dict[str, Any]:
        return {"pass_fds": tuple(descriptors)}

    def detached_here(self) -> bool:
        return os.getsid(0) == os.getpid()

    def request_end(self, pid: int) -> bool:
        _signal_group(pid, signal.SIGTERM)
        return True

    def end(self, pid: int) -> None:
        _signal_group(pid, signal.SIGKILL)

    def takes_signal(self, pid: int, number: int) -> bool:
        with contextlib.suppress(OSError, IndexError, ValueError):
            caught = int(_proc(f"/proc/{pid}/status").split("SigCgt:")[1].split()[0], 16)
            return bool(caught >> (number - 1) & 1)
        return False

    def end_with_parent(self, parent: int | None) -> None:
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGTERM if parent is None else signal.SIGKILL)

    def death_signal(self, code: int) -> int:
        return max(0, -code)

    def memory_kills(self) -> int:
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(_proc("/proc/vmstat").split("oom_kill ")[1].split()[0])
        return 0

    def lower_priority(self, steps: int) -> None:
        os.nice(steps)

    # ---- the stacks of a job's threads

    def prepare_stacks(self) -> None:
        faulthandler.register(self.stacks_signal, file=2, all_threads=True)

    def request_stacks(self, pid: int, request: Path) -> bool:
        if requested := self.takes_signal(pid, self.stacks_signal):
            os.kill(pid, self.stacks_signal)
        return requested

    def answer_stacks(self, request: Path) -> None:
        """The signal is answered where it arrives."""

    # ---- limits

    def limit_visitor(self, memory: int, file_size: int) -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def limit_child(self, memory: int) -> None:
        with contextlib.suppress(ValueError, OSError):  # macOS refuses the limit
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    def limit_computing(self, seconds: float) -> None:
        # Its default action works in native code too, so that even an orphan cannot spin for ever.
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def guard(self, pid: int, memory: int) -> ChildGuard:
        return KernelGuard()

    # ---- memory

    def reset_peak_memory(self) -> None:
        with contextlib.suppress(OSError):  # where there is no such file, the peak is that of the whole process
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak_memory(self) -> int:
        try:
            found = HIGH_WATER.search(_proc("/proc/self/status"))
        except OSError:
            found = None
        return int(found[1]) * 1024 if found else int(psutil.Process().memory_info().rss)


class KernelGuard(ChildGuard):
    """Leaves all to the limits that the child has set for itself."""

    def begin(self, seconds: float) -> None:
        """The child sets its timer."""

    def end(self) -> None:
        """The child has stopped it."""

    def close(self) -> None:
        """Nothing is held."""

    def progress(self) -> None:
        """The child has set its timer anew."""

    def ended_late(self, code: int | None) -> bool:
        return code == -signal.SIGPROF


def _proc(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        # A process started by hand shares its group with a shell, which must not be signalled.
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
