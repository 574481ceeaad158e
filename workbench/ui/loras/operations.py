"""Operations on LoRAs: a form and a button for each, which start a job; the active ones, and how the last ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.families.lora_files import TORCH_FILES
from workbench.loras.converting import formats
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    ResizeSettings,
)
from workbench.loras.tasks import LoraTask
from workbench.loras.view import task_view
from workbench.settings import Settings
from workbench.ui.core import render
from workbench.ui.core.boundary import on
from workbench.ui.core.form import Form
from workbench.workspace import Workspace

# Settings of an operation -> its fold, its button, the button's element.
CHOSEN: dict[type[Settings], tuple[str, str, str]] = {
    ConvertSettings: ("For other programs", "Write the file", "lora-convert"),
    MergeSettings: ("Merge", "Merge", "lora-merge"),
    ResizeSettings: ("Resize", "Resize", "lora-resize"),
    FuseSettings: ("Fuse into the model", "Fuse", "lora-fuse"),
}
OTHERS: dict[type[Settings], tuple[str, str, str]] = {
    LoraImportSettings: ("Import a LoRA", "Import", "lora-take"),
    ExtractSettings: ("Extract a LoRA from a full fine-tune", "Extract", "lora-extracted"),
}
FILE = "A LoRA's file of any trainer: .safetensors, or a checkpoint of torch's (.pt)"
MOST_FINISHED = 3  # of those that are over
RECENT_SECONDS = 3600


class OperationPart:
    """A fold with the form of an operation and its button. `follows` shows the chosen LoRAs, where it is on those."""

    def __init__(self, workspace: Workspace, settings: type[Settings]) -> None:
        title, label, element = (CHOSEN | OTHERS)[settings]
        with gr.Accordion(title, open=False, elem_id=f"{element}-fold"):
            if settings is LoraImportSettings:
                types = [".safetensors", *TORCH_FILES]
                self.file = gr.File(label=FILE, file_types=types, height=140, buttons=[], elem_id="lora-file")
            self.form: Form[Any] = Form(settings, workspace, settings(), unset="")
            if settings is ConvertSettings:
                about = gr.HTML(_about(settings().format))
                on(self.form.field("format").change, _about, [self.form.field("format")], [about])
            self.start = gr.Button(label, variant="primary", elem_id=element)
        followed = [name for name in ("loras", "lora") if name in settings.model_fields]
        self.follows = self.form.field(followed[0]) if followed else None

    def value(self, names: Sequence[str]) -> Any:
        """What `follows` shows of the chosen LoRAs: all with their scales, or the only one."""
        if "loras" in self.form.settings.model_fields:
            return [f"{name}=1" for name in names]
        return names[0] if len(names) == 1 else ""


def _about(format: str) -> str:
    return next((f'<p class="hint">{render.escaped(one.help)}</p>' for one in formats() if one.id == format), "")


def operations(tasks: Sequence[LoraTask]) -> str:
    """The active operations, and the last that ended within the hour."""
    active = [task for task in tasks if task.status.state.alive]
    since = time.time() - RECENT_SECONDS
    over = [task for task in tasks if not task.status.state.alive and (task.status.ended_at or 0) > since]
    return "".join(map(_operation, [*active, *over[:MOST_FINISHED]]))


def _operation(task: LoraTask) -> str:
    view = task_view(task)
    if view.tone == "going":
        return f'{render.bar(view.share)}<p class="doing">{render.escaped(view.message)}</p>'
    downloads = "".join(f"<p>{render.download(one, one.name)}</p>" for one in view.downloads)
    matches = render.facts(view.matches) if view.matches else ""
    return render.note(view.message, view.tone) + matches + downloads + (render.log_box(view.log) if view.log else "")
