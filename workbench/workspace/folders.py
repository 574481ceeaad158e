"""Notes and groups of runs and datasets, and the bin that holds removed ones.

    NAME/notes.txt, NAME/group.txt      what a person wrote about it
    .removed/ID/NAME/...                the bin: the removed folder NAME. ID is NAME, or NAME-2 for a second one.

Nothing is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError, Unknown
from workbench.workspace import disk
from workbench.workspace.files import write_text, writing
from workbench.workspace.layout import checked_slug, fresh_folder, is_slug

NOTES, GROUP = "notes.txt", "group.txt"
MOST_NOTES, MOST_GROUP = 20_000, 60  # characters
REMOVED = ".removed"


class NotedFolder:
    """The folder of a run or dataset, with a person's notes about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def notes(self) -> str:
        """A person's notes; "" without any."""
        return _read(self.folder / NOTES)[:MOST_NOTES]

    def write_notes(self, text: str) -> None:
        """Replace the notes. Raises ConfigError if they are too long, CannotWrite."""
        if len(text) > MOST_NOTES:
            raise ConfigError(f"the notes have {len(text)} characters, and {MOST_NOTES} is the limit: shorten them")
        write_text(self.folder / NOTES, text.strip())

    @property
    def group(self) -> str:
        """The label of the group that lists show it in; "" without one."""
        return " ".join(_read(self.folder / GROUP).split())[:MOST_GROUP]

    def set_group(self, label: str) -> None:
        """Put it into a group, or into none with "". Raises ConfigError if the label is too long, CannotWrite."""
        label = " ".join(label.split())
        if len(label) > MOST_GROUP or not label.isprintable():
            rule = f"at most {MOST_GROUP} characters, all printable"
            raise ConfigError(f"the group {label[:80]!r} cannot be used: {rule}")
        write_text(self.folder / GROUP, label)


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


@dataclass(frozen=True)
class Bin:
    """The bin for folders of one kind. parent: the folder that holds them;  kind: "run" or "dataset"."""

    parent: Path
    kind: str

    @property
    def names(self) -> list[str]:
        """The folders that can be restored, most recently removed first."""
        found = [path for path in (self.parent / REMOVED).glob("*") if is_slug(path.name) and self._inside(path.name)]
        return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)]

    def put(self, folder: Path) -> str:
        """Move a folder into the bin and return the name that restores it. Raises CannotWrite."""
        slot = fresh_folder(self.parent / REMOVED, folder.name)
        with writing(slot):
            disk.replace(folder, slot / folder.name)
        return slot.name

    def restore(self, name: str, taken: Container[str] = ()) -> Path:
        """Move a folder back, under a new name if its own is one of `taken`.

        Raises Unknown if it is not in the bin, ConfigError if another folder has its name, CannotWrite.
        """
        inside = self._inside(checked_slug(name))
        if inside is None:
            known = ", ".join(self.names) or "none"
            raise Unknown(f"there is no removed {self.kind} {name!r}: choose one of {known}")
        target = self.parent / inside.name
        if target.exists():
            raise ConfigError(f"a {self.kind} named {inside.name!r} already exists: remove or rename it first")
        if inside.name in taken:
            target = fresh_folder(self.parent, inside.name, taken)
        with writing(target):
            disk.replace(inside, target)
            inside.parent.rmdir()
        return target

    def _inside(self, name: str) -> Path | None:
        """Return the folder in one slot of the bin, or None."""
        found = [path for path in (self.parent / REMOVED / name).glob("*") if is_slug(path.name) and path.is_dir()]
        return found[0] if len(found) == 1 else None
