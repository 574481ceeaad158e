"""Change which parts of their source videos the clips of a dataset are: span, crop, frame rate, and back.

Each is one change of the history, and nothing is lost by it. Not covered: what a cut is (cut), making files (parts),
where to cut (splitting, scenes, letterbox), undoing (history).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.clips.records import Clip, frame_at, read_clips
from workbench.dataset_builder import history, parallel
from workbench.dataset_builder.cuts.cut import Box, Cut, checked, cut_of, master_of
from workbench.dataset_builder.cuts.parts import make_part, part_name, whole_clip
from workbench.dataset_builder.parallel import OnProgress, Tick, silent
from workbench.errors import ConfigError, DataError

Cuts = Sequence[tuple[Clip, Sequence[Cut]]]
"""Clips, each with the parts of its source video that are to take its place."""
FACTS = {"file_name", "fps", "frames", "width", "height", "sha256", "span", "crop", "master", "first_frame"}


# ---- one change


def trim(dataset: Path, clip: Clip, start_seconds: float, end_seconds: float) -> Clip:
    """Another span of the clip's source video, wider or narrower, to the nearest frame; crop and rate stay."""
    new = _span(dataset, clip, start_seconds, end_seconds)
    return _recut_all(dataset, f"span of {clip.name}", [(clip, [new])])[0]


def trim_and_crop(dataset: Path, clip: Clip, span: tuple[float, float] | None, crops: bool, box: Box | None) -> Clip:
    """Another span and another part of the picture in one change. span: None leaves it as it is;  crops: box counts"""
    new = _span(dataset, clip, *span) if span else _changed(dataset, clip)
    new = dataclasses.replace(new, crop=box) if crops else new
    what = " and ".join(["span"] * bool(span) + ["crop"] * crops)
    return _recut_all(dataset, f"{what} of {clip.name}", [(clip, [new])])[0]


def split(dataset: Path, clip: Clip, spans: Sequence[tuple[float, float]]) -> list[Clip]:
    """A part for each span, seconds of the clip's source video; crop and rate stay. Raises ConfigError for an image."""
    if master_of(dataset, clip).frames == 1:
        raise ConfigError(f"{clip.name} is one picture: only videos can be split")
    new = [_span(dataset, clip, start, end) for start, end in spans]
    return _recut_all(dataset, f"{clip.name} split into {len(new)}", [(clip, new)])


def crop(dataset: Path, clips: Sequence[Clip], box: Box | None) -> list[Clip]:
    """That part of the picture (left, top, width, height in the source video's pixels); None: all of it."""
    new = [(clip, [_changed(dataset, clip, crop=box)]) for clip in clips]
    return _recut_all(dataset, f"crop of {named(clips)}", new)


def set_fps(dataset: Path, clips: Sequence[Clip], fps: float | None) -> list[Clip]:
    """A lower frame rate by leaving frames out, the duration stays; None: the source video's own."""
    new = [(clip, [_changed(dataset, clip, fps=fps)]) for clip in clips]
    return _recut_all(dataset, f"frame rate of {named(clips)}", new)


def frame_rate(text: str) -> float | None:
    """What a field for a frame rate says; None, the source video's own, when it is empty. Raises ConfigError."""
    if not text.strip():
        return None
    with contextlib.suppress(ValueError):
        if math.isfinite(fps := float(text)):
            return fps
    raise ConfigError(f"fps is {text[:40]!r}, must be a number such as 12: leave it empty for the source video's own")


def reset_cut(dataset: Path, clips: Sequence[Clip]) -> list[Clip]:
    """Back to the whole source videos. Of several parts of one the first becomes it again, the others are removed."""
    parts: dict[str, list[Clip]] = {}
    seen: set[str] = set()
    for clip in clips:
        record = whole_clip(dataset, clip, master_of(dataset, clip))
        parts[clip.file_name] = [] if record.file_name in seen else [record]
        seen.add(record.file_name)
    return replace(dataset, f"{named(clips)} back to the whole source video", parts)


def named(clips: Sequence[Clip]) -> str:
    """One clip by its name, several by their number."""
    return clips[0].name if len(clips) == 1 else f"{len(clips)} clips"


