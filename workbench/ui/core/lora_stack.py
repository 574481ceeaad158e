"""The LoRAs of a sample or a merge as rows, each with its scale; the browser's half is assets/lora_stack.js.

The facts of a LoRA's file stand below its row; whether it fits the model is known once it is loaded. Not
covered: loading them (sampler.loras), the library itself (workbench.loras).
"""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field

from workbench.choices import choices_of
from workbench.errors import ConfigError
from workbench.loras import view
from workbench.loras.library import find
from workbench.policy import resolve
from workbench.sampler.loras import read_header
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.widgets import component
from workbench.workspace import Workspace
from workbench.workspace.lora_names import RUNS, is_name


class Everything(BaseModel):
    """A query for all LoRAs of the workspace."""

    model_config = ConfigDict(extra="forbid")


class ScaledLora(BaseModel):
    """One LoRA, as a setting names it."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=4096)


def lora_stack(workspace: Workspace, value: Sequence[str], elem_id: str) -> gr.HTML:
    """The component. Its value is a list of NAME=SCALE texts, as `SampleSettings.loras` has them."""
    return component(
        elem_id,
        list(value),
        render.script("lora_stack"),
        functions=[
            answering("lora_choices", Everything, lambda _: {"choices": choices(workspace)}),
            answering("lora_facts", ScaledLora, lambda named: {"text": facts(workspace, named.name)}),
        ],
    )


def choices(workspace: Workspace) -> list[dict[str, str]]:
    """What the picker offers: name, title and group."""
    spec = next(spec for spec in specs(SampleSettings) if spec.name == "loras")
    return [{"name": one.value, "title": one.title, "group": one.group} for one in choices_of(spec, workspace)]


def facts(workspace: Workspace, name: str) -> str:
    """The facts of a LoRA's file in one line. Raises ConfigError for one that is unsound or missing."""
    if name.endswith(".safetensors"):
        header = read_header(resolve(name, "loras"))
        made_for = header.metadata.get("base_model", "")
        return f"{len(header.tensors)} tensors" + (f", made for {made_for}" if made_for else "")
    known = name if is_name(name) else f"{RUNS}/{name}"
    if not is_name(known) or (known != name and "/" in name):
        return "From the Hub: downloaded when the video is generated."
    lora = find(workspace, known)
    if lora.sound:
        raise ConfigError(lora.sound)
    return ", ".join(f"{label}: {value}" for label, value in view.facts(lora))
