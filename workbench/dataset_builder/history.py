"""Change a dataset's records with undo and redo. Nothing is ever deleted.

    history.jsonl       one line per change: number, time, kind, what (in words), clips (how many), undoes, task. A
                        change that grows, as captions come in, is appended again; the last line of a number counts
    .history/N.json     {before, positions, after, info_before}: the replaced and the new records of change N
    .removed/           files and records of removed clips, in the dataset's own layout

A clip's file never changes: another span or crop is another file with another name. So an undo only restores the old
records. Imports only add clips; the history notes them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.clips.records import (
    REMOVED,
    Clip,
    DatasetInfo,
    Number,
    Whole,
    read_clips,
    read_info,
    write_clips,
    write_info,
)
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.display.quantities import counted
from workbench.errors import ConfigError
from workbench.jobs.locks import locked
from workbench.workspace import append_line, disk, make_folder, read_json, write_json, writing
from workbench.workspace.records import broken_rule, read_json_lines

MOST_FOLLOWED = 50  # changes through which a clip is followed
HISTORY, DETAILS, LOCK = "history.jsonl", ".history", ".lock"

Kind = Literal["change", "undo", "redo", "note"]


class Change(BaseModel):
    """One line of the history.

    kind: change, undo or redo (of the change `undoes`), or note (an import, which cannot be undone).
    what: the change in words.
    clips: how many records it affected.
    task: the task whose edits are collected in this change; usually "".
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: Whole
    time: Number
    kind: Kind = "change"
    what: str
    clips: int = 0
    undoes: int | None = None
    task: str = ""

    @property
    def sentence(self) -> str:
        """The change and its kind in words."""
        return {"undo": "undone: ", "redo": "redone: "}.get(self.kind, "") + self.what


def editing(dataset: Path) -> contextlib.AbstractContextManager[None]:
    """Lock the dataset's records, so that an import and an edit never overwrite each other."""
    return locked(dataset / LOCK)


def read_history(dataset: Path) -> list[Change]:
    """Read all changes, the oldest first, skipping a torn last line."""
    found: dict[int, Change] = {}
    for line in read_json_lines(dataset / HISTORY):
        with contextlib.suppress(ValueError):
            entry = Change.model_validate(line)
            found[entry.number] = entry
    return list(found.values())


def note(dataset: Path, what: str, clips: int = 0) -> None:
    """Record something that cannot be undone, such as an import. Raises CannotWrite."""
    with editing(dataset):
        _append(dataset, Change(number=_next_number(dataset), time=time.time(), kind="note", what=what, clips=clips))


def change(
    dataset: Path,
    what: str,
    replaced: Mapping[str, Sequence[Clip]] = {},
    added: Sequence[Clip] = (),
    info: DatasetInfo | None = None,
) -> Change:
    """Change records atomically, as one history entry. Raises ConfigError if a replaced clip is gone, CannotWrite.

    what: the change in words.
    replaced: file name -> the records that replace it: none removes the clip, several split it.
    added: records to append; their files are in clips/, or in .removed/clips/ and are moved back.
    info: new dataset facts, None to keep them.
    """
    with editing(dataset):
        return _apply(dataset, what, replaced, added, info)


def edit(dataset: Path, what: str, make: Callable[[Sequence[Clip]], Iterable[Clip]], task: str = "") -> int:
    """Edit records under the lock, as one history entry unless nothing changes; return how many changed.

    make: gets all current clips and returns those it has changed.
    task: a unique name. Edits of one task share one history entry, unless that was undone or a clip is edited twice.

    Raises CannotWrite and what `make` raises.
    """
    with editing(dataset):
        now = {clip.file_name: clip for clip in read_clips(dataset)}
        changed = {new.file_name: (new,) for new in make(list(now.values())) if new != now[new.file_name]}
        grown = None
        if changed and task:
            grown = next((entry for entry in _active(dataset, ("change",)) if entry.task == task), None)
        if grown and any(
            now.get(old.file_name) != old for old in _details(dataset, grown).before if old.file_name in changed
        ):
            grown = None
        if changed:
            _apply(dataset, what, changed, task=task, grown=grown)
    return len(changed)


def set_trigger_word(dataset: Path, text: str) -> None:
    """Set the trigger word. The clips' captions do not change. Raises ConfigError, CannotWrite."""
    before = read_info(dataset)
    info = before.model_copy(update={"trigger_word": clean_caption(text)})
    if info != before:
        change(dataset, f"trigger word {info.trigger_word or 'removed'}", info=info)


