"""What an import knows and has made: verdicts go to disk as they come, clips to metadata.jsonl every few seconds.

The same content is kept once, whether it comes again as the source, as our own clip of it, or was cut up or taken out
since. Captions that a dataset already has are never replaced. Not covered: how files are judged (ingest, worker).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from workbench.clips import records
from workbench.clips.records import Clip
from workbench.dataset_builder.history import REMOVED, editing
from workbench.dataset_builder.ingest.results import ImportResult, append_verdict, clip_id, read_verdicts, storable
from workbench.dataset_builder.sources.layouts.base import SourceFile

SAVE_SECONDS = 3.0


class Ledger:
    """The dataset's sources so far, and the clips still to be written to metadata.jsonl."""

    def __init__(self, dataset: Path, sources: Sequence[SourceFile]) -> None:
        self.dataset = dataset
        self.verdicts = {verdict.source: verdict for verdict in read_verdicts(dataset)}
        self._captions = {storable(source.key): source.caption for source in sources}
        self._order = {storable(source.key): number for number, source in enumerate(sources)}
        self._new: dict[str, int] = {}  # file name -> place among the clips of this import
        self._made: dict[str, ImportResult] = {}  # by the source's SHA-256, the clip's SHA-256 and the clip's file name
        for clip in records.read_clips(dataset):
            self._remember(_of_record(clip))
        for verdict in self.verdicts.values():
            if verdict.outcome in ("taken", "mended"):
                self._remember(verdict)
        self._unsaved: list[ImportResult] = []
        self._saved_at = time.monotonic()

    def known(self, source: str, sha256: str) -> ImportResult | None:
        """The verdict on a source whose content the dataset has, or had; None when it is new, or lost from disk."""
        first = self._made.get(sha256) or self._made.get(_file_name(sha256))
        place = first and self._place(first)
        if first is None or place is None:
            return None
        same = first.source == source
        note = place if same else f"the same content as {first.name!r}: kept once"
        return first.model_copy(update={"source": source, "sha256": sha256, "outcome": "known", "notes": (note,)})

    def _place(self, verdict: ImportResult) -> str | None:
        """Where the clip of a verdict is now, in words."""
        if (self.dataset / verdict.file_name).exists():
            return "imported before"
        if (self.dataset / ".masters" / Path(verdict.file_name).name).exists():
            return "imported before, and cut into parts since"
        if (self.dataset / REMOVED / verdict.file_name).exists():
            return "taken out of the dataset before: bring it back from there"
        return None

    def _remember(self, verdict: ImportResult) -> None:
        for key in (verdict.sha256, verdict.clip_sha256, verdict.file_name):
            if key:
                self._made[key] = verdict

    def add(self, verdict: ImportResult) -> ImportResult:
        """Put a verdict on disk and return it. The same content twice, met by two workers at once, counts once."""
        if verdict.outcome in ("taken", "mended"):
            first = self._made.get(verdict.sha256)
            if first and first.source != verdict.source and (again := self.known(verdict.source, verdict.sha256)):
                verdict = again
            else:
                self._remember(verdict)
        earlier = self.verdicts.get(verdict.source)
        if not (verdict.outcome == "known" and earlier and earlier.sha256 == verdict.sha256 and earlier.usable):
            append_verdict(self.dataset, verdict)
        self.verdicts[verdict.source] = verdict
        if verdict.usable:
            self._unsaved.append(verdict)
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self.save()
        return verdict

    def save(self) -> None:
        """Bring metadata.jsonl up to date: new clips are added, captions filled in where there is none."""
        if self._unsaved:
            with editing(self.dataset):
                known = {clip.file_name: clip for clip in records.read_clips(self.dataset)}
                before = dict(known)
                for verdict in self._unsaved:
                    self._record(verdict, known)
                if known != before:
                    # Children finish in any order; clips stand in the order they were given: a run can be repeated.
                    ordered = sorted(known.values(), key=lambda clip: self._new.get(clip.file_name, -1))
                    records.write_clips(self.dataset, ordered)
            self._unsaved.clear()
        self._saved_at = time.monotonic()

    def _record(self, verdict: ImportResult, known: dict[str, Clip]) -> None:
        caption = self._captions.get(verdict.source, "")
        if verdict.file_name not in known:
            if not (self.dataset / verdict.file_name).exists():
                return  # cut into parts, or taken out
            self._new.setdefault(verdict.file_name, self._order[verdict.source])
        clip = known.setdefault(verdict.file_name, verdict.clip(caption))
        if caption and not clip.text:
            known[verdict.file_name] = clip.changed(text=caption, caption_by="file")


def _file_name(sha256: str) -> str:
    return f"clips/{clip_id(sha256)}.mp4"


def _of_record(clip: Clip) -> ImportResult:
    """A clip that no verdict tells of (a plain VideoFolder, a part of a recording) as if it had one."""
    return ImportResult(
        source=clip.source or clip.file_name,
        outcome="taken",
        file_name=clip.file_name,
        clip_sha256=clip.sha256,
        fps=clip.fps,
        frames=clip.frames,
        width=clip.width,
        height=clip.height,
    )
