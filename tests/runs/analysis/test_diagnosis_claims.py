"""Every sentence about a run, on random curves, against the numbers it speaks of."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from workbench.display.quantities import duration, loss_text, moment
from workbench.jobs import State, Status
from workbench.runs.analysis.curves import Curves, grouped
from workbench.runs.analysis.diagnosis import RULES, Diagnosis, diagnose
from workbench.runs.analysis.visible_effect import VisibleEffect
from workbench.runs.metrics import METRICS
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import metric_facts, time_left, time_limit_fact

RUNS = 300
# What the numbers of the demo were, at its first measurements.
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
    run_down = draw.choice([0, 1 - 1e-5])
    lines: list[dict[str, Any]] = []
    for number in range(measurements + 1):
        step, share = every * number, number / (measurements or 1)
        if measures:
            line = {"step": step, "held_out_loss": held_out(share) * math.exp(draw.gauss(0, noise))}
            lines.append(line | ({"held_out_bands": [band(share) for band in bands]} if banded else {}))
        if own is not None:
            lines.append({"step": step, "change_own": own * share, "change_others": own * others * share})
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
    return curves, saved, draw.random() < 0.5, TrainSettings(dataset="cats").changed(**values)


def percent(text: str) -> float:
    return 0.0 if text == "nothing" else int(text.rstrip("%")) / 100


def check_sentence(found: Diagnosis, curves: Curves, ended: bool) -> None:
    """Each claim that the sentence makes."""
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
            assert varies is not None
            assert 0 < first - newest <= float(varies[1]) * 1.01
        else:
            assert "rises from there" in sentence
            assert newest > float(then) - 1e-4
    check_trend(sentence, curves, first, newest)
    check_changes(sentence, curves)
    if "too early" in sentence or "Too short" in sentence:
        assert len(values) < 4 or max([curves.last.get("step", 0), *curves.held_out], default=0) < 105
    if "destroyed" in sentence:
        assert newest > 3 * first or newest >= 0.99 * first
        assert f"went from {loss_text(first)} {start}" in sentence
    if found.tone == "good":
        assert newest < first
    if re.search(r"no lower|rises|destroyed|drifts|higher", sentence):
        assert found.tone in ("bad", "warn") or found.kind == "no effect yet"
    if ended:
        assert not re.search(r"\byet\b|too early", sentence)


def check_trend(sentence: str, curves: Curves, first: float, newest: float) -> None:
    """What it says of a part of the run."""
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
    """What it says of noise levels, the output and the previews."""
    if match := re.search(r"\((\S+) at little noise, .*?; (\S+) at much noise", sentence):
        little, much = ([curves.held_out_bands[band].points() for band in pair] for pair in ((0, 1), (3, 4)))
        for text, points in zip(match.groups(), (little, much), strict=True):
            fell = 1 - sum(each[-1][1] for each in points) / sum(each[0][1] for each in points)
            assert abs(percent(text) - max(fell, 0)) <= 0.0051
    for text in re.findall(r"output has changed by ([\d.]+)%|its own by (\d+)%", sentence):
        own = list(curves.changes.values())[-1][0]
        assert abs(float(text[0] or text[1]) / 100 - own) <= 0.0051
    if match := re.search(r"([\d.]+) times the controls' (\d+\.\d)", sentence):
        assert curves.effect is not None
        times, control = float(match[1]), float(match[2])
        assert abs(times * control - curves.effect.change) <= 0.051 * (times + control) + 0.003


def check_advice(found: Diagnosis, curves: Curves, saved: list[int], ended: bool, settings: TrainSettings) -> None:
    """That what is advised can be done."""
    advice = found.advice
    for step in re.findall(r"checkpoint of step (\d+)", advice):
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
        assert not re.search(r"[Ww]ait|[Ll]et it go on|can be stopped|Train longer", advice)


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
            assert reached is not None
            assert step <= int(reached[1].replace(",", "")) < total == int(reached[2].replace(",", ""))
        else:
            assert words == f"about {duration(left)} left"
            assert fact.text.endswith("after its last step")
        assert moment(stops_at) in fact.text
