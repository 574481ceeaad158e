"""What a person does with the whole folder of a run or a dataset: write notes, put it into a group, remove it.

NAME/notes.txt, NAME/group.txt      what a person wrote about it
.removed/ID/NAME/...                the bin: the folder NAME as it was; ID is its name, or NAME-2 for a second one of
                                    that name. Nothing is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError, Unknown
from workbench.workspace import disk
from workbench.workspace.files import write_text, writing
from workbench.workspace.layout import fresh_folder
from workbench.workspace.names import checked_slug, is_slug

NOTES, GROUP = "notes.txt", "group.txt"
MOST_NOTES, MOST_GROUP = 20_000, 60  # characters
REMOVED = ".removed"


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


@dataclass(frozen=True)
class Bin:
    """The bin beside the folders of a kind. parent: where those are;  kind: what they are called: run, dataset"""

    parent: Path
    kind: str

    @property
    def names(self) -> list[str]:
        """What can be restored, removed last first."""
        found = [path for path in (self.parent / REMOVED).glob("*") if is_slug(path.name) and self._inside(path.name)]
        return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)]

    def put(self, folder: Path) -> str:
        """Move a folder into the bin; returns the name by which it is restored. Raises CannotWrite."""
        slot = fresh_folder(self.parent / REMOVED, folder.name)
        with writing(slot):
            disk.replace(folder, slot / folder.name)
        return slot.name

    def restore(self, name: str, taken: Container[str] = ()) -> Path:
        """Move a folder back; under another name where its own is one of `taken`.

        Raises Unknown where there is none, ConfigError where another folder has its name; CannotWrite.
        """
        inside = self._inside(checked_slug(name))
        if inside is None:
            known = ", ".join(self.names) or "none"
            raise Unknown(f"there is no removed {self.kind} {name!r}: choose one of {known}")
        target = self.parent / inside.name
        if target.exists():
            raise ConfigError(
                f"there is a {self.kind} {inside.name!r} again: remove that one first, which gives this one its name "
                f"back"
            )
        if inside.name in taken:
            target = fresh_folder(self.parent, inside.name, taken)
        with writing(target):
            disk.replace(inside, target)
            inside.parent.rmdir()
        return target

    def _inside(self, name: str) -> Path | None:
        """The folder in one slot of the bin, None where there is none."""
        found = [path for path in (self.parent / REMOVED / name).glob("*") if is_slug(path.name) and path.is_dir()]
        return found[0] if len(found) == 1 else None
