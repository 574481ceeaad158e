"""A dataset's clips in pages of cards, each with a caption to type into: a component for up to ten thousand clips.

The browser's half is assets/clip_grid.js. It asks for one page at a time and saves a caption together with the one it
was typed over, so that what somebody else wrote meanwhile is not lost.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.clips.records import METADATA, Clip, read_clips
from workbench.dataset_builder.checks.findings import FILE, read_findings
from workbench.dataset_builder.checks.measures import FOLDER
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.history import thumbnail_name
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.widgets import component
from workbench.workspace import Workspace

KEPT_DATASETS, KEPT_ANSWERS = 2, 16  # two of ten thousand clips are about 40 MB
Filter = Literal["all", "missing", "hand", "model", "marked", "images"]
Sort = Literal["given", "name", "length", "size", "caption"]
Findings = Mapping[str, Sequence[str]]


class Query(BaseModel):
    """Which clips, in which order. `order` names the order of an earlier answer: while it is named, a clip keeps its
    place although its new caption no longer fits the filter or the sorting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    search: str = Field(default="", max_length=1000)
    filter: Filter = "all"
    sort: Sort = "given"
    order: str = Field(default="", max_length=32)


class PageQuery(Query):
    """A page of them; page 0 is the first."""

    page: int = Field(default=0, ge=0)
    size: Literal[24, 48, 96] = 48


class Save(BaseModel):
    """A caption as typed, and the one that the page showed when typing began."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    file_name: str
    text: str = Field(max_length=100_000)
    over: str


def records_of(folder: Path) -> dict[str, Clip]:
    """file_name -> clip, in the order of the file, parsed once for each state of it. Raises DataError."""
    return _records(folder, _version(folder))


@lru_cache(maxsize=KEPT_DATASETS)
def _records(folder: Path, version: tuple[int, ...]) -> dict[str, Clip]:
    return {clip.file_name: clip for clip in read_clips(folder)}


def findings_of(folder: Path) -> dict[str, list[str]]:
    """file_name -> what the last check found in the clip, in a few words each."""
    return _findings(folder, _version(folder), _checked_at(folder))


@lru_cache(maxsize=KEPT_DATASETS)
def _findings(folder: Path, version: tuple[int, ...], checked_at: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in read_findings(folder):
        for name in finding.clips:
            found.setdefault(name, []).append(finding.title)
    return found


def _version(folder: Path) -> tuple[int, ...]:
    """Changes whenever the dataset's records do; () when there are none."""
    try:
        about = (folder / METADATA).stat()
    except OSError:
        return ()
    return (about.st_mtime_ns, about.st_size, about.st_ino)


def _checked_at(folder: Path) -> int:
    """Changes with every check."""
    report = folder / FOLDER / FILE
    return report.stat().st_mtime_ns if report.exists() else 0


