"""Say in one sentence whether a run is learning, from its curves. No torch.

The first of RULES that holds wins. Each rule has a condition on the numbers, a sentence that says what was found, and
what to do next. A sentence quotes the newest measurement, which is the one the page shows, and a rule holds only if the
median of the last three agrees with it.

The noise of a measurement is its distance from the straight line through its neighbors (pseudo-residuals of Gasser,
Sroka, Jennen-Steinmetz, Biometrika 1986; the median makes it robust). The first measurement is left out if there are
enough others: a loss falls steeply at first, and that is not noise. "Rising" takes the Mann-Kendall test (one-sided,
p < 0.005) and a rise larger than any before the lowest point, so that a wandering loss is not called rising.

The loss by noise band says why a concept does not show, and which setting helps, but not whether it shows: at high
noise it fell by 9 to 16% where 67% of the samples showed the concept, and by 19 to 24% where none did. The previews
decide (`visible_effect` has the measurements). docs/diagnosis.md has a table of failures and their diagnoses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any, Literal, NamedTuple

from workbench.display.quantities import duration, loss_text
from workbench.families import known_model
from workbench.families.base import OwnSetting
from workbench.runs.analysis.best_point import Forecast, forecast
from workbench.runs.analysis.curves import Curves, Mean, grouped
from workbench.runs.analysis.visible_effect import VisibleEffect, best_step, is_good
from workbench.runs.settings import TrainSettings

Kind = Literal[
    "too early",
    "too short",
    "unclear",
    "no effect yet",
    "not better",
    "learning",
    "leveled off",
    "not visible",
    "prior drift",
    "over-fitting",
    "getting worse",
    "destroyed",
    "best point",
]
Tone = Literal["plain", "good", "warn", "bad"]

# ---- thresholds. Without a source they are our own; tests/runs/analysis/test_diagnosis.py has the shapes of curves
# that they tell apart.

# How much must have been measured.
MOST = 100  # measurements to look at; with more, neighbors are averaged
FEWEST, FEWEST_STEPS = 4, 100  # before that, the learning rate warms up and the loss jumps
RISING = 6  # measurements after the lowest point before they can be called a rise
LAST = 3  # measurements whose median must agree with the newest one
# What counts as a change of the loss.
NOISES = 3.0  # times the noise of a measurement: three standard deviations
HIGHER_NOISES = 5.0  # above the first measurement, without a trend: rarer by chance than 3
GAIN = 0.01  # at least this share of the first loss
RISE = 0.03  # at least this share of the loss it rises from
WANDER = 2.0  # times the largest rise before the lowest point
TREND = 2.58  # z of p < 0.005, one-sided (Kendall, "Rank correlation methods")
BROKEN = 3.0  # times the first loss: the model is destroyed
# What counts as a change of the output, as a share (curves.changes).
SMALL_CHANGE = 0.02
DESTROYED = 0.5  # if the loss is no lower
NEAR = 0.7  # of the change on its own captions: other prompts change nearly as much
# Noise levels (docs/diagnosis.md, "Why the previews decide").
LOW_NOISE, HIGH_NOISE = (0, 1), (3, 4)  # bands of the held-out loss
LAGS = 0.5  # the loss at high noise lags if it fell by less than this share of its fall at low noise
# When a run has leveled off.
STILL = 0.05  # of the whole gain, in the last third; twice that if it is below the noise
RUN_DOWN = 0.3  # of its peak: a learning rate that the schedule has brought below this adds little
# Values in the advice.
USUAL_RATE = 1e-4  # for a LoRA
MOSTLY_KNOWN = 0.5  # regularization share from which the advice mentions it


class Claim(NamedTuple):
    """A kind in a few words, for a run in a list and for a LoRA whose run is over ("idle": neither good nor bad)."""

    run: str
    tone: Tone
    lora: str
    lora_tone: Literal["good", "idle", "warn", "bad"]


CLAIMS: Mapping[Kind, Claim] = {
    "too early": Claim("Too early to tell", "plain", "Too short to tell", "idle"),
    "too short": Claim("Too short to tell", "plain", "Too short to tell", "idle"),
    "unclear": Claim("Unclear", "plain", "Unclear", "idle"),
    "no effect yet": Claim("No effect", "plain", "No effect yet", "warn"),
    "not better": Claim("Not better", "warn", "Not better than the base model", "warn"),
    "learning": Claim("Learning", "good", "Still learning at the end", "idle"),
    "leveled off": Claim("Good", "good", "Good", "good"),
    "not visible": Claim("Not visible", "plain", "No visible effect", "warn"),
    "prior drift": Claim("Prior drift", "bad", "Changes other prompts too", "bad"),
    "over-fitting": Claim("Overfitting", "bad", "Overfitted", "bad"),
    "getting worse": Claim("Getting worse", "bad", "Worse at the end", "bad"),
    "best point": Claim("Best point reached", "good", "At its best point", "good"),
    "destroyed": Claim("Destroyed", "bad", "Destroyed", "bad"),
}


@dataclass(frozen=True)
class Remedy:
    """The next thing to do that a button can do.

    kind: sample a checkpoint, fork it, start a new run, or stop at the best point.
    settings: what the fork or the new run changes.
    step: the checkpoint's.
    """

    kind: Literal["sample", "fork", "new run", "stop at best"]
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None


@dataclass(frozen=True)
class Diagnosis:
    """How a run is going.

    advice: what to do next.
    best_step: step of the best saved checkpoint; None if unknown.
    failed: whether the run failed. The diagnosis describes it until then, and is not good news.
    remedy: the part of the advice that a button can do, if any.
    """

    kind: Kind
    sentence: str
    advice: str
    best_step: int | None
    failed: bool = False
    remedy: Remedy | None = field(default=None, compare=False)

    @property
    def claim(self) -> str:
        """The diagnosis in a word or two."""
        return CLAIMS[self.kind].run

    @property
    def tone(self) -> Tone:
        """Whether that is good news."""
        tone = CLAIMS[self.kind].tone
        return "plain" if self.failed and tone == "good" else tone


def diagnose(
    curves: Curves, checkpoints: Sequence[int], ended: bool = False, settings: TrainSettings | None = None
) -> Diagnosis:
    """Diagnose a run from its curves.

    checkpoints: the steps saved;  ended: whether the run is over;  settings: for values in the advice.
    """
    run = Numbers(curves, checkpoints, ended, settings)
    rule = next(rule for rule in RULES if rule.holds(run))
    sentence, *advice = rule.say(run)
    return Diagnosis(
        "too short" if ended and rule.kind == "too early" else rule.kind,
        sentence,
        " ".join([*advice, *_coming(run)]),
        run.useful if rule.kind == "destroyed" else run.best,
        remedy=REMEDIES[rule.kind](run) if rule.kind in REMEDIES else None,
    )


def beside_failure(found: Diagnosis) -> Diagnosis | None:
    """Reword the diagnosis of a failed run: bad news stays, the rest loses its advice; None if nothing is left."""
    if found.tone == "bad":
        return replace(found, failed=True)
    if found.kind in ("too early", "too short"):
        return None
    return replace(found, sentence=f"Until it failed: {found.sentence}", advice="", failed=True, remedy=None)


# ---- the numbers


class Numbers:
    """The numbers behind rules and sentences.

    what: the loss in question: the held-out loss if there is one, else the training loss.
    steps, values: its measurements.
    noise: standard deviation of a measurement.
    first, newest: the first and newest loss, as the page shows them.
    start: when `first` was measured, in words.
    level: median of the newest measurements.
    own, others: newest change of the output for the run's own captions and for preservation prompts.
    begun: `own` when the first loss was measured: 0 for a new LoRA, more for a fork.
    effect: what the newest previews show.
    forecast: where the run's best point is; None if it does not look for it, has ended, or cannot tell yet.
    """

    def __init__(self, curves: Curves, checkpoints: Sequence[int], ended: bool, settings: TrainSettings | None) -> None:
        self.curves, self.checkpoints, self.ended, self.settings = curves, checkpoints, ended, settings
        measured = [Mean(step, value, 1) for step, value in sorted(curves.held_out.items())]
        self.held_out = len(measured) > 1
        self.what = "held-out loss" if self.held_out else "training loss"
        points = grouped(measured, MOST) if self.held_out else grouped(curves.detrended(), MOST // 4)
        self.steps, self.values = [one.step for one in points], [one.value for one in points]
        self.noise = noise_of(self.values[1:] if len(self.values) >= FEWEST else self.values)
        changes = list(curves.changes.values())[-1:]
        self.own: float | None = changes[0][0] if changes else None
        self.others: float | None = changes[0][1] if changes else None
        self.begun = curves.changes.get(measured[0].step, (0.0, 0.0))[0] if measured else 0.0
        self.effect: VisibleEffect | None = curves.effect
        self.forecast: Forecast | None = None
        if settings is not None and settings.best_point != "off" and not ended:
            self.forecast = forecast(curves.points, settings)
        self.best = best_step(curves.held_out, checkpoints, curves.effects)
        if not points:
            self.first = self.newest = self.level = 0.0
            return
        self.level = median(self.values[1:][-LAST:] or self.values)
        if self.held_out:
            self.first, self.newest = measured[0].value, measured[-1].value
            self.start = f"at step {measured[0].step}"
        else:  # the loss of a single step says little
            self.first, self.newest = self.values[0], self.level
            self.start = f"over its first {self.steps[0]} steps"

    @property
    def margin(self) -> float:
        """The largest difference that does not count as a change of the loss."""
        return max(NOISES * self.noise, GAIN * abs(self.first))

    @property
    def gain(self) -> float:
        """How far the loss fell, by both the newest measurement and the median of the last three."""
        return self.first - max(self.level, self.newest)

    @property
    def rise(self) -> float:
        """How far it rose, likewise."""
        return min(self.level, self.newest) - self.first

    @property
    def few(self) -> bool:
        """Whether there are too few measurements for any other rule."""
        return len(self.values) < FEWEST or self.steps[-1] < FEWEST_STEPS

    @property
    def destroyed(self) -> bool:
        """Whether the loss is far higher, or no lower while the output has changed completely."""
        if len(self.values) < 2 or (not self.held_out and len(self.values) < FEWEST):
            return False
        least = min(self.level, self.newest)
        # Both against the run's beginning: a fork starts with a changed output and a loss that is low already.
        gone = (self.own is not None and self.own - self.begun > DESTROYED) or self.spoiled
        return least > BROKEN * self.first or (gone and least >= (1 - GAIN) * self.first)

    @property
    def higher(self) -> bool:
        """Whether the loss is clearly above the first measurement, even without a trend."""
        return len(self.values) > RISING and self.rise > max(HIGHER_NOISES * noise_of(self.values), RISE * self.first)

    @property
    def at_best_point(self) -> bool:
        """Whether the run has reached its best point, and the loss does not contradict it."""
        lower = len(self.values) < 2 or self.newest < self.first
        return self.forecast is not None and self.forecast.reached and lower

    @property
    def unchanged(self) -> bool:
        return abs(self.newest - self.first) <= self.margin

    @property
    def drifts(self) -> bool:
        """Whether preservation prompts change nearly as much as the run's own captions."""
        if self.own is None or self.others is None:
            return False
        return self.own > SMALL_CHANGE and self.others >= NEAR * self.own

    @property
    def better(self) -> bool:
        return self.gain > self.margin

    @property
    def moved(self) -> bool:
        """Whether the output has changed, visibly so if previews were compared."""
        return self.own is not None and self.own > SMALL_CHANGE and (self.effect is None or self.effect.visible)

    @property
    def spoiled(self) -> bool:
        return self.effect is not None and self.effect.spoiled

    @cached_property
    def rising_since(self) -> int | None:
        """The step from which the loss rises; None while it does not."""
        index = _rising_since(self.values, noise_of(self.values))
        if index is None:
            return None
        return self.steps[index] if self.newest > self.at(self.steps[index]) else None

    def at(self, step: int) -> float:
        """The loss at one of `steps`."""
        return self.curves.held_out[step] if self.held_out else self.values[self.steps.index(step)]

    @property
    def train_falls(self) -> bool:
        """Whether the detrended training loss fell after the held-out loss began to rise."""
        after = [mean for mean in self.curves.detrended() if mean.step > (self.rising_since or 0)]
        halves = grouped(after, 2)
        return self.held_out and len(halves) == 2 and halves[1].value < halves[0].value

    @property
    def leveled_off(self) -> bool:
        """Whether the last third of the measurements added almost nothing to the gain."""
        third = len(self.values) // 3
        if third < 3:
            return False
        brought = median(self.values[-2 * third : -third]) - median(self.values[-third:])
        return brought < max(STILL * self.gain, min(self.noise, 2 * STILL * self.gain))

    @property
    def useful(self) -> int | None:
        """Step of the best checkpoint whose loss is below the first and whose previews are good."""
        held_out = {step: value for step, value in self.curves.held_out.items() if value < (1 - GAIN) * self.first}
        whole = [step for step in self.checkpoints if step in held_out and is_good(self.curves.effects, step)]
        return min(whole, key=lambda step: held_out[step], default=None)

    @property
    def full(self) -> bool:
        """Whether base model weights are trained, which rules out methods that need the base model's predictions."""
        return self.settings is not None and (self.settings.method == "full" or bool(self.settings.train_also))

    @property
    def previews(self) -> bool:
        """Whether there are, or will be, previews to look at."""
        return bool(self.curves.effects) or self.settings is None or self.settings.preview_every > 0


