"""Every change a person makes to a dataset's records, and its undoing. Nothing is ever deleted.

    history.jsonl       a line a change: number, time, kind, what (in words), clips (how many), undoes, task; a change
                        that grows, as captions come in, is written again: the last line of a number counts
    .history/N.json     {before, positions, after, info_before}: the records it replaced, and the new ones
    .removed/           files and records of clips that are not in the dataset at present, in the dataset's own layout

A clip's file never changes: another span or crop is another file with another name. So undoing a change is putting the
old records back. Imports only add; a line here names them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from workbench.workspace import append_line, disk, read_json, write_json, writing
from workbench.workspace.records import broken_rule, read_json_lines

MOST_FOLLOWED = 50  # changes through which a clip is followed
HISTORY, DETAILS, LOCK = "history.jsonl", ".history", ".lock"


Kind = Literal["change", "undo", "redo", "note"]


class Change(BaseModel):
    """One line of the history.

    kind:   change; undo (of a change), redo (of an undo), both named by `undoes`; note (an import: it has no way back)
    what:   the change in words;  clips: how many records it touched
    task:   whose changes are all this one, which grows; "" for most
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
        """The change in words, with what kind it is."""
        return {"undo": "undone: ", "redo": "redone: "}.get(self.kind, "") + self.what


@contextlib.contextmanager
def editing(dataset: Path) -> Iterator[None]:
    """Hold the dataset's records: an import and a person's edit never overwrite one another."""
    with locked(dataset / LOCK):
        yield


def read_history(dataset: Path) -> list[Change]:
    """Every change, the oldest first; a torn last line is left out."""
    found: dict[int, Change] = {}
    for line in read_json_lines(dataset / HISTORY):
        with contextlib.suppress(ValueError):
            entry = Change.model_validate(line)
            found[entry.number] = entry
    return list(found.values())


def note(dataset: Path, what: str, clips: int = 0) -> None:
    """Note something that cannot be undone by putting old records in place (an import). Raises CannotWrite."""
    with editing(dataset):
        _append(dataset, Change(number=_next_number(dataset), time=time.time(), kind="note", what=what, clips=clips))


def change(
    dataset: Path,
    what: str,
    replaced: Mapping[str, Sequence[Clip]] = {},
    added: Sequence[Clip] = (),
    info: DatasetInfo | None = None,
) -> Change:
    """Change records, whole or not at all, and remember it under `what`.

    replaced: file name -> the records that take its place: none takes the clip out, several split it
    added:    records put at the end; their files lie in clips/, or in .removed/clips/ and come back from there

    Raises ConfigError when a replaced clip is not there, CannotWrite.
    """
    with editing(dataset):
        return _apply(dataset, what, replaced, added, info)


def edit(dataset: Path, what: str, make: Callable[[Sequence[Clip]], Iterable[Clip]], task: str = "") -> int:
    """Replace records by what `make` makes of them while nobody else can change them; how many really changed.

    `make` gets every clip as it is at that moment and gives back those it has changed. No change is remembered when
    there is none. task: a name of its own; edits of one task are one change, as long as it stands and none of them
    touches a clip again. Raises CannotWrite and what `make` raises.
    """
    with editing(dataset):
        now = {clip.file_name: clip for clip in read_clips(dataset)}
        changed = {new.file_name: (new,) for new in make(list(now.values())) if new != now[new.file_name]}
        if changed:
            grown = _standing_of(dataset, task, changed.keys(), now) if task else None
            _apply(dataset, what, changed, (), None, part_of=(task, grown))
    return len(changed)


def set_trigger_word(dataset: Path, text: str) -> None:
    """Replace the trigger word; the clips' own captions stay as they are. Raises ConfigError, CannotWrite."""
    before = read_info(dataset)
    info = before.model_copy(update={"trigger_word": clean_caption(text)})
    if info != before:
        change(dataset, f"trigger word {info.trigger_word or 'removed'}", info=info)


