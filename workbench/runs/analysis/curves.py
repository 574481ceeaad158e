"""The curves of a run, read from metrics.jsonl in bounded memory and detrended. No torch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pydantic import ConfigDict, TypeAdapter

from workbench.errors import CannotWrite
from workbench.runs.analysis.best_point import Point, points_of
from workbench.runs.analysis.visible_effect import VisibleEffect, from_line
from workbench.runs.metrics import MetricsReader
from workbench.workspace import from_json, write_bytes

if TYPE_CHECKING:
    from workbench.runs.run import Run


# ---- series: numbers by step in bounded memory
#
# Steps are grouped into buckets of equal width, which doubles when there are too many. A bucket keeps its lowest and
# highest value, so that a spike of a single step is still visible among 100,000 steps (the min-max form of M4, Jugel et
# al., VLDB 2014), and its sum, for the smoothed curve. Adding a number takes the same time in a run of any length.

POINTS = 1000  # most points of a series
SMOOTHED_STEPS = 10  # least window of the smoothed curve
SMOOTHED_SHARE = 1 / 50  # ... and its window as a share of the run


@dataclass(slots=True)
class Sums:
    """Sums over neighboring steps; `last` is the newest of them."""

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

    def copy(self) -> Self:
        return replace(self)


B = TypeVar("B", bound=Sums)


@dataclass(kw_only=True)
class Buckets(Generic[B]):
    """At most `room` buckets, by step. Steps may repeat, but must not decrease.

    width: steps per bucket.
    indices: first step of each bucket, divided by the width.
    end: the first step after the last bucket.
    """

    width: int = 1
    end: int = 0
    indices: list[int] = field(default_factory=list)
    buckets: list[B] = field(default_factory=list)

    @property
    def room(self) -> int:
        raise NotImplementedError

    def empty(self) -> B:
        raise NotImplementedError

    def at(self, step: int) -> B:
        """Return the bucket of a step."""
        while step >= self.end:  # 0 before the first
            if len(self.buckets) < self.room:
                self.indices.append(step // self.width)
                self.buckets.append(self.empty())
            else:
                self._widen()
            self.end = (self.indices[-1] + 1) * self.width
        return self.buckets[-1]

    def _widen(self) -> None:
        self.width *= 2
        indices: list[int] = []
        buckets: list[B] = []
        for index, bucket in zip(self.indices, self.buckets, strict=True):
            if indices and indices[-1] == index // 2:
                buckets[-1] = buckets[-1].copy()
                buckets[-1].merge(bucket)
            else:
                indices.append(index // 2)
                buckets.append(bucket)
        self.indices, self.buckets = indices, buckets

    def copy(self) -> Self:
        """Return a copy that stays as it is. All buckets but the last are shared, since none of them changes."""
        return replace(
            self, indices=self.indices[:], buckets=[*self.buckets[:-1], *(one.copy() for one in self.buckets[-1:])]
        )


@dataclass(slots=True)
class Extremes(Sums):
    """Sums with the lowest and the highest value, each as (value, step)."""

    low: tuple[float, int] = (math.inf, 0)
    high: tuple[float, int] = (-math.inf, 0)

    def add(self, step: int, value: float) -> None:
        self.count += 1  # not by Sums.add: a long run adds half a million values
        self.total += value
        self.last = step
        if value < self.low[0]:
            self.low = (value, step)
        if value > self.high[0]:
            self.high = (value, step)

    def merge(self, later: Self) -> None:
        Sums.merge(self, later)
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)


@dataclass(frozen=True)
class Mean:
    """The mean of `count` values up to a step."""

    step: int
    value: float
    count: int


@dataclass
class Series(Buckets[Extremes]):
    """A growing curve of at most `most` points, 4 or more."""

    most: int = POINTS
    buckets: list[Extremes] = field(default_factory=list, kw_only=True)
    first: tuple[int, float] | None = None
    last: tuple[int, float] | None = None

    @property
    def room(self) -> int:
        return (self.most - 2) // 2

    def empty(self) -> Extremes:
        return Extremes()

    def add(self, step: int, value: float) -> None:
        """Add a value. Values that are not finite are ignored."""
        if not math.isfinite(value):
            return
        (self.buckets[-1] if step < self.end else self.at(step)).add(step, value)
        self.last = (step, value)
        self.first = self.first or self.last

    def points(self) -> list[tuple[int, float]]:
        """Return (step, value) points: all while there are few, then each bucket's extremes and both ends."""
        if self.first is None or self.last is None:
            return []
        kept = {self.first, self.last}
        for bucket in self.buckets:
            kept |= {(bucket.low[1], bucket.low[0]), (bucket.high[1], bucket.high[0])}
        return sorted(kept)

    def means(self) -> list[Mean]:
        """Return the mean of each bucket."""
        return [Mean(bucket.last, bucket.total / bucket.count, bucket.count) for bucket in self.buckets]

    def smoothed(self) -> list[tuple[int, float]]:
        """Return (step, exponential moving average)."""
        return smoothed(self.means())


