"""Lock files, the one place that locks: the kernel frees them when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from workbench.errors import CannotWrite, ConfigError
from workbench.workspace import disk, writing

# What flock(2) returns where the file system has no locks: some network and user-space file systems.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def locked(path: Path, busy: str = "") -> Iterator[None]:
    """Hold a lock file while something is read and written as one: two who press Start at once get one process.

    busy: the ConfigError's sentence when another process holds it; without one, wait for it.
    Raises ConfigError; CannotWrite, also where the file system has no locks.
    """
    with writing(path):
        file = path.open("a", encoding="utf-8")
    with file:
        try:
            acquire(file, wait=not busy)
        except BlockingIOError:
            raise ConfigError(busy) from None
        yield


def acquire(file: IO[Any], shared: bool = False, wait: bool = True) -> None:
    """Lock an open file until it is closed. Its first byte must not be read meanwhile: Windows refuses it.

    Raises BlockingIOError when it is held and `wait` is False; CannotWrite where the file system has no locks.
    """
    try:
        disk.lock(file, shared, wait)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise CannotWrite(
                f"cannot lock {file.name}: its file system has no file locks ({error.strerror}), without which two "
                "jobs could write the same files: put the workspace on a disk that has them"
            ) from error
        raise
