"""Curves of one run and of several, on data with a known ground truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from statistics import fmean

import pytest

from tests.counting import calls
from tests.drawing import MakeClip
from tests.written_run import add_preview, write_run
from workbench.runs.analysis.comparison import compare
from workbench.runs.analysis.curves import KEPT, POINTS, Curves, Detrending, Mean, Numbers, Series, curves_of
from workbench.runs.metrics import METRICS, MetricsWriter
from workbench.runs.run import Run
from workbench.runs.view import compared_charts
from workbench.workspace import Workspace, step_of

TIMESTEPS = 1000


def filled(values: Iterable[tuple[int, float]], most: int = POINTS) -> Series:
    series = Series(most)
    for step, value in values:
        series.add(step, value)
    return series


def typical(timestep: int) -> float:
    """A loss by noise level, shaped as that of a model that predicts velocity."""
    return 0.04 + 0.5 * math.exp(-timestep / 60) + 0.25 * math.exp(-timestep / 400)


@pytest.mark.parametrize("count", [999, 1001, 4096, 100_000])
def test_long_series_keep_ends_peaks_and_means(count: int) -> None:
    spike, dip = count // 3, count // 2
    values = [(step, 9.0 if step == spike else -9.0 if step == dip else step / count) for step in range(count)]
    series = filled(values)
    points = series.points()
    assert len(points) <= POINTS
    assert (points[0], points[-1]) == (values[0], values[-1])
    assert {(spike, 9.0), (dip, -9.0)} <= set(points)
    assert points == sorted(points)
    means = series.means()
    assert sum(mean.count for mean in means) == count
    assert sum(mean.value * mean.count for mean in means) == pytest.approx(sum(value for _, value in values))


def test_sparse_steps_and_values_that_are_none() -> None:
    series = filled([(step, 1.0) for step in range(0, 1_000_000, 50)] + [(1_000_000, math.nan)])
    assert len(series.points()) <= POINTS
    assert series.last == (999_950, 1.0)


# ---- detrending


def learns_evenly(timestep: int, share: float) -> float:
    return typical(timestep) * (1 - 0.3 * share)


def learns_at_high_noise(timestep: int, share: float) -> float:
    return typical(timestep) * (1 - 0.6 * share * timestep / TIMESTEPS)


def learns_nothing(timestep: int, share: float) -> float:
    return typical(timestep)


@pytest.mark.parametrize("loss", [learns_evenly, learns_at_high_noise, learns_nothing])
@pytest.mark.parametrize("steps", [300, 20_000])
def test_detrending_shows_the_expected_loss_with_far_less_noise(
    loss: Callable[[int, float], float], steps: int
) -> None:
    detrending, plain, draw = Detrending(), Series(), random.Random(steps)
    for step in range(1, steps + 1):
        timestep = draw.randrange(TIMESTEPS)
        value = loss(timestep, step / steps) * math.exp(draw.gauss(0, 0.15) - 0.15**2 / 2)
        detrending.add(step, timestep / TIMESTEPS, value)
        plain.add(step, value)

    def errors(means: list[Mean]) -> list[float]:
        return [
            mean.value - fmean(loss(timestep, mean.step / steps) for timestep in range(0, TIMESTEPS, 5))
            for mean in means
            if mean.step > steps / 10  # a young run has not learned the noise levels yet
        ]

    before, after = errors(plain.means()), errors(detrending.means())
    noise, left = math.sqrt(fmean(e * e for e in before)), math.sqrt(fmean(e * e for e in after))
    assert left < 0.45 * noise
    assert abs(fmean(after)) < abs(fmean(before)) + 0.003  # no bias of its own


# ---- a run's file


def write_metrics(folder: Path, first: int, last: int, batch: int = 1) -> None:
    writer, draw = MetricsWriter(folder, first - 1), random.Random(first)
    for step in range(first, last + 1):
        drawn = [draw.randrange(TIMESTEPS) for _ in range(batch)]
        samples = [[timestep / TIMESTEPS, typical(timestep)] for timestep in drawn]
        loss = fmean(one[1] for one in samples)
        writer.write(step=step, time=float(step), loss=loss, lr=1e-4, grad_norm=1.0, samples=samples)
        if step % 50 == 0:
            bands = [typical(timestep) for timestep in (100, 300, 500, 700, 900)]
            writer.write(
                step=step,
                time=float(step),
                held_out_loss=fmean(bands),
                held_out_bands=bands,
                change_own=0.1,
                change_others=0.02,
            )
    writer.close()


def test_a_run_in_bands(tmp_path: Path) -> None:
    write_metrics(tmp_path, 1, 200, batch=3)
    curves = Curves(tmp_path)
    curves.refresh()
    newest = [band.smoothed()[-1][1] for band in curves.bands]
    assert sorted(newest, reverse=True) == newest  # the less noise, the more loss
    assert [band.points()[-1][1] for band in curves.held_out_bands] == [
        pytest.approx(typical(timestep)) for timestep in (100, 300, 500, 700, 900)
    ]
    assert curves.own_changes.points()[0] == (50, 0.1)
    assert curves.changes[200] == (0.1, 0.02)
    assert curves.held_out_losses.points()
    # Every sample had its typical loss: nothing is left to see.
    late = [mean.value for mean in curves.detrended() if mean.step > 20]
    assert max(late) - min(late) < 0.2 * (typical(0) - typical(999))


def test_a_run_that_went_back_to_a_checkpoint_is_read_again(tmp_path: Path) -> None:
    write_metrics(tmp_path, 1, 60)
    curves = Curves(tmp_path)
    curves.refresh()
    version = curves.version
    curves.refresh()
    assert curves.version == version
    write_metrics(tmp_path, 41, 70)
    curves.refresh()
    assert [step for step, _ in curves.losses.points()] == list(range(1, 71))
    assert list(curves.held_out) == [50]


def test_a_run_of_an_earlier_version_has_no_samples(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path, 0)
    for step in range(1, 20):
        writer.write(step=step, time=0.0, loss=0.5, timestep=500.0)
    curves = Curves(tmp_path)
    curves.refresh()
    assert curves.smoothed == pytest.approx(0.5)
    assert curves.detrended() == []
    assert curves.rates.points() == []


def test_a_long_run_costs_the_new_lines_only_and_bounded_memory(tmp_path: Path) -> None:
    draw, size, work = random.Random(0), [], []
    curves = Curves(tmp_path)
    for first in (0, 20_000, 40_000):
        with (tmp_path / METRICS).open("a") as file:
            for step in range(first, first + (20_000 if first < 40_000 else 1)):
                timestep = draw.randrange(TIMESTEPS)
                loss = typical(timestep)
                pair = [timestep / TIMESTEPS, loss]
                file.write(f'{{"step": {step}, "loss": {loss}, "lr": 1e-4, "samples": [{pair}]}}\n')
        work.append(calls(curves.refresh))
        rows = [*curves.losses.points(), *curves.losses.smoothed(), *curves.detrended()]
        rows += [point for band in curves.bands for point in band.smoothed()]
        size.append((tmp_path / KEPT).stat().st_size)
    assert size[1] < 1.2 * size[0]
    assert size[1] < 1e6
    assert len(rows) < 4 * POINTS
    assert work[2] < 0.01 * work[1]
    assert curves.last["step"] == 40_000


def numbers(curves: Curves) -> list[object]:
    return [getattr(curves, one.name) for one in fields(Numbers)]


def test_the_next_reader_goes_on_from_what_was_kept(tmp_path: Path) -> None:
    write_metrics(tmp_path, 1, 4000, batch=3)
    first, read = Curves(tmp_path), Curves(tmp_path)
    whole = calls(first.refresh)
    assert calls(read.refresh) < 0.05 * whole
    assert numbers(read) == numbers(first)
    write_metrics(tmp_path, 4001, 4010, batch=3)
    read.refresh()
    later = Curves(tmp_path)
    later.refresh()
    (tmp_path / KEPT).unlink()
    fresh = Curves(tmp_path)
    fresh.refresh()
    assert fresh.last["step"] == 4010
    assert numbers(read) == numbers(later) == numbers(fresh)


@pytest.mark.parametrize("change", ["metrics", "cut", "kept", "version", "nonsense"])
def test_what_was_kept_is_never_trusted_over_the_metrics(tmp_path: Path, change: str) -> None:
    write_metrics(tmp_path, 1, 4000)
    Curves(tmp_path).refresh()
    metrics, kept = tmp_path / METRICS, tmp_path / KEPT
    data, numbers_kept = metrics.read_bytes(), kept.read_bytes()
    if change == "metrics":  # one digit in the middle, far from the end
        at = data.index(b'"loss": 0.', len(data) // 2) + len(b'"loss": 0.')
        metrics.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif change == "cut":  # the run went back to a checkpoint
        metrics.write_bytes(data[: data.index(b"\n", len(data) // 2) + 1])
    elif change == "kept":
        at = numbers_kept.index(b'"total":') + len(b'"total":')
        kept.write_bytes(numbers_kept[:at] + b"9" + numbers_kept[at + 1 :])
    elif change == "version":
        kept.write_bytes(b"[0" + numbers_kept[2:])
    else:
        kept.write_bytes(b'[1, "", {}, []]\n{"losses": 7}')
    read = Curves(tmp_path)
    read.refresh()
    kept.unlink()
    fresh = Curves(tmp_path)
    fresh.refresh()
    assert numbers(read) == numbers(fresh)
    assert fresh.last["step"] == (4000 if change != "cut" else read.last["step"])


# ---- runs beside one another


@pytest.fixture
def runs(workspace: Workspace) -> list[Run]:
    return [write_run(workspace, "slow"), write_run(workspace, "fast", 100, learning_rate=3e-4, targets="to_q")]


def test_a_run_without_the_pairs_is_compared_by_what_both_have(runs: list[Run], workspace: Workspace) -> None:
    old = write_run(workspace, "old")
    writer = MetricsWriter(old.folder, 0)
    for step in range(1, 50):
        writer.write(step=step, time=0.0, loss=0.5, lr=1e-4)
    made = compare([runs[0], old])
    assert made.results["prior drift"][1] == ""
    charts = {one["title"]: one for one in compared_charts([(one.name, curves_of(one)) for one in (runs[0], old)])}
    loss = charts["Training loss, smoothed"]
    assert [one["name"] for one in loss["lines"]] == ["slow", "old"]
    assert loss["lines"][1]["points"][-1] == (49, 0.5)


def test_previews_of_the_same_prompt_stand_side_by_side(runs: list[Run], make_clip: MakeClip, tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "0.mp4")
    for run, last in zip(runs, (200, 100), strict=True):
        for step in (0, 50, last):
            add_preview(run, step, clip, "a cat")
    add_preview(runs[0], 200, clip, "a dog", "1")
    add_preview(runs[0], 200, clip, "a cat", "0-scale-0.5", scale=0.5)
    (found,) = compare(runs).previews
    assert found["prompt"] == "a cat"
    assert [step_of(Path(one).parent.name) for one in found["videos"]] == [0, 200, 100]
    assert [one["prompt"] for one in compare(runs[:1]).previews] == ["a cat", "a dog"]
