"""For engines whose place sees this machine's disk: the box is a folder here, files are linked rather than copied.

Not covered: who runs the run (slurm).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench import policy
from workbench.remote import folder as box
from workbench.remote.base import Backend, Tell
from workbench.workspace import write_bytes, writing


class NearbyEngine(Backend):
    """Everything but starting and looking."""

    @property
    def root(self) -> str:
        """The place's folder."""
        chosen = self.place.folder
        return str(policy.resolve(chosen, "folder") if chosen else self.workspace.root / ".elsewhere")

    def open(self) -> None:
        base = Path(self.root)
        with writing(base):
            base.mkdir(parents=True, exist_ok=True)
            if not self.place.folder and not (base / "cache").exists():
                (base / "cache").symlink_to(self.workspace.cache)

    def close(self) -> None:
        """Nothing is held."""

    def hand_over(self, files: Mapping[str, tuple[str, Path]], tell: Tell) -> None:
        sent = {path: sha256 for path, (sha256, _) in files.items()}
        here = {sha256: file for sha256, file in files.values()}
        lacking = box.missing(self.root, self.record.box, sent)
        for done, sha256 in enumerate(lacking):
            tell(done, len(lacking))
            link(here[sha256], Path(box.part(self.root, sha256)))
        box.keep(self.root, lacking)
        # Devices are given out by the place itself, so runs on its nodes do not wait for one another.
        locks = Path(self.root) / box.BOXES / self.record.box / "locks"
        with writing(locks):
            locks.mkdir(parents=True, exist_ok=True)
        box.lay_out(**self.where(), files=sent)

    def where(self) -> dict[str, str]:
        return {"root": self.root, "box": self.record.box, "run": self.run}

    def folder(self) -> Path:
        """The run's folder there."""
        return Path(box.folder(**self.where()))

    def read(self, path: str, start: int, size: int) -> bytes:
        with (self.folder() / path).open("rb") as file:
            file.seek(start)
            return file.read(size)

    def fetch(self, path: str, target: Path) -> None:
        link(self.folder() / path, target)

    def send(self, command: str, payload: dict[str, Any]) -> None:
        box.send(**self.where(), command=command, payload=payload)  # type: ignore[arg-type]


def link(source: Path, target: Path) -> None:
    """The same file under another name; a copy where files change in their place, or where there are no links.

    Raises FileNotFoundError, CannotWrite.
    """
    if source.suffix in (".json", ".jsonl"):
        write_bytes(target, source.read_bytes())
        return
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        with writing(target):
            shutil.copyfile(source, target)
