"""Forecast and recognize a run's best point, after which more steps add little or spoil other prompts. No torch.

While a run looks for it (the setting `best_point`), it measures two numbers on fixed noise (trainer.evaluation):

    effect    how far predictions for clips of the concept have moved from the base model's to the clips, 0 to 1
    drift     how much predictions change for clips or prompts that the LoRA should leave alone, as a share

A run's gain, its effect times what it keeps, grows like A (1 - exp(-(t / T)^k)): fast at first, then less and less.
Every such curve on a grid of T and k is weighted by how well it fits the measurements so far (A follows by least
squares), and has a step at which it reaches SATURATED of its value at the run's end. The quantiles of these steps are
the forecast and its band. The distance from the best curve estimates the noise of a measurement, which decides how
sharply the curves are weighted. docs/best_point.md has the measured limits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from workbench.runs.settings import TrainSettings
from workbench.workspace import read_object, write_json

RECORD = "best_point.json"  # in the folder of a run that was stopped at its best point

# ---- how often effect and drift are measured

PASSES = 6  # predictions per measurement: two clips at two noise levels, two of what should stay as it is
SHARE = 0.024  # of the training's predictions: 4.4% of its time, since these come one by one (docs/best_point.md)
MEASUREMENTS = 40  # most of a run, if it is long enough


def interval(settings: TrainSettings) -> int:
    """Return the steps between measurements; 0 if the run does not look for its best point.

    A training step takes as long as three predictions of each clip in it, forward and backward.
    """
    if settings.best_point == "off":
        return 0
    if settings.best_point_every:
        return settings.best_point_every
    of_step = 3 * settings.batch_size * settings.gradient_accumulation
    return max(math.ceil(PASSES / (SHARE * of_step)), settings.steps // MEASUREMENTS, 1)


HARM = 1.0  # a drift of 0.1 takes away 10% of what a run has gained, one of 0.7 half


class Point(NamedTuple):
    """A measurement. `drift` is None where there is nothing that the LoRA should leave alone."""

    step: int
    effect: float
    drift: float | None

    @property
    def gain(self) -> float:
        """Effect, times how much of everything else is kept."""
        return self.effect * math.exp(-HARM * (self.drift or 0.0))


def points_of(lines: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return the measurements among lines of metrics.jsonl."""
    return [Point(line["step"], line["effect"], line.get("drift")) for line in lines if "effect" in line]


# ---- the forecast

FIRST = 0.1  # of the run, before which nothing is said
FEWEST = 4  # measurements after step 0
LEAST_EFFECT = 0.05  # of the way from the base model's predictions to the clips: less is no effect
SATURATED = 0.9  # of what the curve will have brought at the run's end
BAND = 0.8  # of the weight lies inside the band
SETTLED = 3  # newest measurements whose median counts as the current effect
# The grid: T as a share of the run, and k.
TIMES = tuple(0.005 * 1.15**index for index in range(48))
POWERS = (0.7, 1.0, 1.5, 2.2)
TALLEST = 1.5  # height of a curve: nothing moves much further than all the way
CERTAIN = 0.65  # of the weight must say that it is saturated, before a run is stopped
ENOUGH = 12  # measurements before a run is stopped: samples go on getting better for a while after the curve is flat
CONFIRMED = 0.85  # of the value at the run's end that the newest measurements must have reached
USUAL_NOISE, EXPECTED = 0.05, 4  # of a measurement, as a share of the largest; and how many measurements that counts


@dataclass(frozen=True)
class Forecast:
    """When a run reaches, or reached, its best point.

    step, low, high: where the best point is expected, and its 80% band. Once reached, all three are that step.
    reached: whether more steps are expected to add little.
    curve: how the gain is expected to grow until the end of the band, as (step, value).
    """

    step: int
    low: int
    high: int
    reached: bool
    curve: tuple[tuple[int, float], ...] = ()

    @property
    def words(self) -> str:
        """A short form, such as "about step 640 ± 90"."""
        if self.reached:
            return f"step {self.step:,}"
        return f"about step {self.step:,} ± {max(self.high - self.step, self.step - self.low, 1):,}"

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("step", "low", "high", "reached")}


def forecast(points: Sequence[Point], settings: TrainSettings) -> Forecast | None:
    """Forecast the best point from the measurements so far. Once it was reached, it stays where it is.

    Returns None if the run does not look for it, before its first tenth, and while it has no effect.
    """
    if settings.best_point == "off":
        return None
    later, found = tuple(one for one in points if one.step > 0), None
    for count in range(FEWEST, len(later) + 1):
        found = _seen(later[:count], settings.steps)
        if found is not None and found.reached:
            break
    return found


