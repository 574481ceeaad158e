"""The curves of a run, read from the lines of metrics.jsonl. No torch.

Each line is looked at once, and what is kept does not grow with the steps (series); measurements, of which there are
few, are all kept. A run that went back to a checkpoint is read from the start again. Not covered: what the curves mean
(diagnosis), how they are rendered (charts).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.runs.analysis.detrending import Detrending
from workbench.runs.analysis.series import Mean, Series, smoothed
from workbench.runs.metrics import MetricsReader

if TYPE_CHECKING:
    from workbench.runs.run import Run

BANDS = 5  # of timesteps, the lowest noise first
TIMESTEPS = 1000  # of the schedule, when nobody says otherwise
BAND_POINTS = 200
CHART_POINTS = 400  # of each series where several share a chart that is rendered again while the run goes on

Row = tuple[int, float, str]  # step, value, the name of its series


class Curves:
    """The numbers of a run so far.

    held_out, changes: measurements by step; changes are (own captions, preservation prompts)
    last:    the newest training line
    version: rises whenever anything was read
    """

    def __init__(self, folder: Path, timesteps: int = TIMESTEPS) -> None:
        """folder: the run's; timesteps: those of its model's schedule."""
        self._timesteps = timesteps
        self._reader = MetricsReader(folder)
        self.version = 0
        self._clear()

    def _clear(self) -> None:
        self.losses, self.rates = Series(CHART_POINTS), Series(CHART_POINTS)
        self.bands = [Series(BAND_POINTS) for _ in range(BANDS)]
        self._detrending = Detrending(self._timesteps)
        self.held_out: dict[int, float] = {}
        self.changes: dict[int, tuple[float, float]] = {}
        self._held_out = Series(BAND_POINTS)
        self._held_out_bands = [Series(BAND_POINTS) for _ in range(BANDS)]
        self._changes = Series(BAND_POINTS), Series(BAND_POINTS)
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
        for timestep, loss in line.get("samples", ()):
            if timestep is not None and loss is not None:
                self.bands[self.band(timestep)].add(step, loss)
                self._detrending.add(step, timestep, loss)
        if "held_out_loss" in line:
            self.held_out[step] = line["held_out_loss"]
            self._held_out.add(step, line["held_out_loss"])
        for series, loss in zip(self._held_out_bands, line.get("held_out_bands", ()), strict=False):
            if loss is not None:
                series.add(step, loss)
        if "change_own" in line and "change_others" in line:
            self.changes[step] = changes = (line["change_own"], line["change_others"])
            for series, change in zip(self._changes, changes, strict=True):
                series.add(step, change)

    def band(self, timestep: float) -> int:
        """Which band a timestep lies in."""
        return min(max(int(timestep * BANDS / self._timesteps), 0), BANDS - 1)

    def band_name(self, band: int) -> str:
        """A band as people read it: "0 to 199"."""
        first, end = (round(edge * self._timesteps / BANDS) for edge in (band, band + 1))
        return f"{first} to {end - 1}"

    # ---- to be plotted

    @property
    def smoothed(self) -> float | None:
        """The newest smoothed loss."""
        curve = smoothed(self.losses.means())
        return curve[-1][1] if curve else None

    def detrended(self) -> list[Mean]:
        """The loss without the effect of the sampled timesteps; empty for runs that did not write `samples`."""
        return self._detrending.means()

    def loss_rows(self) -> list[Row]:
        """The loss of each step, smoothed, and that of held-out clips."""
        return [
            *_named(self.losses.points(), "each step"),
            *_named(smoothed(self.losses.means()), "smoothed"),
            *_named(self._held_out.points(), "held-out clips"),
        ]

    def detrended_rows(self) -> list[Row]:
        """The detrended loss as it is and smoothed, and that of held-out clips."""
        means = self.detrended()
        return [
            *_named([(mean.step, mean.value) for mean in means], "detrended"),
            *_named(smoothed(means), "detrended, smoothed"),
            *_named(self._held_out.points(), "held-out clips"),
        ]

    def band_rows(self) -> list[Row]:
        """The smoothed training loss of each timestep band."""
        return self._by_band(smoothed(series.means()) for series in self.bands)

    def held_out_band_rows(self) -> list[Row]:
        """The held-out loss of each timestep band."""
        return self._by_band(series.points() for series in self._held_out_bands)

    def _by_band(self, curves: Iterable[list[tuple[int, float]]]) -> list[Row]:
        return [row for band, points in enumerate(curves) for row in _named(points, self.band_name(band))]

    def change_rows(self) -> list[Row]:
        """How much the LoRA changes the model's output, relative to the base model's."""
        own, others = self._changes
        return [*_named(own.points(), "its own captions"), *_named(others.points(), "preservation prompts")]

    def to_json(self) -> dict[str, list[tuple[int, float]]]:
        """Points (step, value) of the main curves, by name."""
        rows = {"loss": self.loss_rows(), "change": self.change_rows()}
        found = {"learning rate": self.rate_rows()}
        for curve, each in rows.items():
            for step, value, name in each:
                found.setdefault(f"{curve}, {name}", []).append((step, value))
        return found

    def rate_rows(self) -> list[tuple[int, float]]:
        """(step, learning rate)."""
        return self.rates.points()


def curves_of(run: Run) -> Curves:
    """The curves of a run, all of them read."""
    timesteps = TIMESTEPS
    with contextlib.suppress(ConfigError):  # a run of a later version, or a model folder that is gone
        timesteps = find_model(run.settings.model)[0].timesteps
    curves = Curves(run.folder, timesteps)
    curves.refresh()
    return curves


def _named(points: Iterable[tuple[int, float]], name: str) -> list[Row]:
    return [(step, value, name) for step, value in points]
