"""The diagnosis of runs with known and random curves: it names what happens, and every sentence is true."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.drawing import MakeClip
from tests.written_run import add_preview, write_run
from workbench.display.quantities import duration, loss_text, moment
from workbench.jobs import State, Status
from workbench.runs.analysis.curves import Curves, grouped
from workbench.runs.analysis.diagnosis import RULES, Diagnosis, diagnose
from workbench.runs.analysis.visible_effect import VisibleEffect, best_step, from_line, measure
from workbench.runs.metrics import METRICS, MetricsWriter
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import metric_facts, time_left, time_limit_fact
from workbench.workspace import Workspace

Shape = Callable[[float], float]


def curves_of(
    folder: Path,
    held_out: Shape | None,
    train: Shape = lambda share: 0.3,
    change: tuple[Shape, Shape] | None = None,
    noise: float = 0.003,
    measurements: int = 40,
    seed: int = 0,
    bands: tuple[Shape, ...] = (),
    moved: Shape | None = None,
    controls: Shape | None = None,
    rate: Shape = lambda share: 1e-4,
) -> Curves:
    """A run of 50 steps a measurement; shapes are functions of its share, 0 to 1.

    bands: of the held-out loss;  moved, controls: the previews and theirs, in levels of 255, with one that is missing
    """
    draw, writer = random.Random(seed), MetricsWriter(folder, 0)
    for number in range(measurements + 1):
        share = number / measurements
        if held_out is not None:
            by_noise = {"held_out_bands": [band(share) for band in bands]} if bands else {}
            writer.write(step=50 * number, held_out_loss=held_out(share) + draw.gauss(0, noise), **by_noise)
        if moved is not None and number:
            beside = (controls(share), None) if controls is not None else ()
            writer.write(step=50 * number, **VisibleEffect((moved(share), None), beside).line())
        if change is not None:
            writer.write(step=50 * number, change_own=change[0](share), change_others=change[1](share))
        for step in range(50 * number + 1, 50 * number + 51, 5):
            timestep = draw.randrange(1000)
            loss = train(share) * (0.5 + timestep / 1000) + draw.gauss(0, 0.01)
            writer.write(step=step, loss=loss, lr=rate(share), samples=[[timestep / 1000, loss]])
    writer.close()
    curves = Curves(folder)
    curves.refresh()
    return curves


def falling(share: float) -> float:
    return 0.2 + 0.1 * math.exp(-2 * share)


def flattening(share: float) -> float:
    return 0.2 + 0.1 * math.exp(-12 * share)


def turning(share: float) -> float:
    return flattening(share) + max(0.0, share - 0.4) * 0.08


def flat(share: float) -> float:
    return 0.3


def rising(share: float) -> float:
    return 0.3 + 0.05 * share


def growing(share: float) -> float:
    return 0.2 * share


@pytest.mark.parametrize(
    ("held_out", "train", "kind", "words"),
    [
        (falling, falling, "learning", "lower than at step 0"),
        (flattening, flattening, "leveled off", "last third"),
        (turning, falling, "over-fitting", "training loss still falls"),
        (turning, rising, "getting worse", "is rising"),
        (rising, rising, "getting worse", "is rising"),
        (flat, flat, "no effect yet", "lower than at step 0"),
    ],
)
def test_shapes_have_names(tmp_path: Path, held_out: Shape, train: Shape, kind: str, words: str) -> None:
    found = diagnose(curves_of(tmp_path, held_out, train), [500, 1000, 2000])
    assert found.kind == kind, found
    assert words in found.sentence
    assert found.advice


def test_over_fitting_begins_at_the_lowest_point_and_names_the_checkpoint_before_it(tmp_path: Path) -> None:
    found = diagnose(curves_of(tmp_path, turning, falling), [400, 800, 1200, 2000])
    since = int(found.sentence.split("step ")[1].split(":")[0])
    assert 500 <= since <= 1100
    assert found.best_step == 800
    assert "step 800" in found.advice


@pytest.mark.parametrize("held_out", [flat, flattening, falling])
@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_noise_is_never_called_rising(tmp_path: Path, held_out: Shape, noise: float) -> None:
    """At every look of a run, not only at its end."""
    alarms = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        curves = curves_of(folder, held_out, noise=noise, measurements=60, seed=seed)
        whole = curves.held_out
        for count in range(4, len(whole) + 1, 2):
            curves.held_out = dict(list(whole.items())[:count])
            alarms += [found for found in [diagnose(curves, [])] if found.kind in ("over-fitting", "getting worse")]
    assert not alarms


def test_a_loss_that_wanders_is_not_called_rising(tmp_path: Path) -> None:
    wandering = lambda share: flattening(share) + 0.01 * math.sin(30 * share)  # noqa: E731
    assert diagnose(curves_of(tmp_path, wandering, falling), []).kind in ("learning", "leveled off")


def test_no_effect_says_how_little_the_output_has_changed(tmp_path: Path) -> None:
    tiny = curves_of(tmp_path, flat, flat, (lambda share: 0.001, lambda share: 0.001))
    assert "the model's output has changed by 0.1%" in diagnose(tiny, []).sentence
    assert "learning rate" in diagnose(tiny, []).advice


def test_without_held_out_clips_the_training_loss_is_diagnosed(tmp_path: Path) -> None:
    assert diagnose(curves_of(tmp_path, None, falling), []).kind == "learning"
    for name, train, kind in (
        ("flat", flat, "no effect yet"),
        ("worse", lambda share: 0.3 + 0.3 * share, "getting worse"),
    ):
        (tmp_path / name).mkdir()
        found = diagnose(curves_of(tmp_path / name, None, train), [])
        assert found.kind == kind
    assert found.best_step is None


def test_it_waits_for_measurements_and_for_steps(tmp_path: Path) -> None:
    """Ten measurements in the first 20 steps only show the learning rate's warm-up."""
    assert diagnose(Curves(tmp_path), []).kind == "too early"
    writer = MetricsWriter(tmp_path, 0)
    for step in range(0, 21, 2):
        writer.write(step=step, held_out_loss=0.3, change_own=0.001, change_others=0.001)
    writer.close()
    curves = Curves(tmp_path)
    curves.refresh()
    assert diagnose(curves, []).kind == "too early"