@lru_cache(maxsize=512)  # a page asks again and again, and only the newest measurement is new
def _seen(points: tuple[Point, ...], total: int) -> Forecast | None:
    """Return the forecast from these measurements of a run of `total` steps, right after the last of them."""
    now, before = points[-1].step, points[-2].step
    if now < FIRST * total or median(one.effect for one in points[-SETTLED:]) < LEAST_EFFECT:
        return None
    values = [one.gain for one in points]
    fitted = fit([one.step for one in points], values, total)
    sure = len(points) >= ENOUGH and fitted.share_until(now) >= CERTAIN
    if sure and median(values[-SETTLED:]) >= CONFIRMED * fitted.height:
        return Forecast(now, now, now, True)
    # It is not nearer than the next measurement, nor than the last of those that it takes to be sure.
    ahead = min(now + max(ENOUGH - len(points), 1) * (now - before), total)
    low, step, high = (max(ahead, round(fitted.quantile(share))) for share in ((1 - BAND) / 2, 0.5, (1 + BAND) / 2))
    return Forecast(step, low, high, False, fitted.curve(high))


class Fit(NamedTuple):
    """Curves with their weights.

    steps: when each curve reaches SATURATED of its value at the run's end, ascending.
    weights: the curves' weights, which sum to 1.
    height: the mean value at the run's end.
    best: height, T and k of the curve with the largest weight.
    """

    steps: Sequence[float]
    weights: Sequence[float]
    height: float
    best: tuple[float, float, float]

    def quantile(self, share: float) -> float:
        """Return the step by which curves with this share of the weight are saturated."""
        total = 0.0
        for step, weight in zip(self.steps, self.weights, strict=True):
            total += weight
            if total >= share:
                return step
        return self.steps[-1]

    def share_until(self, now: int) -> float:
        """Return the weight of the curves that are saturated by now."""
        return sum(weight for step, weight in zip(self.steps, self.weights, strict=True) if step <= now)

    def curve(self, until: int) -> tuple[tuple[int, float], ...]:
        """Return 40 points of the curve with the largest weight."""
        height, scale, power = self.best
        steps = sorted({round(until * index / 40) for index in range(1, 41)})
        return tuple((step, height * (1 - math.exp(-((step / scale) ** power)))) for step in steps)


def fit(steps: Sequence[int], values: Sequence[float], total: int) -> Fit:
    """Weight every curve of the grid by how well it fits the measurements of a run of `total` steps."""
    import numpy as np

    at, seen = np.array(steps, dtype=float), np.array(values)
    scales, powers = np.meshgrid(total * np.array(TIMES), np.array(POWERS), indexing="ij")
    scales, powers = scales.ravel(), powers.ravel()
    shapes = 1 - np.exp(-((at[None] / scales[:, None]) ** powers[:, None]))
    heights = (shapes @ seen) / np.square(shapes).sum(1)
    heights = np.clip(heights, 1e-6, TALLEST)
    errors = np.square(shapes * heights[:, None] - seen).sum(1)
    usual = EXPECTED * (USUAL_NOISE * float(seen.max())) ** 2
    noise = (float(errors.min()) + usual) / (max(len(seen) - 3, 0) + EXPECTED)
    weights = np.exp(-(errors - errors.min()) / (2 * noise))
    weights /= weights.sum()
    shares = 1 - np.exp(-((total / scales) ** powers))  # of its height that a curve has reached at the run's end
    when = scales * (-np.log(1 - SATURATED * shares)) ** (1 / powers)
    order, most = np.argsort(when), int(weights.argmax())
    return Fit(
        when[order].tolist(),
        weights[order].tolist(),
        float(weights @ (heights * shares)),
        (float(heights[most]), float(scales[most]), float(powers[most])),
    )


# ---- runs that were stopped there


def record(run: Path) -> dict[str, Any]:
    """Return {"step", "stopped_at", "time"} of a run that was stopped at its best point; {} for others."""
    found = read_object(run / RECORD)
    return found if isinstance(found.get("step"), int) else {}


def write_record(run: Path, step: int, stopped_at: int) -> None:
    """Record that a run was stopped at its best point, so that it is not stopped a second time. Raises CannotWrite."""
    write_json(run / RECORD, {"step": step, "stopped_at": stopped_at, "time": time.time()})
