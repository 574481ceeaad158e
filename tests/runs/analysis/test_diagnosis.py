"""The verdict on runs of known shape: it names what is there, and noise alone never alarms it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.diagnosis import best_step, diagnose, mann_kendall, noise_of
from workbench.runs.metrics import MetricsWriter

Shape = Callable[[float], float]


def curves_of(
    folder: Path,
    held_out: Shape | None,
    train: Shape = lambda share: 0.3,
    change: tuple[Shape, Shape] | None = None,
    noise: float = 0.003,
    measurements: int = 40,
    seed: int = 0,
) -> Curves:
    """A run of 50 steps a measurement; shapes are functions of its share, 0 to 1."""
    draw, writer = random.Random(seed), MetricsWriter(folder, 0)
    for number in range(measurements + 1):
        share = number / measurements
        if held_out is not None:
            writer.write(step=50 * number, held_out_loss=held_out(share) + draw.gauss(0, noise))
        if change is not None:
            writer.write(step=50 * number, change_own=change[0](share), change_others=change[1](share))
        for step in range(50 * number + 1, 50 * number + 51, 5):
            timestep = draw.randrange(1000)
            loss = train(share) * (0.5 + timestep / 1000) + draw.gauss(0, 0.01)
            writer.write(step=step, loss=loss, samples=[[timestep, loss]])
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
        (flattening, flattening, "levelled off", "last third"),
        (turning, falling, "over-fitting", "training loss still falls"),
        (turning, rising, "getting worse", "rises"),
        (rising, rising, "getting worse", "rises"),
        (flat, flat, "no effect yet", "where it was at step 0"),
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
    assert diagnose(curves_of(tmp_path, wandering, falling), []).kind in ("learning", "levelled off")


def test_prior_drift_is_named_and_a_clean_run_is_not(tmp_path: Path) -> None:
    for name, others, kind in (("a", growing, "prior drift"), ("b", lambda share: 0.02 * share, "learning")):
        (tmp_path / name).mkdir()
        found = diagnose(curves_of(tmp_path / name, falling, falling, (growing, others)), [])
        assert found.kind == kind, found


def test_no_effect_says_how_little_the_output_has_changed(tmp_path: Path) -> None:
    tiny = curves_of(tmp_path, flat, flat, (lambda share: 0.001, lambda share: 0.001))
    assert "0.1% only" in diagnose(tiny, []).sentence
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


def test_it_waits_for_measurements(tmp_path: Path) -> None:
    assert diagnose(Curves(tmp_path), []).kind == "too early"
    assert diagnose(curves_of(tmp_path, falling, falling, measurements=2), [50]).kind == "too early"


def test_the_best_checkpoint_has_the_lowest_held_out_loss() -> None:
    measured = {0: 0.5, 50: 0.3, 100: 0.2, 150: 0.25, 200: 0.4}
    assert best_step(measured, [50, 100, 200]) == 100
    assert best_step(measured, [50, 150, 200]) == 150
    assert best_step(measured, [125, 50]) == 125  # between two measurements: the value on the line
    assert best_step(measured, [250]) is None  # not measured yet
    assert best_step({}, [50]) is None
    assert best_step({0: 0.1, 50: 0.1}, [50, 0]) == 0


def test_the_statistics_behind_it() -> None:
    assert mann_kendall([1, 2, 3, 4, 5, 6]) == pytest.approx(14 / math.sqrt(6 * 5 * 17 / 18))
    assert mann_kendall([2.0] * 9) == 0
    draw = random.Random(0)
    on_a_slope = [step / 10 + draw.gauss(0, 0.05) for step in range(400)]
    assert noise_of(on_a_slope) == pytest.approx(0.05, rel=0.15)
    assert noise_of([1.0, 2.0]) == 0.0
