"""A task of a dataset in a panel: its form, Stop and Resume, progress while it works, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr

from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import FileResult, TaskSnapshot, task_snapshot
from workbench.dataset_builder.tasks import Name
from workbench.jobs import State
from workbench.settings import Settings
from workbench.ui.core import render
from workbench.ui.core.form import Form
from workbench.ui.core.view import Values, visible
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView
from workbench.workspace import Workspace

MOST_DETAILS = 40


class TaskPart(DatasetPanel):
    """Builds Stop, Resume and Dismiss where it is made; `build_progress` builds the rest where that is to stand."""

    script: str | None = None  # of the element that shows the progress

    def __init__(self, name: Name, label: str = "") -> None:
        """label: what the buttons name, where a panel has several tasks"""
        self.name = name
        self.stop = gr.Button(f"Stop {label}".strip(), variant="stop", visible=False)
        self.resume = gr.Button(f"Resume {label}".strip(), visible=False)
        self.dismiss = gr.Button("Dismiss the result", visible=False, elem_id=f"dismiss-{name}")

    def build_progress(self) -> None:
        self.progress = gr.HTML(elem_id=f"{self.name}-progress", js_on_load=self.script)
        self.view = [self.progress, self.stop, self.resume, self.dismiss]

    def values(self, look: DatasetView) -> Values:
        task = self.seen(look.dataset)
        return {
            self.progress: progress(task),
            self.stop: visible("stop" in task.actions),
            self.resume: visible("resume" in task.actions),
            self.dismiss: visible("dismiss" in task.actions),
        }

    def seen(self, dataset: Dataset) -> TaskSnapshot:
        """The task as it is shown."""
        return task_snapshot(dataset.task(self.name))

    def wire(self, host: DatasetHost) -> None:
        host.change(self.stop.click, lambda dataset: dataset.task(self.name).stop())
        host.change(self.resume.click, self._resume)
        host.change(self.dismiss.click, lambda dataset: dataset.task(self.name).dismiss())

    def _resume(self, dataset: Dataset) -> None:
        dataset.task(self.name).go_on()


class TaskForm(TaskPart):
    """A task with a form: also its settings, the button that starts it, and one beside it."""

    def __init__(
        self, workspace: Workspace, name: Name, settings: type[Settings], start: str, beside: str = "", clips: str = ""
    ) -> None:
        """start, beside: labels of the buttons;  clips: the setting that names clips, here those that are marked"""
        self.form, self.clips = Form(settings, workspace, without=[clips] if clips else ()), clips
        with gr.Row(elem_classes="buttons"):
            self.beside = gr.Button(beside, elem_id=f"beside-{name}", visible=bool(beside))
            self.start = gr.Button(start, variant="primary", elem_id=f"start-{name}")
            super().__init__(name)
        self.build_progress()

    def wire(self, host: DatasetHost) -> None:
        super().wire(host)
        host.change(self.start.click, self.begin, [host.selected], form=self.form)

    def begin(self, dataset: Dataset, marked: Sequence[str], settings: Settings) -> None:
        """Start the task. marked: file names of the clips that are marked under Clips"""
        there = {clip.file_name for clip in dataset.clips}
        clips = {self.clips: tuple(name for name in marked if name in there)} if self.clips else {}
        dataset.task(self.name).start(settings.changed(**clips))


def progress(task: TaskSnapshot) -> str:
    """A bar while it works, how it ended afterwards, nothing before the first start."""
    state = render.badge(task.state.value)
    if task.activity:
        return state + render.working(task.share, task.activity)
    if not task.sentence:
        return ""
    kind = {State.FINISHED: "good", State.STOPPED: "plain"}.get(task.state, "bad")
    log = f"<details><summary>Log</summary>{render.log_box(task.log)}</details>" if task.log else ""
    return (
        state + render.note(task.sentence, kind) + _files(task.files) + render.listed(task.details, MOST_DETAILS) + log
    )


def _files(found: Sequence[FileResult]) -> str:
    """What became of each file of an import."""
    rows = "".join(
        f"<li>{render.badge(one.outcome, one.tone)} <b>{render.escaped(one.name)}</b> "
        f"<span>{render.escaped(one.note)}</span></li>"
        for one in found
    )
    return f'<ul class="file-results" aria-label="Results of the import">{rows}</ul>' if rows else ""
