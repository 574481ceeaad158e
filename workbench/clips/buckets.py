"""Buckets: the shapes that clips of one run are brought to, which clip goes where, and which buckets lose least.

What a clip keeps in a bucket is the share of its time that is taken x the share of its picture that is left after the
crop x the share of the resized pixels that are its own (1 / enlargement squared when it is enlarged, else 1). What it
loses is 1 minus that; a clip that is left out loses 1. Images go into buckets of one frame, and nothing else does.

Pure arithmetic on records and a model's facts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from workbench.clips.frame_plan import (
    UNKNOWN,
    FramePlan,
    Shape,
    available_frames,
    cover,
    plan,
    time_share,
    why_dropped,
)
from workbench.clips.records import Clip
from workbench.errors import ConfigError
from workbench.families.model import Frames, Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

Size = tuple[int, int]  # height, width
# Width over height of what cameras, films and telephones give; each is also taken upright.
RATIOS = (1.0, 4 / 3, 3 / 2, 16 / 9, 21 / 9)
# Frames, fps, width, height, whether it is latents: all of a clip that decides its bucket.
Kind = tuple[int, float, int, int, bool]


@dataclass(frozen=True, order=True)
class Bucket:
    """One shape of a batch: frames, and height x width in pixels. `rule`: the model's frame counts, for advice."""

    frames: int
    height: int
    width: int
    rule: Frames | None = field(default=None, compare=False, repr=False)

    @property
    def for_images(self) -> bool:
        return self.frames == 1

    def shape(self, fps: float) -> Shape:
        return Shape(self.frames, self.height, self.width, fps, self.rule)

    def __str__(self) -> str:
        return f"{'image' if self.for_images else f'{self.frames} frames'}, {self.width}x{self.height}"


@dataclass(frozen=True)
class BucketAssignment:
    """Where one clip went. bucket: None when it is left out, and `dropped` says why.

    time, picture: shares of the clip that the model sees, 0 to 1; enlargement: see frame_plan; all 0 when left out
    """

    clip: Clip
    bucket: Bucket | None
    fps: float
    time: float = 0.0
    picture: float = 0.0
    enlargement: float = 0.0
    dropped: str | None = None

    @property
    def kept(self) -> float:
        """The module's measure, 0 to 1."""
        return self.time * self.picture / max(1.0, self.enlargement) ** 2

    @property
    def plan(self) -> FramePlan | None:
        return plan(self.clip, self.bucket.shape(self.fps)) if self.bucket else None


@dataclass(frozen=True)
class BucketTable:
    """Every clip in its bucket, in the order of the clips."""

    buckets: tuple[Bucket, ...]
    assignments: tuple[BucketAssignment, ...]

    @cached_property
    def clips_per_bucket(self) -> dict[Bucket, int]:
        """How many clips each bucket has, empty ones too: the histogram."""
        counts = Counter(one.bucket for one in self.assignments)
        return {bucket: counts[bucket] for bucket in self.buckets}

    @property
    def dropped(self) -> list[BucketAssignment]:
        return [one for one in self.assignments if one.bucket is None]

    @property
    def loss(self) -> float:
        """What the clips lose on average, 0 to 1; 0 without clips."""
        return 1 - sum(one.kept for one in self.assignments) / len(self.assignments) if self.assignments else 0.0

    @property
    def sentence(self) -> str:
        return f"{1 - self.loss:.0%} of the footage is kept, {len(self.dropped):,} clips are left out."


# ---- which buckets there are ----------------------------------------------------------------------------------------