# ---- what each rule says: first the sentence, then the advice


def _destroyed(run: Numbers) -> Iterator[str]:
    changed = f"its output has changed by {run.own:.0%}, and " if (run.own or 0.0) > SMALL_CHANGE else ""
    losses = f"{loss_text(run.first)} {run.start} to {loss_text(run.newest)}"
    yield f"The model is destroyed: {changed}the {run.what} went from {losses}."
    rate = max((rate for _, rate in run.curves.rates.points()), default=0.0)
    lower = min(USUAL_RATE, rate / 10) if rate else USUAL_RATE
    instead = f" instead of {rate:.2g}" if rate else ""
    if run.useful is None and run.checkpoints:
        yield "None of its checkpoints is usable."
    yield f"{_start_over(run.useful)}: learning_rate={lower:.2g}{instead}."


def _start_over(good: int | None) -> str:
    """Advise a lower learning rate, after a checkpoint that can be used instead, if any."""
    again = "start over with a lower learning rate"
    return again.capitalize() if good is None else f"Use the checkpoint from step {good}, or {again}"


def _spoiled(run: Numbers) -> Iterator[str]:
    assert run.effect is not None
    others = "previews of prompts that it should not affect now show different videos"
    yield f"Prior drift: {others}. Its own previews have changed by {run.effect.words}."
    good = run.best is not None and is_good(run.curves.effects, run.best)
    yield f"{_start_over(run.best if good else None)}."
    yield _keep_known(run)


