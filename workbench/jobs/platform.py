"""What differs between operating systems in processes: how they start, end, are limited and asked for their stacks.

psutil has most of it. What only Linux tells (/proc, prctl) is left out elsewhere. What Windows lacks is done with files
in a job's folder, with the tree of processes that psutil sees, and by a parent that watches its child (guards). Setting
WORKBENCH_PLATFORM=portable has Linux do the same, for the tests; docs/platforms.md has the differences.
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
"""Whether processes can be held to an amount of memory, which the public demo needs"""
INHERITS = not PORTABLE
"""Whether open files can be handed to a child, which runs on several GPUs need"""
if sys.platform == "win32" or PORTABLE:
    END_SIGNALS: tuple[int, ...] = (signal.SIGTERM,)
    STACKS_SIGNAL = 0
else:  # which mypy leaves out for Windows
    END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
    """What ends a server from outside, besides Ctrl-C"""
    STACKS_SIGNAL = int(signal.SIGUSR1)
    """Has a job write every thread's stack to its log; 0 where a file asks for that"""
PARENT_DEATH = 1  # PR_SET_PDEATHSIG of prctl(2)
PARENT_SECONDS = 0.5  # between two looks at a parent, where the system does not tell of its end
HIGH_WATER = re.compile(r"VmHWM:\s+(\d+) kB")
DEATHS = {0xC0000005: signal.SIGSEGV, 0xC0000409: signal.SIGABRT}  # NTSTATUS codes of Windows


# ---- which process it is


@functools.cache
def boot_id() -> str:
    """Changes with every start of the machine, as far as start times of processes do not."""
    if ON_WINDOWS:
        return "windows"  # start times are absolute there
    with contextlib.suppress(OSError):
        return _proc("/proc/sys/kernel/random/boot_id").strip()
    return str(int(psutil.boot_time()))


def start_time(pid: int) -> str | None:
    """When a process began, in the system's own count; None when it is gone or only waits to be collected."""
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        if sys.platform.startswith("linux"):  # changes of the clock do not move this one
            return _proc(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]
        return f"{process.create_time():.2f}"
    except (psutil.Error, OSError, IndexError, ValueError):
        return None


# ---- how it starts


def python() -> tuple[str, dict[str, str]]:
    """The program that runs Python for a process of ours, and the variables that it needs."""
    if not ON_WINDOWS:
        return sys.executable, {}
    utf8, base = {"PYTHONUTF8": "1"}, getattr(sys, "_base_executable", sys.executable)
    if os.path.normcase(base) != os.path.normcase(sys.executable):
        # A virtual environment's python.exe only starts another process, whose pid nobody would know.
        # multiprocessing of Python's library goes round it in the same way.
        return base, {**utf8, "__PYVENV_LAUNCHER__": sys.executable}
    return sys.executable, utf8


def detached() -> dict[str, Any]:
    """What subprocess.Popen must get for a process that outlives this one and its terminal."""
    if sys.platform == "win32":
        # A console that nobody sees, and not none: programs that it starts would each open a window.
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True}


def detached_here() -> bool:
    """Whether this process was started `detached`."""
    return sys.platform == "win32" or os.getsid(0) == os.getpid()


def inherited(descriptors: Sequence[int]) -> dict[str, Any]:
    """What subprocess.Popen must get for a child that has these files open as well. Needs `INHERITS`."""
    return {"pass_fds": tuple(descriptors)}


def lower_priority(steps: int) -> None:
    """Let other processes compute first."""
    process = psutil.Process()
    if sys.platform == "win32":
        process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        process.nice(min(19, process.nice() + steps))


# ---- how it ends


def request_end(pid: int) -> bool:
    """Ask a process, and those that it started, to end; whether it can be asked so."""
    if PORTABLE:
        return False
    _signal_group(pid, signal.SIGTERM)
    return True


