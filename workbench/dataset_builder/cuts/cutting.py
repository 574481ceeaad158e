"""Cut clips out of their whole source videos: another span, crop or frame rate, and back. Nothing is ever lost by it.

A part is always made from the master, the canonical clip of the whole source video: a span can be widened later, and a
picture is never encoded more than twice. The first cut links the whole clip's file to .masters/ID.mp4; parts are named
by what they are (master, frames, crop, rate), so the same part made twice is one file.

Seconds and pixels are those of the master. Not covered: where to cut (splitting, scenes, letterbox), undoing (history).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import Clip, file_sha256, frame_at, read_clips
from workbench.dataset_builder import history
from workbench.dataset_builder.cuts.seeking import frames_from
from workbench.errors import ConfigError, DataError
from workbench.workspace import writing

MASTERS = ".masters"
SMALLEST = 16  # pixels a side, as an import demands
FEWEST = 2  # frames
Box = tuple[int, int, int, int]
Tick = Callable[[], None]
"""Called after each frame; may raise to stop."""


@dataclass(frozen=True)
class Cut:
    """What a clip takes of its master: frames start to end (end not included), crop as in Clip, fps if not its own."""

    start: int
    end: int
    crop: Box | None = None
    fps: float | None = None


@dataclass(frozen=True)
class Master:
    """A whole source video. path: where it is now; name: its path below the dataset once a part of it is cut."""

    name: str
    path: Path
    sha256: str
    frames: int
    fps: float
    width: int
    height: int

    @property
    def whole(self) -> Cut:
        return Cut(0, self.frames)


# ---- what a clip is -------------------------------------------------------------------------------------------------


def master_of(dataset: Path, clip: Clip) -> Master:
    """The source video a clip comes from: the clip itself while it is whole. Raises DataError when it is not there."""
    path = dataset / (clip.master or clip.file_name)
    if not path.is_file():
        raise DataError(f"the source video of {clip.source or clip.id} is missing ({path}): import it again")
    changed = path.stat().st_mtime_ns
    about, sha256 = _facts(path, changed)
    name = clip.master
    if not name:
        name = f"{MASTERS}/{clip.id}.mp4"
        taken = dataset / name
        if taken.exists() and not taken.samefile(path) and file_sha256(taken) != sha256:
            name = f"{MASTERS}/{clip.id}-{sha256[:16]}.mp4"  # two clips of the same name, in folders of another tool
    return Master(name, path, sha256, about.frames, about.fps, about.width, about.height)


@lru_cache(maxsize=64)
def _facts(path: Path, changed: int) -> tuple[media.VideoFacts, str]:
    """What a file is, and its digest: read once as long as nobody touches it; `changed` is its time of change."""
    return media.probe(path), file_sha256(path)


def cut_of(clip: Clip, master: Master) -> Cut:
    """What the clip takes of its master at present."""
    if not clip.master:
        return master.whole
    start, end = (round(second * master.fps) for second in clip.span or (0, master.frames / master.fps))
    return Cut(start, end, clip.crop, None if abs(clip.fps / master.fps - 1) < 1e-4 else clip.fps)


def checked(cut: Cut, master: Master) -> Cut:
    """The cut itself, with what changes nothing left out. Raises ConfigError that names the nearest legal one."""
    fewest = min(FEWEST, master.frames)
    if not 0 <= cut.start <= cut.end - fewest <= master.frames - fewest:
        start = min(max(0, min(cut.start, cut.end)), master.frames - fewest)
        end = min(max(start + fewest, cut.start, cut.end), master.frames)
        raise ConfigError(
            f"the span is {_span(cut, master)}, must lie in the source video's {_span(master.whole, master)} and hold "
            f"{FEWEST} frames or more: use {_span(Cut(start, end), master)}"
        )
    rate = None if cut.fps is None else float(Fraction(max(-1.0, min(1e9, cut.fps))).limit_denominator(1001))
    if rate is not None and not 0 < rate <= master.fps * (1 + 1e-6):
        raise ConfigError(
            f"fps is {cut.fps:g}, the source video has {master.fps:.6g}: frames can be left out, not made up: "
            f"use {master.fps:.6g} or less"
        )
    if rate is not None and (master.frames == 1 or abs(rate / master.fps - 1) < 1e-6):
        rate = None
    if rate is not None and len(_numbers(cut, rate, master)) < FEWEST:
        least = FEWEST * master.fps / (cut.end - cut.start)
        raise ConfigError(f"fps is {cut.fps:g}, which leaves fewer than {FEWEST} frames: use {least:.4g} or more")
    crop = None if cut.crop == (0, 0, master.width, master.height) else cut.crop
    if crop is not None and crop != (nearest := _nearest_box(crop, master)):
        raise ConfigError(
            f"the crop is {_listed(crop)} (left, top, width, height), must be even, inside {master.width}x"
            f"{master.height} and {SMALLEST}x{SMALLEST} or more: use {_listed(nearest)}"
        )
    return Cut(cut.start, cut.end, crop, rate)


def _span(cut: Cut, master: Master) -> str:
    return f"{cut.start / master.fps:.6g} to {cut.end / master.fps:.6g} s"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _nearest_box(box: Box, master: Master) -> Box:
    left, width = _nearest_side(box[0], box[2], master.width)
    top, height = _nearest_side(box[1], box[3], master.height)
    return left, top, width, height


def _nearest_side(offset: int, length: int, whole: int) -> tuple[int, int]:
    """(offset, length), even, within 0 to `whole` (even, too) and not under the smallest."""
    length = min(max(length - length % 2, SMALLEST), whole)
    return min(max(0, offset - offset % 2), whole - length), length


# ---- making a part --------------------------------------------------------------------------------------------------


def part(
    dataset: Path,
    clip: Clip,
    start_frame: int,
    end_frame: int,
    crop: Box | None = None,
    fps: float | None = None,
    tick: Tick = lambda: None,
) -> Clip:
    """The record of that part of the clip's master, whose file is made now unless it is there; end_frame not included.

    The dataset's records stay as they are (`replace` puts parts into them). The file lies in clips/, or in
    .removed/clips/ if it was made before, from where a change brings it back. Raises ConfigError for an illegal span,
    crop or rate, DataError, CannotWrite, and whatever `tick` raises.
    """
    master = master_of(dataset, clip)
    cut = checked(Cut(start_frame, end_frame, crop, fps), master)
    if cut == master.whole:
        return _whole(dataset, clip, master)
    name = part_name(master, cut)
    path = next((found for found in (dataset / name, dataset / history.REMOVED / name) if found.exists()), None)
    if path is None:
        _keep(dataset, master)
        path = dataset / name
        _write(dataset, master, cut, path, tick)
    thumbnail = path.parent.parent / "thumbs" / f"{path.stem}.jpg"
    if not thumbnail.exists():
        media.thumbnail(path, thumbnail)
    # A picture of the source video's beginning is none of a part that begins elsewhere.
    lost = {"first_frame": ""} if clip.first_frame and (cut.start or cut.crop) else {}
    return clip.changed(
        **lost,
        file_name=name,
        fps=cut.fps or master.fps,
        frames=len(_numbers(cut, cut.fps or master.fps, master)),
        width=cut.crop[2] if cut.crop else master.width,
        height=cut.crop[3] if cut.crop else master.height,
        sha256=file_sha256(path),
        span=None if (cut.start, cut.end) == (0, master.frames) else (cut.start / master.fps, cut.end / master.fps),
        crop=cut.crop,
        master=master.name,
    )


def part_name(master: Master, cut: Cut) -> str:
    """The file name of a checked cut, below the dataset folder."""
    about = json.dumps([master.sha256, cut.start, cut.end, cut.crop, cut.fps])
    return f"clips/{hashlib.sha256(about.encode()).hexdigest()[:16]}.mp4"


def _whole(dataset: Path, clip: Clip, master: Master) -> Clip:
    """The record of the whole source video, with this clip's caption."""
    if not clip.master:
        return clip
    stem = Path(master.name).stem
    # A plain VideoFolder may have had it under another name than ours.
    was = [c for c in read_clips(dataset / history.REMOVED) if not c.master and c.sha256 == master.sha256]
    name = next((c.file_name for c in was if Path(c.file_name).stem == stem), f"clips/{stem}.mp4")
    first = next((found for c in was if (found := c.first_frame)), "")
    if not (dataset / name).exists() and not (dataset / history.REMOVED / name).exists():
        _link(master.path, dataset / name)
    return clip.changed(
        **({"first_frame": first} if first else {}),
        file_name=name, fps=master.fps, frames=master.frames, width=master.width, height=master.height,
        sha256=master.sha256, span=None, crop=None, master="",
    )  # fmt: skip


