"""Bucketing: the shapes that a run's clips are resized to, which clip goes into which, and which set loses least.

A clip's score in a bucket is the share of its time that is used, times the share of its picture that the crop leaves,
times the share of the resized pixels that are real (1 / enlargement² if it is enlarged, else 1). Its loss is 1 minus
the score; a clip that fits no bucket loses 1. Buckets of one frame are for images only, and images go nowhere else.

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

from workbench.clips import frame_plan
from workbench.clips.records import Clip
from workbench.errors import ConfigError
from workbench.families.model import Frames, Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

Size = tuple[int, int]  # height, width
# Aspect ratios (width / height) of cameras, films and phones; each is also used in portrait.
RATIOS = (1.0, 4 / 3, 3 / 2, 16 / 9, 21 / 9)
# Everything about a clip that decides its bucket: frames, fps, width, height, whether it is latents.
Kind = tuple[int, float, int, int, bool]


@dataclass(frozen=True, order=True)
class Bucket:
    """A batch shape: frames, height and width in pixels. `rule`: the model's frame counts, for advice."""

    frames: int
    height: int
    width: int
    rule: Frames | None = field(default=None, compare=False, repr=False)

    @property
    def for_images(self) -> bool:
        return self.frames == 1

    def shape(self, fps: float) -> frame_plan.Shape:
        return frame_plan.Shape(self.frames, self.height, self.width, fps, self.rule)

    def __str__(self) -> str:
        return f"{'image' if self.for_images else f'{self.frames} frames'}, {self.width}x{self.height}"


@dataclass(frozen=True)
class BucketAssignment:
    """A clip and its bucket.

    bucket: None if the clip is left out; `dropped` then says why.
    time, picture: the shares of the clip that the model sees, 0 to 1; 0 if it is left out.
    enlargement: see `cover` of frame_plan; 0 if it is left out.
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
        """The clip's score, 0 to 1 (see the module)."""
        return self.time * self.picture / max(1.0, self.enlargement) ** 2

    @property
    def plan(self) -> frame_plan.FramePlan | None:
        return frame_plan.plan(self.clip, self.bucket.shape(self.fps)) if self.bucket else None


@dataclass(frozen=True)
class BucketTable:
    """The bucket of every clip, in the order of the clips."""

    buckets: tuple[Bucket, ...]
    assignments: tuple[BucketAssignment, ...]

    @cached_property
    def clips_per_bucket(self) -> dict[Bucket, int]:
        """The number of clips in each bucket, empty ones included."""
        counts = Counter(one.bucket for one in self.assignments)
        return {bucket: counts[bucket] for bucket in self.buckets}

    @property
    def dropped(self) -> list[BucketAssignment]:
        return [one for one in self.assignments if one.bucket is None]

    @property
    def loss(self) -> float:
        """The clips' mean loss, 0 to 1; 0 without clips."""
        return 1 - sum(one.kept for one in self.assignments) / len(self.assignments) if self.assignments else 0.0

    @property
    def sentence(self) -> str:
        return f"{1 - self.loss:.0%} of the footage is kept, {len(self.dropped):,} clips are left out."


# ---- which buckets there are ----------------------------------------------------------------------------------------


def parse_bucket(text: str, model: Model) -> Bucket:
    """Parse FRAMESxHEIGHTxWIDTH, such as 49x480x720. Raises ConfigError."""
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
    """List every bucket a model can train in: one frame (images) and each legal frame count, in every size.

    The sizes are the resolutions (None for the model's own) and, for each, the other aspect ratios with about the same
    area, or less where the model's limit requires it. longest: the largest frame count, by default the model's.

    Raises ConfigError for an illegal resolution.
    """
    sizes: set[Size] = set()
    for height, width in resolutions or [(model.height, model.width)]:
        model.check_shape(model.frames, height, width)
        sizes |= {(height, width), *_siblings(model, height * width)}
    rule = model.frame_rule
    counts = [frames for frames in (1, *rule.legal()) if not longest or frames <= longest]
    return tuple(Bucket(frames, *size, rule) for frames in counts for size in sorted(sizes))


def _siblings(model: Model, area: int) -> set[Size]:
    """Return legal sizes with about that area (pixels) in the known aspect ratios."""
    if model.fixed_size:
        return set()
    step = model.size_multiple
    highest, widest = model.largest or (math.inf, math.inf)
    found = set()
    for ratio in {*RATIOS, *(1 / ratio for ratio in RATIOS)}:
        # Both sides shrink by the same factor, to keep the ratio.
        reduced = min(1.0, highest / math.sqrt(area / ratio), widest / math.sqrt(area * ratio))
        height = max(step, round(math.sqrt(area / ratio) * reduced / step) * step)
        width = max(step, round(math.sqrt(area * ratio) * reduced / step) * step)
        if height <= highest and width <= widest:
            found.add((height, width))
    return found