def _at_best(run: Numbers) -> Iterator[str]:
    assert run.forecast is not None
    found = run.forecast
    yield f"Best point reached: step {found.step:,}. More steps are expected to add less than a tenth to its effect."
    if run.settings is not None and run.settings.best_point == "do":
        yield "It continues because it was started again after it had stopped there."


def _coming(run: Numbers) -> Iterator[str]:
    """Say when the best point is expected, and in how much time."""
    found, last = run.forecast, run.curves.last
    if found is None or found.reached:
        return
    seconds = (found.step - last.get("step", 0)) * float(last.get("seconds") or 0.0)
    when = f", in {duration(seconds)}" if seconds > 0 else ""
    yield f"Best point {found.words}{when}."


def _too_early(run: Numbers) -> Iterator[str]:
    if run.ended:
        step = max([run.curves.last.get("step", 0), *run.curves.held_out])
        needs = f"{FEWEST} measurements over {FEWEST_STEPS} steps"
        yield f"Too short to tell: the run ended at step {step:,}, but a diagnosis needs {needs}."
    else:
        yield "Too early to tell."
        yield _wait(run)


def _over_fitting(run: Numbers) -> Iterator[str]:
    yield f"Overfitting {_rising(run)} while the training loss still falls."
    yield f"{_back(run)}. For a longer run, add clips or lower {'' if run.full else 'the rank or '}the learning rate."


