"""The line above Start on a machine with several GPUs."""

from __future__ import annotations

import asyncio
from typing import Any

import gradio as gr
import pytest

from workbench.fit import gpu_offer
from workbench.jobs.devices import Device
from workbench.runs.settings import TrainSettings
from workbench.ui.core.form import Form
from workbench.ui.train import gpus
from workbench.workspace import Workspace


def made(workspace: Workspace) -> gpus.GpusPart:
    async def build() -> gpus.GpusPart:
        with gr.Blocks():
            return gpus.GpusPart(Form(TrainSettings, workspace, TrainSettings()))

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def test_it_is_there_with_several_gpus_alone_and_fills_the_form(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [Device("cuda", "a card", 24.0, index, f"GPU-{index}") for index in range(2)]
    for module in (gpus, gpu_offer):
        monkeypatch.setattr(module, "gpus", lambda: cards[:1])
    assert not made(workspace).use.visible
    for module in (gpus, gpu_offer):
        monkeypatch.setattr(module, "gpus", lambda: cards)
    part = made(workspace)
    assert (part.use.visible, part.use.value) == (True, "2 GPUs: use both")

    def press(**settings: Any) -> tuple[str, dict[str, Any]]:
        wanted = TrainSettings().changed(**settings).model_dump(mode="json")
        said, *filled = part.fill(*(update["value"] for update in part.form.write(wanted)))
        found = zip(part.form.specs, filled, strict=True)
        return said, {spec.name: update["value"] for spec, update in found if "value" in update}

    said, changed = press()
    assert "2 batches now instead of 1" in said
    assert changed == {"gpus": 2, "gradient_accumulation": 2}
    assert press(**changed)[1] == {}
