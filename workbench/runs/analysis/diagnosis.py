"""Say in one sentence whether a run is learning, from its curves. No torch.

RULES is all of it, and the first rule that holds wins: what must be true of the numbers, the sentence that says so, and
what to do next. A sentence quotes the newest measurement, which is the one that the page
shows, and a rule holds only where the median of the last three agrees with it.

The noise of a measurement is how far it lies from the straight line through its neighbors (pseudo-residuals of Gasser,
Sroka, Jennen-Steinmetz, Biometrika 1986; the median makes it robust). The first measurement does not count while there
are enough others: a loss falls steeply at first, and that is no noise. "Rising" takes the Mann-Kendall test (one-sided,
p < 0.005) and a rise larger than any before the lowest point, or a loss that merely wanders would be called rising.

The bands of noise say why a concept does not show, and which setting helps, but not whether it shows: those of much
noise fell by 9 to 16 % where 67 % of the samples showed the concept, and by 19 to 24 % where none did. The previews
decide (visible_effect has the measurements). docs/diagnosis.md has a table of failures and what is said of each.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any, Literal, NamedTuple

from workbench.display.quantities import loss_text
from workbench.errors import ConfigError
from workbench.families.base import OwnSetting
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
    "levelled off",
    "not visible",
    "prior drift",
    "over-fitting",
    "getting worse",
    "destroyed",
]
Tone = Literal["plain", "good", "warn", "bad"]

# ---- thresholds. Where no source is named they are ours: tests/runs/analysis/test_diagnosis.py holds the shapes of
# curves that they tell apart.

# How much must have been measured.
MOST = 100  # measurements looked at; more are taken together
FEWEST, FEWEST_STEPS = 4, 100  # a learning rate warms up, and a loss jumps about
RISING = 6  # measurements after the lowest point, before they are called a rise
LAST = 3  # whose median must agree with the newest one
# What is a change of the loss.
NOISES = 3.0  # times the noise of a measurement: three standard deviations
HIGHER_NOISES = 5.0  # above the first measurement, without a trend: rarer by chance than 3
GAIN = 0.01  # of the first loss, at least
RISE = 0.03  # of the loss it rises from, at least
WANDER = 2.0  # times the largest rise before the lowest point
TREND = 2.58  # z of p < 0.005, one-sided (Kendall, "Rank correlation methods")
BROKEN = 3.0  # times the first loss: the model is destroyed
# What is a change of the output, as a share (curves.changes).
SMALL_CHANGE = 0.02
DESTROYED = 0.5  # and the loss no lower
NEAR = 0.7  # of the change on its own captions: other prompts change nearly as much
# Levels of noise (docs/diagnosis.md, "Why the previews decide").
LITTLE_NOISE, MUCH_NOISE = (0, 1), (3, 4)  # bands of the held-out loss
LAGS = 0.5  # of what the loss fell by at little noise: less of it at much noise is named
# When a run has leveled off.
STILL = 0.05  # of the whole gain, in the last third; twice that where it is less than the noise
RUN_DOWN = 0.3  # of its highest value: a learning rate below that by its schedule brings little
# What the advice names.
USUAL_RATE = 1e-4  # of a LoRA
MOSTLY_KNOWN = 0.5  # share of the regularization dataset from which it is named


class Claim(NamedTuple):
    """A kind in a few words: of a run in a list, and of a LoRA whose run is over ("idle" is neither good nor bad)."""

    run: str
    tone: Tone
    lora: str
    lora_tone: Literal["good", "idle", "warn", "bad"]


CLAIMS: Mapping[Kind, Claim] = {
    "too early": Claim("Too early to tell", "plain", "Too short to tell", "idle"),
    "too short": Claim("Too short to tell", "plain", "Too short to tell", "idle"),
    "unclear": Claim("Not clear", "plain", "Unclear", "idle"),
    "no effect yet": Claim("No effect", "plain", "No effect yet", "warn"),
    "not better": Claim("Not better", "warn", "Not better than the base model", "warn"),
    "learning": Claim("Learning", "good", "Still learning at its end", "idle"),
    "levelled off": Claim("Good", "good", "Good", "good"),
    "not visible": Claim("Not visible", "plain", "No visible effect", "warn"),
    "prior drift": Claim("Prior drifts", "bad", "Changes other prompts too", "bad"),
    "over-fitting": Claim("Over-fitting", "bad", "Over-fitted", "bad"),
    "getting worse": Claim("Getting worse", "bad", "Worse at its end", "bad"),
    "destroyed": Claim("Destroyed", "bad", "Destroyed", "bad"),
}


@dataclass(frozen=True)
class Remedy:
    """The one thing to do next, as far as a program can do it.

    kind: sample a checkpoint, fork it, or begin a new run;  settings: what the fork or the new run changes
    step: of the checkpoint
    """

    kind: Literal["sample", "fork", "new run"]
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None


@dataclass(frozen=True)
class Diagnosis:
    """How a run goes. `advice`: what to do next; `best_step`: of the saved checkpoints, None when not known.

    failed: the run failed, so that what it says holds until then, and no longer is good news
    remedy: the part of the advice that a button can do; None where there is none
    """

    kind: Kind
    sentence: str
    advice: str
    best_step: int | None
    failed: bool = False
    remedy: Remedy | None = field(default=None, compare=False)

    @property
    def claim(self) -> str:
        """It in a word or two."""
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

    Args:
        curves: Those of the run, read.
        checkpoints: Steps of the saved checkpoints.
        ended: Whether there is nothing to wait for any more.
        settings: The run's, so that the advice can name their values.
    """
    of = Numbers(curves, checkpoints, ended, settings)
    rule = next(rule for rule in RULES if rule.holds(of))
    sentence, *advice = rule.say(of)
    return Diagnosis(
        "too short" if ended and rule.kind == "too early" else rule.kind,
        sentence,
        " ".join(advice),
        of.useful if rule.kind == "destroyed" else of.best,
        remedy=REMEDIES[rule.kind](of) if rule.kind in REMEDIES else None,
    )


