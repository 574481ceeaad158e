"""The curves of one run as charts, the same on the page and in a notebook: which lines, which colours, what is marked.

Not covered: how a chart is drawn (report_charts), reading the curves (curves), several runs in one (run_comparison).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from workbench.runs.analysis.charts import Line, Point, chart, legend
from workbench.runs.analysis.curves import BANDS, Curves, Row

WIDE, NARROW, SMALL = (600, 250), (345, 250), (215, 150)  # pixels
BAND_KEYS = (Line("training, smoothed", []), Line("held-out clips", [], 2, "dots"))


def loss(curves: Curves, best: int | None) -> str:
    """The loss that can be read: without the luck of the draw where that is known, held-out clips, best checkpoint.

    best: its step; marked where the held-out loss was measured at that very step
    """
    lines = by_name(curves.detrended_rows())
    raw, soft, title, note = lines.get("detrended"), lines.get("detrended, smoothed"), "Loss", ""
    if raw:
        note = "what the drawn timesteps explain is taken out"
    else:
        lines = by_name(curves.loss_rows())
        raw, soft = lines.get("each step"), lines.get("smoothed")
    return chart(title, [*_trained(raw, soft), _held_out(curves, best)], WIDE, note)


def loss_as_it_came(curves: Curves) -> str:
    """The loss of each step and smoothed, as the optimizer saw it; "" where `loss` shows it already."""
    if not curves.detrended():
        return ""
    lines = by_name(curves.loss_rows())
    return chart("Loss as it came", _trained(lines.get("each step"), lines.get("smoothed")), NARROW)


def changes(curves: Curves) -> str:
    """How much the model's output has changed, on its own captions and on those to be left alone (the leak)."""
    lines = by_name(curves.change_rows())
    own, others = lines.get("its own captions", []), lines.get("to be left alone", [])
    return chart(
        "Change of the model's output",
        [Line("its own captions", own, 3, "dots"), Line("others: the leak", others, 6, "dots")],
        NARROW,
    )


def learning_rate(curves: Curves) -> str:
    """The learning rate by step."""
    return chart("Learning rate", [Line("learning rate", curves.rate_rows(), 7)], NARROW)


def bands(curves: Curves) -> list[str]:
    """A small chart for each band of timesteps, little noise first: smoothed training loss and held-out loss."""
    train, held = by_name(curves.band_rows()), by_name(curves.held_out_band_rows())
    drawn = []
    for band in range(BANDS):
        name = curves.band_name(band)
        measured = held.get(name, [])
        moved = f"{measured[-1][1] / measured[0][1] - 1:+.0%}" if len(measured) > 1 and measured[0][1] else ""
        lines = [
            replace(key, points=points) for key, points in zip(BAND_KEYS, (train.get(name, []), measured), strict=True)
        ]
        drawn.append(chart(name, lines, SMALL, moved.replace("-", "\N{MINUS SIGN}"), keys=False))
    return [one for one in drawn if one]


def band_legend() -> str:
    """What the lines of `bands` are."""
    return legend(BAND_KEYS)


def by_name(rows: Iterable[Row]) -> dict[str, list[Point]]:
    """The points of each series."""
    lines: dict[str, list[Point]] = {}
    for step, value, name in rows:
        lines.setdefault(name, []).append((step, value))
    return lines


def _trained(raw: Sequence[Point] | None, soft: Sequence[Point] | None) -> list[Line]:
    return [Line("training, each step", raw or [], 1, "faint"), Line("smoothed", soft or [])]


def _held_out(curves: Curves, best: int | None) -> Line:
    points = by_name(curves.loss_rows()).get("held-out clips", [])
    marked = (best, f"best checkpoint, step {best}") if best is not None and len(points) > 2 else None
    return Line("held-out clips", points, 2, "dots", marked)
