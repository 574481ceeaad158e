"""Give the dataset away: as a download, a folder or archive in another tool's layout, or a dataset on the Hub."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from workbench.dataset_builder import export
from workbench.dataset_builder import export as export_job
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import ExportSettings
from workbench.display.quantities import byte_size
from workbench.publishing.upload_plan import UploadPlan
from workbench.ui.core import render
from workbench.ui.core.boundary import on
from workbench.ui.core.view import Values
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView
from workbench.ui.datasets.task_part import TaskForm
from workbench.ui.loras import publish_html
from workbench.workspace import Workspace


class ExportPanel(DatasetPanel):
    """The download, the task for other places, and a preview of what it would write."""

    def __init__(self, workspace: Workspace) -> None:
        gr.HTML(
            render.note(
                "Each clip is called by its source and times. In the layout videofolder a caption is in a .txt file "
                "beside its video, and all of them in metadata.jsonl: this page imports it again, and trainers read it."
            )
        )
        with gr.Row(elem_classes="buttons"):
            self.download = gr.Button("Make a zip to download", variant="primary", elem_id="export-download")
        self.link = gr.HTML(elem_id="export-link")
        self.view = [self.link]
        self.task = TaskForm(workspace, "export", ExportSettings, "Export", "Show what will go")
        self.plan = gr.HTML(elem_id="export-plan")
        self.parts = [self.task]

    def values(self, look: DatasetView) -> Values:
        found = export.finished_download(look.dataset.folder)
        return {self.link: (found, lambda: _link(found) if found else "")}

    def wire(self, host: DatasetHost) -> None:
        host.change(self.download.click, _download, form=self.task.form)
        host.change(self.task.beside.click, _plan, outputs=[self.plan], form=self.task.form)
        on(self.task.start.click, lambda: "", outputs=[self.plan])


def _download(dataset: Dataset, settings: ExportSettings) -> None:
    export.start_download(dataset.folder, settings)


def _link(archive: Path) -> str:
    """Where the browser gets the file, which the server reads from the disk as it sends it."""
    return f"{render.download(archive, archive.name)} ({byte_size(archive.stat().st_size)})"


def _plan(dataset: Dataset, settings: ExportSettings) -> str:
    """Every file that would go to the Hub; to a disk, where they would go. Raises ConfigError."""
    export_job.check(dataset.folder, settings)
    if not settings.repo_id:
        clips = len(dataset.clips)
        return render.note(f"{clips} clips and their captions, in the layout {settings.layout}, to {settings.target}")
    files = export.contents(dataset.folder, settings)
    return publish_html.upload_plan(
        UploadPlan("dataset", settings.repo_id, settings.private, "", files), with_readme=True
    )
