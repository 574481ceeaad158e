"""The Curves sub-tab of Compare: chosen runs' curves in one chart, what differs, what came of each, their previews.

The browser remembers which runs were chosen; all else is read from the runs' files each time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from workbench.runs.analysis.comparison import MOST, Comparison, compare, comparison_html
from workbench.runs.run import Run
from workbench.runs.snapshot import SnapshotReader
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler
from workbench.ui.core.live import Live
from workbench.workspace import Workspace

EMPTY = "Choose two or more runs: their curves lie over one another, and what differs stands side by side."
TOO_FEW = "The curves of two or more runs lie over one another here, and what differs stands side by side."


class CurvesPart:
    """Builds the components; `wire` connects them."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        # Keeps the lines of metrics that were read already.
        self._readers: dict[Path, SnapshotReader] = {}
        self._lock = threading.Lock()
        with gr.Row(elem_classes="choosing"):
            self.chosen = gr.Dropdown(
                self._names(), value=[], multiselect=True, max_choices=MOST, label="Runs", scale=8, elem_id="compared"
            )
            self.refresh = gr.Button("Refresh", scale=0, min_width=150, elem_id="curves-refresh")
        self.comparison = gr.HTML(render.note(EMPTY, "empty"), elem_id="comparison")

    def wire(self, opened: Sequence[Any]) -> None:
        """Connect the listeners. opened: the events after which a person sees this."""
        remembered = gr.BrowserState([], storage_key="workbench-curves", secret="workbench")
        self.chosen.input(lambda names: names, self.chosen, remembered, **QUIET)
        self.chosen.input(handler(self._render, [self.chosen]), self.chosen, self.comparison, **QUIET)
        for event in (*opened, self.refresh.click):
            event(handler(self._refresh, [self.chosen]), remembered, [self.chosen, self.comparison], **QUIET)

    def _names(self) -> list[str]:
        return [status.name for status in self.live.statuses()]

    def _refresh(self, names: Sequence[str] | None) -> list[Any]:
        """The runs there are, those chosen that are still there, and what they show."""
        known = self._names()
        kept = [name for name in names or () if name in known]
        return [gr.update(choices=known, value=kept), self._render(kept)]

    def _render(self, names: Sequence[str] | None) -> str:
        runs = [Run.open(self.workspace, name) for name in names or ()]
        if len(self._names()) < 2:
            return render.empty_state(TOO_FEW, "Start a run", "#tab-train-button")
        if not runs:
            return render.note(EMPTY, "empty")
        with self._lock:
            return comparison(compare(runs, self._readers))


def comparison(made: Comparison) -> str:
    """A comparison as HTML, whose videos the server sends."""
    return comparison_html(made, lambda one, width: render.video(one.video, width, f"{one.prompt}, {one.title}"))
