"""Charts of a run as SVG text: axes with round ticks, lines over faint raw values, legend, values on hover; no script.

The page, the notebook and the report render the same: colours come from `--series-1` to `--series-8` and the text's own
colour, so a chart is light or dark as its surroundings are (assets/charts.css). Not covered: which curves there are
(runs.analysis.curve_charts).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

from workbench.html import escaped

Point = tuple[float, float]  # (step, value)
T = TypeVar("T")
# What a colour is where no style sheet names it.
COLOURS = ("#2f6fd0", "#d9822b", "#1f8a4c", "#b5459b", "#0f8fa0", "#c23434", "#7a5bd0", "#8a7a1c")
LEFT, RIGHT, TOP, BOTTOM = 44.0, 14.0, 12.0, 26.0
STOPS = 90  # strips that react to the pointer
EDGE = 0.02  # share of the raw values, at either end, that may lie outside


@dataclass(frozen=True)
class Line:
    """One curve. Points come by step; those that are not finite are left out.

    colour: its number in the palette, from 1;  style: "faint" lies behind and may leave the chart at top and bottom,
    "dots" is a line through few measured points;  marked: a step to ring, with a word
    """

    name: str
    points: Sequence[Point]
    colour: int = 1
    style: Literal["line", "faint", "dots"] = "line"
    marked: tuple[float, str] | None = None

    @property
    def finite(self) -> list[Point]:
        return [(step, value) for step, value in self.points if math.isfinite(value)]

    @property
    def css(self) -> str:
        index = (self.colour - 1) % len(COLOURS)
        return f"var(--series-{index + 1},{COLOURS[index]})"


@dataclass(frozen=True)
class Scale:
    """Values to pixels: `low` lies at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + (self.end - self.start) * share


def chart(
    title: str, series: Sequence[Line], size: tuple[int, int] = (360, 220), note: str = "", keys: bool = True
) -> str:
    """A figure: title and legend above, the curves below. "" when no curve has a point.

    size: width and height of the chart, pixels; it is scaled to the space there is;  note: a line beside the title;
    keys: with a legend, which a single curve never has
    """
    plotted = [one for one in series if one.finite]
    if not plotted:
        return ""
    width, height = size
    steps = [step for one in plotted for step, _ in one.finite]
    across = Scale(min(steps), max(*steps, min(steps) + 1), LEFT, width - RIGHT)
    up = Scale(*_range(plotted), height - BOTTOM, TOP)
    # An id must be unique in the page; equal ids cut at the same rectangle, so they do no harm.
    clip = f"plot-{width}x{height}"
    curves = "".join(_curve(one, across, up, clip) for one in sorted(plotted, key=lambda one: one.style != "faint"))
    label = f"{title}: " + ", ".join(one.name for one in plotted)
    return (
        f'<figure class="chart"><figcaption><b>{escaped(title)}</b>'
        + (f'<span class="aside">{escaped(note)}</span>' if note else "")
        + (legend(plotted) if keys and len(plotted) > 1 else "")
        + f'</figcaption><svg viewBox="0 0 {width} {height}" role="img" aria-label="{escaped(label)}">'
        f'<clipPath id="{clip}"><rect x="{LEFT}" y="{TOP - 3}" width="{width - LEFT - RIGHT + 3}" '
        f'height="{height - TOP - BOTTOM + 6}"/></clipPath>'
        f"{_axes(across, up)}{curves}{_stops(plotted, across, up)}</svg></figure>"
    )


# ---- ranges and ticks


