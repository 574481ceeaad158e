"""Differences between operating systems in files: locks, renaming and reading open files, links, owners.

Windows refuses to rename or read a file that another process has open, so both are tried again for a while.
WORKBENCH_PLATFORM=portable makes Linux do what Windows does, for the tests; docs/platforms.md lists the differences.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

T = TypeVar("T")
VARIABLE = "WORKBENCH_PLATFORM"
ON_WINDOWS = sys.platform == "win32"
PORTABLE = ON_WINDOWS or os.environ.get(VARIABLE) == "portable"
LOCK_SECONDS = 0.02  # between attempts to take a lock
SHARED_TRIES = 5  # attempts to check a lock, which another process may be checking, too
PATIENCE_SECONDS = 2.0  # how long to wait for a file that another process has open to read a few kilobytes
RETRY_SECONDS = 0.01
WINDOWS_PATH, LONG_WINDOWS_PATH = 259, 32767  # characters; the second if long paths are enabled
FILE_SYSTEM = r"SYSTEM\CurrentControlSet\Control\FileSystem"  # the registry key that says so


def lock(file: IO[Any], shared: bool, wait: bool) -> None:
    """Lock an open file until it is closed. Do not read its first byte meanwhile.

    Raises BlockingIOError if it is held and `wait` is False, OSError if the file system has no locks.
    """
    if sys.platform == "win32" or PORTABLE:
        from filelock import lock_descriptor

        # There are no shared locks, so two processes that check at the same time may see each other for a moment.
        tries = SHARED_TRIES if shared and not wait else 1
        for number in range(tries):
            if lock_descriptor(file.fileno(), blocking=wait, poll_interval=LOCK_SECONDS):
                return
            if number + 1 < tries:
                time.sleep(LOCK_SECONDS)
        raise BlockingIOError(errno.EAGAIN, "another process holds the lock")
    else:  # mypy skips this branch on Windows
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def patiently(action: Callable[[], T]) -> T:
    """Do something with a file, trying again on Windows while another process has it open. Raises OSError."""
    end = time.monotonic() + (PATIENCE_SECONDS if PORTABLE else 0.0)
    while True:
        try:
            return action()
        except PermissionError:
            if time.monotonic() >= end:
                raise
            time.sleep(RETRY_SECONDS)


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a file or folder, replacing a file or an empty folder of that name. Raises OSError."""
    if PORTABLE and os.path.isdir(source) and os.path.isdir(target):
        os.rmdir(target)  # if it is not empty, raises what a rename would raise
    patiently(lambda: os.replace(source, target))


def longest_path() -> int:
    """Return how many characters the path of a file may have."""
    if sys.platform == "win32":
        import winreg

        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, FILE_SYSTEM) as key:
            return LONG_WINDOWS_PATH if winreg.QueryValueEx(key, "LongPathsEnabled")[0] else WINDOWS_PATH
    if ON_WINDOWS:
        return WINDOWS_PATH
    return 1024 if sys.platform == "darwin" else 4096


def sync() -> None:
    """Flush everything to disk. Does nothing on Windows, which can only flush single files."""
    if sys.platform != "win32":
        os.sync()


def link(source: Path, target: Path) -> None:
    """Link to a file for reading, or copy it where links are not possible. Raises OSError."""
    if not PORTABLE:
        target.symlink_to(os.path.relpath(source.resolve(), target.parent.resolve()))
        return
    real = source.resolve()  # on Windows, few accounts may create symbolic links
    try:
        os.link(real, target)
    except OSError:
        shutil.copyfile(real, target)


def link_folder(source: Path, target: Path) -> None:
    """Link to a folder; a relative source is relative to the target's parent. Raises OSError."""
    if sys.platform == "win32":
        import _winapi

        _winapi.CreateJunction(os.path.abspath(target.parent / source), str(target))  # needs no special right
    else:
        target.symlink_to(source)


def open_ordinary(path: Path) -> int:
    """Open a regular file for reading without blocking. Raises OSError (ELOOP if it is a link)."""
    if sys.platform != "win32" and not PORTABLE:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    kind = path.lstat().st_mode
    if stat.S_ISLNK(kind):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if not stat.S_ISREG(kind):  # opening a pipe would block until somebody writes
        return os.open(os.devnull, os.O_RDONLY)
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


def owns(facts: os.stat_result) -> bool:
    """Whether this user owns a file. Always true on Windows, which has no user ids and hides other users' files."""
    return sys.platform == "win32" or facts.st_uid == os.getuid()