def _keep(dataset: Path, master: Master) -> None:
    """Give the whole source video its place in .masters, before anything is cut from it."""
    if not (dataset / master.name).exists():
        _link(master.path, dataset / master.name)


def _link(old: Path, new: Path) -> None:
    """The same file under a second name; a copy where the disk knows no links. One that is there stays."""
    with writing(new):
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(old, new)
        except FileExistsError:
            return
        except OSError:
            temporary = new.parent / _temporary(new.name)
            shutil.copyfile(old, temporary)
            os.replace(temporary, new)


def _temporary(name: str) -> str:
    """A name of this thread's own: two who make the same part at once do not meet."""
    return f".{name}.{os.getpid()}.{threading.get_ident()}.part"


def _numbers(cut: Cut, fps: float, master: Master) -> list[int]:
    """The master's frames that make the part: at a lower rate, of each slot the one that is shown at its middle."""
    step = max(1.0, master.fps / fps)
    count = int((cut.end - cut.start) / step + 1e-6)
    return [cut.start + int((slot + 0.5) * step + 1e-6) for slot in range(count)]


def _write(dataset: Path, master: Master, cut: Cut, target: Path, tick: Tick) -> None:
    """Encode the part so that nobody could see it (media.Writer without a crf). Raises DataError, CannotWrite."""
    fps = cut.fps or master.fps
    wanted = _numbers(cut, fps, master)
    width, height = cut.crop[2:] if cut.crop else (master.width, master.height)
    temporary = dataset / MASTERS / _temporary(target.name)
    with contextlib.closing(frames_from(master.path, cut.start)) as frames:
        first = next(frames)
        cropped = _cropper(first[1], cut.crop)
        with media.VideoWriter(temporary, width, height, fps, like=first[1]) as writer:
            for number, frame in itertools.chain([first], frames):
                if number == wanted[writer.frames]:
                    writer.write(cropped(frame))
                tick()
                if writer.frames == len(wanted):
                    break
    with writing(target):
        os.replace(temporary, target)


