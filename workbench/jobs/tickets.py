"""Tickets: what a job leaves in its folder while it waits for a process.

    waiting.json    {module, environment, time, boot_id, inode}; only its owner may read it

A ticket holds on the machine, since the start of it and for the folder that it was written for: in a copy of the folder
and after a restart the job does not wait, it died. Values of the environment that hold a password (those of a proxy's
address) are not written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.jobs import platform
from workbench.workspace import disk, read_object, write_json

WAITING = "waiting.json"
LOST = (
    "It waited for its turn when the machine was started anew, or its folder is a copy of one that waited: start it "
    "again to put it into the queue."
)
_WITH_PASSWORD = re.compile(r"://[^/\s]*@")


@dataclass(frozen=True)
class Ticket:
    """module, environment: of the process that it waits for

    holds: whether the job waits;  own: whether it is ours to start, and no other user's
    """

    module: str
    environment: Mapping[str, str]
    time: float | None
    holds: bool
    own: bool


def there(folder: Path) -> bool:
    """Whether a job has a ticket, whatever it is worth."""
    return (folder / WAITING).exists()


def read(folder: Path) -> Ticket | None:
    """A job's ticket, None where it has none. What is in that of another user cannot be read."""
    if not there(folder):
        return None
    try:
        inode, stat = folder.stat().st_ino, (folder / WAITING).stat()
    except OSError:  # taken this very moment
        return None
    if not disk.owns(stat):
        return Ticket("", {}, stat.st_mtime, holds=True, own=False)
    values = read_object(folder / WAITING)
    environment, module, moment = (values.get(name) for name in ("environment", "module", "time"))
    known = values.get("boot_id") == platform.boot_id() and values.get("inode") == inode
    return Ticket(
        module=str(module),
        environment={str(k): str(value) for k, value in environment.items()} if isinstance(environment, dict) else {},
        time=moment if isinstance(moment, float) else None,
        holds=known and isinstance(module, str),
        own=True,
    )


def write(folder: Path, module: str, environment: Mapping[str, str]) -> None:
    """Let a job wait. Raises CannotWrite."""
    kept = {name: value for name, value in environment.items() if not _WITH_PASSWORD.search(value)}
    origin = {"boot_id": platform.boot_id(), "inode": folder.stat().st_ino}
    record = {"module": module, "environment": kept, "time": time.time(), **origin}
    write_json(folder / WAITING, record, mode=0o600)


def remove(folder: Path) -> None:
    """It waits no longer."""
    disk.patiently(lambda: (folder / WAITING).unlink(missing_ok=True))
