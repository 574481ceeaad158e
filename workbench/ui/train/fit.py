"""Does it fit? One line below the form of a new run: memory and time, before anything starts; the phases unfold.

Nothing is computed here: every change of the form asks fit, which loads no torch; measuring is a job. Not
covered: how the figures come about and look by phase (fit), what the settings mean (form).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.errors import ConfigError, WorkbenchError
from workbench.fit import levels, measurement
from workbench.fit.estimate import GPU_HELP, Fit, estimate, phases_html
from workbench.fit.gpus import CHOICES, HERE
from workbench.fit.warnings import run_warnings
from workbench.runs.settings import TrainSettings
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler, tick
from workbench.ui.core.form import Form
from workbench.workspace import Workspace

SECONDS = 1.0


class FitPart:
    """The line and the two buttons; with `more` the fold with the phases and the choice of a GPU."""

    def __init__(self, workspace: Workspace, form: Form[TrainSettings]) -> None:
        self.workspace, self.form = workspace, form
        with gr.Row(elem_classes="buttons fit"):
            self.line = gr.HTML(elem_id="fit-line")
            self.make = gr.Button("Fit to GPU", variant="primary", size="sm", visible=False, elem_id="fit-to-gpu")
            self.measure = gr.Button("Measure it", size="sm", elem_id="measure-fit")
        self.message = gr.HTML(elem_id="fit-said")

    def more(self) -> None:
        """Build the fold with the phases."""
        with gr.Accordion("Memory and time, by phase", open=False, elem_id="fit-more"):
            self.table = gr.HTML(elem_id="fit-table")
            self.gpu = gr.Dropdown(
                list(CHOICES),
                value=HERE,
                label="My GPU",
                info=GPU_HELP,
                allow_custom_value=True,
                elem_id="fit-gpu",
            )
            self.suit = gr.Button("Choose memory settings for this GPU", size="sm", elem_id="fit-suit")
        self._seen = [self.line, self.table, self.make]
        self.form.watch_all(tick(self.look), [self.gpu], self._seen)

    def wire(self, opened: Any) -> None:
        """Connect the listeners; `opened` is the event when a person opens the tab."""
        for button in (self.make, self.suit):
            self.fit(button.click)
        timer = gr.Timer(SECONDS, active=False)
        progress = [self.message, self.measure, timer]
        self.form.send(self.measure.click, handler(self.start_or_stop, [self.measure]), progress)
        followed = timer.tick(tick(self.follow), None, progress, **QUIET)
        self.form.send(followed.then, tick(self.look), self._seen, [self.gpu])
        opened(tick(self.follow_if_alive), None, progress, **QUIET)

    def fit(self, event: Any) -> Any:
        """Fill in the settings that fit at an event; returns the event after it."""
        return self.form.fill(event, self.fit_to_gpu, [self.gpu], [self.message], parsed=True)

    # ---- listeners

    def look(self, gpu: str, *values: Any) -> list[Any]:
        """Line, table and the first button as the form's values want them."""
        try:
            settings = self.form.parse(values)
            found = estimate(self.workspace, settings, gpu or HERE)
        except WorkbenchError as error:
            text = "" if isinstance(error, ConfigError) and error.problems else render.escaped(str(error))
            return [f'<p class="fit-line">{text}</p>' if text else "", "", gr.update(visible=False)]
        notes = "".join(render.note(one, "plain tight") for one in run_warnings(self.workspace, settings))
        return [line(found) + notes, phases_html(found), gr.update(visible=not found.fits)]

    def missing(self, settings: TrainSettings) -> str:
        """The line for settings that do not fit this machine, "" for those that do or cannot be estimated."""
        try:
            found = estimate(self.workspace, settings)
        except WorkbenchError:  # starting says what is wrong
            return ""
        return "" if found.fits else line(found)

    def fit_to_gpu(self, gpu: str, settings: TrainSettings) -> list[Any]:
        """What was changed, or what would help; and the fastest settings that fit, for the form."""
        found = levels.fit_to_gpu(self.workspace, settings, gpu or HERE)
        return [render.note(found.why, "good" if found.settings else "bad"), found.changed if found.settings else {}]

    def start_or_stop(self, *values: Any) -> list[Any]:
        """Measure what the form says; a measurement that is under way is stopped."""
        status = measurement.newest(self.workspace)
        if status is not None and status.state.alive:
            measurement.stop(status)
        else:
            measurement.start(self.workspace, self.form.parse(values))
        return self.follow()

    def follow(self) -> list[Any]:
        """How far the measurement is; the timer rests once it is over."""
        status = measurement.newest(self.workspace)
        alive = status is not None and status.state.alive
        label = "Stop measuring" if alive else "Measure it"
        return [message(measurement.progress(status), alive), gr.update(value=label), gr.Timer(active=alive)]

    def follow_if_alive(self) -> Any:
        status = measurement.newest(self.workspace)
        return self.follow() if status is not None and status.state.alive else gr.skip()


# ---- as HTML


def line(fit: Fit) -> str:
    """The one line: red where it does not fit."""
    kind = "plain tight" if fit.tight else "good" if fit.fits else "bad"
    advice = f" {render.escaped(fit.advice)}" if fit.advice else ""
    return f'<div class="note fit-line {kind}"><b>{render.escaped(fit.sentence)}</b>{advice}</div>'


def message(text: str, going: bool) -> str:
    """What the measurement does, with a bar while it does."""
    if not text:
        return ""
    return f'<p class="hint">{render.escaped(text)}</p>' + (render.bar(None) if going else "")
