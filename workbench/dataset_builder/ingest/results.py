"""What became of every source file: sources.jsonl, one line appended per file as an import goes on.

A later line about the same source replaces the earlier one; a torn last line (the import was killed) is ignored.
Not covered: the clips' captions and facts as training sees them (workbench.clips.records).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator

from workbench.clips.records import LATENTS, Clip
from workbench.workspace import append_line, read_bytes

SOURCES = "sources.jsonl"
Outcome = Literal["taken", "converted", "known", "refused"]
OUTCOMES: dict[Outcome, str] = {
    "taken": "taken",
    "converted": "converted",
    "known": "already here",
    "refused": "refused",
}
"""Outcome -> words for people."""
SKIPPED = "skipped"  # of files of other kinds, which are never opened and have no line in sources.jsonl
SKIPPED_NOTE = "a kind of file that is not taken"


class ImportResult(BaseModel):
    """What became of one source file.

    source:  the file's path, or "archive.zip::folder/a.mp4"
    outcome: taken as it is, converted (`notes` say how), known (its content is there), refused (`notes` say why);
             `notes` also say what to look out for, of a taken file too
    sha256:  of the source file's content; its first 16 digits name the clip
    clip:    what it became, with a caption only where latents have one in them; None for a refused file
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    source: str
    outcome: Outcome
    notes: tuple[str, ...] = ()
    sha256: str = ""
    clip: Clip | None = None

    @field_validator("source", mode="before")
    @classmethod
    def _storable(cls, source: object) -> object:
        return storable(source) if isinstance(source, str) else source

    @property
    def usable(self) -> bool:
        return self.outcome != "refused"

    @property
    def sentence(self) -> str:
        """The import result in words: "cat.mov: converted: turned upright"."""
        notes = f": {', '.join(self.notes)}" if self.notes else ""
        return f"{self.name!r}: {self.outcome}{notes}"

    @property
    def name(self) -> str:
        """The source file's own name."""
        return Path(self.source.rpartition("::")[2]).name


def storable(source: str) -> str:
    """A path as text that a file can hold: names that are no UTF-8 keep their odd bytes in writing."""
    return source.encode("utf-8", "backslashreplace").decode()


def clip_name(sha256: str, latents: bool = False) -> str:
    """A clip's file name, from its source's content. latents: it is a file of them"""
    return f"latents/{sha256[:16]}{LATENTS}" if latents else f"clips/{sha256[:16]}.mp4"


def read_import_results(dataset: Path) -> list[ImportResult]:
    """The newest import result of every source file, in the order the first ones came in."""
    found: dict[str, ImportResult] = {}
    text = read_bytes(dataset / SOURCES).decode(errors="replace")
    for line in text.split("\n"):  # not splitlines: names may hold U+2028
        with contextlib.suppress(ValueError):
            result = ImportResult.model_validate_json(line)
            found[result.source] = result
    return list(found.values())


def append_import_result(dataset: Path, result: ImportResult) -> None:
    """Add a line. Raises CannotWrite."""
    append_line(dataset / SOURCES, result.model_dump_json(exclude_defaults=True))
