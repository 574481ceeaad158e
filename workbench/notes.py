"""What a person wrote about a run or a dataset: notes.txt and group.txt in its folder.

Not covered: what shows and changes it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from workbench.errors import ConfigError
from workbench.workspace import write_text

NOTES, GROUP = "notes.txt", "group.txt"
MOST_NOTES, MOST_GROUP = 20_000, 60  # characters


def read_notes(folder: Path) -> str:
    """The notes, "" without any."""
    return _read(folder / NOTES)[:MOST_NOTES]


def write_notes(folder: Path, text: str) -> None:
    """Replace the notes. Raises ConfigError where they are too long, CannotWrite."""
    if len(text) > MOST_NOTES:
        raise ConfigError(f"the notes have {len(text)} characters, and {MOST_NOTES} is the limit: shorten them")
    write_text(folder / NOTES, text.strip())


def read_group(folder: Path) -> str:
    """The label under which lists show it together with others, "" without one."""
    return " ".join(_read(folder / GROUP).split())[:MOST_GROUP]


def write_group(folder: Path, label: str) -> None:
    """Put it into a group, "" into none. Raises ConfigError where the label is too long, CannotWrite."""
    label = " ".join(label.split())
    if len(label) > MOST_GROUP or not label.isprintable():
        raise ConfigError(f"the group {label[:80]!r} cannot be used: at most {MOST_GROUP} characters, all printable")
    write_text(folder / GROUP, label)


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