@pytest.mark.parametrize(("held_out", "own"), [(1.31, 0.82), (9.0, 0.3)])
def test_a_destroyed_model_is_named_at_once_with_the_setting_that_helps(
    tmp_path: Path, held_out: float, own: float
) -> None:
    writer = MetricsWriter(tmp_path, 0)
    writer.write(step=0, held_out_loss=1.3, change_own=0.0, change_others=0.0)
    for step in (5, 10):
        writer.write(step=step, loss=held_out, lr=10.0, samples=[[0.5, held_out]])
        writer.write(step=step, held_out_loss=held_out, change_own=own, change_others=own)
    writer.close()
    curves = Curves(tmp_path)
    curves.refresh()
    found = diagnose(curves, [5, 10])
    assert (found.kind, found.tone, found.best_step) == ("destroyed", "bad", None)
    assert f"changed by {own:.0%}" in found.sentence
    assert "learning_rate=0.0001 instead of 10" in found.advice
    assert diagnose(curves, [5, 10], ended=True) == found


def test_a_fork_that_stays_as_good_as_it_began_is_not_destroyed(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path, 0)
    writer.write(step=200, held_out_loss=0.2342, change_own=0.58, change_others=0.1)
    for step in range(210, 330, 10):
        writer.write(step=step, loss=0.05, lr=1e-3, samples=[[0.5, 0.05]])
        writer.write(step=step, held_out_loss=0.2393, change_own=0.6, change_others=0.1)
    writer.close()
    curves = Curves(tmp_path)
    curves.refresh()
    found = diagnose(curves, [250, 300])
    assert found.kind != "destroyed", found


def test_prior_drift_is_a_change_of_others_however_great_its_own_is(tmp_path: Path) -> None:
    great = lambda share: 0.9 * share  # noqa: E731
    for name, own, kind in (("a", growing, "prior drift"), ("b", great, "learning")):
        (tmp_path / name).mkdir()
        found = diagnose(curves_of(tmp_path / name, falling, falling, (own, growing)), [])
        assert found.kind == kind, found


def test_a_run_that_has_ended_is_not_told_to_wait_or_to_go_on(tmp_path: Path) -> None:
    for name, shape, measurements, advice in (
        ("learning", falling, 40, "continue from its newest checkpoint with more steps"),
        ("leveled", flattening, 40, "More clips or a lower learning rate"),
    ):
        (tmp_path / name).mkdir()
        curves = curves_of(tmp_path / name, shape, falling, measurements=measurements)
        going, ended = diagnose(curves, [50]), diagnose(curves, [50], ended=True)
        assert (going.kind, going.sentence) == (ended.kind, ended.sentence)
        assert advice in ended.advice
        assert going.advice != ended.advice
        assert "Let it run" not in ended.advice