def _changed(dataset: Path, clip: Clip, **values: Any) -> Cut:
    return dataclasses.replace(cut_of(clip, master_of(dataset, clip)), **values)


def _span(dataset: Path, clip: Clip, start: float, end: float) -> Cut:
    fps = master_of(dataset, clip).fps
    return _changed(dataset, clip, start=frame_at(start, fps), end=frame_at(end, fps))


def _recut_all(dataset: Path, what: str, cuts: Cuts) -> list[Clip]:
    """Replace each clip by its parts, all in one change or not at all. Raises as `make_part` and `replace`."""
    for clip, wanted in cuts:  # all are checked before the first is made
        for cut in wanted:
            checked(cut, master_of(dataset, clip))
    parts = {clip.file_name: [make_part(dataset, clip, cut) for cut in wanted] for clip, wanted in cuts}
    return replace(dataset, what, parts)


def replace(dataset: Path, what: str, parts: Mapping[str, Sequence[Clip]]) -> list[Clip]:
    """Put parts (of `make_part`) in the places of clips, by file name, as one change; returns the parts' records.

    Caption and tags are those the clip has now, not when the part was made. Raises ConfigError when a clip has gone or
    a part is in the dataset already, CannotWrite.
    """
    now = {clip.file_name: clip for clip in read_clips(dataset)}
    for name, new in parts.items():
        if twice := [one for one in new if one.file_name in now and one.file_name not in parts]:
            called = now[name].name if name in now else twice[0].name
            raise ConfigError(
                f"the part {twice[0].name} is in the dataset already: remove {called}, or choose another span"
            )
    fresh = {
        name: [now.get(name, one).changed(**one.model_dump(include=FACTS)) for one in new]
        for name, new in parts.items()  # history names a clip that has gone
    }
    changed = {name: new for name, new in fresh.items() if new != [now.get(name)]}
    if changed:
        history.change(dataset, what, changed)
    return [one for new in fresh.values() for one in new]


# ---- many clips


@dataclasses.dataclass(frozen=True)
class Recut:
    """What became of many clips. clips: how many were replaced;  parts: by how many;  failed: file name -> why not."""

    clips: int
    parts: int
    failed: dict[str, str]


def recut(dataset: Path, cuts: Cuts, what: Callable[[int, int], str], on_progress: OnProgress = silent) -> Recut:
    """Replace each clip by its parts, made one a core, in one change; what: (clips, parts) -> the change in words.

    A clip whose parts cannot be made stays as it is. A part that is in the dataset already is not made twice; when
    nothing else is left of a clip, it stays and is named. What is made stays when it ends before all is, and the next
    one uses it. Raises CannotWrite and what `on_progress` raises.
    """
    failed: dict[str, str] = {}
    new: list[tuple[Clip, Cut]] = []
    taken = {clip.file_name for clip in read_clips(dataset)} - {clip.file_name for clip, _ in cuts}
    for clip, wanted in cuts:
        try:
            new += [(clip, cut) for cut in _fresh(dataset, clip, wanted, taken)]
        except (ConfigError, DataError) as error:
            failed[clip.file_name] = str(error)

    def make(item: tuple[Clip, Cut], tick: Tick) -> Clip | str:
        try:
            return make_part(dataset, *item, tick)
        except DataError as error:
            return str(error)

    parts = parallel.each("cutting", sum(cut.end - cut.start for _, cut in new), new, make, on_progress)
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
        replace(dataset, what(len(records), count), records)
    return Recut(len(records), count, failed)


def _fresh(dataset: Path, clip: Clip, cuts: Sequence[Cut], taken: set[str]) -> list[Cut]:
    """Those of the cuts whose part nobody has; their names are taken from now on. Raises ConfigError, DataError."""
    master = master_of(dataset, clip)
    by_name = {part_name(master, cut): cut for cut in (checked(cut, master) for cut in cuts)}
    fresh = {name: cut for name, cut in by_name.items() if name not in taken}
    if not fresh:
        raise ConfigError("its parts are in the dataset already: remove it")
    taken |= fresh.keys()
    return list(fresh.values())
