"""The curves of one run as charts, the same on the page, in the notebook and in the report.

Not covered: how a chart is rendered (workbench.charts), reading the curves (curves), several runs in one (comparison).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from workbench.charts import Line, Point, chart, legend
from workbench.runs.analysis.curves import BANDS, Curves, Row

WIDE, NARROW, SMALL = (600, 250), (345, 250), (215, 150)  # pixels
BAND_KEYS = (Line("training, smoothed", []), Line("held-out clips", [], 2, "dots"))
EMPTY = "The curves begin with the first step."


def loss(curves: Curves, best: int | None, size: tuple[int, int] = WIDE) -> str:
    """The loss, detrended where the timesteps are known, that of held-out clips, and the best checkpoint.

    best: its step; marked where the held-out loss was measured at that very step
    """
    lines = by_name(curves.detrended_rows())
    raw, soft, note = lines.get("detrended"), lines.get("detrended, smoothed"), ""
    if raw:
        note = "without the effect of the sampled timesteps"
    else:
        lines = by_name(curves.loss_rows())
        raw, soft = lines.get("each step"), lines.get("smoothed")
    return chart("Loss", [*_trained(raw, soft), _held_out(curves, best)], size, note)


def loss_per_step(curves: Curves, size: tuple[int, int] = NARROW) -> str:
    """The loss of each step and smoothed, as the optimizer saw it; "" where `loss` shows it already."""
    if not curves.detrended():
        return ""
    lines = by_name(curves.loss_rows())
    return chart("Loss per step", _trained(lines.get("each step"), lines.get("smoothed")), size)


def changes(curves: Curves, size: tuple[int, int] = NARROW) -> str:
    """How much the model's output has changed, on its own captions and on preservation prompts (the prior drift)."""
    lines = by_name(curves.change_rows())
    own, others = lines.get("its own captions", []), lines.get("preservation prompts", [])
    return chart(
        "Change of the model's output",
        [Line("its own captions", own, 3, "dots"), Line("others: prior drift", others, 6, "dots")],
        size,
    )


def learning_rate(curves: Curves, size: tuple[int, int] = NARROW) -> str:
    """The learning rate by step."""
    return chart("Learning rate", [Line("learning rate", curves.rate_rows(), 7)], size)


def bands(curves: Curves) -> str:
    """A small chart for each band of timesteps, little noise first, below a common legend; "" without any."""
    train, held = by_name(curves.band_rows()), by_name(curves.held_out_band_rows())
    charts = []
    for band in range(BANDS):
        name = curves.band_name(band)
        measured = held.get(name, [])
        moved = f"{measured[-1][1] / measured[0][1] - 1:+.0%}" if len(measured) > 1 and measured[0][1] else ""
        lines = [
            replace(key, points=points) for key, points in zip(BAND_KEYS, (train.get(name, []), measured), strict=True)
        ]
        charts.append(chart(name, lines, SMALL, moved.replace("-", "\N{MINUS SIGN}"), keys=False))
    if not any(charts):
        return ""
    head = f'<div class="heading">Loss by timestep, little noise to much {legend(BAND_KEYS)}</div>'
    return f'{head}<div class="multiples">{"".join(charts)}</div>'


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
