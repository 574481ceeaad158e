"""Job objects: how the kernel of Windows holds a child that reads foreign files to its limits.

Structures and numbers are those of winnt.h for 64 bits, in types of fixed width: tests on Linux measure them. The child
is put into its job once it runs and before its first task: what it takes while it starts is not limited, and no foreign
file is read then. Not covered: time in the kernel, which Windows does not count; a child that hangs without computing
(jobs.limited).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any

from workbench.operating_system.system import ChildGuard

EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
JOB_TIME, ACTIVE_PROCESSES, PROCESS_MEMORY = 0x4, 0x8, 0x100  # JOB_OBJECT_LIMIT_...
NO_CRASH_WINDOW, END_ON_CLOSE = 0x400, 0x2000  # ..._DIE_ON_UNHANDLED_EXCEPTION, ..._KILL_ON_JOB_CLOSE
ALWAYS = ACTIVE_PROCESSES | PROCESS_MEMORY | NO_CRASH_WINDOW | END_ON_CLOSE
SET_QUOTA, TERMINATE = 0x100, 0x1  # PROCESS_..., rights that are needed to put a process into a job
OUT_OF_TIME = 1816  # ERROR_NOT_ENOUGH_QUOTA: the exit code of a process that its job's time limit has ended
TICKS = 10_000_000  # a second
HANDLE, BOOL, DWORD = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION"""

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
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION"""

    _fields_ = (
        ("BasicLimitInformation", BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


def kernel32() -> Any:
    """The library that has these functions. Raises OSError elsewhere than on Windows."""
    if sys.platform == "win32":
        return declared(ctypes.WinDLL("kernel32"))
    else:  # which mypy leaves out for Windows
        raise OSError("only Windows has job objects")


def declared(library: Any) -> Any:
    """The library, with the types of what is called here: ctypes would cut a handle to 32 bits."""
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
    """Holds one child in a job: memory, computing time of a task, and no process that it starts.

    The handle is this process's alone: the child cannot change its limits, and it ends with its parent, however that
    one ends.
    """

    def __init__(self, pid: int, memory: int, library: Any) -> None:
        """library: `kernel32()`. Raises OSError where Windows refuses; the child is as it was then."""
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
        with contextlib.suppress(OSError):  # the limit that is set stays
            self._limit(self._seconds)

    def end(self) -> None:
        self._limit(0.0)

    def ended_late(self, code: int | None) -> bool:
        return code == OUT_OF_TIME

    def close(self) -> None:
        self._library.CloseHandle(self._job)

    def _limit(self, seconds: float) -> None:
        """Set all limits; seconds: of computing from now on, to which Windows adds what was computed, 0: any."""
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
