"""The dataset in numbers, as pictures: how long clips are, their sizes, how much they move, what captions say."""

from __future__ import annotations

import gradio as gr

from workbench.dataset_builder.checks.measures import FOLDER
from workbench.dataset_builder.checks.statistics import Statistics
from workbench.ui.core import render
from workbench.ui.core.view import Values
from workbench.ui.datasets.panel import DatasetPanel, DatasetView
from workbench.workspace import Workspace


class NumbersPanel(DatasetPanel):
    """Bars as plain HTML: nothing to load, nothing to wait for."""

    def __init__(self, workspace: Workspace) -> None:
        self.pictures = gr.HTML(elem_id="statistics")
        self.view = [self.pictures]

    def values(self, look: DatasetView) -> Values:
        checked = look.dataset.folder / FOLDER / "result.json"
        mark = (look.mark, checked.stat().st_mtime_ns if checked.exists() else 0)
        return {self.pictures: (mark, lambda: _rendered(look.dataset.statistics))}


def _rendered(numbers: Statistics) -> str:
    notes = render.note(" ".join(numbers.notes), "plain" if numbers.clips else "empty")
    return f'{notes}<div class="statistics">{"".join(numbers.charts)}</div>'
