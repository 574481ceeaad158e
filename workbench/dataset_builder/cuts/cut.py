"""What a clip takes of its source video: frames, crop and rate, and which of them are legal.

The master is the canonical clip of the whole source video. Seconds and pixels are those of the master. Not covered:
making a part's file (parts), changing a dataset (cutting).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from workbench.clips import media
from workbench.clips.records import Clip, clip_file, file_sha256
from workbench.errors import ConfigError, DataError

MASTERS = ".masters"
SMALLEST = 16  # pixels a side, as an import demands
FEWEST = 2  # frames
Box = tuple[int, int, int, int]


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


def master_of(dataset: Path, clip: Clip) -> Master:
    """The source video a clip comes from: the clip itself while it is whole. Raises DataError when it is not there."""
    if clip.is_latents:
        raise DataError(f"{clip.name} is latents, which cannot be cut: cut the video, and compute its latents again")
    path = clip_file(dataset, clip.master or clip.file_name)
    if not path.is_file():
        raise DataError(f"the source video of {clip.name} is missing ({path}): import it again")
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
    if rate is not None and len(sampled_frames(cut, rate, master)) < FEWEST:
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


def sampled_frames(cut: Cut, fps: float, master: Master) -> list[int]:
    """The master's frames that make the part: at a lower rate, of each slot the one that is shown at its middle."""
    step = max(1.0, master.fps / fps)
    count = int((cut.end - cut.start) / step + 1e-6)
    return [cut.start + int((slot + 0.5) * step + 1e-6) for slot in range(count)]
