"""Give the dataset away: as a folder or archive in another tool's layout, or as a dataset on the Hugging Face Hub."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.export import ExportSettings
from workbench.ui.datasets import head
from workbench.ui.datasets.panel import Host, Look, Panel, start_task
from workbench.ui.form import Form
from workbench.workspace import Workspace


class ExportPanel(Panel):
    """The form of an export, and how it goes."""

    def __init__(self, workspace: Workspace) -> None:
        self.form = Form(ExportSettings, workspace, ExportSettings())
        with gr.Row(elem_classes="buttons"):
            self.start = gr.Button("Export", variant="primary", elem_id="start-export")
            self.stop = gr.Button("Stop", variant="stop", visible=False)
        self.progress = gr.HTML(elem_id="export-progress")

    @property
    def view(self) -> dict[str, Any]:  # type: ignore[override]
        return {"progress": self.progress, "stop": self.stop}

    def values(self, look: Look) -> dict[str, Any]:
        task = look.dataset.task("export")
        status, result = task.status, task.result
        alive = status.state.alive
        made = result.get("url") or result.get("target") or ""
        return {
            "progress": head.task(status, "export", f"Written: {made} {result.get('left_behind', '')}"),
            "stop": (alive, lambda: gr.update(visible=alive)),
        }

    def wire(self, host: Host) -> None:
        host.act(self.start.click, self._start, self.form.inputs, [self.form.problems])
        host.act(self.stop.click, lambda dataset: dataset.task("export").stop())

    def _start(self, dataset: Dataset, *values: Any) -> str:
        return start_task(dataset, "export", self.form, values)
