"""Search, filter and sort a dataset's clips for display, up to ten thousand. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.clips.records import METADATA, Clip, read_clips
from workbench.dataset_builder.checks.findings import FILE, read_findings
from workbench.dataset_builder.checks.measures import FOLDER
from workbench.dataset_builder.tasks import changed_at

KEPT_DATASETS, KEPT_LISTS = 4, 16
Filter = Literal["all", "missing", "marked", "hand", "model", "images"]
Order = Literal["given", "name", "length", "size", "caption"]
# Filter -> (title, predicate of a clip and whether it has findings).
FILTERS: dict[Filter, tuple[str, Callable[[Clip, bool], bool]]] = {
    "all": ("All clips", lambda clip, marked: True),
    "missing": ("Without a caption", lambda clip, marked: not clip.text.strip()),
    "marked": ("With findings", lambda clip, marked: marked),
    "hand": ("Written by hand", lambda clip, marked: clip.caption_by == "hand"),
    "model": ("Written by a model", lambda clip, marked: clip.caption_by not in ("", "hand", "file")),
    "images": ("Pictures", lambda clip, marked: clip.is_image),
}
# Order -> (title, sort key).
ORDERS: dict[Order, tuple[str, Callable[[Clip], Any] | None]] = {
    "given": ("As imported", None),
    "name": ("By name", lambda clip: ((clip.source or clip.file_name).casefold(), clip.span or ())),
    "length": ("By length", lambda clip: clip.seconds),
    "size": ("By size", lambda clip: clip.width * clip.height),
    "caption": ("By caption length", lambda clip: len(clip.text)),
}


@dataclass(frozen=True)
class ClipList:
    """The clips that match a query, in its order. marks: file name -> titles of the last check's findings."""

    clips: Sequence[Clip]
    all: int
    counts: dict[Filter, int]
    marks: Mapping[str, Sequence[str]]

    def next_without_caption(self, after: int) -> int | None:
        """Return the index of the next clip without a caption, wrapping around; None if there is none."""
        empty = [number for number, clip in enumerate(self.clips) if not clip.text.strip()]
        return next((number for number in empty if number > after), empty[0] if empty else None)


def listed(folder: Path, search: str = "", only: Filter = "all", order: Order = "given") -> ClipList:
    """List the clips of a dataset that match, cached until its records or findings change.

    search: Words that must occur in the caption, display name or file name, ignoring case.
    """
    return _listed(folder, search, only, order, changed_at([folder / METADATA, folder / FOLDER / FILE]))


@lru_cache(maxsize=KEPT_LISTS)
def _listed(folder: Path, search: str, only: Filter, order: Order, version: tuple[int, ...]) -> ClipList:
    marks = _marks(folder, version)
    clips, words = read_clips(folder), search.casefold().split()
    passes = {
        one: [clip for clip in clips if FILTERS[one][1](clip, clip.file_name in marks)] for one in get_args(Filter)
    }
    found = [
        clip
        for clip in passes[only]
        if all(word in f"{clip.text} {clip.name} {clip.file_name}".casefold() for word in words)
    ]
    if (key := ORDERS[order][1]) is not None:
        found.sort(key=key)
    return ClipList(found, len(clips), {one: len(passing) for one, passing in passes.items()}, marks)


@lru_cache(maxsize=KEPT_DATASETS)
def _marks(folder: Path, version: tuple[int, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in read_findings(folder):
        for name in finding.clips:
            found.setdefault(name, []).append(finding.title)
    return found