def end(pid: int) -> None:
    """End a process, and those that it started, at once."""
    if sys.platform != "win32" and not PORTABLE:
        _signal_group(pid, signal.SIGKILL)
        return
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        process.suspend()  # so that it starts nothing more
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                one.kill()


def _signal_group(pid: int, number: signal.Signals) -> None:
    if sys.platform == "win32":
        raise OSError("Windows has no process groups")
    with contextlib.suppress(ProcessLookupError):
        # A process started by hand shares its group with a shell, which must not be signalled.
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def end_with_parent(parent: int | None) -> None:
    """End this process when its parent is gone; with None, ask it to end then (as far as the system can)."""
    if sys.platform.startswith("linux") and not PORTABLE:
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGTERM if parent is None else signal.SIGKILL)
    elif parent is not None:  # this process cannot be asked to end
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: int) -> None:
    began = start_time(parent)
    while began is not None and start_time(parent) == began:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def death_signal(code: int) -> int:
    """The number of the signal that an exit code tells of, 0 for none."""
    return DEATHS.get(code & 0xFFFFFFFF, 0) if ON_WINDOWS else max(0, -code)


def memory_kills() -> int:
    """How often this machine has ended a process because memory ran out; 0 where unknown."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(_proc("/proc/vmstat").split("oom_kill ")[1].split()[0])
    return 0


# ---- the stacks of a job's threads


def takes_signal(pid: int, number: int) -> bool:
    """Whether a process takes this signal, rather than dying of it; False where that is unknown."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        caught = int(_proc(f"/proc/{pid}/status").split("SigCgt:")[1].split()[0], 16)
        return bool(caught >> (number - 1) & 1)
    return False


def prepare_stacks() -> None:
    """In a job: from now on it can be asked. A request that comes as a file is looked for every second."""
    if sys.platform != "win32" and STACKS_SIGNAL:
        faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True)


def request_stacks(pid: int, request: Path) -> bool:
    """Have a job write every thread's stack to its log; whether it can be asked. request: a file of its folder"""
    if STACKS_SIGNAL:
        if asked := takes_signal(pid, STACKS_SIGNAL):
            os.kill(pid, STACKS_SIGNAL)
        return asked
    if asked := request.parent.is_dir():
        request.touch()
    return asked


def answer_stacks(request: Path) -> None:
    """In a job, every second: answer a request that came as a file. A signal is answered where it arrives."""
    if not STACKS_SIGNAL and request.exists():
        request.unlink(missing_ok=True)
        faulthandler.dump_traceback(file=2, all_threads=True)


# ---- limits and memory


def limit_visitor(memory: int, file_size: int) -> None:
    """Hold this process, and all that it starts, to bytes of memory and of a file. Needs `LIMITS_VISITORS`."""
    if sys.platform == "win32":
        raise OSError("Windows limits no visitors")
    else:  # which mypy leaves out for Windows
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_child(memory: int) -> None:
    """In a child that reads foreign files: hold it to bytes of memory, where its parent's guard does not."""
    if sys.platform != "win32" and not PORTABLE:
        import resource

        with contextlib.suppress(ValueError, OSError):  # macOS refuses the limit
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def limit_computing(seconds: float) -> None:
    """In such a child: end it after so many seconds of computing, also in native code; 0: no longer.

    Where its parent's guard does that, nothing happens here.
    """
    if sys.platform != "win32" and not PORTABLE:
        # Its default action works in native code too, so that even an orphan cannot spin for ever.
        signal.setitimer(signal.ITIMER_PROF, seconds)


def reset_peak_memory() -> None:
    """Forget what memory this process had so far, where that is possible; else the peak is of its whole life."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int:
    """The most bytes that this process had since then; those that it has now where the peak is unknown."""
    with contextlib.suppress(OSError):
        if found := HIGH_WATER.search(_proc("/proc/self/status")):
            return int(found[1]) * 1024
    facts = psutil.Process().memory_info()
    return int(getattr(facts, "peak_wset", facts.rss))


def _proc(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")