def smoothed(means: Sequence[Mean]) -> list[tuple[int, float]]:
    """Return (step, exponential moving average), corrected for the bias of its start.

    The window is a fiftieth of the run, at least ten steps, so that long runs read as easily as short ones.
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
    """Merge neighboring means until at most `most` are left."""
    given = list(means)
    size = max(1, math.ceil(len(given) / most))
    groups = [given[start : start + size] for start in range(0, len(given), size)]
    return [
        Mean(group[-1].step, sum(one.value * one.count for one in group) / count, count)
        for group in groups
        if (count := sum(one.count for one in group))
    ]


# ---- detrending: the training loss without the effect of the sampled noise levels
#
# The loss depends far more on a sample's noise level than on anything the run has learned so far. Levels are sampled at
# random, so the plain curve mostly shows the sampling. The remedy is a control variate (Owen, "Monte Carlo theory,
# methods and examples", 8.9; as in CUPED, Deng et al., WSDM 2013):
#
#     detrended(step) = mean loss(step) - [mean c(levels of the step) - mean c(all levels sampled in the run)]
#
# The bracket is zero on average whatever the function c is, because levels do not depend on the step. So the curve
# estimates the same expected loss as the plain one, and the better c predicts a sample's loss from its level, the less
# the curve jumps. The best c is the typical loss at each level. It is fitted to the run itself by least squares, as
# straight lines between the KNOTS. Losses are compared only within blocks of the run (each block has its own constant,
# as in the regression of Frisch, Waugh and Lovell), so that learning from block to block is not mistaken for an effect
# of the levels. A ridge of one sample keeps the fit flat early in a run.
#
# Only sums are kept, in as many buckets as a curve has, so adding a sample takes the same time however long the run is.

# Where the lines may bend, as quantiles of noise: closer together where losses change fast.
KNOTS = (0.0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
BUCKETS = 500
BLOCKS = 20  # most blocks
BLOCK_SAMPLES = 64  # least samples per block


@dataclass(slots=True)
class KnotSums(Sums):
    """Sums over the samples of neighboring steps; `at_knots` sums their weights at the knots, 1 per sample."""

    at_knots: list[float] = field(default_factory=lambda: [0.0] * len(KNOTS))

    def merge(self, later: Self) -> None:
        Sums.merge(self, later)
        self.at_knots = [one + other for one, other in zip(self.at_knots, later.at_knots, strict=True)]

    def copy(self) -> Self:
        return replace(self, at_knots=self.at_knots[:])


@dataclass
class Detrending(Buckets[KnotSums]):
    """Takes samples one by one, and computes the detrended loss at any time.

    own, neighbor, loss: sums for least squares: of the knots' squared weights, of the products of neighboring knots'
        weights, and of weights times losses.
    """

    buckets: list[KnotSums] = field(default_factory=list)
    own: list[float] = field(default_factory=lambda: [0.0] * len(KNOTS))
    neighbor: list[float] = field(default_factory=lambda: [0.0] * (len(KNOTS) - 1))
    loss: list[float] = field(default_factory=lambda: [0.0] * len(KNOTS))

    @property
    def room(self) -> int:
        return BUCKETS

    def empty(self) -> KnotSums:
        return KnotSums()

    def copy(self) -> Self:
        sums = {name: getattr(self, name)[:] for name in ("own", "neighbor", "loss")}
        return replace(super().copy(), **sums)

    def add(self, step: int, quantile: float, loss: float) -> None:
        """Add a sample; ignore it if it is not finite."""
        if not (math.isfinite(quantile) and math.isfinite(loss)):
            return
        position = 0.0 if quantile < 0.0 else 1.0 if quantile > 1.0 else quantile
        left = bisect_right(KNOTS, position, 0, len(KNOTS) - 1) - 1
        upper = (position - KNOTS[left]) / (KNOTS[left + 1] - KNOTS[left])
        lower = 1 - upper
        sums = self.at(step)
        sums.add(step, loss)
        sums.at_knots[left] += lower
        sums.at_knots[left + 1] += upper
        self.own[left] += lower * lower
        self.own[left + 1] += upper * upper
        self.neighbor[left] += lower * upper
        self.loss[left] += lower * loss
        self.loss[left + 1] += upper * loss

    def means(self) -> list[Mean]:
        """Return the detrended loss, in loss units, as one mean per bucket of steps."""
        import numpy as np

        found = list(self.buckets)
        if not found:
            return []
        counts = np.array([sums.count for sums in found], dtype=float)
        totals = np.array([sums.total for sums in found])
        at_knots = np.array([sums.at_knots for sums in found])
        # The typical loss at each knot, up to a constant, from differences within blocks of the run.
        samples = counts.sum()
        blocks = max(1, min(BLOCKS, int(samples // BLOCK_SAMPLES)))
        starts = np.searchsorted(np.cumsum(counts), samples * np.arange(blocks) / blocks, side="right")
        size, loss, knots = (np.add.reduceat(one, np.unique(starts), axis=0) for one in (counts, totals, at_knots))
        products = np.diag(self.own) + np.diag(self.neighbor, 1) + np.diag(self.neighbor, -1)
        products -= (knots / size[:, None]).T @ knots
        typical = np.linalg.solve(products + np.eye(len(KNOTS)), np.array(self.loss) - knots.T @ (loss / size))
        values = totals / counts - (at_knots / counts[:, None] - at_knots.sum(0) / samples) @ typical
        return [Mean(sums.last, float(value), sums.count) for sums, value in zip(found, values, strict=True)]


# ---- the curves
#
# Each line of the metrics is read once, and memory does not grow with the number of steps: only measurements, which are
# few, are all kept. If a run went back to a checkpoint, its metrics are read from the start again.
#
# Reading the 25 MB of 100,000 steps takes seconds, so readers keep what they have read in a file next to the metrics.
# The next process goes on from there, if the file is whole and the metrics still begin with the bytes that were read.

NO_CURVES = "Curves appear with the first step."
BANDS = 5  # of noise, equally likely in training, lowest noise first
BAND_POINTS = 200
CHART_POINTS = 400  # for series that share a chart, which is rendered again and again during a run

SINGLE = frozenset(("held_out_outside", "sound_loss", "held_out_sound", "visible_inside", "visible_outside"))
PACE = 5  # steps whose median is the time of a step: one preview or a busy moment does not count

KEPT = ".curves.jsonl"
KEPT_VERSION = 1  # increase it with any change to what is read from a line or to the fields of Numbers
WORTH_KEEPING = 1 << 18  # bytes of metrics read since
FIRST_READING = threading.Lock()  # the second of two threads uses what the first has kept, instead of reading as slowly


def _series(points: int) -> Any:
    return field(default_factory=partial(Series, points))


def _bands() -> Any:
    return field(default_factory=lambda: [Series(BAND_POINTS) for _ in range(BANDS)])


@dataclass
class Numbers:
    """What the lines of a run's metrics say.

    losses, rates: training loss and learning rate, for plots, like all series here.
    held_out_losses, held_out_outside: held-out loss, and held-out loss outside the masks.
    sound_loss, held_out_sound: training and held-out loss of sounds that are learned along with the pictures.
    visible_inside, visible_outside: visible effect inside and outside the masks, in levels of 255.
    own_changes, other_changes: change of the output for own captions and for preservation prompts.
    points: measurements of effect and drift, from which the best point is forecast.
    bands, held_out_bands: training and held-out loss in each noise band.
    held_out, changes, effects: measurements by step: loss, (own change, other change), visible effect of the previews.
    last: the newest training line.
    seconds: of the newest PACE steps.
    fastest: the shortest time per step in seconds, as the median of PACE steps in a row; infinite before that many.
    """

    losses: Series = _series(CHART_POINTS)
    rates: Series = _series(CHART_POINTS)
    bands: list[Series] = _bands()
    detrending: Detrending = field(default_factory=Detrending)
    held_out: dict[int, float] = field(default_factory=dict)
    held_out_outside: Series = _series(BAND_POINTS)
    held_out_sound: Series = _series(BAND_POINTS)
    sound_loss: Series = _series(CHART_POINTS)
    visible_inside: Series = _series(BAND_POINTS)
    visible_outside: Series = _series(BAND_POINTS)
    changes: dict[int, tuple[float, float]] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    effects: dict[int, VisibleEffect] = field(default_factory=dict)
    held_out_losses: Series = _series(BAND_POINTS)
    own_changes: Series = _series(BAND_POINTS)
    other_changes: Series = _series(BAND_POINTS)
    held_out_bands: list[Series] = _bands()
    last: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    fastest: float = math.inf

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants")


@cache
def _numbers() -> TypeAdapter[Numbers]:
    return TypeAdapter(Numbers)


class Curves(Numbers):
    """The numbers of a run so far, read from its folder.

    name: the run's name.
    version: increases whenever anything was read.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.name, self.version = folder.name, 0
        self._reader, self._file, self._kept = MetricsReader(folder), folder / KEPT, 0

    @property
    def slowed(self) -> float:
        """How many times longer steps take now than at their fastest; 1 before there are PACE of them."""
        return median(self.seconds) / self.fastest if math.isfinite(self.fastest) else 1.0

    def refresh(self) -> None:
        """Read new lines."""
        if self._reader.restarted():
            super().__init__()
            self.version += 1
            self._kept = 0
        with FIRST_READING if not self._reader.offset else contextlib.nullcontext():
            if not self._reader.offset:
                self._go_on_from_kept()
            for line in self._reader.lines():
                self._add(line)
                self.version += 1
                if line.get("seconds"):
                    self.seconds = [*self.seconds[1 - PACE :], float(line["seconds"])]
                    if len(self.seconds) == PACE:
                        self.fastest = min(self.fastest, median(self.seconds))
            if self._reader.offset - self._kept >= WORTH_KEEPING:
                self._keep()

    def as_read(self) -> Self:
        """Return what was read so far. Reading on does not change it, so another thread may look at it meanwhile."""
        found = copy(self)
        for one in fields(Numbers):
            value = getattr(self, one.name)
            if isinstance(value, list):
                value = [each.copy() if isinstance(each, Series) else each for each in value]
            elif isinstance(value, dict | Series | Detrending):
                value = value.copy()
            setattr(found, one.name, value)
        return found

    def _keep(self) -> None:
        self._kept = self._reader.offset
        numbers = _numbers().dump_json(self)
        made = [KEPT_VERSION, hashlib.sha256(numbers).hexdigest(), self._reader.offset, self._reader.digest]
        with contextlib.suppress(CannotWrite):  # a read-only folder is read slowly
            write_bytes(self._file, json.dumps(made).encode() + b"\n" + numbers)

    def _go_on_from_kept(self) -> None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            made, numbers = self._file.read_bytes().split(b"\n", 1)
            version, whole, offset, digest = from_json(made)
            if (version, whole) != (KEPT_VERSION, hashlib.sha256(numbers).hexdigest()):
                return
            found = _numbers().validate_json(numbers)
            if self._reader.skip(offset, digest):
                vars(self).update(vars(found))
                self.version += 1
                self._kept = offset

    def _add(self, line: dict[str, Any]) -> None:
        step = line["step"]
        if "loss" in line:
            self.losses.add(step, line["loss"])
            self.last = line
            if "lr" in line:
                self.rates.add(step, line["lr"])
        for quantile, loss in line.get("samples", ()):
            if quantile is not None and loss is not None:
                self.bands[min(max(int(quantile * BANDS), 0), BANDS - 1)].add(step, loss)
                self.detrending.add(step, quantile, loss)
        if "held_out_loss" in line:
            self.held_out[step] = line["held_out_loss"]
            self.held_out_losses.add(step, line["held_out_loss"])
        if "effect" in line:
            self.points += points_of([line])
        for name in SINGLE.intersection(line):
            getattr(self, name).add(step, line[name])
        for series, loss in zip(self.held_out_bands, line.get("held_out_bands", ()), strict=False):
            if loss is not None:
                series.add(step, loss)
        if "preview_changes" in line and (effect := from_line(line)) is not None:
            self.effects[step] = effect
        if "change_own" in line and "change_others" in line:
            self.changes[step] = line["change_own"], line["change_others"]
            self.own_changes.add(step, line["change_own"])
            self.other_changes.add(step, line["change_others"])

    @property
    def smoothed(self) -> float | None:
        """The newest smoothed loss."""
        curve = self.losses.smoothed()
        return curve[-1][1] if curve else None

    def detrended(self) -> list[Mean]:
        """Return the loss without the effect of the sampled noise levels; [] for runs that did not write `samples`."""
        return self.detrending.means()

    @property
    def effect(self) -> VisibleEffect | None:
        """Visible effect of the newest previews; None before the first."""
        return list(self.effects.values())[-1] if self.effects else None

    def to_json(self) -> dict[str, list[tuple[int, float]]]:
        """Return the points (step, value) of the main curves by name, without empty curves."""
        found = {
            "learning rate": self.rates.points(),
            "loss, each step": self.losses.points(),
            "loss, smoothed": self.losses.smoothed(),
            "loss, held-out clips": self.held_out_losses.points(),
            "loss, held-out clips outside their masks": self.held_out_outside.points(),
            "loss of the sound, smoothed": self.sound_loss.smoothed(),
            "loss of the sound, held-out clips": self.held_out_sound.points(),
            "visible effect inside the masks, levels of 255": self.visible_inside.points(),
            "visible effect outside the masks, levels of 255": self.visible_outside.points(),
            "effect": [(one.step, one.effect) for one in self.points],
            "drift": [(one.step, one.drift) for one in self.points if one.drift is not None],
            "change, its own captions": self.own_changes.points(),
            "change, preservation prompts": self.other_changes.points(),
        }
        return {name: points for name, points in found.items() if points}


def curves_of(run: Run) -> Curves:
    """Read the curves of a run."""
    curves = Curves(run.folder)
    curves.refresh()
    return curves
