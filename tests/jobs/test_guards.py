"""Guards of children: the one that watches, and job objects of Windows as far as Linux can tell.

The functions of Windows are replaced by C functions with its prototypes, which write down what arrives. What Windows
does with it is tested there alone.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from tests.jobs.test_limited import MODULE
from tests.patience import PATIENCE
from workbench.jobs import limited, platform
from workbench.jobs.limited import BasicLimits, ChildLost, ExtendedLimits, JobGuard, LimitedChild, WatchingGuard

JOB, PROCESS = 0x1_0000_0010, 0x2_0000_0020  # handles have 64 bits
MEMORY = 6 * 1024**3
# Offset and size in bytes, and the numbers below, as a C program printed them that mingw-w64 12.2 compiled with its
# winnt.h for x86-64 and wine 8.0 ran.
BASIC = {
    "PerProcessUserTimeLimit": (0, 8), "PerJobUserTimeLimit": (8, 8), "LimitFlags": (16, 4),
    "MinimumWorkingSetSize": (24, 8), "MaximumWorkingSetSize": (32, 8), "ActiveProcessLimit": (40, 4),
    "Affinity": (48, 8), "PriorityClass": (56, 4), "SchedulingClass": (60, 4),
}  # fmt: skip
EXTENDED = {
    "BasicLimitInformation": (0, 64), "IoInfo": (64, 48), "ProcessMemoryLimit": (112, 8), "JobMemoryLimit": (120, 8),
    "PeakProcessMemoryUsed": (128, 8), "PeakJobMemoryUsed": (136, 8),
}  # fmt: skip
PROTOTYPES = {
    "CreateJobObjectW": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "SetInformationJobObject": (ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32),
    "OpenProcess": (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint32),
    "AssignProcessToJobObject": (ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p),
    "CloseHandle": (ctypes.c_int32, ctypes.c_void_p),
}


class Library:
    """Functions with the prototypes of Windows. calls: name and arguments, the limits in place of a pointer to them."""

    def __init__(self, refuses: str = "", granted: int = 0) -> None:
        """refuses: the function that fails, after so many `granted` calls of it."""
        self.calls: list[tuple[Any, ...]] = []
        self._refuses, self._granted = refuses, granted
        for name, prototype in PROTOTYPES.items():
            setattr(self, name, ctypes.CFUNCTYPE(*prototype)(self._function(name)))
        limited.declared(self)

    def _function(self, name: str) -> Any:
        def called(*arguments: Any) -> int:
            if name == "SetInformationJobObject":
                job, kind, address, size = arguments
                limits = ExtendedLimits.from_buffer_copy(ctypes.string_at(address, size))
                basic = limits.BasicLimitInformation
                assert (kind, size, basic.ActiveProcessLimit) == (9, 144, 1)
                arguments = (job, hex(basic.LimitFlags), basic.PerJobUserTimeLimit, limits.ProcessMemoryLimit)
            self.calls.append((name, *arguments))
            if name == self._refuses and [call[0] for call in self.calls].count(name) > self._granted:
                return 0
            return {"CreateJobObjectW": JOB, "OpenProcess": PROCESS}.get(name, 1)

        return called


def limit(seconds: float) -> tuple[Any, ...]:
    """The call that sets the limits."""
    return ("SetInformationJobObject", JOB, hex(0x250C if seconds else 0x2508), int(seconds * 1e7), MEMORY)


STARTED = [
    ("CreateJobObjectW", None, None),
    limit(0),  # before the child is in it
    ("OpenProcess", 0x101, 0, 77),
    ("AssignProcessToJobObject", JOB, PROCESS),
    ("CloseHandle", PROCESS),
]


def test_structures_and_numbers_are_those_of_windows() -> None:
    for kind, size, fields in ((BasicLimits, 64, BASIC), (ExtendedLimits, 144, EXTENDED)):
        assert ctypes.sizeof(kind) == size
        assert [name for name, *_ in kind._fields_] == list(fields)
        for name, place in fields.items():
            assert (getattr(kind, name).offset, getattr(kind, name).size) == place, name
    assert limited.JOB_TIME == 0x4
    assert limited.ALWAYS == 0x8 | 0x100 | 0x400 | 0x2000
    assert (limited.SET_QUOTA, limited.TERMINATE) == (0x100, 0x1)
    assert (limited.EXTENDED_LIMITS, limited.OUT_OF_TIME) == (9, 0x718)


def test_a_child_is_limited_before_its_first_task_and_its_time_starts_anew_with_progress() -> None:
    library = Library()
    guard = JobGuard(77, MEMORY, library)
    assert library.calls == STARTED
    library.calls.clear()
    with guard.task(1.5):
        guard.progress()
        assert library.calls == [limit(1.5), limit(1.5)]
    guard.close()
    assert library.calls[2:] == [limit(0), ("CloseHandle", JOB)]
    assert guard.ended_late(1816)
    assert not guard.ended_late(1)
    assert not guard.ended_late(None)


@pytest.mark.parametrize("number", range(4))
def test_what_windows_refuses_leaves_nothing_open_and_the_parent_watches(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = STARTED[number][0]
    library = Library(refuses=refused)
    with pytest.raises(OSError, match=f"refuses {refused}"):
        JobGuard(77, MEMORY, library)
    opened = [handle for handle, call in ((PROCESS, 3), (JOB, 1)) if number >= call]
    assert library.calls == [*STARTED[: number + 1], *(("CloseHandle", handle) for handle in opened)]
    monkeypatch.setattr(limited, "PORTABLE", True)
    monkeypatch.setattr(limited, "ON_WINDOWS", True)
    monkeypatch.setattr(limited, "kernel32", lambda: library)
    assert isinstance(limited.guard(77, MEMORY), WatchingGuard)


def guard_with(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "MEMORY_BYTES", MEMORY)
    monkeypatch.setattr(limited, "guard", lambda pid, memory: JobGuard(pid, memory, library))


def test_a_child_has_one_job_for_all_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    guard_with(library, monkeypatch)
    child = LimitedChild(MODULE)
    for task in ("one", "two"):
        assert child.ask({"do": task}, 60.0) == f"{task} False\n".encode()
    assert child.close() == 0
    assert library.calls[len(STARTED) :] == [limit(60), limit(0)] * 2 + [("CloseHandle", JOB)]


def test_a_child_without_limits_gets_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(refuses="SetInformationJobObject", granted=1)
    guard_with(library, monkeypatch)
    with pytest.raises(ChildLost):
        LimitedChild(MODULE).ask({"do": "one"}, 60.0)
    assert library.calls[-1] == ("CloseHandle", JOB)


def _hoard() -> None:
    kept = []
    while True:
        kept.append(b"x" * 10_000_000)
        time.sleep(0.01)


def _spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(("target", "late"), [(_hoard, False), (_spin, True)])
def test_a_child_above_its_limits_is_ended(target: object, late: bool) -> None:
    child = multiprocessing.get_context("spawn").Process(target=target)  # type: ignore[arg-type]
    child.start()
    assert child.pid
    guard = WatchingGuard(child.pid, memory=300_000_000)
    with guard.task(2.0 if late else 600.0):
        child.join(PATIENCE)
    assert child.exitcode is not None
    assert child.exitcode < 0
    assert guard.ended_late(child.exitcode) is late


def test_a_child_that_makes_progress_is_left_alone() -> None:
    child = multiprocessing.get_context("spawn").Process(target=_spin)
    child.start()
    assert child.pid
    began, process = time.monotonic(), psutil.Process(child.pid)
    guard = WatchingGuard(child.pid, memory=10**12)
    with guard.task(0.5):
        while process.cpu_times().user < 1.0 and time.monotonic() - began < PATIENCE:
            guard.progress()
            time.sleep(0.01)
    assert child.is_alive()
    child.kill()
    child.join()


SPINS = "while True: pass"
TAKES = """
try:
    bytearray(10**9)
except MemoryError:
    sys.exit(7)
"""
STARTS = """
try:
    subprocess.run([sys.executable, "-c", "pass"])
except OSError:
    sys.exit(8)
"""


@pytest.mark.skipif(sys.platform != "win32", reason="only Windows has job objects")
@pytest.mark.parametrize(("code", "ended"), [(SPINS, limited.OUT_OF_TIME), (TAKES, 7), (STARTS, 8), ("input()", None)])
def test_windows_holds_a_child_to_its_limits(code: str, ended: int | None) -> None:
    program, variables = platform.python()
    command = [program, "-c", f"import subprocess, sys\ninput()\n{code}"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **variables})
    guard = JobGuard(child.pid, 500_000_000, limited.kernel32())
    with guard.task(1.0):
        child.stdin.write(b"begin\n")
        child.stdin.flush()
        if ended is not None:
            assert child.wait(PATIENCE) == ended
    guard.close()  # which ends the one that still waits
    child.wait(PATIENCE)
