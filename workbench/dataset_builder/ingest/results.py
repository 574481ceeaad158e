"""Import results: sources.jsonl records what happened to each source file, one line per file.

A later line about a source replaces earlier ones. A torn last line (the import was killed) is ignored. The ledger knows
the dataset's present and past contents and adds new clips to metadata.jsonl every few seconds. Content is stored once,
whether it comes again as the same source, as our own clip of it, or after it was split or removed. Existing captions
and first frames are never replaced.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, field_validator

from workbench.clips import records
from workbench.clips.records import BESIDE_NAMES, COMPANIONS, LATENTS, REMOVED, Clip
from workbench.dataset_builder.history import editing
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.workspace import append_line
from workbench.workspace.records import read_json_lines

SOURCES = "sources.jsonl"
Outcome = Literal["taken", "converted", "known", "refused"]
SKIPPED = "skipped"  # unsupported files, which are never opened and have no line in sources.jsonl
OUTCOMES = {**{one: one for one in (*get_args(Outcome), SKIPPED)}, "known": "already here"}  # -> display text
HAS_ANOTHER = "its {0} was left out: the clip already has a different {0}, which is kept"
WITHOUT_SOUND = "the clip has no sound: import the file into a new dataset to keep its sound"
SKIPPED_NOTE = "unsupported file type"


class ImportResult(BaseModel):
    """The import result of one source file.

    source: the file's path, or "archive.zip::folder/a.mp4".
    outcome: taken unchanged, converted, known (the content is already here), or refused.
    notes: how it was converted, why it was refused, and warnings.
    sha256: of the source file's content; its first 16 digits name the clip.
    clip: the resulting clip, None if refused. It has a caption only if a latents file contains one.
    companions: kinds of companion files stored with it.
    left_out: why other companion files were not stored, in words.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    source: str
    outcome: Outcome
    notes: tuple[str, ...] = ()
    sha256: str = ""
    clip: Clip | None = None
    companions: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @field_validator("source", mode="before")
    @classmethod
    def _storable(cls, source: object) -> object:
        return storable(source) if isinstance(source, str) else source

    @property
    def usable(self) -> bool:
        return self.outcome != "refused"

    @property
    def silenced(self) -> bool:
        """Whether the file had a sound that its clip was stored without."""
        removed = ("sound removed", "sound and metadata removed")
        return bool(self.clip and not self.clip.sound and any(note.startswith(removed) for note in self.notes))

    @property
    def sentence(self) -> str:
        """The import result in words: "cat.mov: converted: turned upright"."""
        details = ", ".join((*self.notes, *self.left_out))
        return f"{self.name!r}: {self.outcome}{': ' if details else ''}{details}"

    @property
    def name(self) -> str:
        return Path(self.source.rpartition("::")[2]).name


def storable(source: str) -> str:
    """Return a path as valid UTF-8 text, with undecodable bytes escaped."""
    return source.encode("utf-8", "backslashreplace").decode()


def clip_name(sha256: str, latents: bool = False) -> str:
    """Return a clip's file name, made from its source's content."""
    return f"latents/{sha256[:16]}{LATENTS}" if latents else f"clips/{sha256[:16]}.mp4"


def read_import_results(dataset: Path) -> list[ImportResult]:
    """Return the latest import result of each source file, ordered by first import."""
    found: dict[str, ImportResult] = {}
    for line in read_json_lines(dataset / SOURCES):
        with contextlib.suppress(ValueError):
            result = ImportResult.model_validate(line)
            found[result.source] = result
    return list(found.values())


def append_import_result(dataset: Path, result: ImportResult) -> None:
    """Add a line. Raises CannotWrite."""
    append_line(dataset / SOURCES, result.model_dump_json(exclude_defaults=True))


def files_beside(clip: Clip) -> dict[str, str]:
    """Return the clip's companions and first frame: kind -> file name."""
    return {**clip.companions, "first_frame": clip.first_frame} if clip.first_frame else clip.companions


# ---- the ledger ------------------------------------------------------------------------------------------------------

SAVE_SECONDS = 3.0