def _getting_worse(run: Numbers) -> Iterator[str]:
    if run.rising_since is None:
        yield f"Getting worse: the {run.what} is {run.newest / run.first - 1:.0%} higher than {run.start}."
    else:
        yield f"Getting worse {_rising(run)}."
        yield f"{_back(run)}."
    yield "Train with a lower learning rate; a third of this run's is a good start."


def _rising(run: Numbers) -> str:
    since = run.rising_since
    assert since is not None
    numbers = f"({loss_text(run.at(since))} then, {loss_text(run.newest)} now)"
    return f"since step {since}: the {run.what} is rising {numbers}"


def _back(run: Numbers) -> str:
    """Name the checkpoint to use instead of the newest."""
    since = run.rising_since or 0
    best = run.best if run.held_out else max((step for step in run.checkpoints if step <= since), default=None)
    return f"Train again and stop near step {since}" if best is None else f"Use the checkpoint from step {best}"


def _drifting(run: Numbers) -> Iterator[str]:
    changes = f"other prompts change by {run.others:.0%}, its own by {run.own:.0%}"
    yield f"Learning, but with prior drift: {_lower(run)}, while {changes}."
    yield _keep_known(run)


def _hidden(run: Numbers) -> Iterator[str]:
    """Advise more steps, and whatever else helps a concept to show."""
    assert run.effect is not None
    shown = f"its previews differ from the base model's by {run.effect.words}"
    yield f"Not visible{'' if run.ended else ' yet'}: {_lower(run)}, but {shown}."
    yield _more_steps(run).capitalize() if run.ended else "Train longer."
    settings = run.settings
    if settings is not None and settings.regularization_dataset and settings.regularization_share >= MOSTLY_KNOWN:
        yield (
            f"{settings.regularization_share:.0%} of each batch comes from the regularization dataset; a lower "
            "regularization_share leaves more for the new clips."
        )
    if _by_noise(run):
        shift = None if settings is None else _timestep_shift(settings)
        more = "" if shift is None else f" A timestep_shift above {shift:g} trains more at high noise."
        yield f"Samples keep the base model's shapes and movement, which high noise decides.{more}"