def undo(dataset: Path, number: int | None = None, redo: bool = False) -> Change:
    """Undo the change with that number, by default the newest; with `redo`, redo the newest undo.

    Raises ConfigError if there is none or its clips were changed again since, CannotWrite.
    """
    with editing(dataset):
        if number is None:
            change = next(iter(redoable(dataset) if redo else undoable(dataset)), None)
            if change is None:
                raise ConfigError(f"there is nothing to {'redo' if redo else 'undo'} in {dataset.name}")
        else:
            active = _active(dataset, ("change", "undo", "redo"))
            change = next((entry for entry in active if entry.number == number), None)
            if change is None:
                raise ConfigError(f"change {number} cannot be undone: it did not change records, or was already undone")
        details = _details(dataset, change)
        before, after = details.before, details.after
        now = {clip.file_name: clip for clip in read_clips(dataset)}
        if change.task:  # a killed task has changed only some of its clips
            pairs = [(old, new) for old, new in zip(before, after, strict=True) if now.get(old.file_name) != old]
            before, after = [old for old, _ in pairs], [new for _, new in pairs]
        if clash := [clip.name for clip in after if now.get(clip.file_name) != clip]:
            raise ConfigError(f"{clash[0]} was changed again since: undo the later change first")
        staying = now.keys() - {clip.file_name for clip in after}
        if clash := [clip.name for clip in before if clip.file_name in staying]:
            raise ConfigError(f"{clash[0]} is in the dataset again: remove it first")
        replaced: dict[str, Sequence[Clip]] = {clip.file_name: () for clip in after}
        added: Sequence[Clip] = before
        if len(before) == len(after):
            replaced, added = {new.file_name: (old,) for old, new in zip(before, after, strict=True)}, ()
        elif after:
            replaced, added = {**replaced, after[0].file_name: before}, ()
        info = None
        if details.info_before:  # the title may have changed since
            info = read_info(dataset).model_copy(update={"trigger_word": details.info_before.trigger_word})
        return _apply(dataset, change.what, replaced, added, info, details.positions, change)


class _Details(BaseModel):
    """.history/N.json: the records before and after a change, the old ones' positions, and the old dataset.json."""

    before: list[Clip]
    after: list[Clip]
    positions: list[int] = []
    info_before: DatasetInfo | None = None


def _details(dataset: Path, change: Change) -> _Details:
    """Read the details of a change. Raises ConfigError if the file is missing or damaged."""
    path = dataset / DETAILS / f"{change.number}.json"
    value = read_json(path)
    try:
        return _Details.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{path} does not say what the change replaced ({broken_rule(error)}): fix it") from error


def undoable(dataset: Path) -> list[Change]:
    """List the changes that can be undone, the newest first."""
    return _active(dataset, ("change", "redo"))


def redoable(dataset: Path) -> list[Change]:
    """List the undos that can be redone, the newest first: those since the last new change."""
    newest = max((entry.number for entry in read_history(dataset) if entry.kind == "change"), default=0)
    return [entry for entry in _active(dataset, ("undo",)) if entry.number > newest]


def successor(dataset: Path, file_name: str) -> Clip | None:
    """Return the clip with that file name, or the one that replaced it in a cut, undo or redo, or None."""
    now = {clip.file_name: clip for clip in read_clips(dataset)}
    if file_name not in now and (dataset / HISTORY).exists():
        about = (dataset / HISTORY).stat()
        file_name = _followed(dataset, file_name, about.st_mtime_ns, about.st_size)
    return now.get(file_name)


@lru_cache(maxsize=64)
def _followed(dataset: Path, file_name: str, *version: int) -> str:
    """Follow a clip's file name through the latest changes. Cached per version of the history."""
    for entry in read_history(dataset)[-MOST_FOLLOWED:]:
        if entry.kind != "note":
            with contextlib.suppress(ConfigError):  # skip damaged details
                details = _details(dataset, entry)
                source = next((one.source_id for one in details.before if one.file_name == file_name), None)
                parts = [one.file_name for one in details.after if one.source_id == source]
                file_name = file_name if file_name in parts or not parts else parts[0]
    return file_name


def _active(dataset: Path, kinds: Sequence[str]) -> list[Change]:
    """List the changes that have not been undone, the newest first."""
    history = read_history(dataset)
    undone = {entry.undoes for entry in history}
    return [entry for entry in reversed(history) if entry.kind in kinds and entry.number not in undone]


