"""Charts as text."""

from __future__ import annotations

import re

import pytest

from workbench.display.charts import Line, StackedBar, bars, chart, histogram, number, stacked, ticks

EVIL = '<img src=x onerror="alert(1)">'


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [
        (0, 450, [0, 100, 200, 300, 400]),
        (0.183, 0.411, [0.2, 0.25, 0.3, 0.35, 0.4]),
        (0, 2.2e-3, [0, 0.0005, 0.001, 0.0015, 0.002]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round(low: float, high: float, want: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(want)


def test_a_chart_plots_every_value_where_it_belongs() -> None:
    made = chart("Loss", [Line("loss", [(0, 0.0), (50, 1.0), (100, 0.123456789)])], (200, 138))
    (path,) = re.findall(r'class="curve line"[^>]* d="M([^"]+)"', made)
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y2) / (y0 - y1) == pytest.approx(0.1235, abs=0.01)


def test_a_chart_of_several_curves_has_a_legend_and_a_marked_point_a_ring() -> None:
    measured = Line("held-out", [(0, 0.31), (100, 0.21)], 2, "dots", (100, f"best {EVIL}"))
    made = chart(f"Loss {EVIL}", [Line("loss", [(0, 1.0)]), measured])
    assert made.count('class="legend"') == made.count('class="ring"') == 1
    assert chart("Loss", [measured]).count('class="legend"') == 0
    assert "<img" not in made


def test_one_wild_value_does_not_flatten_a_chart() -> None:
    raw = [(step, 1.0 + step % 2) for step in range(100)]
    lines = [Line("raw", [*raw, (100, 1e6)], 1, "faint"), Line("soft", [(0, 1.5), (100, float("nan")), (100, 1.5)])]
    shown = {float(text) for text in re.findall(r'text-anchor="end">([\d.]+)<', chart("Loss", lines))}
    assert max(shown) <= 3


@pytest.mark.parametrize(("value", "text"), [(25_000, "25k"), (450, "450"), (0.041283, "0.04128"), (1e-5, "1e-5")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_no_points_no_chart() -> None:
    assert chart("Loss", [Line("loss", []), Line("other", [(1, float("nan"))])]) == ""


def test_counts_are_named_as_text() -> None:
    assert "<img" not in bars("clips", {EVIL: 3}) + histogram("length", EVIL, [0, 1], [2])


def test_bars_of_parts_have_one_scale_and_a_mark_at_the_limit() -> None:
    training = StackedBar("training", "40 GB", [("weights 30 GB", 30.0, "red"), (EVIL, 10.0, "blue")], "measured", True)
    made = stacked([training, StackedBar("previews", "10 GB", [("VAE", 10.0, "red")])], 20.0, [("weights", "red")])
    assert re.findall(r"width:([\d.]+)%", made) == ["75.00", "25.00", "25.00"]
    assert re.findall(r"left:([\d.]+)%", made) == ["50.00", "50.00"]
    assert made.count("stacked-row over") == 1
    assert "<img" not in made