# ---- which clip goes where ------------------------------------------------------------------------------------------


def assign(clips: Sequence[Clip], buckets: Sequence[Bucket], fps: float) -> BucketTable:
    """Put every clip into the bucket with its highest score, the largest of equals. fps: the training frame rate."""
    ordered = tuple(sorted(set(buckets)))
    kinds = {_kind(clip): clip for clip in clips}
    # Largest first, because argmax takes the first of equals.
    by_size = sorted(ordered, key=lambda bucket: bucket.frames * bucket.height * bucket.width, reverse=True)
    best: dict[Kind, Bucket | None] = dict.fromkeys(kinds)
    if kinds and by_size:
        kept = _kept(list(kinds.values()), by_size, fps)
        for kind, index, value in zip(kinds, kept.argmax(1).tolist(), kept.max(1).tolist(), strict=True):
            best[kind] = by_size[index] if value > 0 else None

    def assignment(clip: Clip) -> BucketAssignment:
        if (bucket := best[_kind(clip)]) is None:
            dropped = frame_plan.UNKNOWN
            if fitting := [one for one in ordered if one.for_images == clip.is_image]:
                dropped = frame_plan.why_dropped(clip, fitting[0].shape(fps)) or frame_plan.UNKNOWN
            elif clip.frames:
                dropped = (
                    f"{'an image: no bucket takes' if clip.is_image else 'no bucket takes more than'} 1 frame: add one"
                )
            return BucketAssignment(clip, None, fps, dropped=dropped)
        share = frame_plan.time_share(clip, bucket.frames, fps)
        return BucketAssignment(clip, bucket, fps, share, *frame_plan.cover(clip, bucket.height, bucket.width))

    return BucketTable(ordered, tuple(map(assignment, clips)))


def choose(
    clips: Sequence[Clip],
    model: Model,
    most: int,
    fps: float | None = None,
    resolutions: Sequence[Size] | None = None,
    longest: int | None = None,
) -> tuple[Bucket, ...]:
    """Choose at most `most` buckets from `buckets_for` that minimize the clips' total loss.

    Add the bucket that gains most until none gains anything, then swap single buckets until no swap helps. This nearly
    always finds the best set; greedy selection alone guarantees at least 63% of the best set's score.
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
    """Return the score of each clip in each bucket (see the module), [clips, buckets]; 0 where it does not fit.

    Buckets share few frame counts and sizes, so time and picture are computed once for each of these.
    """
    import numpy as np

    counts, sizes = sorted({one.frames for one in buckets}), sorted({(one.height, one.width) for one in buckets})
    time = np.array([[_time(clip, frames, fps) for frames in counts] for clip in clips])
    covers = [[frame_plan.cover(clip, *size) for size in sizes] for clip in clips]
    picture = np.array([[share for share, _ in row] for row in covers])
    enlarged = np.array([[max(1.0, enlargement) ** 2 for _, enlargement in row] for row in covers])
    count = [counts.index(one.frames) for one in buckets]
    size = [sizes.index((one.height, one.width)) for one in buckets]
    kept: Matrix = time[:, count] * picture[:, size] / enlarged[:, size]
    for number, clip in enumerate(clips):
        if clip.is_latents:
            kept[number] = [frame_plan.why_dropped(clip, one.shape(fps)) is None for one in buckets]
    return kept


def _time(clip: Clip, frames: int, fps: float) -> float:
    """Return the share of a clip's time that buckets of so many frames use; 0 if it does not fit them."""
    too_long = frames > frame_plan.available_frames(clip, fps)
    if too_long or (frames == 1) != clip.is_image or not (clip.width and clip.height):
        return 0.0
    return frame_plan.time_share(clip, frames, fps)


def _best_addition(kept: Matrix, chosen: Sequence[int]) -> tuple[int, float]:
    """Return the bucket that gains most when it is added to the chosen ones, and its gain."""
    import numpy as np

    before = kept[:, list(chosen)].max(1) if chosen else np.zeros(len(kept))
    saved = np.maximum(kept - before[:, None], 0).sum(0)
    return int(saved.argmax()), float(saved.max())