class ClipGrid:
    """Builds the component. Its value says which dataset it shows (`value`); its events carry {"dataset": ...} and

    open       file_name      a clip was chosen
    selection  file_names     the selection is now this
    changed    file_name      a caption was saved
    undo       -              Ctrl+Z outside a text field
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, tuple[Query, list[str]]] = OrderedDict()
        self.component = component(
            "clips",
            {"dataset": "", "version": []},
            render.script("clip_grid"),
            functions=[
                answering("clips_page", PageQuery, self.page),
                answering("clip_names", Query, self.names),
                answering("save_caption", Save, self.save),
            ],
        )

    def value(self, dataset: Dataset) -> dict[str, Any]:
        """The component's value for a dataset: the page is shown anew whenever it differs from the last one."""
        version = (*_version(dataset.folder), _checked_at(dataset.folder))
        return {"dataset": dataset.name, "version": [str(number) for number in version]}

    # ---- what the browser asks for

    def page(self, query: PageQuery) -> dict[str, Any]:
        """One page of clips, and how many there are."""
        dataset, records, findings = self._read(query)
        order, names, stale = self._ordered(query, records, findings)
        page = min(query.page, max(0, (len(names) - 1) // query.size))
        here = names[page * query.size : (page + 1) * query.size]
        return {
            "clips": [_entry(dataset.folder, records[name], findings.get(name, ())) for name in here],
            "page": page,
            "matching": len(names),
            "all": len(records),
            "missing": sum(not clip.text.strip() for clip in records.values()),
            "order": order,
            "stale": stale,
        }

    def names(self, query: Query) -> dict[str, Any]:
        """The file names of all clips that match."""
        _, records, findings = self._read(query)
        return {"names": self._ordered(query, records, findings)[1]}

    def save(self, typed: Save) -> dict[str, Any]:
        """Save a caption, unless the disk holds another one than it was typed over: then {"other": that one}."""
        dataset = Dataset.open(self.workspace, typed.dataset)
        if typed.file_name not in records_of(dataset.folder):
            raise ConfigError(f"this clip is no longer in {dataset.name}: undo what took it out")
        saved = dataset.set_caption(typed.file_name, typed.text, over=typed.over)
        answer = {"text": saved.text, "by": saved.caption_by}
        return answer if saved.text == clean_caption(typed.text) else {"other": answer}

    def _read(self, query: Query) -> tuple[Dataset, dict[str, Clip], Findings]:
        dataset = Dataset.open(self.workspace, query.dataset)
        return dataset, records_of(dataset.folder), findings_of(dataset.folder)

    def _ordered(self, query: Query, records: Mapping[str, Clip], findings: Findings) -> tuple[str, list[str], bool]:
        """(name of the order, file names in it, whether filter and sorting would now give another one)."""
        plain = Query(dataset=query.dataset, search=query.search, filter=query.filter, sort=query.sort)
        fresh = matching(plain, records, findings)
        with self._lock:
            known = self._answers.pop(query.order, None)
            if known is not None and known[0] == plain:
                token, kept = query.order, [name for name in known[1] if name in records]
                there = set(kept)
                names = kept + [name for name in fresh if name not in there]
            else:
                token, names = secrets.token_hex(8), fresh
            self._answers[token] = (plain, names)
            while len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)
        return token, names, names != fresh


def matching(query: Query, records: Mapping[str, Clip], findings: Findings) -> list[str]:
    """The file names of the clips that the query asks for, sorted."""
    words = query.search.casefold().split()

    def fits(clip: Clip) -> bool:
        if not FILTERS[query.filter](clip, bool(findings.get(clip.file_name))):
            return False
        text = f"{clip.text} {clip.name} {clip.file_name}".casefold() if words else ""
        return all(word in text for word in words)

    found = [clip for clip in records.values() if fits(clip)]
    if query.sort != "given":
        found.sort(key=SORTS[query.sort])
    return [clip.file_name for clip in found]


FILTERS: dict[Filter, Callable[[Clip, bool], bool]] = {
    "all": lambda clip, marked: True,
    "missing": lambda clip, marked: not clip.text.strip(),
    "hand": lambda clip, marked: clip.caption_by == "hand",
    "model": lambda clip, marked: clip.caption_by not in ("", "hand", "file"),
    "marked": lambda clip, marked: marked,
    "images": lambda clip, marked: clip.is_image,
}
SORTS: dict[Sort, Callable[[Clip], Any]] = {
    "name": lambda clip: ((clip.source or clip.file_name).casefold(), clip.span or ()),
    "length": lambda clip: clip.seconds,
    "size": lambda clip: clip.width * clip.height,
    "caption": lambda clip: len(clip.text),
}


def _entry(folder: Path, clip: Clip, marks: Sequence[str]) -> dict[str, Any]:
    """What the browser shows of a clip. A thumbnail that is missing is not made now: 48 of them would take seconds."""
    thumbnail = folder / thumbnail_name(clip)
    return {
        "file_name": clip.file_name,
        "name": clip.name,
        "source": clip.source_name,
        "times": clip.times,
        "url": "" if clip.is_latents else render.url(folder / clip.file_name),
        "thumbnail": render.url(thumbnail) if thumbnail.exists() else "",
        "text": clip.text,
        "by": clip.caption_by,
        "seconds": clip.seconds,
        "frames": clip.frames,
        "fps": clip.fps,
        "width": clip.width,
        "height": clip.height,
        "pixelated": clip.width <= render.PIXEL_ART,
        "tags": list(clip.tags),
        "marks": list(marks),
    }
