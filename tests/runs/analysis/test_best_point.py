"""The forecast of a run's best point: what it says, when it is sure, and what it never does."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.runs.analysis.best_point import PASSES, SATURATED, Point, forecast, interval
from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.diagnosis import Diagnosis, diagnose
from workbench.runs.checks import check
from workbench.runs.metrics import MetricsWriter
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

STEPS, EVERY = 1000, 25
ASK = TrainSettings(dataset="cats", steps=STEPS, best_point="ask")


def measured(scale: float, height: float = 0.6, noise: float = 0.02, until: int = STEPS, seed: int = 0) -> list[Point]:
    """Measurements of an effect that grows like height (1 - exp(-t / scale))."""
    draw = random.Random(seed)
    return [
        Point(step, height * (1 - math.exp(-step / scale)) + draw.gauss(0, noise), 0.1)
        for step in range(EVERY, until + 1, EVERY)
    ]


def saturated_at(scale: float) -> float:
    """The step at which SATURATED of what is there at the run's end is reached."""
    return -scale * math.log(1 - SATURATED * (1 - math.exp(-STEPS / scale)))


def test_the_band_holds_the_step_at_which_the_effect_saturates_and_narrows() -> None:
    scales, inside, widths = (140, 180, 240, 300), 0, list[tuple[int, int]]()
    for scale in scales:
        for seed in range(10):
            found = [forecast(measured(scale, until=until, seed=seed), ASK) for until in (100, 275)]
            early, later = (one for one in found if one is not None)
            widths.append((early.high - early.low, later.high - later.low))
            inside += early.low <= saturated_at(scale) <= early.high
    assert inside >= 0.8 * len(scales) * 10
    assert sum(later for _, later in widths) < 0.8 * sum(early for early, _ in widths)


def test_it_is_reached_once_the_effect_is_flat_and_not_while_it_grows() -> None:
    assert not forecast(measured(400, until=400), ASK).reached  # type: ignore[union-attr]
    found = forecast(measured(60, until=500), ASK)
    assert found is not None
    assert found.reached
    assert saturated_at(60) <= found.step <= 500


def test_nothing_is_said_before_the_first_tenth_or_when_it_is_off() -> None:
    assert forecast(measured(60, until=75), ASK) is None
    assert forecast(measured(60, until=500), ASK.changed(best_point="off")) is None


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02])
def test_a_run_without_effect_never_reaches_a_best_point(noise: float) -> None:
    for seed in range(30):
        points = measured(100, height=0.0, noise=noise, seed=seed)
        assert all(forecast(points[:count], ASK) is None for count in range(len(points) + 1))


def test_once_reached_it_stays_where_it_is() -> None:
    """Its checkpoint is saved then, and a later measurement must not name another."""
    points, known = measured(100, noise=0.05), set[int]()
    for count in range(len(points) + 1):
        if (found := forecast(points[:count], ASK)) is not None and found.reached:
            known.add(found.step)
            assert found.step <= points[count - 1].step
    assert len(known) == 1


def test_drift_takes_away_from_the_effect() -> None:
    """A run whose drift grows like its effect gains less, and is at its best where the difference is."""
    drifting = [Point(one.step, one.effect, 1.5 * max(0.0, one.step / STEPS - 0.2)) for one in measured(100, noise=0.0)]
    steady = [Point(one.step, one.effect, 0.0) for one in measured(100, noise=0.0)]
    early, late = forecast(drifting, ASK), forecast(steady, ASK)
    assert early is not None
    assert late is not None
    assert early.reached
    assert early.step <= late.step


@pytest.mark.parametrize("values", [{}, {"batch_size": 4}, {"batch_size": 2, "gradient_accumulation": 4}])
def test_measuring_takes_at_most_a_twentieth_of_the_training(values: dict[str, int]) -> None:
    """A step takes three predictions of each clip; checkpointing and preservation only make it longer."""
    settings = ASK.changed(**values)
    predictions = 3 * settings.batch_size * settings.gradient_accumulation * settings.steps
    assert (settings.steps // interval(settings) + 1) * PASSES <= 0.05 * predictions
    assert interval(settings.changed(best_point="off")) == 0


def diagnosed(folder: Path, settings: TrainSettings, scale: float, until: int, ended: bool = False) -> Diagnosis:
    writer = MetricsWriter(folder, 0)
    for point in measured(scale, until=until):
        writer.write(step=point.step, loss=0.3, seconds=2.0)
        writer.write(step=point.step, held_out_loss=0.3 * (1 - point.effect), effect=point.effect, drift=point.drift)
    writer.close()
    curves = Curves(folder)
    curves.refresh()
    return diagnose(curves, [], ended, settings)


def test_the_verdict_says_when_and_then_offers_to_stop(tmp_path: Path) -> None:
    coming = diagnosed(tmp_path, ASK, 160, 150)
    assert "Best point about step " in coming.advice
    assert " min" in coming.advice
    reached = diagnosed(tmp_path, ASK, 60, 500)
    assert reached.kind == "best point"
    assert reached.sentence.startswith("Best point reached: step ")
    assert reached.remedy is not None
    assert (reached.remedy.kind, reached.remedy.label) == ("stop at best", "Stop here, at the best point")
    assert diagnosed(tmp_path, ASK, 60, 500, ended=True).kind != "best point"
    assert diagnosed(tmp_path, ASK.changed(best_point="off"), 60, 500).kind != "best point"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"method": "full"}, "it compares with the base model"),
        ({"slider_positive": ["a large ball"], "slider_negative": ["a small ball"]}, "a slider has no clips"),
        ({"model": "tiny-phenaki"}, "predicts codes"),
    ],
)
def test_where_it_cannot_be_measured_it_is_refused(
    workspace: Workspace, dataset: Dataset, values: dict[str, object], said: str
) -> None:
    settings = TrainSettings().changed(
        **{"model": "tiny-cogvideox", "dataset": "squares", "best_point": "do", **values}
    )
    with pytest.raises(ConfigError, match=f"best_point is do, but .*{said}.*: set best_point to off"):
        check(workspace, settings)
