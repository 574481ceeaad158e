"""The dataset in numbers, as pictures: how long clips are, their sizes, how much they move, what captions say."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.dataset_builder.checks.measures import FOLDER
from workbench.dataset_builder.checks.statistics import Histogram, Statistics
from workbench.ui.core import render
from workbench.ui.datasets.panel import DatasetPanel, DatasetView
from workbench.workspace import Workspace


class NumbersPanel(DatasetPanel):
    """Bars as plain HTML: nothing to load, nothing to wait for."""

    def __init__(self, workspace: Workspace) -> None:
        self.pictures = gr.HTML(elem_id="statistics")

    @property
    def view(self) -> dict[str, Any]:  # type: ignore[override]
        return {"pictures": self.pictures}

    def values(self, look: DatasetView) -> dict[str, Any]:
        checked = look.dataset.folder / FOLDER / "result.json"
        mark = (look.mark, checked.stat().st_mtime_ns if checked.exists() else 0)
        return {"pictures": (mark, lambda: _rendered(look.dataset.statistics))}


def _rendered(numbers: Statistics) -> str:
    notes = render.note(" ".join(numbers.notes), "plain" if numbers.clips else "empty")
    parts = [_histogram(histogram) for histogram in numbers.histograms.values()]
    parts += [_bars(title, counts) for title, counts in numbers.counts.items()]
    return f'{notes}<div class="statistics">{"".join(parts)}</div>'


def _histogram(histogram: Histogram) -> str:
    """Columns over their edges."""
    most, unit = max(histogram.counts), render.escaped(histogram.unit)
    columns = "".join(
        f'<i style="height:{100 * count / most:.1f}%" title="{low:g} to {high:g} {unit}: {count:,}"></i>'
        for low, high, count in zip(histogram.edges, histogram.edges[1:], histogram.counts, strict=False)
    )
    ends = f"<span>{histogram.edges[0]:g}</span><span>{histogram.edges[-1]:g} {unit}</span>"
    return (
        f'<section><h4>{render.escaped(histogram.title)}</h4><div class="columns">{columns}</div>'
        f'<div class="ends">{ends}</div></section>'
    )


def _bars(title: str, counts: dict[str, int], most: int = 12) -> str:
    """A bar a value, the most frequent first."""
    listed = list(counts.items())[:most]
    top = max(count for _, count in listed)
    rows = "".join(
        f'<li><span>{render.escaped(name)}</span><i style="width:{60 * count / top:.1f}%"></i><b>{count:,}</b></li>'
        for name, count in listed
    )
    more = f"<p>and {len(counts) - most:,} more</p>" if len(counts) > most else ""
    return f'<section><h4>{render.escaped(title)}</h4><ul class="shares">{rows}</ul>{more}</section>'
