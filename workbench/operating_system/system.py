"""The interface to the operating system. What it says holds for both implementations.

Not covered: how (posix, portable), which one is used (the package).
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

T = TypeVar("T")


class ChildGuard(ABC):
    """A parent's guard over a child that reads foreign files, from before the first of its tasks."""

    @contextlib.contextmanager
    def task(self, seconds: float) -> Iterator[None]:
        """Around a task; seconds: of computing from one sign of progress to the next. Raises OSError."""
        self.begin(seconds)
        try:
            yield
        finally:
            self.end()

    @abstractmethod
    def begin(self, seconds: float) -> None: ...

    @abstractmethod
    def end(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """The child has ended."""

    @abstractmethod
    def progress(self) -> None:
        """The child made progress: its time starts anew."""

    @abstractmethod
    def ended_late(self, code: int | None) -> bool:
        """Whether the child, which has ended with this code, was ended because it computed too long."""


class System(ABC):
    """What the workbench asks of an operating system.

    end_signals: what ends a server from outside, besides Ctrl-C
    limits_visitors: whether processes can be held to an amount of memory, which the public demo needs
    inherits: whether open files can be handed to a child, which runs on several GPUs need
    stacks_signal: has a job write every thread's stack to its log; 0 where a file asks for that
    """

    end_signals: tuple[int, ...]
    limits_visitors: bool
    inherits: bool
    stacks_signal: int

    # ---- files

    @abstractmethod
    def lock(self, file: IO[Any], shared: bool, wait: bool) -> None:
        """Lock an open file until it is closed; its first byte must not be read meanwhile.

        Raises BlockingIOError when it is held and `wait` is False, OSError where the file system has no locks.
        """

    @abstractmethod
    def patiently(self, action: Callable[[], T]) -> T:
        """Do something with a file that another process may have open just now. Raises OSError."""

    @abstractmethod
    def replace(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        """Rename a file or a folder; a file or an empty folder of that name is replaced. Raises OSError."""

    @abstractmethod
    def longest_path(self) -> int:
        """Characters that the path of a file may have."""

    @abstractmethod
    def sync(self) -> None:
        """Have all that was written reach the disk, where the system can be asked for that."""

    @abstractmethod
    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, for reading. Raises OSError."""

    @abstractmethod
    def link_folder(self, source: Path, target: Path) -> None:
        """Give a folder a second name; a relative source counts from the target's folder. Raises OSError."""

    @abstractmethod
    def open_ordinary(self, path: Path) -> int:
        """A descriptor of a file for reading, which waits for nobody. Raises OSError (ELOOP: it is a link)."""

    @abstractmethod
    def owns(self, facts: os.stat_result) -> bool:
        """Whether a file is this user's."""

    # ---- processes

    @abstractmethod
    def boot_id(self) -> str:
        """Changes with every start of the machine, as far as start times of processes do not."""

    @abstractmethod
    def start_time(self, pid: int) -> str | None:
        """When a process began, in the system's own count; None when it is gone or only waits to be collected."""

    @abstractmethod
    def python(self) -> tuple[str, dict[str, str]]:
        """The program that runs Python for a process of ours, and the variables that it needs."""

    @abstractmethod
    def detached(self) -> dict[str, Any]:
        """What subprocess.Popen must get for a process that outlives this one and its terminal."""

    @abstractmethod
    def inherited(self, descriptors: Sequence[int]) -> dict[str, Any]:
        """What subprocess.Popen must get for a child that has these files open as well."""

    @abstractmethod
    def detached_here(self) -> bool:
        """Whether this process was started `detached`."""

    @abstractmethod
    def request_end(self, pid: int) -> bool:
        """Ask a process, and those that it started, to end; whether it can be asked so."""

    @abstractmethod
    def end(self, pid: int) -> None:
        """End a process, and those that it started, at once."""

    @abstractmethod
    def takes_signal(self, pid: int, number: int) -> bool:
        """Whether a process takes this signal, rather than dying of it; False where that is unknown."""

    @abstractmethod
    def end_with_parent(self, parent: int | None) -> None:
        """End this process when its parent is gone; with None, ask it to end then (as far as the system can)."""

    @abstractmethod
    def death_signal(self, code: int) -> int:
        """The number of the signal that an exit code tells of, 0 for none."""

    @abstractmethod
    def memory_kills(self) -> int:
        """How often this machine has ended a process because memory ran out; 0 where unknown."""

    @abstractmethod
    def lower_priority(self, steps: int) -> None:
        """Let other processes compute first."""

    # ---- the stacks of a job's threads

    @abstractmethod
    def prepare_stacks(self) -> None:
        """In a job: from now on it can be asked."""

    @abstractmethod
    def request_stacks(self, pid: int, request: Path) -> bool:
        """Have a job write every thread's stack to its log; whether it can be asked. request: a file of its folder"""

    @abstractmethod
    def answer_stacks(self, request: Path) -> None:
        """In a job, every second: answer a request that came as a file."""

    # ---- limits

    @abstractmethod
    def limit_visitor(self, memory: int, file_size: int) -> None:
        """Hold this process, and all that it starts, to bytes of memory and of a file. Needs `limits_visitors`."""

    @abstractmethod
    def limit_child(self, memory: int) -> None:
        """In a child that reads foreign files: hold it to bytes of memory."""

    @abstractmethod
    def limit_computing(self, seconds: float) -> None:
        """In such a child: end it after so many seconds of computing, also in native code; 0: no longer."""

    @abstractmethod
    def guard(self, pid: int, memory: int) -> ChildGuard:
        """In its parent, before the first task: the limits that the child does not set for itself."""

    # ---- memory

    @abstractmethod
    def reset_peak_memory(self) -> None:
        """Forget what memory this process had so far, where that is possible."""

    @abstractmethod
    def peak_memory(self) -> int:
        """The most bytes that this process had since then; those that it has now where the peak is unknown."""
