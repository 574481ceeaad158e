"""Captions by a model, in the background: on this machine, or by a server that speaks OpenAI's protocol."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.captioners import captioners
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.form import Form
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView, start_task
from workbench.ui.datasets.task_part import TaskPart
from workbench.workspace import Workspace


class CaptionPanel(DatasetPanel):
    """What each captioner needs, the form, and how it goes."""

    def __init__(self, workspace: Workspace) -> None:
        lines = "".join(
            f"<li><b>{render.escaped(kind.id)}</b>: {render.escaped(kind.title)}. {render.escaped(kind.needs)}</li>"
            for kind in captioners().values()
        )
        gr.HTML(f'<ul class="note">{lines}</ul>')
        self.form = Form(CaptionSettings, workspace, CaptionSettings())
        with gr.Row(elem_classes="buttons"):
            self.start = gr.Button("Write captions", variant="primary", elem_id="start-captions")
            self.marked = gr.Button("Only for the marked clips")
            self.task = TaskPart("caption")
        self.task.build_progress()

    @property
    def view(self) -> dict[str, Any]:  # type: ignore[override]
        return self.task.view

    def values(self, look: DatasetView) -> dict[str, Any]:
        return self.task.values(look.dataset)

    def wire(self, host: DatasetHost) -> None:
        host.act(self.start.click, self._start, self.form.inputs, [self.form.problems])
        host.act(self.marked.click, self._start_marked, [host.selected, *self.form.inputs], [self.form.problems])
        self.task.wire(host)

    def _start_marked(self, dataset: Dataset, names: list[str], *values: Any) -> str:
        if not names:
            raise ConfigError("no clip is marked: tick the boxes of some cards under Clips")
        return start_task(dataset, "caption", self.form, values, which="chosen", chosen=tuple(names))

    def _start(self, dataset: Dataset, *values: Any) -> str:
        return start_task(dataset, "caption", self.form, values)
