"""Differences between operating systems in how processes start, end, are limited and asked for their stacks.

psutil covers most of it. What needs Linux (/proc, prctl) is skipped elsewhere. Windows replaces signals with files in a
job's folder, process groups with psutil's process tree, and kernel limits with a parent that watches its child.
WORKBENCH_PLATFORM=portable makes Linux do the same for the tests; docs/platforms.md lists the differences.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from workbench.workspace.disk import ON_WINDOWS, PORTABLE

LIMITS_VISITORS = not PORTABLE
"""Whether the memory of processes can be limited, which the public demo needs."""
INHERITS = not PORTABLE
"""Whether a child can inherit open files, which runs on several GPUs need."""
if sys.platform == "win32" or PORTABLE:
    END_SIGNALS: tuple[int, ...] = (signal.SIGTERM,)
    STACKS_SIGNAL = 0
else:  # mypy skips this branch on Windows
    END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
    """The signals that end a server, besides Ctrl-C."""
    STACKS_SIGNAL = int(signal.SIGUSR1)
    """Makes a job write every thread's stack to its log; 0 where a file requests that."""
PARENT_DEATH = 1  # PR_SET_PDEATHSIG of prctl(2)
ARENA_MAX = -8  # M_ARENA_MAX of mallopt(3)
PARENT_SECONDS = 0.5  # between checks of a parent, where the system does not report its end
HIGH_WATER = re.compile(r"VmHWM:\s+(\d+) kB")
DEATHS = {0xC0000005: signal.SIGSEGV, 0xC0000409: signal.SIGABRT}  # NTSTATUS codes of Windows


# ---- which process it is


@functools.cache
def boot_id() -> str:
    """Return an id that changes when the machine reboots; constant where start times of processes are unique anyway."""
    if ON_WINDOWS:
        return "windows"  # start times are absolute there
    with contextlib.suppress(OSError):
        return _proc("/proc/sys/kernel/random/boot_id").strip()
    return str(int(psutil.boot_time()))


def start_time(pid: int) -> str | None:
    """Return when a process began, in the system's own unit; None if it is gone or a zombie.

    On Linux, one whose main thread has ended is not gone while other threads run: they still hold its files and locks.
    """
    try:
        if sys.platform.startswith("linux"):  # not affected by changes of the clock
            state, *fields = _proc(f"/proc/{pid}/stat").rpartition(")")[2].split()
            return None if state in "ZXx" and int(fields[16]) <= 1 else fields[18]
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return f"{process.create_time():.2f}"
    except (psutil.Error, OSError, IndexError, ValueError):
        return None


# ---- how it starts


def python() -> tuple[str, dict[str, str]]:
    """Return the Python executable for our processes and the environment variables it needs."""
    if not ON_WINDOWS:
        return sys.executable, {}
    utf8, base = {"PYTHONUTF8": "1"}, getattr(sys, "_base_executable", sys.executable)
    if os.path.normcase(base) != os.path.normcase(sys.executable):
        # A virtual environment's python.exe only launches another process, whose pid we would not know.
        # Python's multiprocessing module avoids it in the same way.
        return base, {**utf8, "__PYVENV_LAUNCHER__": sys.executable}
    return sys.executable, utf8


def detached() -> dict[str, Any]:
    """Return the arguments of subprocess.Popen for a process that outlives this one and its terminal."""
    if sys.platform == "win32":
        # An invisible console rather than none: without one, each program that it starts would open a window.
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True}


def detached_here() -> bool:
    """Whether this process was started `detached`."""
    return sys.platform == "win32" or os.getsid(0) == os.getpid()


def inherited(descriptors: Sequence[int]) -> dict[str, Any]:
    """Return the arguments of subprocess.Popen for a child that inherits these open files. Needs `INHERITS`."""
    return {"pass_fds": tuple(descriptors)}


def lower_priority(steps: int) -> None:
    """Let other processes go first."""
    process = psutil.Process()
    if sys.platform == "win32":
        process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        process.nice(min(19, process.nice() + steps))


# ---- how it ends


