"""Numbers by step in bounded memory, for curves that are read while they grow. No torch.

Steps lie in buckets of equal width, which doubles when there are too many. A bucket knows its lowest and highest
value, so a spike one step long is still visible among 100,000 steps (the min-max form of M4, Jugel et al., VLDB 2014),
and its sum, from which the smoothed curve is made. Adding a number takes the same time however long the run is. Not
covered: where the numbers come from (curves).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

POINTS = 1000  # of a series, at most
SMOOTHED_STEPS = 10  # what the smoothed curve looks back over, at least
SMOOTHED_SHARE = 1 / 50  # ... and as a share of the run


@dataclass(slots=True)
class Sums:
    """Values of neighbouring steps. last: the newest of these steps"""

    count: int = 0
    total: float = 0.0
    last: int = 0

    def add(self, step: int, value: float) -> None:
        self.count += 1
        self.total += value
        self.last = step

    def merge(self, later: Self) -> None:
        self.count += later.count
        self.total += later.total
        self.last = later.last


B = TypeVar("B", bound=Sums)


class Buckets(Generic[B]):
    """At most `most` buckets, in the order of their steps. Steps may repeat but not go back."""

    def __init__(self, make: Callable[[], B], most: int) -> None:
        self._make, self._most = make, most
        self.width = 1  # steps a bucket covers
        self._indices: list[int] = []
        self._end = 0  # the first step after the last bucket
        self.buckets: list[B] = []

    def at(self, step: int) -> B:
        """The bucket that this step belongs to."""
        while step >= self._end or not self.buckets:
            if len(self.buckets) < self._most:
                self._indices.append(step // self.width)
                self.buckets.append(self._make())
            else:
                self._widen()
            self._end = (self._indices[-1] + 1) * self.width
        return self.buckets[-1]

    def _widen(self) -> None:
        self.width *= 2
        indices: list[int] = []
        buckets: list[B] = []
        for index, bucket in zip(self._indices, self.buckets, strict=True):
            if indices and indices[-1] == index // 2:
                buckets[-1].merge(bucket)
            else:
                indices.append(index // 2)
                buckets.append(bucket)
        self._indices, self.buckets = indices, buckets


@dataclass(slots=True)
class Extremes(Sums):
    """The same with the lowest and the highest value, each as (value, step)."""

    low: tuple[float, int] = (math.inf, 0)
    high: tuple[float, int] = (-math.inf, 0)

    def add(self, step: int, value: float) -> None:
        Sums.add(self, step, value)
        if value < self.low[0]:
            self.low = (value, step)
        if value > self.high[0]:
            self.high = (value, step)

    def merge(self, later: Self) -> None:
        Sums.merge(self, later)
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)


@dataclass(frozen=True)
class Mean:
    """The mean of some values that end at a step."""

    step: int
    value: float
    count: int


class Series:
    """One curve that grows."""

    def __init__(self, most: int = POINTS) -> None:
        """most: points at most that `points` returns; 4 or more."""
        self._buckets = Buckets(Extremes, (most - 2) // 2)
        self._first: tuple[int, float] | None = None
        self.last: tuple[int, float] | None = None

    def add(self, step: int, value: float) -> None:
        """Add a value; one that is not finite has no place on a chart and is left out."""
        if not math.isfinite(value):
            return
        self._buckets.at(step).add(step, value)
        self.last = (step, value)
        self._first = self._first or self.last

    def points(self) -> list[tuple[int, float]]:
        """(step, value): every value while there are few, then lowest and highest of each bucket, and both ends."""
        if self._first is None or self.last is None:
            return []
        kept = {self._first, self.last}
        for bucket in self._buckets.buckets:
            kept |= {(bucket.low[1], bucket.low[0]), (bucket.high[1], bucket.high[0])}
        return sorted(kept)

    def means(self) -> list[Mean]:
        """The mean of each bucket."""
        return [Mean(bucket.last, bucket.total / bucket.count, bucket.count) for bucket in self._buckets.buckets]

    def smoothed(self) -> list[tuple[int, float]]:
        """(step, exponential moving average)."""
        return smoothed(self.means())


def smoothed(means: Sequence[Mean]) -> list[tuple[int, float]]:
    """(step, exponential moving average), without the bias of its start.

    It looks back over a fiftieth of the run, at least ten steps: so it is as easy to read in a long run as in a short
    one.
    """
    if not means:
        return []
    window = max(SMOOTHED_STEPS, SMOOTHED_SHARE * (means[-1].step - means[0].step))
    curve, total, norm, before = [], 0.0, 0.0, means[0].step
    for mean in means:
        fade = math.exp((before - mean.step) / window)
        total, norm, before = fade * total + mean.count * mean.value, fade * norm + mean.count, mean.step
        curve.append((mean.step, total / norm))
    return curve


def grouped(means: Iterable[Mean], most: int) -> list[Mean]:
    """At most so many means, each of neighbours; as many as there are when there are fewer."""
    given = list(means)
    size = max(1, math.ceil(len(given) / most))
    groups = [given[start : start + size] for start in range(0, len(given), size)]
    return [
        Mean(group[-1].step, sum(one.value * one.count for one in group) / count, count)
        for group in groups
        if (count := sum(one.count for one in group))
    ]
