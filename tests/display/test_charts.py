"""Charts as text, and that the script in the browser plots the same."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess

import pytest

from tests.patience import PATIENCE
from workbench.display.charts import (
    Line,
    StackedBar,
    bars,
    chart,
    histogram,
    number,
    plot,
    script,
    stacked,
    ticks,
    together,
)
from workbench.paths import ASSETS

SIZE = (360, 220)
EVIL = '<img src=x onerror="alert(1)">'
NUMBER = re.compile(r"-?\d+\.?\d*")
RAW = Line("raw", [(step, 1 + math.sin(step) / 3) for step in range(300)], 1, "faint")
CASES = {
    "raw values behind a curve": [RAW, Line("smoothed", [(step, 0.7 + 0.3 / (1 + step)) for step in range(0, 300, 7)])],
    "measured, with a mark": [
        Line("held-out", [(0, 0.31), (100, 0.21), (207, 0.17)], 2, "dots", (207, f"best {EVIL}"))
    ],
    "a learning rate": [Line("rate", [(step, 1e-4 * math.exp(-step / 900)) for step in range(1, 12_000, 97)], 7)],
    "one point": [Line("loss", [(3, 0.5)])],
    "below zero": [Line("one", [(0, -3.21), (50_000, 4.7)]), Line("gone", [(1, math.nan), (2, -1.0)], 3)],
    "large": [Line("one", [(0, 150_000.0), (9, 2.1e6)])],
}


def test_the_script_plots_what_was_rendered() -> None:
    """Otherwise a chart would change its looks when the script takes it over."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: install it to test the browser code")
    found = {name: chart(name, lines, SIZE) for name, lines in CASES.items()}
    data = {name: re.findall(r'data-lines="([^"]*)"', text)[0].replace("&quot;", '"') for name, text in found.items()}
    code = (ASSETS / "charts.logic.js").read_text(encoding="utf-8")
    code += f"\nconst data = {json.dumps(data)};\nconst made = {{}};"
    code += (
        "for (const name in data) { const lines = JSON.parse(data[name].replace(/&lt;/g, '<').replace(/&gt;/g, '>'));"
    )
    code += f"made[name] = plotted({list(SIZE)}, lines, lines).markup; }}\nprocess.stdout.write(JSON.stringify(made));"
    done = subprocess.run([node, "-"], input=code, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    for name, markup in json.loads(done.stdout).items():
        rendered = plot([one for one in CASES[name] if one.finite], SIZE)
        assert NUMBER.sub("#", markup) == NUMBER.sub("#", rendered), name
        # It reads values of five digits.
        assert [*map(float, NUMBER.findall(markup))] == pytest.approx([*map(float, NUMBER.findall(rendered))], abs=0.11)


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


def test_a_chart_plots_every_value_where_it_belongs_and_hands_it_to_the_script() -> None:
    made = chart("Loss", [Line("loss", [(0, 0.0), (50, 1.0), (100, 0.123456789)])], (200, 138), owner="cats")
    (path,) = re.findall(r'class="curve line"[^>]* d="M([^"]+)"', made)
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y2) / (y0 - y1) == pytest.approx(0.1235, abs=0.01)
    assert 'data-charts="Loss" data-owner="cats"' in made
    assert "&quot;steps&quot;:[0,50,100],&quot;values&quot;:[0.0,1.0,0.12346]" in made


def test_small_charts_share_title_and_legend() -> None:
    keys = [Line("one", []), Line("two", [], 2)]
    small = [chart(f"{EVIL}{index}", [Line("one", [(0, 1.0)])], owner=None) for index in range(3)]
    made = together("By timestep", keys, small, "cats")
    assert made.count("data-charts=") == made.count('class="legend"') == 1
    assert made.count('class="plot"') == 3
    assert "<img" not in made
    assert together("By timestep", keys, [""], "cats") == ""


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


def test_the_script_stands_in_a_page_as_it_is() -> None:
    assert not re.search("</script|<!--", script(), re.IGNORECASE)


def test_bars_of_parts_have_one_scale_and_a_mark_at_the_limit() -> None:
    training = StackedBar("training", "40 GB", [("weights 30 GB", 30.0, "red"), (EVIL, 10.0, "blue")], "measured", True)
    made = stacked([training, StackedBar("previews", "10 GB", [("VAE", 10.0, "red")])], 20.0, [("weights", "red")])
    assert re.findall(r"width:([\d.]+)%", made) == ["75.00", "25.00", "25.00"]
    assert re.findall(r"left:([\d.]+)%", made) == ["50.00", "50.00"]
    assert made.count("stacked-row over") == 1
    assert "<img" not in made
