"""Does it fit? In a notebook: the line below the settings, its phases in a fold, and the two buttons.

Every change of the form asks workbench.fit, which loads no torch; measuring is a job of its own. Not covered:
how the figures come about, starting the run (train_panel).
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.errors import WorkbenchError
from workbench.fit import levels, measurement, rows
from workbench.fit.estimate import Fit, estimate
from workbench.fit.gpus import CHOICES, HERE
from workbench.notebook.form import WidgetForm
from workbench.notebook.live import Panel, Ticker, button, folded
from workbench.notebook.rendering import escaped, note
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

BAR = "display:inline-block;height:9px;border-radius:3px;background:{colour};width:{width:.0f}px"
WIDE = 220  # pixels of a bar as long as the GPU's memory
COLOURS = {True: "#2f6fd0", False: "#c23434"}


class FitPart(Panel):
    """The line of a form of training settings. `measure` and `make_it_fit` are its buttons."""

    def __init__(self, workspace: Workspace, form: WidgetForm[TrainSettings]) -> None:
        self.workspace, self.form = workspace, form
        self.line, self.table = widgets.HTML(), widgets.HTML()
        self.gpu = widgets.Combobox(
            options=CHOICES, value=HERE, ensure_option=False, layout=widgets.Layout(width="160px")
        )
        self.make_button = button("Make it fit", rows.MAKE_HELP, "compress", width="130px")
        self.make_button.on_click(self.doing(self.make_it_fit))
        self.measure_button = button("Measure it", rows.MEASURE_HELP, "tachometer", width="150px")
        self.measure_button.on_click(self.doing(self.measure))
        help = widgets.HTML(f'<div style="opacity:.65;font-size:88%">{escaped(rows.GPU_HELP)}</div>')
        gpu = widgets.HBox([widgets.HTML("My GPU"), self.gpu, help], layout=widgets.Layout(flex_flow="row wrap"))
        fold = folded("Memory and time, by phase", widgets.VBox([self.table, gpu]))
        super().__init__([self.line, widgets.HBox([self.make_button, self.measure_button]), fold])
        self.box.children += (self.said,)
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
        """Estimate again; a form that breaks a rule says so itself."""
        try:
            found = self.fit
        except WorkbenchError as error:
            self.line.value, self.table.value = "", f'<div style="opacity:.75">{escaped(error)}</div>'
            return
        words_of = " ".join(filter(None, (found.sentence, found.advice)))
        self.line.value = note(words_of, "plain" if found.fits else "error")
        self.table.value = drawn(found)

    def make_it_fit(self) -> None:
        """Fill the form with the fastest settings that fit, and say which. Raises ConfigError."""
        found = levels.make_it_fit(self.workspace, self.form.settings, self.gpu.value or HERE)
        if found.settings is not None:
            self.form.set(found.changed)
        self.say(found.why, "plain" if found.settings is not None else "error")

    def measure(self) -> None:
        """Measure what the form says; stop a measurement that works. Raises ConfigError."""
        if self._job is not None and jobs.status(self._job).state.alive:
            measurement.stop(jobs.status(self._job))
            return
        self._job = measurement.start(self.workspace, self.form.settings)
        self._ticker.start()

    def _follow(self) -> bool:
        status = jobs.status(self._job)
        self.say(rows.progress(status))
        self.measure_button.description = "Stop measuring" if status.state.alive else "Measure it"
        if not status.state.alive:
            self.refresh()
        return status.state.alive

    def close(self) -> None:
        self._ticker.stop()
        super().close()


def drawn(found: Fit) -> str:
    """A row a phase with a bar, then what is needed beside the GPU."""
    lines = []
    for row in rows.rows(found):
        bar = BAR.format(colour=COLOURS[row.fits], width=min(2.0, row.share) * WIDE)
        lines.append(
            f'<tr title="{escaped(row.made_of)}"><td style="padding-right:14px">{escaped(row.name)}</td>'
            f'<td style="text-align:right;padding-right:10px">{rows.size(row.gb)}</td><td><span style="{bar}"></span> '
            f'<span style="opacity:.65">{"measured" if row.measured else ""}</span></td></tr>'
        )
    beside = "".join(f"<div><b>{escaped(name)}</b>: {escaped(text)}</div>" for name, text in rows.other_needs(found))
    gpu = f"{found.gpu.name}, {found.gpu.memory_gb:.0f} GB"
    return f'<div style="line-height:1.6">{escaped(gpu)}<table>{"".join(lines)}</table>{beside}</div>'