def beside_failure(found: Diagnosis) -> Diagnosis | None:
    """What is still said of a run that failed: bad news as it is, the rest without its advice; None for nothing."""
    if found.tone == "bad":
        return replace(found, failed=True)
    if found.kind in ("too early", "too short"):
        return None
    return replace(found, sentence=f"Until it failed: {found.sentence}", advice="", failed=True, remedy=None)


# ---- the numbers


class Numbers:
    """The numbers that rules and sentences look at.

    what: the loss they speak of, that of held-out clips where there are any
    values, steps: its measurements;  first, newest: the ends of it, as the page shows them;  start: when first was
    noise: of a measurement;  own, others: the newest change of the output on own captions and preservation prompts
    effect: what the newest previews show
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
        self.effect: VisibleEffect | None = curves.effect
        self.best = best_step(curves.held_out, checkpoints, curves.effects)
        if not points:
            self.first = self.newest = self.level = 0.0
            return
        self.level = median(self.values[1:][-LAST:] or self.values)
        if self.held_out:
            self.first, self.newest = measured[0].value, measured[-1].value
            self.start = f"at step {measured[0].step}"
        else:  # one step's loss says little
            self.first, self.newest = self.values[0], self.level
            self.start = f"over its first {self.steps[0]} steps"

    @property
    def margin(self) -> float:
        """What the loss differs by without having changed."""
        return max(NOISES * self.noise, GAIN * abs(self.first))

    @property
    def gain(self) -> float:
        """What the loss fell by, by the newest measurement and by the median of the last three."""
        return self.first - max(self.level, self.newest)

    @property
    def rise(self) -> float:
        """What it rose by, likewise."""
        return min(self.level, self.newest) - self.first

    @property
    def few(self) -> bool:
        """Whether too little was measured to tell anything else."""
        return len(self.values) < FEWEST or self.steps[-1] < FEWEST_STEPS

    @property
    def destroyed(self) -> bool:
        """Whether the loss, by newest and level, is far higher, or no lower while the output has become another."""
        if len(self.values) < 2 or (not self.held_out and len(self.values) < FEWEST):
            return False
        least = min(self.level, self.newest)
        gone = (self.own is not None and self.own > DESTROYED) or self.spoiled
        return least > BROKEN * self.first or (gone and least >= (1 - GAIN) * self.first)

    @property
    def higher(self) -> bool:
        """Whether the loss stands clearly above the first measurement, without a trend."""
        return len(self.values) > RISING and self.rise > max(HIGHER_NOISES * noise_of(self.values), RISE * self.first)

    @property
    def unchanged(self) -> bool:
        return abs(self.newest - self.first) <= self.margin

    @property
    def drifts(self) -> bool:
        """Whether prompts that it should leave alone change nearly as much as its own captions."""
        if self.own is None or self.others is None:
            return False
        return self.own > SMALL_CHANGE and self.others >= NEAR * self.own

    @property
    def better(self) -> bool:
        return self.gain > self.margin

    @property
    def moved(self) -> bool:
        """Whether the output has changed, and the previews, where they were compared, show it."""
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
        """Whether the detrended training loss went down after the held-out loss began to rise."""
        after = [mean for mean in self.curves.detrended() if mean.step > (self.rising_since or 0)]
        halves = grouped(after, 2)
        return self.held_out and len(halves) == 2 and halves[1].value < halves[0].value

    @property
    def leveled_off(self) -> bool:
        """Whether the last third of the measurements brought next to nothing of the gain."""
        third = len(self.values) // 3
        if third < 3:
            return False
        brought = median(self.values[-2 * third : -third]) - median(self.values[-third:])
        return brought < max(STILL * self.gain, min(self.noise, 2 * STILL * self.gain))

    @property
    def useful(self) -> int | None:
        """The best checkpoint, where its loss is below the first and its previews are good."""
        held_out = {step: value for step, value in self.curves.held_out.items() if value < (1 - GAIN) * self.first}
        whole = [step for step in self.checkpoints if step in held_out and is_good(self.curves.effects, step)]
        return min(whole, key=lambda step: held_out[step], default=None)

    @property
    def full(self) -> bool:
        """Whether weights of the base model are trained, which excludes what needs its predictions."""
        return self.settings is not None and (self.settings.method == "full" or bool(self.settings.train_also))

    @property
    def previews(self) -> bool:
        """Whether there are previews to look at, or will be."""
        return bool(self.curves.effects) or self.settings is None or self.settings.preview_every > 0


# ---- the rules: what must be true of the numbers, the sentence that says so, and what to do next


def _destroyed(of: Numbers) -> Iterator[str]:
    changed = f"its output has changed by {of.own:.0%}, and " if (of.own or 0.0) > SMALL_CHANGE else ""
    losses = f"{loss_text(of.first)} {of.start} to {loss_text(of.newest)}"
    yield f"The model is destroyed: {changed}the {of.what} went from {losses}."
    rate = max((rate for _, rate in of.curves.rates.points()), default=0.0)
    lower = min(USUAL_RATE, rate / 10) if rate else USUAL_RATE
    instead = f" instead of {rate:.2g}" if rate else ""
    again = f"egin again with a lower learning rate, learning_rate={lower:.2g}{instead}."
    if of.useful is None and of.checkpoints:
        yield "None of its checkpoints is of use."
    yield f"B{again}" if of.useful is None else f"Use the checkpoint of step {of.useful}, or b{again}"


def _spoiled(of: Numbers) -> Iterator[str]:
    assert of.effect is not None
    others = "previews of prompts that it should leave alone are other videos now"
    yield f"Its prior drifts: {others}. Its own have changed by {of.effect.words}."
    good = of.best is not None and is_good(of.curves.effects, of.best)
    yield (f"Use the checkpoint of step {of.best}, or b" if good else "B") + "egin again with a lower learning rate."
    yield _keep_known(of)


def _too_early(of: Numbers) -> Iterator[str]:
    if of.ended:
        step = max([of.curves.last.get("step", 0), *of.curves.held_out])
        needs = f"{FEWEST} measurements over {FEWEST_STEPS} steps"
        yield f"Too short to tell: it ended at step {step:,}, and a diagnosis takes {needs}."
    else:
        yield "It is too early to tell."
        yield _wait(of)


def _over_fitting(of: Numbers) -> Iterator[str]:
    yield f"Over-fitting {_rises(of)}, while the training loss still falls."
    yield f"{_back(of)}; for a longer run, add clips, or lower {'' if of.full else 'the rank or '}the learning rate."


def _getting_worse(of: Numbers) -> Iterator[str]:
    lower = "rain with a lower learning rate: a third of it is a good start."
    if of.rising_since is None:
        yield f"Getting worse: the {of.what} is {of.newest / of.first - 1:.0%} higher than {of.start}."
        yield f"T{lower}"
    else:
        yield f"Getting worse {_rises(of)}."
        yield f"{_back(of)}, and t{lower}"


def _rises(of: Numbers) -> str:
    since = of.rising_since
    assert since is not None
    numbers = f"({loss_text(of.at(since))} then, {loss_text(of.newest)} now)"
    return f"since step {since}: the {of.what} rises from there {numbers}"


def _back(of: Numbers) -> str:
    """Which checkpoint to take instead of the newest."""
    since = of.rising_since or 0
    best = of.best if of.held_out else max((step for step in of.checkpoints if step <= since), default=None)
    return f"Train again and stop near step {since}" if best is None else f"Use the checkpoint of step {best}"


def _drifting(of: Numbers) -> Iterator[str]:
    changes = f"other prompts change by {of.others:.0%}, its own by {of.own:.0%}"
    yield f"It learns ({_lower(of)}), but its prior drifts: {changes}."
    yield _keep_known(of)


def _hidden(of: Numbers) -> Iterator[str]:
    """More steps, and what else helps where a concept does not show."""
    assert of.effect is not None
    shown = f"its previews differ from the base model's by {of.effect.words}"
    yield f"Not visible{'' if of.ended else ' yet'}: {_lower(of)}, but {shown}."
    yield _more_steps(of).capitalize() if of.ended else "Train longer."
    settings = of.settings
    if settings is not None and settings.regularization_dataset and settings.regularization_share >= MOSTLY_KNOWN:
        yield (
            f"{settings.regularization_share:.0%} of each batch are clips of the regularization dataset: a lower "
            "regularization_share leaves more to its own."
        )
    if _by_noise(of):
        shift = None if settings is None else _timestep_shift(settings)
        more = "" if shift is None else f" A timestep_shift above {shift:g} trains more at much noise."
        yield f"Samples keep the base model's shapes and movement, which much noise decides.{more}"


def _leveled_off(of: Numbers) -> Iterator[str]:
    yield f"Leveled off: {_lower(of)}, but the last third of the run brought next to nothing."
    # The highest learning rate of the last third, as a share of the highest of all.
    rates = of.curves.rates.points()
    later = [rate for step, rate in rates if step >= of.steps[-(len(of.steps) // 3)]]
    highest = max((rate for _, rate in rates), default=0.0)
    if later and highest and (left := max(later) / highest) < RUN_DOWN:
        yield (
            f"The learning-rate schedule held the last third to {max(math.ceil(100 * left), 1)}% of its peak or less: "
            "to train longer, train with more steps."
        )
    else:
        little = "ore clips or a lower learning rate may bring a little more."
        yield f"M{little}" if of.ended else f"It can be stopped; m{little}"


def _learning(of: Numbers) -> Iterator[str]:
    yield f"Learning: {_lower(of)}."
    if not of.ended:
        yield f"Let it go on while the {'previews get better' if of.previews else f'{of.what} falls'}."
    else:
        yield ("If the last previews are still the best, " if of.previews else "For more, ") + _more_steps(of)


def _not_better(of: Numbers) -> Iterator[str]:
    yield f"The model's output has changed by {of.own:.0%}, but {_no_lower(of)}."
    yield ("Look at the previews: it" if of.previews else "It") + " may have learned the style of the clips it saw."
    yield "More clips, or captions that say what they share, help."


def _no_effect(of: Numbers) -> Iterator[str]:
    hides = "previews hardly show that the" if (of.own or 0.0) > SMALL_CHANGE else "the"
    changed = "" if of.own is None else f", and {hides} model's output has changed by {of.own:.1%}"
    yield f"No effect{'' if of.ended else ' yet'}: {_no_lower(of)}{changed}."
    if of.ended:
        yield "Train again with more steps, or with three times the learning rate."
    else:
        yield "Train longer; if nothing moves within a few hundred steps, raise the learning rate threefold."


def _unclear(of: Numbers) -> Iterator[str]:
    yet = "" if of.ended else " yet"
    was = f"{loss_text(of.first)} {of.start} and is {loss_text(of.newest)} now"
    yield f"Not clear{yet}: the {of.what} was {was}, without a clear trend."
    if not of.ended:
        yield _wait(of)


def _lower(of: Numbers) -> str:
    return f"the {of.what} is {(of.first - of.newest) / of.first:.0%} lower than {of.start}{_by_noise(of)}"


def _no_lower(of: Numbers) -> str:
    """How the loss stands where it has not fallen, or not clearly."""
    numbers = f"({loss_text(of.first)} then, {loss_text(of.newest)} now)"
    if of.newest >= of.first:
        return f"the {of.what} is no lower than {of.start} {numbers}"
    if of.newest >= (1 - GAIN) * of.first:
        return f"the {of.what} is hardly lower than {of.start} {numbers}"
    vary = loss_text(NOISES * of.noise)
    return (
        f"the {of.what} is not clearly lower than {of.start} {numbers}, because its measurements vary by up to {vary}"
    )


def _more_steps(of: Numbers) -> str:
    return "fork its newest checkpoint with more steps." if of.checkpoints else "train again with more steps."


def _wait(of: Numbers) -> str:
    return "Wait for a few more measurements." if of.held_out or not of.curves.last else "Wait for more steps."


class Rule(NamedTuple):
    """One finding: its kind, what holds of the numbers, the sentence that says so, and then what to do next."""

    kind: Kind
    holds: Callable[[Numbers], bool]
    say: Callable[[Numbers], Iterator[str]]


# A few measurements are enough for the first two.
RULES: tuple[Rule, ...] = (
    Rule("destroyed", lambda of: of.destroyed, _destroyed),
    Rule("prior drift", lambda of: of.spoiled, _spoiled),
    Rule("too early", lambda of: of.few, _too_early),
    Rule("over-fitting", lambda of: of.rising_since is not None and of.train_falls, _over_fitting),
    Rule("getting worse", lambda of: of.rising_since is not None or of.higher, _getting_worse),
    Rule("prior drift", lambda of: of.better and of.drifts, _drifting),
    Rule("not visible", lambda of: of.better and of.effect is not None and not of.effect.visible, _hidden),
    Rule("levelled off", lambda of: of.better and of.leveled_off, _leveled_off),
    Rule("learning", lambda of: of.better, _learning),
    Rule("not better", lambda of: of.moved and of.unchanged, _not_better),
    Rule("no effect yet", lambda of: of.unchanged, _no_effect),
    Rule("unclear", lambda of: True, _unclear),
)


# ---- what a button does about it


def _other_rate(of: Numbers, times: float) -> Remedy | None:
    """A new run with another learning rate, in two digits."""
    if of.settings is None:
        return None
    rate = float(f"{of.settings.learning_rate * times:.1e}")
    text = f"{rate:.1e}".replace(".0e", "e").replace("e-0", "e-")
    return Remedy("new run", f"Use learning rate {text} in a new run", {"learning_rate": rate})


def _best_or_slower(of: Numbers, times: float = 1 / 3) -> Remedy | None:
    step = of.useful if of.destroyed else of.best
    if step is not None and is_good(of.curves.effects, step):
        return Remedy("sample", f"Sample step {step:,}", step=step)
    return _other_rate(of, times)


def _longer(of: Numbers) -> Remedy | None:
    """Twice as many steps, from the newest checkpoint; of a run that is over."""
    if not of.ended or not of.checkpoints or of.settings is None or of.settings.epochs is not None:
        return None
    steps = 2 * max(of.settings.steps, of.checkpoints[-1])
    return Remedy("fork", f"Continue to step {steps:,}", {"steps": steps}, of.checkpoints[-1])


def _preserving(of: Numbers) -> Remedy | None:
    if of.spoiled and of.best is not None:
        return _best_or_slower(of)
    if of.settings is None or of.full or of.settings.preservation_weight:
        return _other_rate(of, 1 / 3)
    return Remedy("new run", "Preserve what it knew in a new run", {"preservation_weight": PRESERVING})


def _more_noise(of: Numbers) -> Remedy | None:
    """More steps; or, where much noise lags behind, a timestep shift that trains there more."""
    shift = None if of.settings is None or not _by_noise(of) else _timestep_shift(of.settings)
    if shift is None:
        return _longer(of)
    return Remedy("new run", "Weigh high noise double in a new run", {"timestep_shift": 2 * shift})


PRESERVING = 4.0  # a preservation weight that held in docs/guide.md's comparison
REMEDIES: Mapping[Kind, Callable[[Numbers], Remedy | None]] = {
    "destroyed": lambda of: _best_or_slower(of, 1 / 10),
    "prior drift": _preserving,
    "over-fitting": _best_or_slower,
    "getting worse": _best_or_slower,
    "not visible": _more_noise,
    "levelled off": lambda of: Remedy("sample", "Sample it", step=of.best) if of.ended else None,
    "learning": _longer,
    "no effect yet": lambda of: _other_rate(of, 3) if of.ended else None,
    "too early": _longer,
}


# ---- what the advice names


def _keep_known(of: Numbers) -> str:
    """What keeps the rest of the model as it was: the next thing that was not done."""
    settings, preserve = of.settings, "" if of.full else " or set a preservation weight"
    if settings is None or not settings.regularization_dataset:
        first = f"Add a regularization dataset{preserve}"
    elif preserve and settings.regularization_target == "clips" and "regularization_target" in _own_settings(settings):
        first = "Set regularization_target to base model"
    else:
        first = f"Raise the regularization_share{preserve}"
    return f"{first}, say in the captions what is new and what is not, or stop earlier."


def _timestep_shift(settings: TrainSettings) -> float | None:
    """What the run trains with; None of a model without one."""
    if (own := _own_settings(settings).get("timestep_shift")) is not None:
        return settings.timestep_shift or own.default or 1.0
    return None


def _own_settings(settings: TrainSettings) -> Mapping[str, OwnSetting]:
    with contextlib.suppress(ConfigError):  # a model that is not known here
        return settings.resolved.own_settings
    return {}


def _by_noise(of: Numbers) -> str:
    """Which noise levels lag, in words for what they decide; "" where none does, or nothing was measured by noise."""
    little, much = _fall(of.curves, LITTLE_NOISE), _fall(of.curves, MUCH_NOISE)
    if little is None or much is None or little < GAIN or much >= LAGS * little:
        return ""
    less = f"{much:.0%}" if much > 0 else "nothing"
    return f" ({little:.0%} at little noise, the look and details; {less} at much noise, shapes and movement)"


def _fall(curves: Curves, bands: Sequence[int]) -> float | None:
    """By which share the held-out loss of these bands of noise has fallen."""
    points = [curves.held_out_bands[band].points() for band in bands]
    if any(len(each) < 2 for each in points):
        return None
    first, newest = sum(each[0][1] for each in points), sum(each[-1][1] for each in points)
    return (first - newest) / first if first > 0 else None


# ---- statistics


def noise_of(values: Sequence[float]) -> float:
    """The standard deviation of a curve's jumps about the straight lines through its neighbors; 0 for under three."""
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
    rise = median(after[-LAST:]) - level[lowest]
    return lowest if rise > max(NOISES * noise, RISE * abs(level[lowest]), WANDER * wandered) else None
