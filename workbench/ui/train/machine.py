"""Where a new run trains: on all GPUs of this machine, where it has several, or on one of the workspace's targets."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.fit.levels import offer
from workbench.jobs.devices import gpus
from workbench.remote import targets
from workbench.runs.settings import TrainSettings
from workbench.ui.core import render
from workbench.ui.core.boundary import TICK, tick
from workbench.ui.core.form import Form
from workbench.workspace import Workspace

HELP = "Add targets in a terminal: workbench targets. Such a run looks here like any other."


class MachinePart:
    """A button that takes all GPUs, hidden where there are not several; a choice, hidden while there are no targets."""

    def __init__(self, workspace: Workspace, form: Form[TrainSettings]) -> None:
        self.workspace, self.form = workspace, form
        count = len(gpus())
        both = "both" if count == 2 else "all"
        offered = offer(TrainSettings()) is not None
        self.use = gr.Button(f"{count} GPUs: use {both}", size="sm", visible=offered, elem_id="use-all-gpus")
        self.message = gr.HTML(elem_id="gpus-message")
        self.target = gr.Dropdown(
            [targets.LOCAL], value=targets.LOCAL, label="Target", info=HELP, visible=False, elem_id="train-target"
        )

    def wire(self, opened: Any) -> None:
        self.form.fill(self.use.click, take_all_gpus, outputs=[self.message], parsed=True)
        opened(tick(self._targets), None, self.target, **TICK)

    def _targets(self) -> Any:
        known = [targets.LOCAL, *targets.names(self.workspace)]
        return gr.update(choices=known, visible=len(known) > 1)


def take_all_gpus(settings: TrainSettings) -> list[Any]:
    """What taking all GPUs means, and the settings that do so."""
    found = offer(settings)
    if found is None:
        return [render.note("The run takes all GPUs already, or its device is the processor or one GPU."), {}]
    return [render.note(found.sentence, "good"), found.changed]
