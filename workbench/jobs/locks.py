"""Lock files. The kernel releases them when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from workbench.errors import CannotWrite, ConfigError
from workbench.workspace import disk, writing

# The errors of flock(2) on file systems without locks: some network and user-space file systems.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def locked(path: Path, busy: str = "") -> Iterator[None]:
    """Hold a lock file, so that two people who press Start at the same time get one process.

    Waits while another process holds it, or raises ConfigError with the message `busy` if that is given. Raises
    CannotWrite, also when the file system has no locks.
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
    """Lock an open file until it is closed. Do not read its first byte meanwhile: Windows refuses that.

    Raises BlockingIOError if it is held and `wait` is False, CannotWrite if the file system has no locks.
    """
    try:
        disk.lock(file, shared, wait)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise CannotWrite(
                f"cannot lock {file.name}: its file system has no file locks ({error.strerror}), so two jobs could "
                "write the same files: put the workspace on a disk that has them"
            ) from error
        raise
