"""Whether a run is learning, as a sentence, from its curves. No torch.

The rules, on the held-out loss (the detrended training loss where no clips are held out), `noise` being how much a
measurement jumps about a straight line through its neighbours (pseudo-residuals of Gasser, Sroka, Jennen-Steinmetz,
Biometrika 1986; the median makes it robust):

- destroyed: the loss is no lower, and the output on its own captions has changed by more than DESTROYED or previews of
  preservation prompts are other videos (visible_effect, "spoiled"); or the loss is BROKEN times what it was at first.
- prior drift, at once: those previews are other videos, though the loss is lower. A few measurements are enough for
  these two; the other rules wait for FEWEST measurements and FEWEST_STEPS steps, since a learning rate warms up and a
  loss jumps about.
- rising: since its lowest point (the last one as low as that, but for noise) the loss was measured RISING times or
  more, the Mann-Kendall test says "rises" (one-sided, p < 0.005), and it now stands higher by 3 noises, by 3 % and by
  twice the largest rise before that point. The last condition is what keeps a loss that merely wanders from being
  called rising: it has wandered before. While the training loss still falls that is over-fitting since the lowest
  point; otherwise the run is getting worse.
- better: the last three lie under the first by 3 noises and by 1 % of its value.
- not better: no effect yet, or a levelled-off run where the output has changed by more than SMALL_CHANGE already and
  the previews show it.
- not visible: better, but the newest previews have hardly changed, or hardly more than those of preservation prompts
  (visible_effect has the rule and the measurements behind it). The loss may fall for what a sample does not show. The
  bands alone do not tell: those of much noise fell by 9 to 16 % where 67 % of the samples showed the concept, and by 19
  to 24 % where none did. So they say why, and which setting helps, but not whether.
- levelled off: better, but the last third brought less than a twentieth of it all. Where the learning rate had run
  down by then, more steps may still help.
- prior drift: better, and the output on preservation prompts changes nearly as much (NEAR) as on its own captions.

docs/diagnosis.md has a table of failures and what is said of each. Not covered: what the figures are
(trainer.monitoring, curves), which checkpoint is the best (best_checkpoint).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.own_settings import OwnSetting
from workbench.runs.analysis.best_checkpoint import best_step
from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.series import Mean, grouped
from workbench.runs.settings import TrainSettings

Kind = Literal[
    "too early",
    "no effect yet",
    "learning",
    "levelled off",
    "not visible",
    "prior drift",
    "over-fitting",
    "getting worse",
    "destroyed",
]
MOST = 100  # measurements looked at; more are taken together
FEWEST, FEWEST_STEPS = 4, 100
RISING = 6
TREND = 2.58  # z of p < 0.005
NOISES, RISE, WANDER, GAIN = 3.0, 0.03, 2.0, 0.01
SMALL_CHANGE = 0.02
NEAR = 0.7
LAGS = 0.5  # of what the loss fell by at little noise: less of it at much noise is named
LITTLE_NOISE, MUCH_NOISE = (0, 1), (3, 4)  # bands of the held-out loss
RUN_DOWN = 0.3  # of its highest value: a learning rate below that by its schedule brings little
DESTROYED, BROKEN = 0.5, 3.0
USUAL_RATE = 1e-4  # of a LoRA
WAIT, GO_ON = "Wait for a few more measurements.", "Let it go on while the previews get better."
LITTLE_MORE = "more clips or a lower learning rate may bring a little more."
RUN_OUT = "Its learning rate has run down by its schedule, which stops any run: for more, train with more steps."
LONGER = "Train longer."
KEEP_KNOWN = "say in the captions what is new and what is not, or stop earlier."
MOSTLY_KNOWN = 0.5  # share of the regularization dataset from which it is named
# Advice for a run that goes on -> what can be done once it has ended.
ENDED = {
    WAIT: "",
    GO_ON: "If the last previews are still the best, fork its newest checkpoint with more steps.",
    f"It can be stopped; {LITTLE_MORE}": LITTLE_MORE.capitalize(),
    LONGER: "Fork its newest checkpoint with more steps.",
}


@dataclass(frozen=True)
class Diagnosis:
    """How a run goes. `advice`: what to do next; `best_step`: of the saved checkpoints, None when not known.

    failed: the run failed, so that what it says holds until then, and no longer is good news
    """

    kind: Kind
    sentence: str
    advice: str
    best_step: int | None
    failed: bool = False

    @property
    def tone(self) -> Literal["plain", "good", "bad"]:
        """Whether that is good news."""
        if self.kind in ("learning", "levelled off"):
            return "plain" if self.failed else "good"
        return "bad" if self.kind in ("prior drift", "over-fitting", "getting worse", "destroyed") else "plain"


def diagnose(
    curves: Curves, checkpoints: Sequence[int], ended: bool = False, settings: TrainSettings | None = None
) -> Diagnosis:
    """How a run goes, or went.

    ended: there is nothing to wait for any more;  settings: the run's, where the advice shall name their values
    """
    found = _diagnose(curves, checkpoints, settings)
    advice = found.advice
    for going, over in ENDED.items() if ended else ():
        advice = advice.replace(going, over)
    return replace(found, advice=advice)


def beside_failure(found: Diagnosis) -> Diagnosis | None:
    """What is still said of a run that failed: bad news as it is, the rest without its advice; None for nothing."""
    if found.tone == "bad":
        return replace(found, failed=True)
    if found.kind == "too early":
        return None
    return replace(found, sentence=f"Until it failed: {found.sentence}", advice="", failed=True)


def _diagnose(curves: Curves, checkpoints: Sequence[int], settings: TrainSettings | None) -> Diagnosis:
    best = best_step(curves.held_out, checkpoints, curves.effects)
    measured = [Mean(step, value, 1) for step, value in sorted(curves.held_out.items())]
    held_out = len(measured) > 1
    if held_out:
        points = [(mean.step, mean.value) for mean in grouped(measured, MOST)]
    else:
        points = [(mean.step, mean.value) for mean in grouped(curves.detrended(), MOST // 4)]
    what = "held-out loss" if held_out else "training loss"
    if (destroyed := _destroyed(curves, what, points)) is not None:
        return destroyed
    if (effect := curves.effect) is not None and effect.spoiled:
        back = "B" if all(one.spoiled for one in curves.effects.values()) else f"{_back(best)}, or b"
        return Diagnosis(
            "prior drift",
            "Its prior drifts: previews of prompts that it should leave alone are other videos now. Its own have "
            f"changed by {effect.words}.",
            f"{back}egin again with a lower learning rate. {_keep_known(settings)}",
            best,
        )
    if len(points) < FEWEST or points[-1][0] < FEWEST_STEPS:
        return Diagnosis("too early", "It is too early to tell.", WAIT, best)
    steps, values = [step for step, _ in points], [value for _, value in points]
    noise = noise_of(values)
    since = _rising_since(values, noise)
    if since is not None:
        return _risen(curves, what, steps[since], held_out, best)
    return _not_risen(curves, what, steps, values, noise, best, settings)


def _destroyed(curves: Curves, what: str, points: Sequence[tuple[int, float]]) -> Diagnosis | None:
    """The base model's knowledge is gone; None while it is not. The best checkpoint is none of this run's."""
    if len(points) < 2:
        return None
    (since, first), values = points[0], [value for _, value in points]
    last, (own, _) = median(values[1:][-3:]), _changes(curves)
    jumped = last > BROKEN * first and (len(curves.held_out) > 1 or len(points) >= FEWEST)
    gone = (own is not None and own > DESTROYED) or (curves.effect is not None and curves.effect.spoiled)
    if not jumped and (not gone or last < (1 - GAIN) * first):
        return None
    changed = "" if own is None else f"the model's output has changed by {own:.0%}, and "
    rate = max((rate for _, rate in curves.rates.points()), default=0.0)
    lower = min(USUAL_RATE, rate / 10) if rate else USUAL_RATE
    return Diagnosis(
        "destroyed",
        f"The model is destroyed: {changed}the {what} went from {first:.3g} at step {since} to {last:.3g}.",
        f"None of its checkpoints is of use. Begin again with a lower learning rate, learning_rate={lower:.2g}"
        + (f" instead of {rate:.2g}." if rate else "."),
        None,
    )


def _risen(curves: Curves, what: str, step: int, held_out: bool, best: int | None) -> Diagnosis:
    back = _back(best)
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


def _back(best: int | None) -> str:
    return f"Use the checkpoint of step {best}" if best is not None else "Use an earlier checkpoint"


def _not_risen(
    curves: Curves,
    what: str,
    steps: Sequence[int],
    values: Sequence[float],
    noise: float,
    best: int | None,
    settings: TrainSettings | None,
) -> Diagnosis:
    (own, others), effect = _changes(curves), curves.effect
    first, last = values[0], median(values[-3:])
    gain = first - last
    if gain <= max(NOISES * noise, GAIN * first):
        if own is not None and own > SMALL_CHANGE and (effect is None or effect.visible):
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
    percent = f"the {what} is {gain / first:.0%} lower than at step {steps[0]}{_by_noise(curves)}"
    if own is not None and others is not None and own > SMALL_CHANGE and others >= NEAR * own:
        return Diagnosis(
            "prior drift",
            f"It learns ({percent}), but its prior drifts: other prompts change by {others:.0%}, its own by {own:.0%}.",
            _keep_known(settings),
            best,
        )
    if effect is not None and not effect.visible:
        return Diagnosis(
            "not visible",
            f"Not visible yet: {percent}, but its previews differ from the base model's by {effect.words}.",
            " ".join([LONGER, *_what_helps(curves, settings)]),
            best,
        )
    third = len(values) // 3
    if third >= 3 and median(values[-2 * third : -third]) - median(values[-third:]) < max(gain / 20, noise):
        return Diagnosis(
            "levelled off",
            f"Levelled off: {percent}, but the last third of the run brought next to nothing.",
            RUN_OUT if _run_down(curves, steps[-third]) else f"It can be stopped; {LITTLE_MORE}",
            best,
        )
    return Diagnosis("learning", f"Learning: {percent}.", GO_ON, best)


def _what_helps(curves: Curves, settings: TrainSettings | None) -> Iterator[str]:
    """Beside more steps, where a concept does not show."""
    if settings is not None and settings.regularization_dataset and settings.regularization_share >= MOSTLY_KNOWN:
        share = settings.regularization_share
        yield (
            f"{share:.0%} of each batch are clips of the regularization dataset: a lower regularization_share leaves "
            "more to its own."
        )
    if _by_noise(curves):
        shift = None if settings is None else _timestep_shift(settings)
        more = "" if shift is None else f" A timestep_shift above {shift:g} trains more at much noise."
        yield f"Samples keep the base model's shapes and movement, which much noise decides.{more}"


def _keep_known(settings: TrainSettings | None) -> str:
    """What keeps the rest of the model as it was."""
    if settings is None or not settings.regularization_dataset:
        return f"Add a regularization dataset or set a preservation weight, {KEEP_KNOWN}"
    if settings.regularization_target == "clips" and "regularization_target" in _own_settings(settings):
        return f"Set regularization_target to base model, {KEEP_KNOWN}"
    return f"Raise the regularization_share or set a preservation weight, {KEEP_KNOWN}"


def _timestep_shift(settings: TrainSettings) -> float | None:
    """What the run trains with; None of a model without one."""
    if (own := _own_settings(settings).get("timestep_shift")) is not None:
        return settings.timestep_shift or own.default or 1.0
    return None


def _own_settings(settings: TrainSettings) -> Mapping[str, OwnSetting]:
    with contextlib.suppress(ConfigError):  # a model that is not known here
        family, model = find_model(settings.model)
        return family.own_settings(model)
    return {}


def _changes(curves: Curves) -> tuple[float | None, float | None]:
    """What the LoRA changes now: (own captions, preservation prompts)."""
    newest = list(curves.changes.values())[-3:]
    if not newest:
        return None, None
    return median(own for own, _ in newest), median(others for _, others in newest)


def _by_noise(curves: Curves) -> str:
    """Which noise levels lag, in words for what they decide; "" where none does, or nothing was measured by noise."""
    little, much = _fall(curves, LITTLE_NOISE), _fall(curves, MUCH_NOISE)
    if little is None or much is None or little < GAIN or much >= LAGS * little:
        return ""
    return f" ({little:.0%} at little noise, the look and details; {much:.0%} at much noise, shapes and movement)"


def _fall(curves: Curves, bands: Sequence[int]) -> float | None:
    """By which share the held-out loss of these bands of noise has fallen."""
    points = [curves.held_out_bands[band].points() for band in bands]
    if any(len(each) < 2 for each in points):
        return None
    first, last = sum(each[0][1] for each in points), sum(median(value for _, value in each[-3:]) for each in points)
    return (first - last) / first if first > 0 else None


def _run_down(curves: Curves, since: int) -> bool:
    """Whether the learning rate was low from that step on, next to what it was at most."""
    rates = curves.rates.points()
    later = [rate for step, rate in rates if step >= since]
    return bool(later) and max(later) < RUN_DOWN * max(rate for _, rate in rates)


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
