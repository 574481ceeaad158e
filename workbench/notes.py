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


class NotedFolder:
    """The folder of a run or a dataset, with what a person wrote about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def notes(self) -> str:
        """What a person wrote about it, "" without any."""
        return _read(self.folder / NOTES)[:MOST_NOTES]

    def write_notes(self, text: str) -> None:
        """Replace the notes. Raises ConfigError where they are too long, CannotWrite."""
        if len(text) > MOST_NOTES:
            raise ConfigError(f"the notes have {len(text)} characters, and {MOST_NOTES} is the limit: shorten them")
        write_text(self.folder / NOTES, text.strip())

    @property
    def group(self) -> str:
        """The label under which lists show it together with others, "" without one."""
        return " ".join(_read(self.folder / GROUP).split())[:MOST_GROUP]

    def set_group(self, label: str) -> None:
        """Put it into a group, "" into none. Raises ConfigError where the label is too long, CannotWrite."""
        label = " ".join(label.split())
        if len(label) > MOST_GROUP or not label.isprintable():
            raise ConfigError(
                f"the group {label[:80]!r} cannot be used: at most {MOST_GROUP} characters, all printable"
            )
        write_text(self.folder / GROUP, label)


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
