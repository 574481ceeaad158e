"""Does a run fit? In a notebook: a line below the settings, its phases in a fold, and two buttons.

Every change of the form asks workbench.fit, which loads no torch; measuring is a job of its own. Not covered: the
estimate itself (fit), starting the run (train_panel).
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.errors import WorkbenchError
from workbench.fit import levels, measurement, rows
from workbench.fit.estimate import Fit, estimate
from workbench.fit.gpus import CHOICES, HERE
from workbench.html import escaped
from workbench.inline_html import BLUE, RED, html_table, note
from workbench.notebook.form import SettingsForm
from workbench.notebook.live import Panel, Ticker, folded, wrapped
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

BAR = "display:inline-block;height:9px;border-radius:3px;background:{colour};width:{width:.0f}px"
BAR_WIDTH = 220  # pixels of a bar as long as the GPU's memory


class FitView(Panel):
    """The fit of a form of training settings. `measure` and `make_it_fit` are its buttons."""

    def __init__(self, workspace: Workspace, form: SettingsForm[TrainSettings]) -> None:
        super().__init__()
        self.workspace, self.form = workspace, form
        self.line, self.table = widgets.HTML(), widgets.HTML()
        self.gpu = widgets.Combobox(
            options=CHOICES, value=HERE, ensure_option=False, layout=widgets.Layout(width="160px")
        )
        self.make_button = self.add_button("Make it fit", rows.MAKE_HELP, self.make_it_fit, "compress")
        self.measure_button = self.add_button("Measure", rows.MEASURE_HELP, self.measure, "tachometer")
        gpu = wrapped(widgets.HTML("GPU"), self.gpu, widgets.HTML(note(rows.GPU_HELP)))
        fold = folded("Memory and time by phase", widgets.VBox([self.table, gpu]))
        self.box.children = (self.line, wrapped(self.make_button, self.measure_button), fold, self.message)
        self._job: Any = None
        self._ticker = Ticker(self._follow)
        for field in (self.gpu, *form.fields.values()):
            field.observe(lambda _: self.refresh(), names="value")
        self.refresh()

    @property
    def fit(self) -> Fit:
        """What the form's settings need on the chosen GPU. Raises WorkbenchError."""
        return estimate(self.workspace, self.form.settings, self.gpu.value or HERE)

    def refresh(self) -> None:
        """Estimate again; a form that breaks a rule shows its own sentence."""
        try:
            found = self.fit
        except WorkbenchError as error:
            self.line.value, self.table.value = "", note(str(error))
            return
        words = " ".join(filter(None, (found.sentence, found.advice)))
        self.line.value = note(words, "plain" if found.fits else "error")
        self.table.value = fit_html(found)

    def make_it_fit(self) -> None:
        """Fill the form with the fastest settings that fit, and name them. Raises ConfigError."""
        found = levels.make_it_fit(self.workspace, self.form.settings, self.gpu.value or HERE)
        if found.settings is not None:
            self.form.set(found.changed)
        self.say(found.why, "plain" if found.settings is not None else "error")

    def measure(self) -> None:
        """Measure the form's settings; a second call stops the measurement. Raises ConfigError."""
        if self._job is not None and jobs.status(self._job).state.alive:
            measurement.stop(jobs.status(self._job))
            return
        self._job = measurement.start(self.workspace, self.form.settings)
        self._ticker.start()

    def _follow(self) -> bool:
        status = jobs.status(self._job)
        self.say(rows.progress(status))
        self.measure_button.description = "Stop measuring" if status.state.alive else "Measure"
        if not status.state.alive:
            self.refresh()
        return status.state.alive

    def close(self) -> None:
        self._ticker.stop()
        super().close()


def fit_html(found: Fit) -> str:
    """A row a phase with a bar, then what is needed besides the GPU's memory."""
    lines = []
    for row in rows.rows(found):
        bar = BAR.format(colour=BLUE if row.fits else RED, width=min(2.0, row.share) * BAR_WIDTH)
        name = f'<span title="{escaped(row.made_of)}">{escaped(row.name)}</span>'
        lines.append((name, rows.size(row.gb), f'<span style="{bar}"></span> {"measured" if row.measured else ""}'))
    beside = "".join(f"<div><b>{escaped(name)}</b>: {escaped(text)}</div>" for name, text in rows.other_needs(found))
    gpu = f"{found.gpu.name}, {found.gpu.memory_gb:.0f} GB"
    return note(gpu) + html_table(("phase", "memory", ""), lines) + beside
