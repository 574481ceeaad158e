"""Give the dataset away: as a folder or archive in another tool's layout, or as a dataset on the Hugging Face Hub."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.export import hub_push
from workbench.dataset_builder.export import job as export_job
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.errors import ConfigError
from workbench.publishing.upload_plan import UploadPlan
from workbench.ui.core import render
from workbench.ui.core.form import Form, sentences
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView, start_task
from workbench.ui.datasets.task_part import TaskPart
from workbench.ui.loras import publish_html
from workbench.workspace import Workspace


class ExportPanel(DatasetPanel):
    """The form of an export, and how it goes."""

    def __init__(self, workspace: Workspace) -> None:
        self.form = Form(ExportSettings, workspace, ExportSettings())
        with gr.Row(elem_classes="buttons"):
            self.look = gr.Button("Show what will go", elem_id="look-export")
            self.start = gr.Button("Export", variant="primary", elem_id="start-export")
            self.task = TaskPart("export")
        self.task.build_progress()
        self.going = gr.HTML(elem_id="export-going")

    @property
    def view(self) -> dict[str, Any]:  # type: ignore[override]
        return self.task.view

    def values(self, look: DatasetView) -> dict[str, Any]:
        return self.task.values(look.dataset)

    def wire(self, host: DatasetHost) -> None:
        host.act(self.look.click, self._going, self.form.inputs, [self.form.problems, self.going])
        host.act(self.start.click, self._start, self.form.inputs, [self.form.problems, self.going])
        self.task.wire(host)

    def _start(self, dataset: Dataset, *values: Any) -> list[str]:
        return [start_task(dataset, "export", self.form, values), ""]

    def _going(self, dataset: Dataset, *values: Any) -> list[str]:
        """Every file that would go to the Hub; to a disk, where they would go."""
        try:
            settings = self.form.parse(values)
            export_job.check(dataset.folder, settings)
        except ConfigError as error:
            return [sentences(error, ExportSettings), ""]
        if not settings.repo_id:
            clips = len(dataset.clips)
            sentence = f"{clips} clips and their captions, in the layout {settings.layout}, to {settings.target}"
            return ["", render.note(sentence)]
        files = hub_push.contents(dataset.folder, settings)
        return [
            "",
            publish_html.upload_plan(
                UploadPlan("dataset", settings.repo_id, settings.private, "", files), with_readme=True
            ),
        ]
