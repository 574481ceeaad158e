"""Put parts in the places of many clips: made one a core, with progress, and all put in place as one change.

What is made stays when it ends before that, and the next one uses it. Not covered: which parts (splitting, fixes), how
a part is made (cutting).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.clips.records import Clip, read_clips
from workbench.dataset_builder import parallel
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cut import Cut, checked, master_of
from workbench.dataset_builder.cuts.parts import make_part, part_name
from workbench.dataset_builder.parallel import OnProgress, Tick, silent
from workbench.errors import ConfigError, DataError


@dataclass(frozen=True)
class Wanted:
    """A clip, and the parts of its source video that shall stand in its place."""

    clip: Clip
    cuts: tuple[Cut, ...]


@dataclass(frozen=True)
class Recut:
    """What became of it. clips: how many were replaced;  parts: by how many;  failed: file name -> why it stays."""

    clips: int
    parts: int
    failed: dict[str, str]


def recut(
    dataset: Path, wanted: Sequence[Wanted], what: Callable[[int, int], str], on_progress: OnProgress = silent
) -> Recut:
    """Replace each clip by its parts; what: (clips, parts) -> the change in words.

    A clip whose parts cannot be made stays as it is. A part that is in the dataset already is not made twice; when
    nothing else is left of a clip, it stays and is named. Raises CannotWrite and what `on_progress` raises.
    """
    failed: dict[str, str] = {}
    new: list[tuple[Clip, Cut]] = []
    replaced = {one.clip.file_name for one in wanted}
    taken = {clip.file_name for clip in read_clips(dataset)} - replaced
    for one in wanted:
        try:
            cuts = _fresh(dataset, one, taken)
        except (ConfigError, DataError) as error:
            failed[one.clip.file_name] = str(error)
        else:
            new += [(one.clip, cut) for cut in cuts]
    frames = sum(cut.end - cut.start for _, cut in new)
    parts = parallel.each("cutting", frames, new, lambda item, tick: _part(dataset, *item, tick), on_progress)
    records: dict[str, list[Clip]] = {}
    for (clip, _), part in zip(new, parts, strict=True):
        if isinstance(part, str):
            failed[clip.file_name] = part
        else:
            records.setdefault(clip.file_name, []).append(part)
    now = {clip.file_name for clip in read_clips(dataset)}  # a person may have taken one out meanwhile
    records = {name: made for name, made in records.items() if name not in failed and name in now}
    count = sum(map(len, records.values()))
    if records:
        cutting.replace(dataset, what(len(records), count), records)
    return Recut(len(records), count, failed)


def _fresh(dataset: Path, one: Wanted, taken: set[str]) -> list[Cut]:
    """Those of the cuts whose part nobody has; their names are taken from now on. Raises ConfigError, DataError."""
    master = master_of(dataset, one.clip)
    named = {part_name(master, cut): cut for cut in (checked(cut, master) for cut in one.cuts)}
    fresh = {name: cut for name, cut in named.items() if name not in taken}
    if not fresh:
        raise ConfigError("its parts are in the dataset already: remove it")
    taken |= fresh.keys()
    return list(fresh.values())


def _part(dataset: Path, clip: Clip, cut: Cut, tick: Tick) -> Clip | str:
    """The part, or why there is none."""
    try:
        return make_part(dataset, clip, cut.start, cut.end, cut.crop, cut.fps, tick)
    except DataError as error:
        return str(error)