def request_end(pid: int) -> bool:
    """Ask a process and its children to end; return whether the system can do that."""
    if PORTABLE:
        return False
    _signal_group(pid, signal.SIGTERM)
    return True


def end(pid: int) -> None:
    """Kill a process and its children."""
    if sys.platform != "win32" and not PORTABLE:
        _signal_group(pid, signal.SIGKILL)
        return
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        process.suspend()  # so that it starts no more children
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                one.kill()


def _signal_group(pid: int, number: signal.Signals) -> None:
    if sys.platform == "win32":
        raise OSError("Windows has no process groups")
    with contextlib.suppress(ProcessLookupError):
        # A process started by hand shares its group with a shell, which must not get the signal.
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def end_with_parent(parent: int | None) -> None:
    """Kill this process when its parent is gone. With None, ask it to end instead, which only Linux can."""
    if sys.platform.startswith("linux") and not PORTABLE:
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGTERM if parent is None else signal.SIGKILL)
    elif parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: int) -> None:
    began = start_time(parent)
    while began is not None and start_time(parent) == began:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def death_signal(code: int) -> int:
    """Return the number of the signal behind an exit code; 0 for none."""
    return DEATHS.get(code & 0xFFFFFFFF, 0) if ON_WINDOWS else max(0, -code)


def memory_kills() -> int:
    """Return how often this machine has killed a process because memory ran out; 0 if unknown."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(_proc("/proc/vmstat").split("oom_kill ")[1].split()[0])
    return 0


# ---- the stacks of a job's threads


def takes_signal(pid: int, number: int) -> bool:
    """Whether a process handles this signal rather than dying of it; False if unknown."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        caught = int(_proc(f"/proc/{pid}/status").split("SigCgt:")[1].split()[0], 16)
        return bool(caught >> (number - 1) & 1)
    return False


def prepare_stacks() -> None:
    """In a job: answer the signal that requests stacks from now on."""
    if sys.platform != "win32" and STACKS_SIGNAL:
        faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True)


def request_stacks(pid: int, request: Path) -> bool:
    """Make a job write every thread's stack to its log; return False if it cannot. request: a file in its folder."""
    if STACKS_SIGNAL:
        if asked := takes_signal(pid, STACKS_SIGNAL):
            os.kill(pid, STACKS_SIGNAL)
        return asked
    if asked := request.parent.is_dir():
        request.touch()
    return asked


def answer_stacks(request: Path) -> None:
    """In a job, every second: answer a request that came as a file."""
    if not STACKS_SIGNAL and request.exists():
        request.unlink(missing_ok=True)
        faulthandler.dump_traceback(file=2, all_threads=True)


# ---- limits and memory


def limit_visitor(memory: int, file_size: int) -> None:
    """Limit the memory and file size (bytes) of this process and its children. Needs `LIMITS_VISITORS`."""
    if sys.platform == "win32":
        raise OSError("Windows cannot limit visitors")
    else:  # mypy skips this branch on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_child(memory: int) -> None:
    """In a child that reads foreign files: limit its memory (bytes), unless its parent's guard does that."""
    if sys.platform != "win32" and not PORTABLE:
        import resource

        with contextlib.suppress(ValueError, OSError):  # macOS refuses the limit
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def limit_computing(seconds: float) -> None:
    """In such a child: end it after so many CPU seconds, unless its parent's guard does that. 0 lifts the limit."""
    if sys.platform != "win32" and not PORTABLE:
        # The signal's default action also interrupts native code, so even an orphan cannot spin forever.
        signal.setitimer(signal.ITIMER_PROF, seconds)


def share_freed_memory() -> None:
    """Let all threads allocate from two pools, so that what one frees serves another. By default glibc has 8 a core."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(ARENA_MAX, 2)


def reset_peak_memory() -> None:
    """Reset this process's peak memory. Where the system cannot, the peak covers the process's whole life."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Return the peak memory (bytes) since the reset, or the current memory if the peak is unknown."""
    with contextlib.suppress(OSError):
        if found := HIGH_WATER.search(_proc("/proc/self/status")):
            return int(found[1]) * 1024
    facts = psutil.Process().memory_info()
    return int(getattr(facts, "peak_wset", facts.rss))


def _proc(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")