def test_a_run_that_has_ended_is_too_short_not_too_early(tmp_path: Path) -> None:
    curves = curves_of(tmp_path, falling, falling, measurements=2)
    assert diagnose(curves, []).kind == "too early"
    ended = diagnose(curves, [], ended=True)
    assert (ended.kind, ended.advice) == ("too short", "")
    assert "the run ended at step 146, but a diagnosis needs 4 measurements over 100 steps" in ended.sentence


def test_what_does_not_lower_the_loss_is_a_warning(tmp_path: Path) -> None:
    """The output and the previews change while the held-out loss stays the same."""
    curves = curves_of(tmp_path, flat, falling, (growing, lambda share: 0.01), moved=lambda share: 30 * share)
    found = diagnose(curves, [])
    assert (found.kind, found.tone) == ("not better", "warn")
    assert "changed by 20%" in found.sentence


def test_a_model_that_broke_late_keeps_its_useful_checkpoint(tmp_path: Path) -> None:
    late = lambda share: falling(share) if share < 0.8 else 5.0  # noqa: E731
    found = diagnose(curves_of(tmp_path, late, falling), [500, 1500, 2000])
    assert found.kind == "destroyed"
    assert found.advice.startswith("Use the checkpoint from step 1500, or start over with a lower learning rate")


# ---- each sentence against its numbers


RUNS = 300
# The demo's first measurements.
DEMO = {0: 0.5771, 50: 0.2761, 100: 0.2572, 150: 0.2922}


def shape(draw: random.Random) -> Any:
    """A curve over the share of a run: a fall, a turn, a wander, a step or a spike, or nothing at all."""
    start, fall, rate = draw.uniform(0.05, 1.0), draw.choice([0, 0.01, 0.1, 0.3, 0.6]), draw.choice([1, 4, 20])
    turn, climb = draw.uniform(0.2, 0.9), draw.choice([0, 0, 0, 0.1, 0.5, 5])
    wave, spike = draw.choice([0, 0, 0.02, 0.1]), draw.choice([0, 0, 0, 0.5, 3])

    def at(share: float) -> float:
        loss = start * (1 - fall * (1 - math.exp(-rate * share))) + climb * start * max(0.0, share - turn)
        return loss * (1 + wave * math.sin(25 * share)) + (spike * start if share == 1 else 0)

    return at


