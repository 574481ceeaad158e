"""Does a run fit? In a notebook: a line below the settings, its phases in a fold, and two buttons.

Every change of the form asks workbench.fit, which loads no torch; measuring is a job of its own.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.display import charts
from workbench.display.inline_html import note
from workbench.errors import WorkbenchError
from workbench.fit import levels, measurement
from workbench.fit.estimate import GPU_HELP, Fit, estimate, phases_html
from workbench.fit.gpus import CHOICES, HERE
from workbench.fit.warnings import run_warnings
from workbench.notebook.form import SettingsForm
from workbench.notebook.live import Panel, folded, wrapped
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

WIDTH = 640  # pixels that the bars take at most


class FitView(Panel):
    """The fit of a form of training settings. `measure` and `fit_to_gpu` are its buttons."""

    def __init__(self, workspace: Workspace, form: SettingsForm[TrainSettings]) -> None:
        super().__init__()
        self.workspace, self.form = workspace, form
        self.line, self.table = widgets.HTML(), widgets.HTML()
        self.gpu = widgets.Combobox(
            options=CHOICES, value=HERE, ensure_option=False, layout=widgets.Layout(width="160px")
        )
        self.make_button = self.add_button("Fit to GPU", levels.HELP, self.fit_to_gpu, "compress")
        self.measure_button = self.add_button("Measure", measurement.HELP, self.measure, "tachometer")
        gpu = wrapped(widgets.HTML("GPU"), self.gpu, widgets.HTML(note(GPU_HELP)))
        fold = folded("Memory and time by phase", widgets.VBox([self.table, gpu]))
        self.box.children = (self.line, wrapped(self.make_button, self.measure_button), fold, self.message)
        self._job: Any = None
        for field in (self.gpu, *form.fields.values()):
            field.observe(lambda _: self.refresh(), names="value")
        self.refresh()

    @property
    def fit(self) -> Fit:
        """What the form's settings need on the chosen GPU. Raises WorkbenchError."""
        return estimate(self.workspace, self.form.settings, self.gpu.value or HERE)

    def _show(self) -> bool:
        """Estimate again; a form that breaks a rule shows its own sentence."""
        try:
            found = self.fit
        except WorkbenchError as error:
            self.line.value, self.table.value = "", note(str(error))
            return False
        notes = [note(one) for one in run_warnings(self.workspace, self.form.settings)]
        self.line.value = "".join([note(found.summary, "plain" if found.fits else "error"), *notes])
        bars = f'<div style="max-width:{WIDTH}px">{phases_html(found)}</div>'
        self.table.value = charts.style() + bars
        return False

    def fit_to_gpu(self) -> None:
        """Fill the form with the fastest settings that fit, and name them. Raises ConfigError."""
        found = levels.fit_to_gpu(self.workspace, self.form.settings, self.gpu.value or HERE)
        if found.settings is not None:
            self.form.set(found.changed)
        self.say(found.why, "plain" if found.settings is not None else "error")

    def measure(self) -> None:
        """Measure the form's settings; a second call stops the measurement. Raises ConfigError."""
        if self._job is not None and jobs.status(self._job).state.alive:
            measurement.stop(jobs.status(self._job))
            return
        self._job = measurement.start(self.workspace, self.form.settings)
        self.ticker.start()

    def _tick(self) -> bool:
        """Follow the measurement."""
        status = jobs.status(self._job)
        self.say(measurement.progress(status))
        self.measure_button.description = "Stop measuring" if status.state.alive else "Measure"
        if not status.state.alive:
            self.refresh()
        return status.state.alive
