"""The verdict on runs of known shape: it names what is there, and noise alone never alarms it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.diagnosis import diagnose, mann_kendall, noise_of
from workbench.runs.analysis.visible_effect import VisibleEffect
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
        (flattening, flattening, "levelled off", "last third"),
        (turning, falling, "over-fitting", "training loss still falls"),
        (turning, rising, "getting worse", "rises"),
        (rising, rising, "getting worse", "rises"),
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
    assert diagnose(curves_of(tmp_path, wandering, falling), []).kind in ("learning", "levelled off")


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
    """Ten measurements in the first 20 steps are those of a learning rate that still warms up."""
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


def test_prior_drift_is_a_change_of_others_however_great_its_own_is(tmp_path: Path) -> None:
    great = lambda share: 0.9 * share  # noqa: E731
    for name, own, kind in (("a", growing, "prior drift"), ("b", great, "learning")):
        (tmp_path / name).mkdir()
        found = diagnose(curves_of(tmp_path / name, falling, falling, (own, growing)), [])
        assert found.kind == kind, found


def test_a_run_that_has_ended_is_not_told_to_wait_or_to_go_on(tmp_path: Path) -> None:
    for name, shape, measurements, advice in (
        ("learning", falling, 40, "fork its newest checkpoint with more steps"),
        ("leveled", flattening, 40, "More clips or a lower learning rate"),
    ):
        (tmp_path / name).mkdir()
        curves = curves_of(tmp_path / name, shape, falling, measurements=measurements)
        going, ended = diagnose(curves, [50]), diagnose(curves, [50], ended=True)
        assert (going.kind, going.sentence) == (ended.kind, ended.sentence)
        assert advice in ended.advice
        assert going.advice != ended.advice
        assert "go on" not in ended.advice


def test_a_run_that_has_ended_is_too_short_not_too_early(tmp_path: Path) -> None:
    curves = curves_of(tmp_path, falling, falling, measurements=2)
    assert diagnose(curves, []).kind == "too early"
    ended = diagnose(curves, [], ended=True)
    assert (ended.kind, ended.advice) == ("too short", "")
    assert "it ended at step 146, and a diagnosis takes 4 measurements over 100 steps" in ended.sentence


def test_what_does_not_lower_the_loss_is_a_warning(tmp_path: Path) -> None:
    """Its output changes, and its previews show it, while the held-out loss stays."""
    curves = curves_of(tmp_path, flat, falling, (growing, lambda share: 0.01), moved=lambda share: 30 * share)
    found = diagnose(curves, [])
    assert (found.kind, found.tone) == ("not better", "warn")
    assert "changed by 20%" in found.sentence


def test_a_model_that_broke_late_keeps_its_useful_checkpoint(tmp_path: Path) -> None:
    late = lambda share: falling(share) if share < 0.8 else 5.0  # noqa: E731
    found = diagnose(curves_of(tmp_path, late, falling), [500, 1500, 2000])
    assert found.kind == "destroyed"
    assert found.advice.startswith("Use the checkpoint of step 1500, or begin again with a lower learning rate")


def test_the_statistics_behind_it() -> None:
    assert mann_kendall([1, 2, 3, 4, 5, 6]) == pytest.approx(14 / math.sqrt(6 * 5 * 17 / 18))
    assert mann_kendall([2.0] * 9) == 0
    draw = random.Random(0)
    on_a_slope = [step / 10 + draw.gauss(0, 0.05) for step in range(400)]
    assert noise_of(on_a_slope) == pytest.approx(0.05, rel=0.15)
    assert noise_of([1.0, 2.0]) == 0.0