def _standing_of(dataset: Path, task: str, names: Iterable[str], now: Mapping[str, Clip]) -> Change | None:
    """The change of a task that an edit of these clips may extend; None when it has changed one of them already."""
    found = next((entry for entry in _standing(dataset, ("change",)) if entry.task == task), None)
    if found is None:
        return None
    changed = {old.file_name for old in _details(dataset, found).before if now.get(old.file_name) != old}
    return None if changed & set(names) else found


def undo(dataset: Path, number: int | None = None, redo: bool = False) -> Change:
    """Take back the change of that number, else the newest one that stands; redo: the newest undoing.

    Raises ConfigError when there is none, or when its clips were changed again since, CannotWrite.
    """
    with editing(dataset):
        change = _change_to_undo(dataset, number, redo)
        details = _details(dataset, change)
        before, after = details.before, details.after
        now = {clip.file_name: clip for clip in read_clips(dataset)}
        if change.task:  # a task that was killed has changed some of its clips only
            pairs = [(old, new) for old, new in zip(before, after, strict=True) if now.get(old.file_name) != old]
            before, after = [old for old, _ in pairs], [new for _, new in pairs]
        if clash := [clip.name for clip in after if now.get(clip.file_name) != clip]:
            raise ConfigError(f"{clash[0]} was changed again since: undo the later change first")
        there = {clip.file_name for clip in after}
        if clash := [c.name for c in before if c.file_name in now and c.file_name not in there]:
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


def _change_to_undo(dataset: Path, number: int | None, redo: bool) -> Change:
    """The change that `undo` takes back. Raises ConfigError when there is none."""
    if number is None:
        newest = next(iter(redoable(dataset) if redo else undoable(dataset)), None)
        if newest is None:
            raise ConfigError(f"there is nothing to {'redo' if redo else 'undo'} in {dataset.name}")
        return newest
    standing = {entry.number: entry for entry in _standing(dataset, ("change", "undo", "redo"))}
    if number not in standing:
        raise ConfigError(f"change {number} cannot be undone: it is no change of records, or was undone already")
    return standing[number]


class _Details(BaseModel):
    """.history/N.json: the records before and after a change, the positions of those before, what dataset.json was."""

    before: list[Clip]
    after: list[Clip]
    positions: list[int] = []
    info_before: DatasetInfo | None = None


def _details(dataset: Path, change: Change) -> _Details:
    """What a change replaced. Raises ConfigError when its file is missing or damaged."""
    path = dataset / DETAILS / f"{change.number}.json"
    value = read_json(path)
    try:
        return _Details.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{path} does not tell what the change replaced ({broken_rule(error)}): fix it") from error


def undoable(dataset: Path) -> list[Change]:
    """The changes that stand and can be taken back, the newest first."""
    return _standing(dataset, ("change", "redo"))


def redoable(dataset: Path) -> list[Change]:
    """The undoings that can be taken back, so that the change stands again, the newest first.

    A new change ends that: what was undone before it can be redone no more.
    """
    newest = max((entry.number for entry in read_history(dataset) if entry.kind == "change"), default=0)
    return [entry for entry in _standing(dataset, ("undo",)) if entry.number > newest]


def successor(dataset: Path, file_name: str) -> Clip | None:
    """The clip that stands where this one stood before it was cut, undone or redone; None when none does."""
    now = {clip.file_name: clip for clip in read_clips(dataset)}
    if file_name not in now and (dataset / HISTORY).exists():
        about = (dataset / HISTORY).stat()
        file_name = _followed(dataset, file_name, about.st_mtime_ns, about.st_size)
    return now.get(file_name)


@lru_cache(maxsize=64)
def _followed(dataset: Path, file_name: str, *version: int) -> str:
    """What a clip's file became in the newest changes, read once for each state of the history."""
    for entry in read_history(dataset)[-MOST_FOLLOWED:]:
        if entry.kind != "note":
            with contextlib.suppress(ConfigError):  # damaged: the clip is not followed through this change
                details = _details(dataset, entry)
                source = next((one.source_id for one in details.before if one.file_name == file_name), None)
                parts = [one.file_name for one in details.after if one.source_id == source]
                file_name = file_name if file_name in parts or not parts else parts[0]
    return file_name


