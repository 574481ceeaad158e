"""One line above Start where a machine has several GPUs: use all of them for the new run.

Not covered: what that changes (fit.gpu_offer).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.fit.gpu_offer import offer
from workbench.jobs.devices import gpus
from workbench.runs.settings import TrainSettings
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler
from workbench.ui.core.form import Form


class GpusPart:
    """The button and what it has done. It is not there on a machine with one GPU or none."""

    def __init__(self, form: Form[TrainSettings]) -> None:
        self.form = form
        count = len(gpus())
        both = "both" if count == 2 else "all"
        self.use = gr.Button(f"{count} GPUs: use {both}", size="sm", visible=count > 1, elem_id="use-all-gpus")
        self.message = gr.HTML(elem_id="gpus-message")

    def wire(self) -> None:
        filled = [self.message, *self.form.inputs]
        self.form.follow(self.use.click(handler(self.fill), self.form.inputs, filled, **QUIET))

    def fill(self, *values: Any) -> list[Any]:
        """Fill the form so that the run takes all GPUs, and say what that means."""
        found = offer(self.form.parse(values))
        if found is None:
            text = "The run takes all GPUs already, or none, because its device is the processor."
            return [render.note(text, "plain"), *[gr.skip()] * len(self.form.inputs)]
        return [render.note(found.sentence, "good"), *self.form.write(found.changed)]
