"""Captions by a model, in the background: on this machine, or by a server that speaks OpenAI's protocol."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.captioners import captioners
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import CaptionSettings
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.boundary import on
from workbench.ui.core.guide import CAPTIONS, guide_fold
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel
from workbench.ui.datasets.task_part import TaskForm
from workbench.workspace import Workspace


class CaptionPanel(DatasetPanel):
    """What the chosen captioner needs, its settings alone, and the task."""

    def __init__(self, workspace: Workspace) -> None:
        start = CaptionSettings().captioner
        guide_fold("Guide: captions and trigger words", "guide-captions", CAPTIONS)
        self.needs = gr.HTML(_needs(start), elem_id="captioner-needs")
        self.task = TaskForm(
            workspace, "caption", CaptionSettings, "Write captions", "Only for the marked clips", clips="chosen"
        )
        self.own = {name: self.task.form.field(name) for kind in captioners().values() for name in kind.reads}
        for name, field in self.own.items():
            field.visible = _reads(start, name)
        self.parts = [self.task]

    def wire(self, host: DatasetHost) -> None:
        captioner = self.task.form.field("captioner")
        on(captioner.change, self._follow, [captioner], [self.needs, *self.own.values()])
        host.change(self.task.beside.click, self._start_marked, [host.selected], form=self.task.form)

    def _follow(self, captioner: str) -> list[Any]:
        """Show what the captioner needs and reads, and nothing of the others."""
        return [_needs(captioner), *(gr.update(visible=_reads(captioner, name)) for name in self.own)]

    def _start_marked(self, dataset: Dataset, marked: list[str], settings: CaptionSettings) -> None:
        if not marked:
            raise ConfigError("no clip is marked: tick the boxes of some cards under Clips")
        self.task.begin(dataset, marked, settings.changed(which="chosen"))


def _reads(captioner: str, name: str) -> bool:
    """Whether the captioner reads that setting; an unknown one may read any."""
    kind = captioners().get(captioner)
    return kind is None or name in kind.reads


def _needs(captioner: str) -> str:
    kind = captioners().get(captioner)
    return render.note(f"{kind.title}. {kind.needs}") if kind else ""
