"""Disk space for what a job writes last, reserved while it runs: on a full disk its cause would be lost.

    .result.json.room       so many bytes as a result needs; becomes result.json where nothing else can be written

Not covered: file systems that write each block to a new location (btrfs, zfs), where the room may be refused as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.workspace import sync_folder, write_bytes, writing

BYTES = 16 * 1024


def _of(path: Path) -> Path:
    return path.with_name(f".{path.name}.room")


def reserve(path: Path) -> None:
    """Reserve room for a small JSON file. Raises CannotWrite."""
    write_bytes(_of(path), b" " * BYTES)


def release(path: Path) -> None:
    _of(path).unlink(missing_ok=True)


def use(path: Path, value: Mapping[str, Any]) -> None:
    """Write the file into its room and give it its name. Raises CannotWrite, also where there is no room."""
    data = json.dumps(value, ensure_ascii=False).encode()
    with writing(path):
        with _of(path).open("r+b") as file:
            file.write(data[:BYTES])
            file.truncate(len(data))
            file.flush()
            os.fsync(file.fileno())
        os.replace(_of(path), path)
    sync_folder(path.parent)
