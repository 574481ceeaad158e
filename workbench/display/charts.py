"""Charts as text: curves with axes and legend (SVG), histograms and bars (HTML).

A notebook keeps them where nothing is live; the page and what it exports draw curves by an element of their own
(assets/elements/chart.js). Colors come from `--series-1` to `--series-8` and the text's own color, so a chart is
light or dark as its surroundings are (assets/charts.css).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

from workbench.display.html import escaped
from workbench.paths import ASSETS

Point = tuple[float, float]  # (step, value)
T = TypeVar("T")
# What a color is where no style sheet names it.
COLORS = ("#2f6fd0", "#b8650f", "#1f8a4c", "#b5459b", "#0d8191", "#c23434", "#7a5bd0", "#7d6d16")
BAR = f"var(--series-1,{COLORS[0]})"
LEFT, RIGHT, TOP, BOTTOM = 44.0, 14.0, 12.0, 26.0
DOTS = 60  # measured points that each get a dot, at most
EDGE = 0.02  # share of the raw values, at either end, that may lie outside


@dataclass(frozen=True)
class Line:
    """One curve. Points come by step; those that are not finite are left out.

    color: its number in the palette, from 1;  style: "faint" lies behind and may leave the chart at top and bottom,
    "dots" is a line through few measured points;  marked: a step to ring, with a word
    """

    name: str
    points: Sequence[Point]
    color: int = 1
    style: Literal["line", "faint", "dots"] = "line"
    marked: tuple[float, str] | None = None

    @property
    def finite(self) -> list[Point]:
        return [(step, value) for step, value in self.points if math.isfinite(value)]

    @property
    def css(self) -> str:
        index = (self.color - 1) % len(COLORS)
        return f"var(--series-{index + 1},{COLORS[index]})"


@dataclass(frozen=True)
class StackedBar:
    """A bar of parts. parts: (name, value, color as CSS) each;  text: the whole;  over: whether it is too long"""

    name: str
    text: str
    parts: Sequence[tuple[str, float, str]]
    label: str = ""
    over: bool = False


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


def chart(title: str, series: Sequence[Line], size: tuple[int, int] = (360, 220), note: str = "") -> str:
    """A figure: title and legend above, the curves below. "" when no curve has a point.

    size: width and height of the chart, pixels; it is scaled to the space there is;  note: a line beside the title
    """
    plotted = [one for one in series if one.finite]
    if not plotted:
        return ""
    label = f"{title}: " + ", ".join(one.name for one in plotted)
    return (
        f'<figure class="chart"><figcaption><b>{escaped(title)}</b>'
        + (f'<span class="aside">{escaped(note)}</span>' if note else "")
        + (legend([(one.name, one.css, one.style) for one in plotted]) if len(plotted) > 1 else "")
        + f'</figcaption><div class="plot"><svg viewBox="0 0 {size[0]} {size[1]}" role="img" '
        f'aria-label="{escaped(label)}">{plot(plotted, size)}</svg></div></figure>'
    )


def style() -> str:
    """The style sheet of all charts, for a document that does not link it."""
    return f"<style>{(ASSETS / 'charts.css').read_text(encoding='utf-8')}</style>"


def plot(series: Sequence[Line], size: tuple[int, int]) -> str:
    """What stands inside of the SVG: axes and curves."""
    width, height = size
    steps = [step for one in series for step, _ in one.finite]
    across = Scale(min(steps), max(*steps, min(steps) + 1), LEFT, width - RIGHT)
    up = Scale(*_range(series), height - BOTTOM, TOP)
    ordered = sorted(series, key=lambda one: one.style != "faint")
    # An SVG inside of the SVG, which ends at its edge: an id for a clip path would have to be unique in the page.
    box = (LEFT - 3, TOP - 3, width - LEFT - RIGHT + 6, height - TOP - BOTTOM + 6)
    x, y, wide, high = map(number, box)
    return (
        f'{_axes(across, up)}<svg x="{x}" y="{y}" width="{wide}" height="{high}" viewBox="{x} {y} {wide} {high}">'
        f"{''.join(_curve(one, across, up) for one in ordered)}</svg>"
        f"{''.join(_ring(one, across, up) for one in ordered)}"
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
        parts.append(f'<text x="{LEFT + 4}" y="{TOP - 2}" class="power">×10{exponent}</text>')
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


def _curve(one: Line, across: Scale, up: Scale) -> str:
    points = [(across(step), up(value)) for step, value in one.finite]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    plotted = f'<path class="curve {one.style}" style="stroke:{one.css}" d="{path}"/>'
    if len(points) == 1 or (one.style == "dots" and len(points) <= DOTS):
        plotted += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" style="fill:{one.css}"/>' for x, y in points)
    return plotted


def _ring(one: Line, across: Scale, up: Scale) -> str:
    """A ring around the marked point and a word beside it, on the side with more space; "" without one."""
    step, word = one.marked or (math.nan, "")
    value = next((value for at, value in one.finite if at == step), None)
    if value is None:
        return ""
    x, y = across(step), up(value)
    anchor, shift = ("end", -9) if x > (across.start + across.end) / 2 else ("start", 9)
    below = y - 9 if y > TOP + 24 else y + 18
    return (
        f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="6" style="stroke:{one.css}"/>'
        f'<text class="word" x="{x + shift:.1f}" y="{below:.1f}" text-anchor="{anchor}">{escaped(word)}</text>'
    )


def legend(keys: Iterable[tuple[str, str, str]]) -> str:
    """Names beside their colors. keys: (name, color as CSS, style of the line)"""
    parts = (
        f'<span class="key {style}"><i style="color:{css}"></i>{escaped(name)}</span>' for name, css, style in keys
    )
    return f'<span class="legend">{"".join(parts)}</span>'


def thinned(points: Sequence[T], most: int) -> list[T]:
    """At most so many evenly spaced points, first and last among them."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(number * last / (most - 1))] for number in range(most)] if most > 1 else [points[last]]


