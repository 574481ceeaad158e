"""The dataset check: start it, read what it found, fix it."""

from __future__ import annotations

import gradio as gr

from workbench.dataset_builder.settings import CheckSettings
from workbench.ui.core.boundary import EACH
from workbench.ui.core.view import Values
from workbench.ui.datasets.findings import FindingsList
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView
from workbench.ui.datasets.task_part import TaskForm, TaskPart
from workbench.workspace import Workspace


class CheckPanel(DatasetPanel):
    """The task, what it found, and the task that fixes what has to be encoded."""

    def __init__(self, workspace: Workspace) -> None:
        self.checking = TaskForm(workspace, "check", CheckSettings, "Check")
        with gr.Row(elem_classes="buttons"):
            self.fixing = TaskPart("fix", "fixing")
        self.fixing.build_progress()
        self.found = FindingsList(workspace)
        self.view, self.parts = [self.found.component], [self.checking, self.fixing]

    def values(self, look: DatasetView) -> Values:
        return {self.found.component: (look.mark, lambda: self.found.value(look.dataset))}

    def wire(self, host: DatasetHost) -> None:
        host.act(self.found.component.changed, lambda: None, **EACH)
