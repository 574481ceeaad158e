"""Where a new run trains: the button above Start on a machine with several GPUs."""

from __future__ import annotations

import asyncio

import gradio as gr
import pytest

from tests.platforms import several_gpus
from workbench.fit import levels
from workbench.jobs.devices import Device
from workbench.runs.settings import TrainSettings
from workbench.ui.core.form import Form
from workbench.ui.train import machine
from workbench.workspace import Workspace


def made(workspace: Workspace) -> machine.MachinePart:
    async def build() -> machine.MachinePart:
        with gr.Blocks():
            return machine.MachinePart(workspace, Form(TrainSettings, workspace, TrainSettings()))

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


@several_gpus
def test_it_is_there_with_several_gpus_alone_and_fills_the_form(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [Device("cuda", "a card", 24.0, index, f"GPU-{index}") for index in range(2)]
    for module in (machine, levels):
        monkeypatch.setattr(module, "gpus", lambda: cards[:1])
    assert not made(workspace).use.visible
    for module in (machine, levels):
        monkeypatch.setattr(module, "gpus", lambda: cards)
    part = made(workspace)
    assert (part.use.visible, part.use.value) == (True, "2 GPUs: use both")

    said, changed = machine.take_all_gpus(TrainSettings())
    assert "2 batches now instead of 1" in said
    assert changed == {"gpus": 2, "gradient_accumulation": 2}
    said, changed = machine.take_all_gpus(TrainSettings().changed(**changed))
    assert "all GPUs already" in said
    assert changed == {}
