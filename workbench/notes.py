"""What a person wrote about a run or a dataset: notes.txt in its folder. Not covered: what shows and changes it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from workbench.errors import ConfigError
from workbench.workspace import write_text

NOTES = "notes.txt"
MOST_NOTES = 20_000  # characters


def read_notes(folder: Path) -> str:
    """The notes, "" without any."""
    with contextlib.suppress(OSError):
        return (folder / NOTES).read_text(encoding="utf-8", errors="replace")[:MOST_NOTES]
    return ""


def write_notes(folder: Path, text: str) -> None:
    """Replace the notes. Raises ConfigError where they are too long, CannotWrite."""
    if len(text) > MOST_NOTES:
        raise ConfigError(f"the notes have {len(text)} characters, and {MOST_NOTES} is the limit: shorten them")
    write_text(folder / NOTES, text.strip())
