"""The curves of one run as charts, the same on the page, in the notebook and in the report.

Not covered: how a chart is rendered (workbench.charts), reading the curves (curves), several runs in one (comparison).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workbench.charts import Line, Point, chart, together
from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.series import smoothed

WIDE, NARROW, SMALL = (600, 250), (345, 250), (215, 150)  # pixels
BAND_KEYS = (Line("training, smoothed", []), Line("held-out clips", [], 2, "dots"))
NOISE_COLOURS = (1, 5, 3, 2, 6)  # from little noise to much: blue to red
EMPTY = "The curves begin with the first step."


def loss(curves: Curves, best: int | None, size: tuple[int, int] = WIDE) -> str:
    """The loss, detrended where the noise levels are known, that of held-out clips, and the best checkpoint.

    best: its step; marked where the held-out loss was measured at that very step
    """
    means = curves.detrended()
    raw = [(mean.step, mean.value) for mean in means] or curves.losses.points()
    held_out = curves.held_out_losses.points()
    marked = (best, f"best checkpoint, step {best}") if best is not None and len(held_out) > 2 else None
    lines = _training(raw, smoothed(means or curves.losses.means()))
    lines.append(Line("held-out clips", held_out, 2, "dots", marked))
    return chart("Loss", lines, size, "without the effect of the sampled noise levels" if means else "", curves.name)


def loss_per_step(curves: Curves) -> str:
    """The loss of each step and smoothed, as the optimizer saw it; "" where `loss` shows it already."""
    if not curves.detrended():
        return ""
    lines = _training(curves.losses.points(), curves.losses.smoothed())
    return chart("Loss per step", lines, NARROW, owner=curves.name)


def changes(curves: Curves, size: tuple[int, int] = NARROW) -> str:
    """How much the model's output has changed, on its own captions and on preservation prompts (the prior drift)."""
    own = Line("its own captions", curves.own_changes.points(), 3, "dots")
    others = Line("others: prior drift", curves.other_changes.points(), 6, "dots")
    return chart("Change of the model's output", [own, others], size, owner=curves.name)


def learning_rate(curves: Curves, size: tuple[int, int] = NARROW) -> str:
    """The learning rate by step."""
    return chart("Learning rate", [Line("learning rate", curves.rates.points(), 7)], size, owner=curves.name)


def noise_levels(curves: Curves) -> str:
    """The loss of held-out clips, a curve for each band of noise; "" where it was not measured by bands."""
    last = len(curves.held_out_bands) - 1
    words = {0: ", little noise", last: ", much noise"}
    lines = [
        Line(f"{curves.band_name(band)}{words.get(band, '')}", held_out.points(), NOISE_COLOURS[band])
        for band, held_out in enumerate(curves.held_out_bands)
    ]
    return chart("Held-out loss by noise level", lines, NARROW, owner=curves.name)


def bands(curves: Curves) -> str:
    """A small chart for each band of noise, little noise first, below a common legend; "" without any."""
    charts = []
    for band, (training, held_out) in enumerate(zip(curves.bands, curves.held_out_bands, strict=True)):
        measured = held_out.points()
        moved = f"{measured[-1][1] / measured[0][1] - 1:+.0%}" if len(measured) > 1 and measured[0][1] else ""
        pairs = zip(BAND_KEYS, (training.smoothed(), measured), strict=True)
        lines = [replace(key, points=points) for key, points in pairs]
        charts.append(chart(curves.band_name(band), lines, SMALL, moved.replace("-", "\N{MINUS SIGN}"), None))
    return together("Loss by noise level, little noise to much", BAND_KEYS, charts, curves.name)


def _training(raw: Sequence[Point], soft: Sequence[Point]) -> list[Line]:
    return [Line("training, each step", raw, 1, "faint"), Line("smoothed", soft)]