# ---- counts


def histogram(title: str, unit: str, edges: Sequence[float], counts: Sequence[int]) -> str:
    """Columns: counts[i] lie between edges[i] and edges[i + 1]."""
    top = max(counts, default=1) or 1
    bins = "".join(
        f'<span title="{low:g} to {high:g} {escaped(unit)}: {count:,}" '
        f'style="flex:1;background:{BAR};margin-right:1px;height:{100 * count / top:.0f}%"></span>'
        for (low, high), count in zip(pairwise(edges), counts, strict=True)
    )
    style = "display:flex;align-items:flex-end;height:90px;border-bottom:1px solid rgba(127,127,127,.6)"
    ends = f"<span>{edges[0]:g}</span><span>{edges[-1]:g} {escaped(unit)}</span>"
    return _counted(
        title, f'<div style="{style}">{bins}</div><div style="display:flex;justify-content:space-between">{ends}</div>'
    )


def bars(title: str, counts: Mapping[str, int], most: int = 12) -> str:
    """A horizontal bar and a number for each name, at most so many."""
    top = max(counts.values(), default=1) or 1
    lines = "".join(
        '<div style="display:flex;align-items:center;gap:6px;line-height:1.5">'
        f'<span style="flex:0 0 40%;overflow:hidden;text-overflow:ellipsis;white-space:nowrap">{escaped(name)}</span>'
        f'<span style="background:{BAR};height:9px;border-radius:2px;min-width:2px;width:{45 * count / top:.1f}%">'
        f"</span><span>{count:,}</span></div>"
        for name, count in list(counts.items())[:most]
    )
    more = f"<div>and {len(counts) - most:,} more</div>" if len(counts) > most else ""
    return _counted(title, lines + more)


def stacked(bars: Sequence[StackedBar], limit: float, keys: Sequence[tuple[str, str]]) -> str:
    """A bar of parts for each name; all have one scale, on which the limit is marked. keys: (name, color as CSS)"""
    longest = max([limit, *(sum(value for _, value, _ in one.parts) for one in bars)])
    lines = "".join(_stacked(one, longest, limit) for one in bars)
    return f'<div class="stacked">{lines}{legend([(name, css, "square") for name, css in keys])}</div>'


def _stacked(one: StackedBar, longest: float, limit: float) -> str:
    parts = "".join(
        f'<i title="{escaped(name)}" style="width:{100 * value / longest:.2f}%;background:{css}"></i>'
        for name, value, css in one.parts
    )
    return (
        f'<div class="stacked-row{" over" * one.over}"><span>{escaped(one.name)}</span><b>{escaped(one.text)}</b>'
        f'<div class="stacked-bar" role="img" aria-label="{escaped(one.label)}">{parts}'
        f'<u style="left:{100 * limit / longest:.2f}%"></u></div></div>'
    )


def _counted(title: str, content: str) -> str:
    caption = f'<figcaption style="margin:8px 0 4px"><b>{escaped(title)}</b></figcaption>'
    return (
        f'<figure style="width:100%;max-width:340px;margin:0 18px 14px 0;font-size:.9rem">{caption}{content}</figure>'
    )
