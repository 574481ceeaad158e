"""Runs side by side: where their settings differ, what came of each, their curves over one another, their previews of
the same prompts. Read from the runs' files; the page, a notebook and the shell show the same. No torch.

Not covered: one run in depth (report), how a chart is drawn (report_charts).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from workbench.errors import ConfigError
from workbench.jobs import duration
from workbench.runs.analysis.charts import Line, chart
from workbench.runs.analysis.curves import Curves, Row
from workbench.runs.analysis.diagnosis import Diagnosis, best_step, judge
from workbench.runs.analysis.report import curves_of
from workbench.runs.run import Preview, Run
from workbench.runs.sessions import seconds_used
from workbench.runs.settings import TrainSettings
from workbench.settings import specs

MOST = 8  # runs that can be told apart by their colours
SIZE = (560, 260)
Style = Literal["line", "dots"]
# Title, which numbers, how they are drawn.
CHARTS: tuple[tuple[str, str, Style], ...] = (
    ("Loss of held-out clips", "held out", "dots"),
    ("Training loss, smoothed", "loss", "line"),
    ("Change of the model's output on its own captions", "own", "dots"),
    ("Leak: change on prompts to leave alone", "others", "dots"),
    ("Learning rate", "rate", "line"),
)


@dataclass(frozen=True)
class Compared:
    """One run of a comparison. `settings` is None when a later version wrote them."""

    run: Run
    settings: TrainSettings | None
    curves: Curves
    verdict: Diagnosis

    @property
    def name(self) -> str:
        return self.run.name

    @cached_property
    def previews(self) -> list[Preview]:
        return [preview for preview in self.run.previews if preview.video.stem.isdecimal()]

    @property
    def results(self) -> dict[str, str]:
        """What came of it, by the names of the table's rows; what was not measured is left out."""
        held, changes, last = self.curves.held_out, list(self.curves.changes.values()), self.curves.last
        found = {"state": str(self.run.status.state), "verdict": self.verdict.kind, "steps": str(last.get("step", 0))}
        if held:
            best = min(held, key=lambda step: held[step])
            values = list(held.values())
            found["held-out loss"] = f"{values[0]:.4f} → {values[-1]:.4f}"
            found["best"] = f"{held[best]:.4f} at step {best}"
        if (step := best_step(held, self.run.checkpoints)) is not None:
            found["best checkpoint"] = f"step {step}"
        if changes:
            own, others = changes[-1]
            found["change of its own captions"] = f"{own:.1%}"
            found["leak"] = f"{others:.1%}" + (f" ({others / own:.2f} of it)" if own else "")
        if "seconds" in last:
            found["a step takes"] = f"{last['seconds']:.2f} s"
        found["time used"] = duration(seconds_used(self.run.folder))
        return found


@dataclass(frozen=True)
class Comparison:
    """Runs side by side. Tables are rows (what, a text for each run); "" where a run has no such thing."""

    runs: tuple[Compared, ...]

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.runs]

    @property
    def settings(self) -> list[tuple[str, list[str]]]:
        """The settings that are not the same in all of the runs."""
        found = []
        for spec in specs(TrainSettings):
            values = [_text(getattr(one.settings, spec.name)) if one.settings else "?" for one in self.runs]
            if len(set(values) - {"?"}) > 1:
                found.append((spec.title, values))
        return found

    @property
    def results(self) -> list[tuple[str, list[str]]]:
        results = [one.results for one in self.runs]
        # The order of the run that has most of them; no run has one that stands elsewhere in another.
        names = max(([*result] for result in results), key=len, default=[])
        names += [name for result in results for name in result if name not in names]
        return [(name, [result.get(name, "") for result in results]) for name in dict.fromkeys(names)]

    @property
    def previews(self) -> list[tuple[str, list[Preview | None]]]:
        """(prompt, the base model's preview, then each run's newest of that prompt), for prompts of two runs or more.

        With one run only, for all of its prompts.
        """
        newest = [{preview.prompt: preview for preview in one.previews if preview.step} for one in self.runs]
        base: dict[str, Preview] = {}
        for one in self.runs:
            base |= {preview.prompt: preview for preview in one.previews if not preview.step}
        prompts = dict.fromkeys(prompt for found in newest for prompt in found)
        least = min(2, len(self.runs))
        return [
            (prompt, [base.get(prompt), *(found.get(prompt) for found in newest)])
            for prompt in prompts
            if sum(prompt in found for found in newest) >= least
        ]

    def charts(self) -> list[str]:
        """The curves over one another, by step: a figure each, those without a point left out."""
        drawn = []
        for title, kind, style in CHARTS:
            lines = [Line(one.name, self._points(one, kind), place + 1, style) for place, one in enumerate(self.runs)]
            drawn.append(chart(title, lines, SIZE))
        return [one for one in drawn if one]

    def _points(self, one: Compared, kind: str) -> list[tuple[float, float]]:
        curves = one.curves
        if kind == "rate":
            return [(step, value) for step, value in curves.rate_rows()]
        if kind == "loss":  # only one way of taking it for all, or the runs could not be compared
            detrended = all(each.curves.detrended() for each in self.runs)
            return (
                _named(curves.detrended_rows(), "detrended, smoothed")
                if detrended
                else _named(curves.loss_rows(), "smoothed")
            )
        if kind == "held out":
            return _named(curves.loss_rows(), "held-out clips")
        return _named(curves.change_rows(), "its own captions" if kind == "own" else "to be left alone")


def compare(runs: Sequence[Run], known: dict[Path, Curves] | None = None) -> Comparison:
    """Read the runs. Raises ConfigError for more than MOST of them.

    known: curves by run folder, kept by whoever asks again and again: only what is new is read then
    """
    if len(runs) > MOST:
        raise ConfigError(f"{len(runs)} runs are chosen, at most {MOST} can be told apart: choose fewer")
    return Comparison(tuple(_compared(run, {} if known is None else known) for run in runs))


def _compared(run: Run, known: dict[Path, Curves]) -> Compared:
    settings = None
    with contextlib.suppress(ConfigError):  # of a later version: its numbers can be compared all the same
        settings = run.settings
    if run.folder in known:
        known[run.folder].refresh()
    else:
        known[run.folder] = curves_of(run)
    curves = known[run.folder]
    return Compared(run, settings, curves, judge(curves, run.checkpoints))


def _named(rows: Sequence[Row], name: str) -> list[tuple[float, float]]:
    return [(step, value) for step, value, series in rows if series == name]


def _text(value: Any) -> str:
    """A setting's value as people write it."""
    if value is None or value == () or value == "":
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return " / ".join(map(str, value)) if isinstance(value, tuple) else str(value)
