"""The curves of a run, read from the lines of metrics.jsonl. No torch.

Each line is looked at once, and what is kept does not grow with the steps (series); measurements, of which there are
few, are all kept. A run that went back to a checkpoint is read from the start again. Not covered: what the curves mean
(diagnosis), how they are rendered (charts).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.runs.analysis.detrending import Detrending
from workbench.runs.analysis.series import Mean, Series
from workbench.runs.analysis.visible_effect import VisibleEffect, from_line
from workbench.runs.metrics import MetricsReader

if TYPE_CHECKING:
    from workbench.runs.run import Run

BANDS = 5  # of noise, equally likely in training, the least noise first
BAND_POINTS = 200
CHART_POINTS = 400  # of each series where several share a chart that is rendered again while the run goes on


class Curves:
    """The numbers of a run so far.

    losses, rates, held_out_losses, own_changes, other_changes: to be plotted;  bands, held_out_bands: the losses in
    each band of noise;  held_out, changes, effects: measurements by step; changes are (own captions, preservation
    prompts), effects those of the previews
    name:    the run's
    last:    the newest training line
    version: rises whenever anything was read
    """

    def __init__(self, folder: Path) -> None:
        """folder: the run's"""
        self.name = folder.name
        self._reader = MetricsReader(folder)
        self.version = 0
        self._clear()

    def _clear(self) -> None:
        self.losses, self.rates = Series(CHART_POINTS), Series(CHART_POINTS)
        self.bands = [Series(BAND_POINTS) for _ in range(BANDS)]
        self._detrending = Detrending()
        self.held_out: dict[int, float] = {}
        self.changes: dict[int, tuple[float, float]] = {}
        self.effects: dict[int, VisibleEffect] = {}
        self.held_out_losses, self.own_changes, self.other_changes = (Series(BAND_POINTS) for _ in range(3))
        self.held_out_bands = [Series(BAND_POINTS) for _ in range(BANDS)]
        self.last: dict[str, Any] = {}

    def refresh(self) -> None:
        """Read what is new."""
        if self._reader.restarted():
            self._clear()
            self.version += 1
        for line in self._reader.lines():
            self._add(line)
            self.version += 1

    def _add(self, line: dict[str, Any]) -> None:
        step = line["step"]
        if "loss" in line:
            self.losses.add(step, line["loss"])
            self.last = line
            if "lr" in line:
                self.rates.add(step, line["lr"])
        for quantile, loss in line.get("samples", ()):
            if quantile is not None and loss is not None:
                self.bands[self.band(quantile)].add(step, loss)
                self._detrending.add(step, quantile, loss)
        if "held_out_loss" in line:
            self.held_out[step] = line["held_out_loss"]
            self.held_out_losses.add(step, line["held_out_loss"])
        for series, loss in zip(self.held_out_bands, line.get("held_out_bands", ()), strict=False):
            if loss is not None:
                series.add(step, loss)
        if (effect := from_line(line)) is not None:
            self.effects[step] = effect
        if "change_own" in line and "change_others" in line:
            self.changes[step] = line["change_own"], line["change_others"]
            self.own_changes.add(step, line["change_own"])
            self.other_changes.add(step, line["change_others"])

    def band(self, quantile: float) -> int:
        """Which band a quantile of noise lies in."""
        return min(max(int(quantile * BANDS), 0), BANDS - 1)

    def band_name(self, band: int) -> str:
        """A band as people read it: "0 to 20 %"."""
        return f"{100 * band // BANDS} to {100 * (band + 1) // BANDS} %"

    @property
    def smoothed(self) -> float | None:
        """The newest smoothed loss."""
        curve = self.losses.smoothed()
        return curve[-1][1] if curve else None

    def detrended(self) -> list[Mean]:
        """The loss without the effect of the sampled noise levels; empty for runs that did not write `samples`."""
        return self._detrending.means()

    @property
    def effect(self) -> VisibleEffect | None:
        """What the newest previews show; None before the first."""
        return list(self.effects.values())[-1] if self.effects else None

    def to_json(self) -> dict[str, list[tuple[int, float]]]:
        """Points (step, value) of the main curves, by name; those without a point left out."""
        found = {
            "learning rate": self.rates.points(),
            "loss, each step": self.losses.points(),
            "loss, smoothed": self.losses.smoothed(),
            "loss, held-out clips": self.held_out_losses.points(),
            "change, its own captions": self.own_changes.points(),
            "change, preservation prompts": self.other_changes.points(),
        }
        return {name: points for name, points in found.items() if points}


def curves_of(run: Run) -> Curves:
    """The curves of a run, all of them read."""
    curves = Curves(run.folder)
    curves.refresh()
    return curves