def _cropper(first: Any, crop: Box | None) -> Callable[[Any], Any]:
    """What cuts a PyAV frame like `first` to the crop."""
    import av

    if crop is None:
        return lambda frame: frame
    graph = av.filter.Graph()
    last = graph.add_buffer(width=first.width, height=first.height, format=first.format, time_base=first.time_base)
    left, top, width, height = crop
    for name, arguments in (("crop", f"{width}:{height}:{left}:{top}"), ("buffersink", None)):
        node = graph.add(name, arguments)
        last.link_to(node)
        last = node
    graph.configure()

    def cropped(frame: Any) -> Any:
        graph.push(frame)
        return graph.pull()

    return cropped


# ---- changing a dataset ---------------------------------------------------------------------------------------------


def replace(dataset: Path, what: str, parts: Mapping[str, Sequence[Clip]]) -> list[Clip]:
    """Put parts (of `part`) in the places of clips, by file name, as one change; returns the parts' records.

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
    """Replace each clip by the parts that the cuts name, all in one change. Raises as `part` and `replace`."""
    for clip, wanted in cuts:  # all are checked before the first is made
        master = master_of(dataset, clip)
        for cut in wanted:
            checked(cut, master)
    parts = {
        clip.file_name: [part(dataset, clip, cut.start, cut.end, cut.crop, cut.fps) for cut in wanted]
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
        record = _whole(dataset, clip, master_of(dataset, clip))
        parts[clip.file_name] = [] if record.file_name in seen else [record]
        seen.add(record.file_name)
    return replace(dataset, f"{_named(clips)} back to the whole source video", parts)


def _now(dataset: Path, clip: Clip) -> tuple[Cut, Master]:
    master = master_of(dataset, clip)
    return cut_of(clip, master), master


def _named(clips: Sequence[Clip]) -> str:
    """One clip by its name, several by their number."""
    return clips[0].source or clips[0].id if len(clips) == 1 else f"{len(clips)} clips"