def random_run(folder: Path, seed: int) -> tuple[Curves, list[int], bool, TrainSettings]:
    """Curves, checkpoints, whether the run has ended, and its settings."""
    draw = random.Random(seed)
    measurements = draw.choice([0, 1, 2, 3, 4, 5, 7, 10, 15, 30, 60, 130])
    every, noise = draw.choice([5, 20, 50]), draw.choice([0, 0.002, 0.02, 0.1])
    held_out, bands = shape(draw), [shape(draw) for _ in range(5)]
    own, others = draw.choice([None, 0.001, 0.1, 0.9]), draw.choice([0.1, 0.6, 0.9])
    moved, controls = draw.choice([None, None, 3, 12, 60]), draw.choice([None, 0.3, 2, 5, 40])
    measures, banded, falls = draw.random() < 0.85, draw.random() < 0.5, draw.choice([-0.3, 0, 0.3])
    run_down, looks = draw.choice([0, 1 - 1e-5]), draw.random() < 0.3
    lines: list[dict[str, Any]] = []
    for number in range(measurements + 1):
        step, share = every * number, number / (measurements or 1)
        if measures:
            line = {"step": step, "held_out_loss": held_out(share) * math.exp(draw.gauss(0, noise))}
            lines.append(line | ({"held_out_bands": [band(share) for band in bands]} if banded else {}))
        if own is not None:
            lines.append({"step": step, "change_own": own * share, "change_others": own * others * share})
        if looks:
            lines.append({"step": step, "effect": 0.6 * (1 - math.exp(-12 * share)), "drift": 0.1 * share})
        if moved is not None and number:
            beside = (controls * share, None) if controls is not None else ()
            lines.append({"step": step, **VisibleEffect((moved * share, None), beside).line()})
        for later in range(step + 1, step + every + 1, 5) if number < measurements else ():
            loss = (0.3 - falls * 0.5 * share) * math.exp(draw.gauss(0, 0.05))
            lines.append(
                {"step": later, "loss": loss, "lr": 1e-4 * (1 - run_down * share), "samples": [[draw.random(), loss]]}
            )
    (folder / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    curves = Curves(folder)
    curves.refresh()
    saved = [step for step in range(every, every * measurements + 1, every * draw.choice([1, 3, 8]))]
    values: dict[str, Any] = {"preview_every": draw.choice([0, 100]), "method": draw.choice(["lora", "full"])}
    if draw.random() < 0.5:
        values |= {"regularization_dataset": "known", "regularization_share": draw.choice([0.3, 0.7])}
    values |= {"steps": max(every * measurements, 1), "best_point": "ask"} if looks and draw.random() < 0.8 else {}
    return curves, saved, draw.random() < 0.5, TrainSettings(dataset="cats").changed(**values)


def percent(text: str) -> float:
    return 0.0 if text == "nothing" else int(text.rstrip("%")) / 100


def check_sentence(found: Diagnosis, curves: Curves, ended: bool) -> None:
    """Check every claim of the sentence."""
    sentence, losses = found.sentence, sorted(curves.held_out.items())
    measured = len(losses) > 1
    if measured:
        (since, first), newest = losses[0], losses[-1][1]
        values = [value for _, value in losses]
        start, what = f"at step {since}", "held-out loss"
    else:
        values = [mean.value for mean in grouped(curves.detrended(), 25)]
        first, newest = (values[0], median(values[1:][-3:] or values)) if values else (0.0, 0.0)
        start, what = "over its first ", "training loss"

    assert ("held-out loss" in sentence) <= measured
    if match := re.search(r"the (\S+ loss) is (\d+)% (lower|higher) than (at step \d+|over its first )", sentence):
        assert match[1] == what
        assert match[4] == start
        assert (newest < first) == (match[3] == "lower")
        assert abs(abs(first - newest) / first - int(match[2]) / 100) <= 0.0051
    for then, now in re.findall(r"\((\S+) then, (\S+) now\)", sentence):
        assert now == loss_text(newest)
        assert then in {loss_text(value) for value in values}
        if "no lower" in sentence:
            assert newest >= first
        elif "hardly lower" in sentence:
            assert 0.99 * first <= newest < first
        elif "not clearly lower" in sentence:
            varies = re.search(r"vary by up to (\S+?)(,|\.$)", sentence)
            assert 0 < first - newest <= float(varies[1]) * 1.01
        else:
            assert "is rising" in sentence
            assert newest > float(then) - 1e-4
    check_trend(sentence, curves, first, newest)
    check_changes(sentence, curves)
    if re.search("[Tt]oo (early|short)", sentence):
        assert len(values) < 4 or max([curves.last.get("step", 0), *curves.held_out], default=0) < 105
    if "destroyed" in sentence:
        assert newest > 3 * first or newest >= 0.99 * first
        assert f"went from {loss_text(first)} {start}" in sentence
    if found.tone == "good":
        assert newest < first
    if re.search(r"no lower|rising|destroyed|drift|higher", sentence):
        assert found.tone in ("bad", "warn") or found.kind == "no effect yet"
    if ended:
        assert not re.search(r"\byet\b|so far|[Tt]oo early", sentence)


def check_trend(sentence: str, curves: Curves, first: float, newest: float) -> None:
    """Check what it says about a part of the run."""
    values, measured = list(curves.held_out.values()), len(curves.held_out) > 1
    if match := re.search(r"since step (\d+)", sentence):
        step = int(match[1])
        assert newest > (curves.held_out[step] if measured else first - 1)
        if "training loss still falls" in sentence:
            later = grouped([mean for mean in curves.detrended() if mean.step > step], 2)
            assert later[1].value < later[0].value
    if "last third" in sentence and measured and len(values) <= 100:
        third = len(values) // 3
        brought = median(values[-2 * third : -third]) - median(values[-third:])
        assert brought <= 0.1 * (first - newest) + 1e-12


def check_changes(sentence: str, curves: Curves) -> None:
    """Check what it says about noise levels, the output and the previews."""
    if match := re.search(r"\((\S+) at low noise, .*?; (\S+) at high noise", sentence):
        little, much = ([curves.held_out_bands[band].points() for band in pair] for pair in ((0, 1), (3, 4)))
        for text, points in zip(match.groups(), (little, much), strict=True):
            fell = 1 - sum(each[-1][1] for each in points) / sum(each[0][1] for each in points)
            assert abs(percent(text) - max(fell, 0)) <= 0.0051
    for text in re.findall(r"output has changed by ([\d.]+)%|its own by (\d+)%", sentence):
        own = list(curves.changes.values())[-1][0]
        assert abs(float(text[0] or text[1]) / 100 - own) <= 0.0051
    if match := re.search(r"([\d.]+) times the controls' (\d+\.\d)", sentence):
        times, control = float(match[1]), float(match[2])
        assert abs(times * control - curves.effect.change) <= 0.051 * (times + control) + 0.003


def check_advice(found: Diagnosis, curves: Curves, saved: list[int], ended: bool, settings: TrainSettings) -> None:
    """Check that the advice can be followed."""
    advice = found.advice
    for step in re.findall(r"checkpoint from step (\d+)", advice):
        assert int(step) in saved
    if "None of its checkpoints" in advice:
        assert saved
        first = curves.held_out.get(0, math.inf)
        shown = [step for step in saved if curves.held_out.get(step, math.inf) < 0.99 * first]
        assert not shown or curves.effects
    assert ("newest checkpoint" in advice) <= bool(saved)
    if "previews" in advice:
        assert curves.effects or settings.preview_every
    if settings.method == "full":
        assert "rank" not in advice
        assert "preservation weight" not in advice
        assert "base model," not in advice
    if ended:
        assert not re.search(r"[Ww]ait|Let it run|can stop|Train longer", advice)


def test_what_is_said_agrees_with_the_numbers(tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(RUNS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        curves, saved, ended, settings = random_run(folder, seed)
        found = diagnose(curves, saved, ended, settings)
        kinds[found.kind] += 1
        try:
            check_sentence(found, curves, ended)
            check_advice(found, curves, saved, ended, settings)
            assert found.best_step is None or found.best_step in saved
            known = {fact.key: fact.text for fact in metric_facts(curves, found)}
            if len(curves.held_out) > 1:
                first, *_, newest = [value for _, value in sorted(curves.held_out.items())]
                assert known["held_out_loss"] == f"{loss_text(first)} → {loss_text(newest)}"
                lowest, step = min((value, step) for step, value in curves.held_out.items())
                assert known["lowest_held_out_loss"] == f"{loss_text(lowest)} at step {step}"
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {found}") from error
    assert kinds.keys() >= {rule.kind for rule in RULES}, kinds


def test_a_loss_that_fell_by_half_is_not_called_no_lower(tmp_path: Path) -> None:
    """At step 150 of the demo, whose first fall counted as noise."""
    lines = [{"step": step, "held_out_loss": value} for step, value in DEMO.items()]
    lines += [{"step": step, "change_own": step / 300, "change_others": 0.0} for step in DEMO]
    (tmp_path / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    curves = Curves(tmp_path)
    curves.refresh()
    found = diagnose(curves, [])
    assert (found.kind, found.tone) == ("learning", "good")
    assert found.sentence == "Learning: the held-out loss is 49% lower than at step 0."


def test_the_time_left_and_the_time_limit_agree(tmp_path: Path) -> None:
    """Which of the two comes first, and near which step a limit ends the run."""
    draw = random.Random(0)
    for _ in range(200):
        total = draw.randrange(2, 5000)
        step, left, limit = draw.randrange(1, total), draw.uniform(60, 90_000), draw.randrange(60, 90_000) + 0.2
        status = Status(tmp_path, State.RUNNING, step=step, total=total, seconds_left=left)
        stops_at = time.time() + limit
        words, fact = time_left(status, stops_at), time_limit_fact(status, stops_at)
        if limit < left:
            assert words == f"about {duration(limit)} until its time limit"
            reached = re.search(r"near step ([\d,]+) of ([\d,]+)$", fact.text)
            assert step <= int(reached[1].replace(",", "")) < total == int(reached[2].replace(",", ""))
        else:
            assert words == f"about {duration(left)} left"
            assert fact.text.endswith("after its last step")
        assert moment(stops_at) in fact.text


# ---- visible effect


@pytest.mark.parametrize(
    ("own", "control", "visible", "spoiled"),
    [
        ((7.6,), (5.5,), False, False),  # measured where no sample shows the concept
        ((8.85, 5.27, 7.44), (5.49, 10.49, 6.49), False, False),  # so, too
        ((13.6,), (5.3,), True, False),  # where 42% do
        ((34.0,), (8.0,), True, False),  # where 67% do
        ((4.0,), (0.5,), False, False),  # far from the controls, but nobody sees it
        ((4.0,), (), False, False),
        ((8.0,), (), True, False),
        ((45.0,), (30.0,), True, True),
        ((90.0,), (30.0,), True, False),
        ((30.0,), (20.0,), True, False),  # another video, while the controls are the same scene still
    ],
)
def test_the_rule_agrees_with_what_samples_showed(
    own: tuple[float, ...], control: tuple[float, ...], visible: bool, spoiled: bool
) -> None:
    found = VisibleEffect(own, control)
    assert (found.visible, found.spoiled) == (visible, spoiled)


def test_a_line_of_the_metrics_holds_each_prompt_and_the_middle() -> None:
    line = VisibleEffect((12.0, None, 30.0), (4.0, 8.0)).line()
    assert line == {
        "preview_changes": [12.0, None, 30.0],
        "control_changes": [4.0, 8.0],
        "visible_effects": [2.0, None, 5.0],
        "visible_effect": 3.5,
    }
    again = from_line(line)
    assert again.words == "21.0 levels of 255, 3.5 times the controls' 6.0"
    assert VisibleEffect((12.0,)).line() == {"preview_changes": [12.0]}
    assert from_line({"preview_changes": [None]}) is from_line({}) is None


def test_controls_that_stand_still_are_no_reason_to_divide_by_nothing() -> None:
    assert VisibleEffect((12.0,), (0.0,)).effect == 12.0


def test_videos_are_compared_with_those_of_step_0_of_the_same_prompt(
    workspace: Workspace, make_clip: MakeClip, tmp_path: Path
) -> None:
    run = write_run(workspace, "cats")
    one, other = make_clip(tmp_path / "0.mp4"), make_clip(tmp_path / "1.mp4", color="blue")
    add_preview(run, 0, one, "a cat")
    add_preview(run, 0, one, "a dog", "control-0")
    assert measure(run.folder, 200) is None, "there is nothing to compare yet"
    add_preview(run, 200, other, "a cat")
    add_preview(run, 200, other, "on request", "1")
    add_preview(run, 200, one, "a dog", "control-0")
    add_preview(run, 200, other, "the settings have another prompt now", "control-1")
    line = measure(run.folder, 200)
    assert line["preview_changes"][0] > 1
    assert line["preview_changes"][1] is None
    assert line["control_changes"] == [0.0, None]
    assert line["visible_effect"] == pytest.approx(line["preview_changes"][0], abs=0.001)


# ---- the best checkpoint


SHOWS, HIDDEN, SPOILED = VisibleEffect((20.0,), (5.0,)), VisibleEffect((6.5,), (5.0,)), VisibleEffect((40.0,), (35.0,))


def test_the_best_checkpoint_has_the_lowest_held_out_loss() -> None:
    measured = {0: 0.5, 50: 0.3, 100: 0.2, 150: 0.25, 200: 0.4}
    assert best_step(measured, [50, 100, 200], {}) == 100
    assert best_step(measured, [50, 150, 200], {}) == 150
    assert best_step(measured, [125, 50], {}) == 125  # between two measurements: the value on the line
    assert best_step(measured, [250], {}) is None  # not measured yet
    assert best_step({}, [50], {}) is None
    assert best_step({0: 0.1, 50: 0.1}, [50, 0], {}) == 0


def test_one_whose_previews_show_nothing_or_that_spoiled_the_rest_is_not_the_best_beside_another() -> None:
    measured = {100: 0.1, 200: 0.2, 300: 0.15}
    assert best_step(measured, [100, 200, 300], {100: HIDDEN, 200: SHOWS, 300: SPOILED}) == 200
    assert best_step(measured, [100, 200, 300], {100: HIDDEN, 200: SHOWS, 300: SHOWS}) == 300
    assert best_step(measured, [100, 300], {100: HIDDEN, 200: SHOWS, 300: SPOILED}) == 100, "there is no other"


def test_a_checkpoint_between_two_previews_counts_with_the_nearer_ones() -> None:
    measured = {100: 0.1, 150: 0.12, 260: 0.14, 300: 0.2}
    assert best_step(measured, [150, 260], {100: HIDDEN, 300: SHOWS}) == 260


# ---- named failures


OWN: tuple[Shape, Shape] = (growing, lambda share: 0.05 * share)  # the output's change, on its own captions and others


def levels(most: float) -> Shape:
    """Previews whose change grows to this many levels of 255 in the first half of a run."""
    return lambda share: most * min(1.0, 2 * share)


def failure(folder: Path, name: str) -> Diagnosis:
    """Diagnose a run that failed in that way."""
    slow = lambda share: 0.5 - 0.02 * share  # noqa: E731
    settings = TrainSettings(dataset="cats")
    if name == "loss fell, nothing to see":
        curves = curves_of(folder, falling, falling, OWN, moved=levels(7.6), controls=levels(5.5))
    elif name == "regularization ate the batch":
        curves = curves_of(folder, flattening, falling, OWN, moved=levels(7.4), controls=levels(6.5))
        settings = settings.changed(regularization_dataset="known", regularization_share=0.7)
    elif name == "trained only at little noise":
        bands = (falling, falling, falling, slow, slow)
        curves = curves_of(folder, falling, falling, OWN, bands=bands, moved=levels(8.0), controls=levels(6.0))
        settings = settings.changed(model="wan2.1-t2v-1.3b", timestep_shift=0.3)
    elif name == "the learning rate ran down":
        rate = lambda share: 5e-5 * (1 + math.cos(math.pi * share))  # noqa: E731
        curves = curves_of(folder, flattening, falling, OWN, moved=levels(34), controls=levels(8), rate=rate)
    elif name == "spoiled the rest":  # one measurement after the first is enough
        curves = curves_of(folder, falling, falling, OWN, moved=levels(90), controls=levels(80), measurements=2)
    elif name == "destroyed":
        higher = lambda share: 0.3 + 0.1 * share  # noqa: E731
        curves = curves_of(folder, higher, falling, OWN, moved=levels(90), controls=levels(80), measurements=2)
    else:
        assert name == "repeats its clips"
        curves = curves_of(folder, turning, falling, OWN, moved=lambda share: 10 + 40 * share, controls=levels(7))
    return diagnose(curves, [100, 800, 1200, 2000], ended=True, settings=settings)


CASES = {
    "loss fell, nothing to see": ("not visible", "plain", "1.4 times the controls' 5.5", "with more steps"),
    "regularization ate the batch": ("not visible", "plain", "1.1 times", "70% of each batch"),
    "trained only at little noise": ("not visible", "plain", "4% at high noise", "A timestep_shift above 0.3"),
    "the learning rate ran down": ("leveled off", "good", "last third", "needs more steps"),
    "spoiled the rest": ("prior drift", "bad", "now show different videos", "regularization dataset"),
    "destroyed": ("destroyed", "bad", "The model is destroyed", "lower learning rate"),
    "repeats its clips": ("over-fitting", "bad", "training loss still falls", "Use the checkpoint from step"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_failure_is_named_and_comes_with_what_helps(tmp_path: Path, name: str) -> None:
    kind, tone, sentence, advice = CASES[name]
    found = failure(tmp_path, name)
    assert (found.kind, found.tone) == (kind, tone), found
    assert sentence in found.sentence
    assert advice in found.advice


def test_a_run_that_shows_its_concept_is_not_told_so(tmp_path: Path) -> None:
    """Noise levels that lag are no failure by themselves: measured where 67% of the samples showed the concept."""
    bands: tuple[Shape, ...] = (falling, falling, falling, lambda share: 0.5 - 0.05 * share, lambda share: 0.5)
    curves = curves_of(tmp_path, falling, falling, OWN, bands=bands, moved=levels(34), controls=levels(8))
    found = diagnose(curves, [2000])
    assert (found.kind, found.tone) == ("learning", "good")


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({}, "Add a regularization dataset"),
        ({"regularization_dataset": "known"}, "Set regularization_target to base model"),
        ({"regularization_dataset": "known", "regularization_target": "base model"}, "Raise the regularization_share"),
        ({"regularization_dataset": "known", "model": "tiny-phenaki"}, "Raise the regularization_share"),
    ],
)
def test_what_keeps_the_rest_is_the_next_thing_that_was_not_done(
    tmp_path: Path, values: dict[str, str], advice: str
) -> None:
    curves = curves_of(tmp_path, falling, falling, OWN, moved=levels(90), controls=levels(80), measurements=2)
    settings = TrainSettings(dataset="cats").changed(**values)
    assert advice in diagnose(curves, [100, 800], ended=True, settings=settings).advice
