"""The LoRAs of a sample as rows, each with its scale; the browser's half is assets/lora_stack.js.

The facts of a LoRA's file stand below its row; whether it fits the model is known once it is loaded. Not
covered: loading them (sampler.loras), the library itself (workbench.loras).
"""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field

from workbench.choices import choices_of
from workbench.errors import ConfigError
from workbench.lora_names import RUNS, is_name
from workbench.loras.library import find
from workbench.policy import resolve
from workbench.sampler.loras import read_header
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.workspace import Workspace


class Everything(BaseModel):
    """A query for all LoRAs of the workspace."""

    model_config = ConfigDict(extra="forbid")


class ScaledLora(BaseModel):
    """One LoRA, as a setting names it."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=4096)


class LoraStack:
    """Builds the component. Its value is a list of NAME=SCALE texts, as `SampleSettings.loras` holds them."""

    def __init__(self, workspace: Workspace, value: Sequence[str], elem_id: str) -> None:
        self.workspace = workspace
        self.component = gr.HTML(
            value=list(value),
            html_template="",
            css_template=render.style("components"),
            js_on_load=render.script("lora_stack"),
            apply_default_css=False,
            server_functions=[
                answering("lora_choices", Everything, lambda _: {"choices": choices(workspace)}),
                answering("lora_facts", ScaledLora, lambda named: {"text": facts(workspace, named.name)}),
            ],
            elem_id=elem_id,
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
    parts = [
        f"rank {lora.rank}",
        f"alpha {lora.alpha:g}" if lora.alpha else "",
        f"{lora.steps} steps" if lora.steps else "",
        f"made for {lora.base_model}" if lora.base_model else "",
        f"trigger word: {lora.trigger}" if lora.trigger else "",
    ]
    return ", ".join(filter(None, parts))