def parse_bucket(text: str, model: Model) -> Bucket:
    """A bucket as people write it: 49x480x720 is FRAMESxHEIGHTxWIDTH. Raises ConfigError."""
    match = re.fullmatch(r"([0-9]{1,6})\s*x\s*([0-9]{1,6})\s*x\s*([0-9]{1,6})", text.strip())
    if match is None:
        sentence = f"buckets has {text[:60]!r}: write FRAMESxHEIGHTxWIDTH, as in 49x480x720"
        raise ConfigError(sentence, {"buckets": sentence})
    frames, height, width = map(int, match.groups())
    try:
        model.check_shape(model.frames if frames == 1 else frames, height, width)
    except ConfigError as error:
        raise ConfigError(f"buckets has {text.strip()}: {error}", {"buckets": str(error)}) from None
    return Bucket(frames, height, width, model.frame_rule)


def buckets_for(
    model: Model, resolutions: Sequence[Size] | None = None, longest: int | None = None
) -> tuple[Bucket, ...]:
    """Every bucket a model can be trained in: one frame for images, then its legal frame counts, times the sizes.

    longest: the most frames a bucket may have; None: as many as the model can.

    The sizes are each resolution (height, width; the model's own by default) and its siblings in other aspect ratios,
    of about the same area, smaller where the model's limit asks for it. Raises ConfigError for an illegal resolution.
    """
    sizes: set[Size] = set()
    for height, width in resolutions or [(model.height, model.width)]:
        model.check_shape(model.frames, height, width)
        sizes |= {(height, width), *_siblings(model, height * width)}
    rule = model.frame_rule
    counts = [frames for frames in (1, *rule.legal()) if not longest or frames <= longest]
    return tuple(Bucket(frames, *size, rule) for frames in counts for size in sorted(sizes))


def _siblings(model: Model, area: int) -> set[Size]:
    """Sizes of about that area (pixels) in the known aspect ratios, each legal for the model."""
    if model.fixed_size:
        return set()
    step = model.size_multiple
    highest, widest = model.largest or (math.inf, math.inf)
    found = set()
    for ratio in {*RATIOS, *(1 / ratio for ratio in RATIOS)}:
        # Reduced together, so that the ratio stays.
        reduced = min(1.0, highest / math.sqrt(area / ratio), widest / math.sqrt(area * ratio))
        height = max(step, round(math.sqrt(area / ratio) * reduced / step) * step)
        width = max(step, round(math.sqrt(area * ratio) * reduced / step) * step)
        if height <= highest and width <= widest:
            found.add((height, width))
    return found


# ---- which clip goes where ------------------------------------------------------------------------------------------


def assign(clips: Sequence[Clip], buckets: Sequence[Bucket], fps: float) -> BucketTable:
    """Put every clip into the bucket in which it keeps most, of equals into the largest; fps: of training."""
    ordered = tuple(sorted(set(buckets)))
    kinds = {_kind(clip): clip for clip in clips}
    # Reversed, because the first of equals is taken and the largest is wanted.
    by_size = sorted(ordered, key=lambda bucket: bucket.frames * bucket.height * bucket.width, reverse=True)
    best: dict[Kind, Bucket | None] = dict.fromkeys(kinds)
    if kinds and by_size:
        kept = _kept(list(kinds.values()), by_size, fps)
        for kind, index, value in zip(kinds, kept.argmax(1).tolist(), kept.max(1).tolist(), strict=True):
            best[kind] = by_size[index] if value > 0 else None

    def assignment(clip: Clip) -> BucketAssignment:
        if (bucket := best[_kind(clip)]) is None:
            return BucketAssignment(clip, None, fps, dropped=_why_nowhere(clip, ordered, fps))
        share = time_share(clip, bucket.frames, fps)
        return BucketAssignment(clip, bucket, fps, share, *cover(clip, bucket.height, bucket.width))

    return BucketTable(ordered, tuple(map(assignment, clips)))