def _leveled_off(run: Numbers) -> Iterator[str]:
    yield f"Leveled off: {_lower(run)}, but the last third of the run added almost nothing."
    rates = run.curves.rates.points()
    later = [rate for step, rate in rates if step >= run.steps[-(len(run.steps) // 3)]]
    peak = max((rate for _, rate in rates), default=0.0)
    if later and peak and (left := max(later) / peak) < RUN_DOWN:
        yield (
            f"The learning-rate schedule kept the last third at or below {max(math.ceil(100 * left), 1)}% of its peak, "
            "so training longer needs more steps."
        )
    else:
        if not run.ended:
            yield "You can stop it."
        yield "More clips or a lower learning rate may add a little."


def _learning(run: Numbers) -> Iterator[str]:
    yield f"Learning: {_lower(run)}."
    if not run.ended:
        yield f"Let it run while the {'previews get better' if run.previews else f'{run.what} falls'}."
    else:
        yield ("If the last previews are the best, " if run.previews else "For more, ") + _more_steps(run)


def _not_better(run: Numbers) -> Iterator[str]:
    yield f"The model's output has changed by {run.own:.0%}, but {_no_lower(run)}."
    yield ("Look at the previews: it" if run.previews else "It") + " may have learned the style of its clips."
    yield "Add clips, or describe in the captions what the clips have in common."


def _no_effect(run: Numbers) -> Iterator[str]:
    hides = "previews hardly show that the" if (run.own or 0.0) > SMALL_CHANGE else "the"
    changed = "" if run.own is None else f", and {hides} model's output has changed by {run.own:.1%}"
    yield f"No effect{'' if run.ended else ' yet'}: {_no_lower(run)}{changed}."
    if run.ended:
        yield "Train again with more steps, or with three times the learning rate."
    else:
        yield "Train longer. If nothing changes within a few hundred steps, triple the learning rate."


def _unclear(run: Numbers) -> Iterator[str]:
    was = f"{loss_text(run.first)} {run.start} and is {loss_text(run.newest)} now"
    yield f"Unclear{'' if run.ended else ' so far'}: the {run.what} was {was}, with no clear trend."
    if not run.ended:
        yield _wait(run)


def _lower(run: Numbers) -> str:
    return f"the {run.what} is {(run.first - run.newest) / run.first:.0%} lower than {run.start}{_by_noise(run)}"


def _no_lower(run: Numbers) -> str:
    """Describe a loss that has not fallen, or not clearly."""
    numbers = f"({loss_text(run.first)} then, {loss_text(run.newest)} now)"
    if run.newest >= run.first:
        return f"the {run.what} is no lower than {run.start} {numbers}"
    if run.newest >= (1 - GAIN) * run.first:
        return f"the {run.what} is hardly lower than {run.start} {numbers}"
    vary = loss_text(NOISES * run.noise)
    return (
        f"the {run.what} is not clearly lower than {run.start} {numbers}, because its measurements vary by up to {vary}"
    )


def _more_steps(run: Numbers) -> str:
    return "continue from its newest checkpoint with more steps." if run.checkpoints else "train again with more steps."


def _wait(run: Numbers) -> str:
    return "Wait for a few more measurements." if run.held_out or not run.curves.last else "Wait for more steps."


class Rule(NamedTuple):
    """A kind, its condition, and what it says: a sentence, then advice."""

    kind: Kind
    holds: Callable[[Numbers], bool]
    say: Callable[[Numbers], Iterator[str]]


# The first two need only a few measurements.
RULES: tuple[Rule, ...] = (
    Rule("destroyed", lambda run: run.destroyed, _destroyed),
    Rule("prior drift", lambda run: run.spoiled, _spoiled),
    Rule("best point", lambda run: run.at_best_point, _at_best),
    Rule("too early", lambda run: run.few, _too_early),
    Rule("over-fitting", lambda run: run.rising_since is not None and run.train_falls, _over_fitting),
    Rule("getting worse", lambda run: run.rising_since is not None or run.higher, _getting_worse),
    Rule("prior drift", lambda run: run.better and run.drifts, _drifting),
    Rule("not visible", lambda run: run.better and run.effect is not None and not run.effect.visible, _hidden),
    Rule("leveled off", lambda run: run.better and run.leveled_off, _leveled_off),
    Rule("learning", lambda run: run.better, _learning),
    Rule("not better", lambda run: run.moved and run.unchanged, _not_better),
    Rule("no effect yet", lambda run: run.unchanged, _no_effect),
    Rule("unclear", lambda run: True, _unclear),
)


# ---- what a button can do about it


def _other_rate(run: Numbers, times: float) -> Remedy | None:
    """Offer a new run with another learning rate, rounded to two digits."""
    if run.settings is None:
        return None
    rate = float(f"{run.settings.learning_rate * times:.1e}")
    text = f"{rate:.1e}".replace(".0e", "e").replace("e-0", "e-")
    return Remedy("new run", f"New run with learning rate {text}", {"learning_rate": rate})


def _best_or_slower(run: Numbers, times: float = 1 / 3) -> Remedy | None:
    step = run.useful if run.destroyed else run.best
    if step is not None and is_good(run.curves.effects, step):
        return Remedy("sample", f"Sample step {step:,}", step=step)
    return _other_rate(run, times)


def _longer(run: Numbers) -> Remedy | None:
    """Offer twice as many steps from the newest checkpoint, if the run is over."""
    if not run.ended or not run.checkpoints or run.settings is None or run.settings.epochs is not None:
        return None
    steps = 2 * max(run.settings.steps, run.checkpoints[-1])
    return Remedy("fork", f"Continue to step {steps:,}", {"steps": steps}, run.checkpoints[-1])


def _preserving(run: Numbers) -> Remedy | None:
    if run.spoiled and run.best is not None:
        return _best_or_slower(run)
    if run.settings is None or run.full or run.settings.preservation_weight:
        return _other_rate(run, 1 / 3)
    return Remedy("new run", f"New run with preservation weight {PRESERVING:g}", {"preservation_weight": PRESERVING})


def _more_noise(run: Numbers) -> Remedy | None:
    """Offer more steps or, if high noise lags behind, a timestep shift that trains it more."""
    shift = None if run.settings is None or not _by_noise(run) else _timestep_shift(run.settings)
    if shift is None:
        return _longer(run)
    return Remedy("new run", f"New run with timestep shift {2 * shift:g}", {"timestep_shift": 2 * shift})


PRESERVING = 4.0  # a preservation weight that worked in docs/guide.md's comparison
REMEDIES: Mapping[Kind, Callable[[Numbers], Remedy | None]] = {
    "destroyed": lambda run: _best_or_slower(run, 1 / 10),
    "prior drift": _preserving,
    "over-fitting": _best_or_slower,
    "getting worse": _best_or_slower,
    "not visible": _more_noise,
    "leveled off": lambda run: Remedy("sample", "Sample it", step=run.best) if run.ended else None,
    "learning": _longer,
    "no effect yet": lambda run: _other_rate(run, 3) if run.ended else None,
    "too early": _longer,
    "best point": lambda run: Remedy("stop at best", "Stop here, at the best point"),
}


# ---- details of the advice


def _keep_known(run: Numbers) -> str:
    """Advise the next step against prior drift that the run has not taken."""
    settings, preserve = run.settings, "" if run.full else " or set a preservation weight"
    if settings is None or not settings.regularization_dataset:
        first = f"Add a regularization dataset{preserve}"
    elif preserve and settings.regularization_target == "clips" and "regularization_target" in _own_settings(settings):
        first = "Set regularization_target to base model"
    else:
        first = f"Raise the regularization_share{preserve}"
    return f"{first}, make the captions say what is new and what is not, or stop earlier."


def _timestep_shift(settings: TrainSettings) -> float | None:
    """Return the timestep shift in use; None if the model has none."""
    if (own := _own_settings(settings).get("timestep_shift")) is not None:
        return settings.timestep_shift or own.default or 1.0
    return None


def _own_settings(settings: TrainSettings) -> Mapping[str, OwnSetting]:
    known = known_model(settings.model)
    return known.own_settings if known else {}


def _by_noise(run: Numbers) -> str:
    """Say how the loss fell at low and at high noise, if high noise lags; else ""."""
    low, high = _fall(run.curves, LOW_NOISE), _fall(run.curves, HIGH_NOISE)
    if low is None or high is None or low < GAIN or high >= LAGS * low:
        return ""
    less = f"{high:.0%}" if high > 0 else "nothing"
    return f" ({low:.0%} at low noise, which decides look and details; {less} at high noise, shapes and movement)"


def _fall(curves: Curves, bands: Sequence[int]) -> float | None:
    """Return the share by which the held-out loss fell in these noise bands; None if too little was measured."""
    points = [curves.held_out_bands[band].points() for band in bands]
    if any(len(each) < 2 for each in points):
        return None
    first, newest = sum(each[0][1] for each in points), sum(each[-1][1] for each in points)
    return (first - newest) / first if first > 0 else None


# ---- statistics


def noise_of(values: Sequence[float]) -> float:
    """Estimate the standard deviation of a measurement from second differences; 0 for fewer than three values."""
    jumps = [
        abs(middle - (before + after) / 2)
        for before, middle, after in zip(values, values[1:], values[2:], strict=False)
    ]
    # 1.4826 turns a median of absolute values into a standard deviation; such a jump has 3/2 of the noise's variance.
    return 1.4826 * median(jumps) / math.sqrt(1.5) if jumps else 0.0


def mann_kendall(values: Sequence[float]) -> float:
    """Return z of the Mann-Kendall trend test, positive for rising values (Kendall, "Rank correlation methods")."""
    count = len(values)
    score = sum(
        (values[later] > values[earlier]) - (values[later] < values[earlier])
        for later in range(count)
        for earlier in range(later)
    )
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (score - (score > 0) + (score < 0)) / deviation if deviation else 0.0


def _rising_since(values: Sequence[float], noise: float) -> int | None:
    """Return the index from which the values rise for good; None if they do not."""
    level = [median(values[max(0, index - 1) : index + 2]) for index in range(len(values))]
    lowest = max(index for index, value in enumerate(level) if value <= min(level) + noise)
    after = values[lowest + 1 :]
    if len(after) < RISING or mann_kendall(after) < TREND:
        return None
    bottom, wandered = level[0], 0.0
    for value in level[: lowest + 1]:
        bottom = min(bottom, value)
        wandered = max(wandered, value - bottom)
    rise = median(after[-LAST:]) - level[lowest]
    return lowest if rise > max(NOISES * noise, RISE * abs(level[lowest]), WANDER * wandered) else None