def _apply(  # noqa: PLR0913 - changes, undos and growing changes of tasks
    dataset: Path,
    what: str,
    replaced: Mapping[str, Sequence[Clip]],
    added: Sequence[Clip] = (),
    info: DatasetInfo | None = None,
    positions: Sequence[int] = (),
    undoes: Change | None = None,
    task: str = "",
    grown: Change | None = None,
) -> Change:
    """Change records as `change` does. grown: the task's change so far, which this extends."""
    now = read_clips(dataset)
    missing = replaced.keys() - {clip.file_name for clip in now}
    if missing:
        raise ConfigError(f"{counted(len(missing), 'clip')} of this change are gone from the dataset: check the list")
    before = [clip for clip in now if clip.file_name in replaced]
    after = [new for clip in before for new in replaced[clip.file_name]] + list(added)
    records = [new for clip in now for new in replaced.get(clip.file_name, (clip,))]
    for number, clip in enumerate(added):  # an undo restores the old position
        records.insert(positions[number] if number < len(positions) else len(records), clip)
    if len({clip.file_name for clip in records}) < len(records):
        raise ConfigError("two records would name the same file: that part is already in the dataset")
    entry = Change(
        number=grown.number if grown else _next_number(dataset),
        time=time.time(),
        kind="change" if undoes is None else "redo" if undoes.kind == "undo" else "undo",
        what=what,
        clips=max(len(before), len(after)) + (grown.clips if grown else 0),
        undoes=undoes.number if undoes else None,
        task=task,
    )
    for clip in after:
        _move_files(clip, dataset / REMOVED, dataset)
    stood = [position for position, clip in enumerate(now) if clip.file_name in replaced]
    details = _Details(before=before, after=after, positions=stood, info_before=read_info(dataset) if info else None)
    if grown:
        # The old details may include clips that a killed edit never reached; if this edit has them, its rows count.
        old = _details(dataset, grown)
        rows = zip(old.before, old.after, old.positions, strict=True)
        kept = [row for row in rows if row[0].file_name not in replaced]
        details.before[:0] = [row[0] for row in kept]
        details.after[:0] = [row[1] for row in kept]
        details.positions[:0] = [row[2] for row in kept]
    write_json(
        dataset / DETAILS / f"{entry.number}.json",
        details.model_dump(mode="json", exclude=None if info else {"info_before"}),
    )
    staying = {clip.file_name for clip in records}
    leaving = [clip for clip in before if clip.file_name not in staying]
    was, gone = read_clips(dataset / REMOVED), {clip.file_name for clip in leaving}
    removed = [*(clip for clip in was if clip.file_name not in staying | gone), *leaving]
    if removed != was:
        make_folder(dataset / REMOVED)
        write_clips(dataset / REMOVED, removed)
    write_clips(dataset, records)  # from here on the change is in effect
    if info is not None:
        write_info(dataset, info)
    _append(dataset, entry)
    needed = {name for clip in records for name in files_of(clip)} if leaving else set[str]()
    for clip in leaving:
        _move_files(clip, dataset, dataset / REMOVED, needed)
    return entry


def thumbnail_name(clip: Clip) -> str:
    """Return the path of a clip's thumbnail, relative to the dataset folder."""
    return f"thumbs/{clip.id}.jpg"


def files_of(clip: Clip) -> tuple[str, ...]:
    """List the files that belong to a clip alone, which are moved with its record."""
    return clip.file_name, thumbnail_name(clip), *clip.companions.values()


def _move_files(clip: Clip, old: Path, new: Path, kept: Collection[str] = ()) -> None:
    """Move a clip's files to another folder unless they are already there. kept: files that other clips need here."""
    for name in files_of(clip):
        if name not in kept and (old / name).exists() and not (new / name).exists():
            with writing(new / name):
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                disk.replace(old / name, new / name)


def _next_number(dataset: Path) -> int:
    """Return a number that is new even if lines of the history are unreadable, so that no details are overwritten."""
    details = (int(path.stem) for path in (dataset / DETAILS).glob("*.json") if path.stem.isdecimal())
    return max([entry.number for entry in read_history(dataset)] + [*details], default=0) + 1


def _append(dataset: Path, entry: Change) -> None:
    append_line(dataset / HISTORY, json.dumps(entry.model_dump(mode="json"), ensure_ascii=False))
