"""What differs between operating systems in files: locks, renaming and reading what is open, links, owners.

Windows refuses to rename or read a file that another process has open, so both are tried again for a while. Setting
WORKBENCH_PLATFORM=portable has Linux do as Windows does, for the tests; docs/platforms.md has the differences.
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
LOCK_SECONDS = 0.02  # between two attempts to take a lock
SHARED_TRIES = 5  # of who only looks whether a lock is held: another one may be looking, too
PATIENCE_SECONDS = 2.0  # for a file that another process has open; it reads a few kilobytes
RETRY_SECONDS = 0.01
WINDOWS_PATH, LONG_WINDOWS_PATH = 259, 32767  # characters; Windows has the second where long paths are switched on
FILE_SYSTEM = r"SYSTEM\CurrentControlSet\Control\FileSystem"  # where its registry says so


def lock(file: IO[Any], shared: bool, wait: bool) -> None:
    """Lock an open file until it is closed; its first byte must not be read meanwhile.

    Raises BlockingIOError when it is held and `wait` is False, OSError where the file system has no locks.
    """
    if sys.platform == "win32" or PORTABLE:
        from filelock import lock_descriptor

        # There are no shared locks: two who look at once may each see the other for a moment.
        tries = SHARED_TRIES if shared and not wait else 1
        for number in range(tries):
            if lock_descriptor(file.fileno(), blocking=wait, poll_interval=LOCK_SECONDS):
                return
            if number + 1 < tries:
                time.sleep(LOCK_SECONDS)
        raise BlockingIOError(errno.EAGAIN, "another process holds the lock")
    else:  # which mypy leaves out for Windows
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def patiently(action: Callable[[], T]) -> T:
    """Do something with a file that another process may have open just now. Raises OSError."""
    end = time.monotonic() + (PATIENCE_SECONDS if PORTABLE else 0.0)
    while True:
        try:
            return action()
        except PermissionError:
            if time.monotonic() >= end:
                raise
            time.sleep(RETRY_SECONDS)


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a file or a folder; a file or an empty folder of that name is replaced. Raises OSError."""
    if PORTABLE and os.path.isdir(source) and os.path.isdir(target):
        os.rmdir(target)  # raises what a rename raises where it is not empty
    patiently(lambda: os.replace(source, target))


def longest_path() -> int:
    """Characters that the path of a file may have."""
    if sys.platform == "win32":
        import winreg

        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, FILE_SYSTEM) as key:
            return LONG_WINDOWS_PATH if winreg.QueryValueEx(key, "LongPathsEnabled")[0] else WINDOWS_PATH
    if ON_WINDOWS:
        return WINDOWS_PATH
    return 1024 if sys.platform == "darwin" else 4096


def sync() -> None:
    """Have all that was written reach the disk; Windows can be asked for single files only."""
    if sys.platform != "win32":
        os.sync()


def link(source: Path, target: Path) -> None:
    """Give a file a second name, for reading. Raises OSError."""
    if not PORTABLE:
        target.symlink_to(os.path.relpath(source.resolve(), target.parent.resolve()))
        return
    real = source.resolve()  # a symbolic link needs a right on Windows that few accounts have
    try:
        os.link(real, target)
    except OSError:
        shutil.copyfile(real, target)


def link_folder(source: Path, target: Path) -> None:
    """Give a folder a second name; a relative source counts from the target's folder. Raises OSError."""
    if sys.platform == "win32":
        import _winapi

        _winapi.CreateJunction(os.path.abspath(target.parent / source), str(target))  # needs no right
    else:
        target.symlink_to(source)


def open_ordinary(path: Path) -> int:
    """A descriptor of a file for reading, which waits for nobody. Raises OSError (ELOOP: it is a link)."""
    if sys.platform != "win32" and not PORTABLE:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    kind = path.lstat().st_mode
    if stat.S_ISLNK(kind):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if not stat.S_ISREG(kind):  # opening a pipe would wait for its writer
        return os.open(os.devnull, os.O_RDONLY)
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


def owns(facts: os.stat_result) -> bool:
    """Whether a file is this user's. Windows numbers no users; what another one owns cannot be read there."""
    return sys.platform == "win32" or facts.st_uid == os.getuid()