def _range(series: Iterable[Line]) -> tuple[float, float]:
    """Lowest and highest value to show: all that is smoothed or measured, and all but the wildest raw values."""
    values: list[float] = []
    for one in series:
        found = sorted(value for _, value in one.finite)
        if one.style == "faint":
            cut = math.ceil(EDGE * len(found)) if len(found) > 20 else 0
            found = found[cut : len(found) - cut]
        values += [found[0], found[-1]]
    low, high = min(values), max(values)
    if low >= 0 and low < 0.4 * high:
        return 0.0, high * 1.06 or 1.0
    area = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
    return low - area, high + area


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high, about so many: steps of 1, 2, 2.5 or 5 times a power of ten."""
    span = (high - low) or 1.0
    size = 10.0 ** math.floor(math.log10(span / about))
    step = next(size * part for part in (1, 2, 2.5, 5, 10) if span / (size * part) <= about)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _axes(across: Scale, up: Scale) -> str:
    """Grid lines, numbers beside them, and the power of ten that they share."""
    parts = []
    marks = ticks(up.low, up.high, max(2, round((up.start - up.end) / 34)))
    power = _power(max(abs(mark) for mark in marks) if marks else 1.0)
    scaled = [mark / 10.0**power for mark in marks]
    digits = next(d for d in range(7) if d == 6 or all(abs(s - round(s, d)) < 1e-9 for s in scaled))
    for mark, scaled_mark in zip(marks, scaled, strict=True):
        y = up(mark)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{across.end:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{scaled_mark:.{digits}f}</text>')
    if power:
        exponent = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        parts.append(f'<text x="2" y="{TOP - 1}" class="power">×10{exponent}</text>')
    for mark in ticks(across.low, across.high, max(2, round((across.end - across.start) / 80))):
        if mark == round(mark):
            x = across(mark)
            parts.append(f'<path class="tick" d="M{x:.1f} {up.start:.1f}v4"/>')
            parts.append(f'<text x="{x:.1f}" y="{up.start + 18:.1f}" text-anchor="middle">{number(mark)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {up.start:.1f}H{across.end:.1f}"/>')
    return "".join(parts)


def _power(largest: float) -> int:
    """The power of ten to take out of an axis whose numbers would be too long to read; 0 for ordinary ones."""
    if largest == 0 or 1e-2 <= largest < 1e5:
        return 0
    return math.floor(math.log10(largest))


def number(value: float) -> str:
    """As people write it: 25000 is 25k, 0.04128 four digits, 1e-4 short."""
    if value == round(value) and abs(value) < 1e9:
        whole = int(value)
        return f"{whole // 1000}k" if whole and whole % 1000 == 0 and abs(whole) >= 10_000 else str(whole)
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


# ---- curves


def _curve(one: Line, across: Scale, up: Scale, clip: str) -> str:
    points = one.finite
    path = "M" + "L".join(f"{across(step):.1f} {up(value):.1f}" for step, value in points)
    plotted = [f'<g clip-path="url(#{clip})"><path class="curve {one.style}" style="stroke:{one.css}" d="{path}"/></g>']
    if one.style == "dots" or len(points) == 1:
        visible = points if len(points) <= 60 else []
        plotted += [
            f'<circle cx="{across(s):.1f}" cy="{up(v):.1f}" r="2.6" style="fill:{one.css}"/>' for s, v in visible
        ]
    if one.marked:
        step, word = one.marked
        found = next((value for at, value in one.finite if at == step), None)
        if found is not None:
            plotted.append(_ring(across(step), up(found), word, one.css, across))
    return "".join(plotted)


def _ring(x: float, y: float, word: str, css: str, across: Scale) -> str:
    """A ring around a point and a word beside it, on the side with more space."""
    anchor, shift = ("end", -9) if x > (across.start + across.end) / 2 else ("start", 9)
    below = y - 9 if y > TOP + 24 else y + 18
    return (
        f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="6" style="stroke:{css}"/>'
        f'<text class="word" x="{x + shift:.1f}" y="{below:.1f}" text-anchor="{anchor}">{escaped(word)}</text>'
    )


def legend(series: Sequence[Line]) -> str:
    """Name and colour of each curve."""
    keys = (
        f'<span class="key {one.style}"><i style="border-top-color:{one.css}"></i>{escaped(one.name)}</span>'
        for one in series
    )
    return f'<span class="keys">{"".join(keys)}</span>'


def _stops(series: Sequence[Line], across: Scale, up: Scale) -> str:
    """Strips over the chart: the one under the pointer shows a line, the points it meets, and their values."""
    named = [one for one in series if one.style != "faint"] or list(series)
    every = sorted({step for one in named for step, _ in one.finite})
    steps = thinned(every, STOPS)
    middles = [(across(one) + across(two)) / 2 for one, two in pairwise(steps)]
    finite = [(one, one.finite) for one in named]
    parts = []
    for step, left, right in zip(steps, [across.start, *middles], [*middles, across.end], strict=True):
        lines, dots = [f"step {step:g}"], []
        for one, points in finite:
            at, value = _nearest(points, step)
            if abs(across(at) - across(step)) <= max(6.0, right - left):
                lines.append(f"{one.name}: {number(value)}")
                dots.append(f'<circle cx="{across(at):.1f}" cy="{up(value):.1f}" r="3.5" style="fill:{one.css}"/>')
        area = f'x="{left:.1f}" y="{TOP}" width="{max(right - left, 0.5):.1f}" height="{up.start - TOP:.1f}"'
        parts.append(
            f'<g class="stop"><rect {area}/><path d="M{across(step):.1f} {TOP}V{up.start:.1f}"/>{"".join(dots)}'
            f"<title>{escaped(chr(10).join(lines))}</title></g>"
        )
    return "".join(parts)


def _nearest(points: Sequence[Point], step: float) -> Point:
    index = bisect_left(points, (step, -math.inf))
    return min(points[max(0, index - 1) : index + 1], key=lambda point: abs(point[0] - step))


def thinned(points: Sequence[T], most: int) -> list[T]:
    """At most so many evenly spaced points, first and last among them."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(number * last / (most - 1))] for number in range(most)] if most > 1 else [points[last]]
