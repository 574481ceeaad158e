"""Runs side by side, from their snapshots: settings that differ, results, curves, previews of the same prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.display.charts import Line, Point, chart
from workbench.display.html import table, video_table
from workbench.errors import ConfigError
from workbench.runs.analysis.curves import Curves, smoothed
from workbench.runs.display import preview_video, viewed
from workbench.runs.previews import Preview
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, SnapshotReader
from workbench.settings import specs, value_text

SAME = "The settings are all the same."
MOST = 8  # more runs cannot be told apart by color
SIZE = (560, 260)
OF_THE_MOMENT = ("load", "stops_at")  # facts that are not results
Style = Literal["line", "dots"]
TRAINING = "Training loss, smoothed"
CHARTS: tuple[tuple[str, Callable[[Curves], Sequence[Point]], Style], ...] = (
    ("Loss of held-out clips", lambda curves: curves.held_out_losses.points(), "dots"),
    (TRAINING, lambda curves: curves.losses.smoothed(), "line"),
    ("Change of the model's output on its own captions", lambda curves: curves.own_changes.points(), "dots"),
    ("Prior drift: change on preservation prompts", lambda curves: curves.other_changes.points(), "dots"),
    ("Learning rate", lambda curves: curves.rates.points(), "line"),
)


@dataclass(frozen=True)
class Comparison:
    """Runs side by side. Tables are rows (what, a text for each run); "" where a run has no such thing."""

    runs: tuple[RunSnapshot, ...]

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.runs]

    @property
    def settings(self) -> list[tuple[str, list[str]]]:
        """The settings that differ."""
        found = []
        for spec in specs(TrainSettings):
            values = [value_text(getattr(one.settings, spec.name)) if one.settings else "?" for one in self.runs]
            if len(set(values) - {"?"}) > 1:
                found.append((spec.title, values))
        return found

    @property
    def results(self) -> list[tuple[str, list[str]]]:
        results = [_results(one) for one in self.runs]
        # The order of the run that has most of them; no run has one that stands elsewhere in another.
        names = max(([*result] for result in results), key=len, default=[])
        names += [name for result in results for name in result if name not in names]
        return [(name, [result.get(name, "") for result in results]) for name in dict.fromkeys(names)]

    @property
    def previews(self) -> list[tuple[str, list[Preview | None]]]:
        """(prompt, the base model's preview, then each run's newest of that prompt), for prompts of two runs or more.

        With one run only, for all of its prompts.
        """
        newest = [{preview.prompt: preview for preview in one.previews.previews if preview.step} for one in self.runs]
        every = [preview for one in self.runs for preview in one.previews.previews]
        base = {preview.prompt: preview for preview in every if not preview.step}
        prompts = dict.fromkeys(prompt for found in newest for prompt in found)
        least = min(2, len(self.runs))
        return [
            (prompt, [base.get(prompt), *(found.get(prompt) for found in newest)])
            for prompt in prompts
            if sum(prompt in found for found in newest) >= least
        ]

    def charts(self) -> list[str]:
        """The curves over one another, by step: a figure each, those without a point left out."""
        detrended = all(one.curves.detrended() for one in self.runs)  # one way for all, or they could not be compared
        found = []
        for title, points_of, style in CHARTS:
            if title == TRAINING and detrended:
                points_of = _detrended
            lines = [Line(one.name, points_of(one.curves), color, style) for color, one in enumerate(self.runs, 1)]
            found.append(chart(title, lines, SIZE))
        return [one for one in found if one]

    def _repr_html_(self) -> str:
        return viewed(comparison_html(self))


def compare(runs: Sequence[Run], readers: dict[Path, SnapshotReader] | None = None) -> Comparison:
    """Compare runs. Raises ConfigError for more than MOST of them.

    readers: by run folder, kept by whoever compares again and again: only what is new is read then
    """
    if len(runs) > MOST:
        raise ConfigError(f"{len(runs)} runs are chosen, at most {MOST} can be told apart: choose fewer")
    known = {} if readers is None else readers
    return Comparison(tuple(known.setdefault(run.folder, SnapshotReader(run)).read() for run in runs))


def _results(seen: RunSnapshot) -> dict[str, str]:
    found = {"state": seen.headline, "diagnosis": seen.diagnosis.kind if seen.diagnosis else ""}
    found |= {"steps": str(seen.curves.last.get("step", 0))}
    if seen.best_step is not None:
        found["best checkpoint"] = f"step {seen.best_step}"
    return found | {fact.label: fact.text for fact in seen.facts if fact.key not in OF_THE_MOMENT}


def _detrended(curves: Curves) -> Sequence[Point]:
    return smoothed(curves.detrended())


def comparison_html(found: Comparison, video_of: Callable[[Preview, int], str] = preview_video) -> str:
    """Curves over one another, results, the settings that differ, previews of the same prompts.

    video_of: makes a video of a preview and the width of its file
    """
    heads = ["", *found.names]
    results = table(heads, [[name, *values] for name, values in found.results])
    settings = table(heads, [[name, *values] for name, values in found.settings])
    widths = [one.width for one in found.runs]
    widths = [max(widths, default=0), *widths]

    def cell(one: Preview | None, width: int) -> str:
        return f"{video_of(one, width)}<figcaption>{one.title}</figcaption>" if one else ""

    rows = [(prompt, [*map(cell, several, widths)]) for prompt, several in found.previews]
    parts = {
        "What came of them": results,
        "Settings that differ": settings or (f'<p class="hint">{SAME}</p>' if len(found.runs) > 1 else ""),
        "Previews": video_table(["prompt", "base model", *found.names], rows),
    }
    sections = "".join(f'<h3 class="part">{title}</h3>{content}' for title, content in parts.items() if content)
    return f'<div class="overlaid">{"".join(found.charts())}</div>{sections}'