class Ledger:
    """The dataset's import results, and the clips still to be written to metadata.jsonl."""

    def __init__(self, dataset: Path, sources: Sequence[SourceFile]) -> None:
        self.dataset = dataset
        self.results = {result.source: result for result in read_import_results(dataset)}
        self._captions = {storable(source.key): source.caption for source in sources}
        self._order = {storable(source.key): number for number, source in enumerate(sources)}
        self._new: dict[str, int] = {}  # file name -> index among the clips of this import
        self._by_content: dict[str, ImportResult] = {}  # by SHA-256 of source and clip, and by the clip's file name
        clips = records.read_clips(dataset)
        self._existing_captions = {clip.file_name: clip.text for clip in clips}
        for clip in clips:
            self._remember(ImportResult(source=clip.source or clip.file_name, outcome="taken", clip=clip))
        for result in self.results.values():
            if result.outcome in ("taken", "converted"):
                self._remember(result)
        self._beside = defaultdict[str, dict[str, str]](dict, {clip.file_name: files_beside(clip) for clip in clips})
        self._unsaved: list[ImportResult] = []
        self._saved_at = time.monotonic()

    def known(self, source: str, sha256: str) -> ImportResult | None:
        """Return the result of a source whose content the dataset has or had; None if it is new or lost from disk."""
        names = (sha256, clip_name(sha256), clip_name(sha256, latents=True))
        first = next((self._by_content[name] for name in names if name in self._by_content), None)
        if first is None or first.clip is None:
            return None
        file = first.clip.file_name
        places = {
            file: "",
            f".masters/{Path(file).name}": "it was split into parts",
            f"{REMOVED}/{file}": "it was removed: restore it",
        }
        note = next((words for place, words in places.items() if (self.dataset / place).exists()), None)
        if note is None:
            return None
        if first.source != source:
            note = f"same content as {first.name!r}: stored once"
            caption = self._captions.get(first.source) or self._existing_captions.get(file, "")
            if caption and self._captions.get(source) not in (None, "", caption):
                note += ", with the caption of that file"
        if first.silenced:
            note = "; ".join(filter(None, (note, WITHOUT_SOUND)))
        notes = (note,) if note else ()
        return first.model_copy(update={"source": source, "sha256": sha256, "outcome": "known", "notes": notes})

    def _remember(self, result: ImportResult) -> None:
        if result.clip is not None:
            for key in filter(None, (result.sha256, result.clip.sha256, result.clip.file_name)):
                self._by_content[key] = result

    def add(
        self, result: ImportResult, beside: Mapping[str, tuple[str, str]] = {}, left_out: Sequence[str] = ()
    ) -> ImportResult:
        """Write a result to disk and return it.

        beside: kind -> (name of the file stored beside the clip, "" for none; description). left_out: why others were
            not stored.
        """
        if result.outcome in ("taken", "converted"):
            self._remember(result)
        if result.clip and (beside or left_out):
            notes, left, stored = [*result.notes], [*left_out], self._beside[result.clip.file_name]
            for kind, (name, words) in beside.items():
                if name and stored.setdefault(kind, name) != name:
                    left.append(HAS_ANOTHER.format(BESIDE_NAMES[kind]))
                else:
                    notes.append(words)
            kinds = tuple(kind for kind, (name, _) in beside.items() if kind in COMPANIONS and stored[kind] == name)
            values = {"notes": tuple(notes), "companions": kinds, "left_out": tuple(left)}
            result = result.model_copy(update=values)
        earlier = self.results.get(result.source)
        if not (result.outcome == "known" and earlier and earlier.sha256 == result.sha256 and earlier.usable):
            append_import_result(self.dataset, result)
        self.results[result.source] = result
        if result.usable:
            self._unsaved.append(result)
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self.save()
        return result

    def save(self) -> None:
        """Update metadata.jsonl: add new clips, and fill in missing captions."""
        if self._unsaved:
            with editing(self.dataset):
                known = {clip.file_name: clip for clip in records.read_clips(self.dataset)}
                before = dict(known)
                for result in self._unsaved:
                    self._record(result, known)
                if known != before:
                    # Workers finish in any order. Keep clips in the given order, so that imports are reproducible.
                    ordered = sorted(known.values(), key=lambda clip: self._new.get(clip.file_name, -1))
                    records.write_clips(self.dataset, ordered)
            self._unsaved.clear()
        self._saved_at = time.monotonic()

    def _record(self, result: ImportResult, known: dict[str, Clip]) -> None:
        if result.clip is None:
            return
        caption, name = self._captions.get(result.source, ""), result.clip.file_name
        if name not in known:
            if not (self.dataset / name).exists():
                return  # split into parts, or removed
            self._new.setdefault(name, self._order[result.source])
            known[name] = result.clip.changed(source=result.name)
            if result.clip.is_latents:  # a caption beside the file takes precedence over one inside it
                text = caption or result.clip.text
                given = None if result.clip.embeddings is None else text
                by = "file" if text else ""
                known[name] = known[name].changed(text=text, caption_by=by, embeddings=given)
        if caption and not known[name].text:
            known[name] = known[name].changed(text=caption, caption_by="file")
        here = files_beside(known[name])
        arrived = {kind: self._beside[name].get(kind, "") for kind in ("first_frame", *result.companions)}
        known[name] = known[name].changed(**{kind: file for kind, file in arrived.items() if file and kind not in here})
