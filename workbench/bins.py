"""The bin of whole runs and whole datasets: a removed folder moves into it, and nothing is deleted.

runs/.removed/ID/NAME/...      the folder NAME as it was; ID is its name, or NAME-2 for a second one of that name
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError, Unknown
from workbench.workspace import checked_slug, disk, fresh_folder, is_slug, writing

REMOVED = ".removed"


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
