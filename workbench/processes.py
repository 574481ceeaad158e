"""Which process is it? A pid is reused; a pid with its start time and the machine's boot is not.

And how a process starts quickly. Not covered: what it does (jobs), processes on other machines.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil


def boot_id() -> str:
    """Changes with every start of the machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return str(int(psutil.boot_time()))


def start_time(pid: int) -> str | None:
    """When the process began, in the kernel's own count (wall-clock changes do not move it); None when it is gone.

    A zombie counts as gone: it only waits for its parent to read the exit code.
    """
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        if sys.platform.startswith("linux"):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return fields[19]
        return f"{process.create_time():.2f}"
    except (psutil.Error, OSError, IndexError, ValueError):
        return None


def identity(pid: int) -> dict[str, Any]:
    """What tells this process from every other, as JSON."""
    return {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()}


def alive(process: dict[str, Any]) -> bool:
    """Whether the process of an `identity` still runs."""
    pid, began = process.get("pid"), process.get("start_time")
    if not isinstance(pid, int) or began is None or process.get("boot_id") != boot_id():
        return False
    return start_time(pid) == began


def signal_group(process: dict[str, Any], number: signal.Signals) -> None:
    """Signal the process and, where it leads its own group, all its children; nothing when it is gone."""
    if not alive(process):
        return
    pid = process["pid"]
    with contextlib.suppress(ProcessLookupError):
        # A process started by hand shares its group with a shell, which must not be signalled.
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """For importing large packages and reading models: a fifth faster without looking for garbage in what will stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
