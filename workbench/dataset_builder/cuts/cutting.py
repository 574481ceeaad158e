"""Change which parts of their source videos the clips of a dataset are: span, crop, frame rate, and back.

Each is one change of the history, and nothing is lost by it. Not covered: what a cut is (cut), making files (parts),
many clips at once (recutting), where to cut (splitting, scenes, letterbox), undoing (history).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.clips.records import Clip, frame_at, read_clips
from workbench.dataset_builder import history
from workbench.dataset_builder.cuts.cut import Box, Cut, Master, checked, cut_of, master_of
from workbench.dataset_builder.cuts.parts import make_part, whole_clip
from workbench.errors import ConfigError


def replace(dataset: Path, what: str, parts: Mapping[str, Sequence[Clip]]) -> list[Clip]:
    """Put parts (of `make_part`) in the places of clips, by file name, as one change; returns the parts' records.

    Caption and tags are those the clip has now, not when the part was made. Raises ConfigError when a clip has gone or
    a part is in the dataset already, CannotWrite.
    """
    now = {clip.file_name: clip for clip in read_clips(dataset)}
    for name, new in parts.items():
        if twice := [one for one in new if one.file_name in now and one.file_name not in parts]:
            raise ConfigError(
                f"that part of {twice[0].source or twice[0].master} is in the dataset already ({twice[0].file_name}): "
                f"remove {name}, or choose another span"
            )
    fresh = {name: [_taking_over(now[name], one) for one in new] for name, new in parts.items() if name in now}
    fresh |= {name: list(new) for name, new in parts.items() if name not in now}  # history names what is missing
    changed = {name: new for name, new in fresh.items() if new != [now.get(name)]}
    if changed:
        history.change(dataset, what, changed)
    return [one for new in fresh.values() for one in new]


def _taking_over(clip: Clip, new: Clip) -> Clip:
    """The clip with the part's file and facts."""
    facts = ("file_name", "fps", "frames", "width", "height", "sha256", "span", "crop", "master", "first_frame")
    return clip.changed(**{fact: getattr(new, fact) for fact in facts if hasattr(new, fact)})


def recut(dataset: Path, what: str, cuts: Sequence[tuple[Clip, Sequence[Cut]]]) -> list[Clip]:
    """Replace each clip by the parts that the cuts name, all in one change. Raises as `make_part` and `replace`."""
    for clip, wanted in cuts:  # all are checked before the first is made
        master = master_of(dataset, clip)
        for cut in wanted:
            checked(cut, master)
    parts = {
        clip.file_name: [make_part(dataset, clip, cut.start, cut.end, cut.crop, cut.fps) for cut in wanted]
        for clip, wanted in cuts
    }
    return replace(dataset, what, parts)


def trim(dataset: Path, clip: Clip, start_seconds: float, end_seconds: float) -> Clip:
    """Another span of the clip's source video, wider or narrower, to the nearest frame; crop and rate stay."""
    cut, master = _now(dataset, clip)
    new = dataclasses.replace(cut, start=frame_at(start_seconds, master.fps), end=frame_at(end_seconds, master.fps))
    return recut(dataset, f"span of {clip.source or clip.id}", [(clip, [new])])[0]


def split(dataset: Path, clip: Clip, spans: Sequence[tuple[float, float]]) -> list[Clip]:
    """A part for each span, seconds of the clip's source video; crop and rate stay. Raises ConfigError for an image."""
    cut, master = _now(dataset, clip)
    if master.frames == 1:
        raise ConfigError(f"{clip.source or clip.id} is one picture: only videos can be split")
    new = [dataclasses.replace(cut, start=frame_at(a, master.fps), end=frame_at(b, master.fps)) for a, b in spans]
    return recut(dataset, f"{clip.source or clip.id} split into {len(new)}", [(clip, new)])


def crop(dataset: Path, clips: Sequence[Clip], box: Box | None) -> list[Clip]:
    """That part of the picture (left, top, width, height in the source video's pixels); None: all of it."""
    new = [(clip, [dataclasses.replace(_now(dataset, clip)[0], crop=box)]) for clip in clips]
    return recut(dataset, f"crop of {_named(clips)}", new)


def set_fps(dataset: Path, clips: Sequence[Clip], fps: float | None) -> list[Clip]:
    """A lower frame rate by leaving frames out, the duration stays; None: the source video's own."""
    new = [(clip, [dataclasses.replace(_now(dataset, clip)[0], fps=fps)]) for clip in clips]
    return recut(dataset, f"frame rate of {_named(clips)}", new)


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
    return replace(dataset, f"{_named(clips)} back to the whole source video", parts)


def _now(dataset: Path, clip: Clip) -> tuple[Cut, Master]:
    master = master_of(dataset, clip)
    return cut_of(clip, master), master


def _named(clips: Sequence[Clip]) -> str:
    """One clip by its name, several by their number."""
    return clips[0].source or clips[0].id if len(clips) == 1 else f"{len(clips)} clips"