def _standing(dataset: Path, kinds: Sequence[str]) -> list[Change]:
    history = read_history(dataset)
    taken_back = {entry.undoes for entry in history}
    return [e for e in reversed(history) if e.kind in kinds and e.number not in taken_back]


def _apply(
    dataset: Path,
    what: str,
    replaced: Mapping[str, Sequence[Clip]],
    added: Sequence[Clip],
    info: DatasetInfo | None,
    positions: Sequence[int] = (),
    undoes: Change | None = None,
    part_of: tuple[str, Change | None] = ("", None),
) -> Change:
    """part_of: a task, and its change so far, which this becomes a part of."""
    task, grown = part_of
    now = read_clips(dataset)
    names = {clip.file_name for clip in now}
    if missing := sorted(replaced.keys() - names):
        raise ConfigError(f"{counted(len(missing), 'clip')} of this change left the dataset: look at the list of clips")
    before = [clip for clip in now if clip.file_name in replaced]
    after = [new for clip in before for new in replaced[clip.file_name]] + list(added)
    records = [new for clip in now for new in replaced.get(clip.file_name, (clip,))]
    for number, clip in enumerate(added):  # what an undoing brings back stands where it stood
        records.insert(positions[number] if number < len(positions) else len(records), clip)
    if len({clip.file_name for clip in records}) < len(records):
        raise ConfigError("two records would name the same file: the part is in the dataset already")
    kind: Kind = "change" if undoes is None else "redo" if undoes.kind == "undo" else "undo"
    entry = Change(
        number=grown.number if grown else _next_number(dataset),
        time=time.time(),
        kind=kind,
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
        # What a killed edit of the task did not come to is in the kept details, too; it is done now.
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
    _remember_removed(dataset, before, records)
    write_clips(dataset, records)  # the change counts from here
    if info is not None:
        write_info(dataset, info)
    _append(dataset, entry)
    there = {clip.file_name for clip in records}
    leaving = [clip for clip in before if clip.file_name not in there]
    needed = {name for clip in records for name in files_of(clip)} if leaving else set[str]()
    for clip in leaving:
        _move_files(clip, dataset, dataset / REMOVED, needed)
    return entry


def thumbnail_name(clip: Clip) -> str:
    """The clip's thumbnail, below a dataset folder."""
    return f"thumbs/{clip.id}.jpg"


def files_of(clip: Clip) -> tuple[str, ...]:
    """What lies in a dataset folder for a clip alone: it leaves and comes back with the clip's record."""
    return clip.file_name, thumbnail_name(clip), *clip.companions.values()


def _move_files(clip: Clip, old: Path, new: Path, kept: Collection[str] = ()) -> None:
    """Move a clip's files to the other folder where they are not in place. kept: those that other clips need here"""
    for name in files_of(clip):
        if name not in kept and (old / name).exists() and not (new / name).exists():
            with writing(new / name):
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                disk.replace(old / name, new / name)


def _remember_removed(dataset: Path, before: Sequence[Clip], records: Sequence[Clip]) -> None:
    """The records of .removed: what leaves the dataset goes in, what comes back goes out."""
    kept = {clip.file_name for clip in records}
    was = read_clips(dataset / REMOVED)
    leaving = [clip for clip in before if clip.file_name not in kept]
    gone = {clip.file_name for clip in leaving}
    now = [*(clip for clip in was if clip.file_name not in kept | gone), *leaving]
    if now != was:
        with writing(dataset / REMOVED):
            (dataset / REMOVED).mkdir(exist_ok=True)
        write_clips(dataset / REMOVED, now)


def _next_number(dataset: Path) -> int:
    """One that no change has, nor one whose line cannot be read: its details stay as they are."""
    details = (int(path.stem) for path in (dataset / DETAILS).glob("*.json") if path.stem.isdecimal())
    return max([entry.number for entry in read_history(dataset)] + [*details], default=0) + 1


def _append(dataset: Path, entry: Change) -> None:
    append_line(dataset / HISTORY, json.dumps(entry.model_dump(mode="json"), ensure_ascii=False))
