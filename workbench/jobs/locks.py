"""Lock files, which the kernel frees when their holder ends, however it ends.

Not covered: locks of devices, which name their holder and can be asked for (gpu_lock).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from workbench.errors import CannotWrite
from workbench.workspace import writing

# What flock(2) says where the file system has no locks: some network and user-space file systems.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file while something is read and written as one: two who press Start at once get one process.

    Raises CannotWrite, also where the file system has no locks.
    """
    with writing(path):
        file = path.open("w")
    with file:
        flock(file, path, fcntl.LOCK_EX)
        yield


def flock(file: IO[Any], path: Path, operation: int) -> None:
    """fcntl.flock. Raises BlockingIOError as that does; CannotWrite where the file system has no locks."""
    try:
        fcntl.flock(file, operation)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise CannotWrite(
                f"cannot lock {path}: its file system has no file locks ({error.strerror}), without which two jobs "
                "could write the same files: put the workspace on a disk that has them"
            ) from error
        raise
