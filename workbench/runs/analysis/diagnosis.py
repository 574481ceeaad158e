"""Whether a run is learning, as a sentence, from its curves. No torch.

The rules, on the held-out loss (the detrended training loss where no clips are held out), `noise` being how much a
measurement jumps about a straight line through its neighbours (pseudo-residuals of Gasser, Sroka, Jennen-Steinmetz,
Biometrika 1986; the median makes it robust):

- rising: since its lowest point (the last one as low as that, but for noise) the loss was measured RISING times or
  more, the Mann-Kendall test says "rises" (one-sided, p < 0.005), and it now stands higher by 3 noises, by 3 % and by
  twice the largest rise before that point. The last condition is what keeps a loss that merely wanders from being
  called rising: it has wandered before. While the training loss still falls that is over-fitting since the lowest
  point; otherwise the run is getting worse.
- better: the last three lie under the first by 3 noises and by 1 % of its value.
- not better: no effect yet, or a levelled-off run where the output has changed by more than SMALL_CHANGE already.
- levelled off: better, but the last third brought less than a twentieth of it all.
- prior drift: better, and the output on preservation prompts changes nearly as much (NEAR) as on its own captions.

Not covered: what the figures are (evaluation, curves), which checkpoints are kept (retention).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.series import Mean, grouped

Kind = Literal["too early", "no effect yet", "learning", "levelled off", "prior drift", "over-fitting", "getting worse"]
MOST = 100  # measurements looked at; more are taken together
FEWEST = 4
RISING = 6
TREND = 2.58  # z of p < 0.005
NOISES, RISE, WANDER, GAIN = 3.0, 0.03, 2.0, 0.01
SMALL_CHANGE = 0.02
NEAR = 0.7


@dataclass(frozen=True)
class Diagnosis:
    """How a run goes. `advice`: what to do next; `best_step`: of the saved checkpoints, None when not known."""

    kind: Kind
    sentence: str
    advice: str
    best_step: int | None

    @property
    def tone(self) -> Literal["plain", "good", "bad"]:
        """Whether that is good news."""
        if self.kind in ("learning", "levelled off"):
            return "good"
        return "bad" if self.kind in ("prior drift", "over-fitting", "getting worse") else "plain"


def best_step(held_out: Mapping[int, float], checkpoints: Iterable[int]) -> int | None:
    """The checkpoint with the lowest held-out loss, the earlier one of two equal ones.

    A checkpoint between two measurements counts with the value on the line between them; one after the last
    measurement, or without any, does not count.
    """
    values = {step: value for step in checkpoints if (value := _at(held_out, step)) is not None}
    return min(values, key=lambda step: (values[step], step), default=None)


def _at(held_out: Mapping[int, float], step: int) -> float | None:
    if step in held_out:
        return held_out[step]
    before = max((each for each in held_out if each < step), default=None)
    after = min((each for each in held_out if each > step), default=None)
    if before is None or after is None:
        return None
    share = (step - before) / (after - before)
    return (1 - share) * held_out[before] + share * held_out[after]


def diagnose(curves: Curves, checkpoints: Sequence[int]) -> Diagnosis:
    """How a run goes, or went."""
    best = best_step(dict(curves.held_out), checkpoints)
    measured = [Mean(step, value, 1) for step, value in sorted(curves.held_out.items())]
    held_out = len(measured) > 1
    if held_out:
        points = [(mean.step, mean.value) for mean in grouped(measured, MOST)]
    else:
        points = [(mean.step, mean.value) for mean in grouped(curves.detrended(), MOST // 4)]
    what = "held-out loss" if held_out else "training loss"
    if len(points) < FEWEST:
        return Diagnosis("too early", "It is too early to tell.", "Wait for a few more measurements.", best)
    steps, values = [step for step, _ in points], [value for _, value in points]
    noise = noise_of(values)
    since = _rising_since(values, noise)
    if since is not None:
        return _risen(curves, what, steps[since], held_out, best)
    return _not_risen(curves, what, steps, values, noise, best)


def _risen(curves: Curves, what: str, step: int, held_out: bool, best: int | None) -> Diagnosis:
    back = f"Use the checkpoint of step {best}" if best is not None else "Use an earlier checkpoint"
    if held_out and _train_falls(curves, step):
        return Diagnosis(
            "over-fitting",
            f"Over-fitting since step {step}: the {what} rises from there, while the training loss still falls.",
            f"{back}; for a longer run, add clips, or lower the rank or the learning rate.",
            best,
        )
    return Diagnosis(
        "getting worse",
        f"Getting worse since step {step}: the {what} rises from there.",
        f"{back}, and train with a lower learning rate: a third of it is a good start.",
        best,
    )


def _not_risen(
    curves: Curves, what: str, steps: Sequence[int], values: Sequence[float], noise: float, best: int | None
) -> Diagnosis:
    own, others = _changes(curves)
    first, last = values[0], median(values[-3:])
    gain = first - last
    if gain <= max(NOISES * noise, GAIN * first):
        if own is not None and own > SMALL_CHANGE:
            return Diagnosis(
                "levelled off",
                f"The model's output has changed by {own:.0%}, but the {what} is no lower than at step {steps[0]}.",
                "Look at the previews: it may have learned the style of the clips it saw. More clips, or captions "
                "that say what they share, help.",
                best,
            )
        changed = "" if own is None else f", and the model's output has changed by {own:.1%} only"
        return Diagnosis(
            "no effect yet",
            f"No effect yet: the {what} is where it was at step {steps[0]}{changed}.",
            "Train longer; if nothing moves within some hundred steps, raise the learning rate threefold.",
            best,
        )
    percent = f"the {what} is {gain / first:.0%} lower than at step {steps[0]}"
    if own is not None and others is not None and own > SMALL_CHANGE and others >= NEAR * own:
        return Diagnosis(
            "prior drift",
            f"It learns ({percent}), but its prior drifts: other prompts change by {others:.0%}, its own by {own:.0%}.",
            "Add a regularization dataset, say in the captions what is new and what is not, or stop earlier.",
            best,
        )
    third = len(values) // 3
    if third >= 3 and median(values[-2 * third : -third]) - median(values[-third:]) < max(gain / 20, noise):
        return Diagnosis(
            "levelled off",
            f"Levelled off: {percent}, but the last third of the run brought next to nothing.",
            "It can be stopped; more clips or a lower learning rate may bring a little more.",
            best,
        )
    return Diagnosis("learning", f"Learning: {percent}.", "Let it go on while the previews get better.", best)


def _changes(curves: Curves) -> tuple[float | None, float | None]:
    """What the LoRA changes now: (own captions, preservation prompts)."""
    newest = list(curves.changes.values())[-3:]
    if not newest:
        return None, None
    return median(own for own, _ in newest), median(others for _, others in newest)


def _train_falls(curves: Curves, since: int) -> bool:
    """Whether the detrended training loss went down after that step."""
    after = [mean for mean in curves.detrended() if mean.step > since]
    halves = grouped(after, 2)
    return len(halves) == 2 and halves[1].value < halves[0].value


# ---- statistics


def noise_of(values: Sequence[float]) -> float:
    """The standard deviation of a curve's jumps about the straight lines through its neighbours; 0 for under three."""
    jumps = [
        abs(middle - (before + after) / 2)
        for before, middle, after in zip(values, values[1:], values[2:], strict=False)
    ]
    # 1.4826 makes a median of absolute values a deviation; such a jump has 3/2 of the noise's variance.
    return 1.4826 * median(jumps) / math.sqrt(1.5) if jumps else 0.0


def mann_kendall(values: Sequence[float]) -> float:
    """The z of the Mann-Kendall test for a trend, above 0 when values rise (Kendall, "Rank correlation methods")."""
    count = len(values)
    score = sum(
        (values[later] > values[earlier]) - (values[later] < values[earlier])
        for later in range(count)
        for earlier in range(later)
    )
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (score - (score > 0) + (score < 0)) / deviation if deviation else 0.0


def _rising_since(values: Sequence[float], noise: float) -> int | None:
    """Where the values began to rise for good; None when they do not."""
    level = [median(values[max(0, index - 1) : index + 2]) for index in range(len(values))]
    lowest = max(index for index, value in enumerate(level) if value <= min(level) + noise)
    after = values[lowest + 1 :]
    if len(after) < RISING or mann_kendall(after) < TREND:
        return None
    bottom, wandered = level[0], 0.0
    for value in level[: lowest + 1]:
        bottom = min(bottom, value)
        wandered = max(wandered, value - bottom)
    rise = median(after[-3:]) - level[lowest]
    return lowest if rise > max(NOISES * noise, RISE * abs(level[lowest]), WANDER * wandered) else None
