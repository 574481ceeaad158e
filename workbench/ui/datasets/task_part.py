"""A task of a dataset in a panel: Stop and Resume, progress while it works, and how it ended.

Not covered: starting it (the panels), what is shown of it (dataset_builder.snapshot).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import TaskSnapshot, task_snapshot
from workbench.dataset_builder.tasks import Name
from workbench.jobs import State
from workbench.ui.core import render
from workbench.ui.datasets.panel import DatasetHost

MOST_DETAILS = 40


class TaskPart:
    """Builds Stop and Resume where it is made; `build_progress` builds the rest where that is to stand."""

    def __init__(self, name: Name, label: str = "") -> None:
        """label: what the buttons name, where a panel has several tasks"""
        self.name = name
        self.stop = gr.Button(f"Stop {label}".strip(), variant="stop", visible=False)
        self.resume = gr.Button(f"Resume {label}".strip(), visible=False)

    def build_progress(self) -> None:
        self.progress = gr.HTML(elem_id=f"{self.name}-progress")

    @property
    def view(self) -> dict[str, Any]:
        return {f"{self.name}_{part}": getattr(self, part) for part in ("progress", "stop", "resume")}

    def values(self, dataset: Dataset) -> dict[str, Any]:
        """What its components show, by their names in `view`."""
        task = task_snapshot(dataset.task(self.name))
        stop, resume = "stop" in task.actions, "resume" in task.actions
        return {
            f"{self.name}_progress": progress(task),
            f"{self.name}_stop": (stop, lambda: gr.update(visible=stop)),
            f"{self.name}_resume": (resume, lambda: gr.update(visible=resume)),
        }

    def wire(self, host: DatasetHost) -> None:
        host.act(self.stop.click, lambda dataset: dataset.task(self.name).stop())
        host.act(self.resume.click, self._resume)

    def _resume(self, dataset: Dataset) -> None:
        dataset.task(self.name).go_on()


def progress(task: TaskSnapshot) -> str:
    """A bar while it works, how it ended afterwards, nothing before the first start."""
    if task.activity:
        return f'{render.bar(task.share)}<p class="doing">{render.escaped(task.activity)}</p>'
    if not task.sentence:
        return ""
    kind = {State.FINISHED: "good", State.STOPPED: "plain"}.get(task.state, "bad")
    log = f"<details><summary>Log</summary>{render.log_box(task.log)}</details>" if task.log else ""
    return render.note(task.sentence, kind) + _details(task.details) + log


def _details(lines: tuple[str, ...]) -> str:
    more = [f"... and {len(lines) - MOST_DETAILS:,} more"] if len(lines) > MOST_DETAILS else []
    listed = "".join(f"<li>{render.escaped(line)}</li>" for line in [*lines[:MOST_DETAILS], *more])
    return f'<ul class="note">{listed}</ul>' if listed else ""
