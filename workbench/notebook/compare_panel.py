"""Runs side by side in a notebook: curves over one another, results, settings that differ, previews; live.

Not covered: reading and judging the runs (runs.analysis.comparison).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from workbench.errors import ConfigError, WorkbenchError
from workbench.notebook import run_rendering
from workbench.notebook.live import Panel, Ticker
from workbench.runs.analysis.comparison import compare
from workbench.runs.run import Run
from workbench.runs.snapshot import SnapshotReader
from workbench.workspace import Workspace

SECONDS = 3.0
ROWS = 6  # of the list of runs


class ComparePanel(Panel):
    """A list of the workspace's runs, and the chosen ones compared."""

    def __init__(self, workspace: Workspace, runs: Sequence[Run]) -> None:
        """runs: those chosen at first"""
        self.workspace = workspace
        self._readers: dict[Path, SnapshotReader] = {}
        self._shown: tuple[Any, ...] = ()
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.Lock()
        names = [run.name for run in Run.all(workspace)]
        layout = widgets.Layout(width="100%", max_width="420px")
        self.chosen = widgets.SelectMultiple(options=names, rows=min(ROWS, len(names) or 1), layout=layout)
        self.chosen.value = tuple(run.name for run in runs)
        self.table = widgets.HTML()
        super().__init__([widgets.HTML(run_rendering.style()), self.chosen])
        self.box.children += (self.said, self.table)
        self.chosen.observe(lambda _: self.refresh(), names="value")
        self.ticker = Ticker(self._tick, SECONDS)
        self.refresh()
        self.ticker.start()

    def refresh(self) -> bool:
        """Read the chosen runs and show them, if anything is new. True: somebody may change them."""
        with self._lock:
            try:
                self._show()
            except (WorkbenchError, OSError) as error:
                self.say(str(error), "error")
        return True

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    def _tick(self) -> bool:
        names = tuple(run.name for run in Run.all(self.workspace))
        if names != tuple(self.chosen.options):
            kept = tuple(name for name in self.chosen.value if name in names)
            self.chosen.options = names
            self.chosen.value = kept
        return self.refresh()

    def _show(self) -> None:
        made = compare([Run.open(self.workspace, name) for name in self.chosen.value], self._readers)
        mark = tuple(
            (one.name, one.snapshot.curves.version, one.snapshot.headline, one.snapshot.saved) for one in made.runs
        )
        if mark == self._shown:
            return
        self._shown = mark
        widths = [one.snapshot.width for one in made.runs if one.snapshot.width]
        self.table.value = run_rendering.comparison(made, max(widths, default=None))
        self.say("")


def compare_panel(workspace: Workspace, *run_names: str) -> ComparePanel:
    """Runs side by side; others can be chosen in the panel. Raises ConfigError for a name that is none."""
    if not run_names and not Run.all(workspace):
        raise ConfigError("there is no run in this workspace yet: start one with train_panel")
    return ComparePanel(workspace, [Run.open(workspace, name) for name in run_names])