def choose(
    clips: Sequence[Clip],
    model: Model,
    most: int,
    fps: float | None = None,
    resolutions: Sequence[Size] | None = None,
    longest: int | None = None,
) -> tuple[Bucket, ...]:
    """At most `most` buckets of `buckets_for` in which the clips lose least (the module's measure, summed).

    Buckets are added one by one, each the one that saves most, then exchanged one for one until no exchange helps;
    none is added that saves nothing. This finds the best set in nearly all cases, and by theory never keeps less than
    63 % of what the best set would. Raises ConfigError for an illegal resolution.
    """
    import numpy as np

    offered = buckets_for(model, resolutions, longest)
    if not clips or most < 1:
        return ()
    kinds = {_kind(clip): clip for clip in clips}
    counts = Counter(map(_kind, clips))
    kept = _kept(list(kinds.values()), offered, fps or model.fps)
    kept *= np.array([counts[kind] for kind in kinds], float)[:, None]
    chosen: list[int] = []
    while len(chosen) < most:
        added, saved = _best_addition(kept, chosen)
        if saved <= 1e-9:
            break
        chosen.append(added)
    changed = True
    while changed:
        changed = False
        for index in range(len(chosen)):
            others = chosen[:index] + chosen[index + 1 :]
            added, _ = _best_addition(kept, others)
            if kept[:, [*others, added]].max(1).sum() > kept[:, chosen].max(1).sum() + 1e-9:
                chosen, changed = [*others, added], True
    return tuple(sorted(offered[index] for index in chosen))


def _kind(clip: Clip) -> Kind:
    return clip.frames, clip.fps, clip.width, clip.height, clip.is_latents


def _kept(clips: Sequence[Clip], buckets: Sequence[Bucket], fps: float) -> Matrix:
    """[clips, buckets]: what each clip keeps in each bucket. Time and picture are factors of their own."""
    import numpy as np

    counts = {frames: index for index, frames in enumerate({b.frames: None for b in buckets})}
    sizes = {size: index for index, size in enumerate({(b.height, b.width): None for b in buckets})}
    lengths = {(clip.frames, clip.fps): clip for clip in clips}
    pictures = {(clip.width, clip.height): clip for clip in clips}
    times = np.zeros((len(lengths), len(counts)))
    for row, clip in enumerate(lengths.values()):
        available = available_frames(clip, fps)
        for column, count in enumerate(counts):
            if count <= available and (count == 1) == clip.is_image:
                times[row, column] = time_share(clip, count, fps)
    covers = np.zeros((len(pictures), len(sizes)))
    for row, clip in enumerate(pictures.values()):
        if clip.width and clip.height:
            shares, scales = np.array([cover(clip, *size) for size in sizes]).T
            covers[row] = shares / np.maximum(1, scales) ** 2
    length_at = {length: index for index, length in enumerate(lengths)}
    picture_at = {picture: index for index, picture in enumerate(pictures)}
    rows = [length_at[clip.frames, clip.fps] for clip in clips], [picture_at[clip.width, clip.height] for clip in clips]
    columns = [counts[b.frames] for b in buckets], [sizes[b.height, b.width] for b in buckets]
    kept: Matrix = times[np.ix_(rows[0], columns[0])] * covers[np.ix_(rows[1], columns[1])]
    for row, clip in enumerate(clips):
        if clip.is_latents:
            kept[row] = [why_dropped(clip, bucket.shape(fps)) is None for bucket in buckets]
    return kept


def _best_addition(kept: Matrix, chosen: Sequence[int]) -> tuple[int, float]:
    """The bucket that saves most beside the chosen ones, and how much it saves."""
    import numpy as np

    before = kept[:, list(chosen)].max(1) if chosen else np.zeros(len(kept))
    saved = np.maximum(kept - before[:, None], 0).sum(0)
    return int(saved.argmax()), float(saved.max())


def _why_nowhere(clip: Clip, buckets: Sequence[Bucket], fps: float) -> str:
    """Why a clip is in none of the buckets, which are in ascending order of frames."""
    fitting = [bucket for bucket in buckets if bucket.for_images == clip.is_image]
    if not fitting and clip.frames:
        return f"{'an image: no bucket takes' if clip.is_image else 'no bucket takes more than'} 1 frame: add one"
    return (why_dropped(clip, fitting[0].shape(fps)) if fitting else None) or UNKNOWN
