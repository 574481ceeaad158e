"""The LoRA file: the same bytes every time, and never one that is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from workbench.errors import DataError, WorkbenchError
from workbench.families import find_model
from workbench.families.model import Model
from workbench.families.model_inputs import ModelInputs
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora

CPU = torch.device("cpu")


def test_the_file_says_what_it_is(toy_model: Model, tmp_path: Path) -> None:
    family, model = find_model(toy_model.source)
    transformer = family.load_transformer(Path(model.source), CPU, torch.float32)
    lora.attach(family, transformer, TrainSettings(dataset="x", rank=2, alpha=7.0), seed=0)
    lora.write(family, transformer, tmp_path / "l.safetensors", {"trigger_word": "zwx"})
    with safe_open(tmp_path / "l.safetensors", "pt") as file:
        metadata = file.metadata()
    described = json.loads(metadata["lora_adapter_metadata"])
    assert (described["transformer.r"], described["transformer.lora_alpha"]) == (2, 7.0)
    assert metadata["trigger_word"] == "zwx"


def test_values_that_are_no_numbers_are_never_published(toy_model: Model, tmp_path: Path) -> None:
    family, model = find_model(toy_model.source)
    transformer = family.load_transformer(Path(model.source), CPU, torch.float32)
    trainable = lora.attach(family, transformer, TrainSettings(dataset="x", rank=2), seed=0)
    trainable[0][1].data[0] = float("nan")
    with pytest.raises(DataError, match="not numbers"):
        lora.write(family, transformer, tmp_path / "l.safetensors", {})
    assert not (tmp_path / "l.safetensors").exists()


def test_an_export_may_be_off_by_as_much_as_the_model_rounds() -> None:
    base = torch.ones(64)
    trained = base * 1.001
    lora.judged(trained, trained * 1.0005, base, "l", torch.float16)
    with pytest.raises(WorkbenchError, match="off by"):
        lora.judged(trained, trained * 1.0005, base, "l")
    with pytest.raises(WorkbenchError, match="off by"):
        lora.judged(trained, trained * 1.01, base, "l", torch.float16)


def test_a_lora_that_changes_nothing_is_said_to(toy_model: Model, tmp_path: Path) -> None:
    family, model = find_model(toy_model.source)
    folder = Path(model.source)
    transformer = family.load_transformer(folder, CPU, torch.float32)
    lora.attach(family, transformer, TrainSettings(dataset="x", rank=2), seed=0)  # lora_B is zero
    lora.write(family, transformer, tmp_path / "l.safetensors", {})
    shape = family.latents_shape(folder, model.frames, model.height, model.width)
    text = family.encode_text(family.load_text_encoder(folder, CPU, torch.float32), ["a"])
    inputs = {
        "schedule": family.noise_schedule(folder, CPU),
        "inputs": ModelInputs(torch.randn(1, *shape), text, torch.randn(1, *shape), torch.tensor([500])),
    }
    with pytest.raises(WorkbenchError, match="changes nothing"):
        lora.prove(family, folder, transformer, tmp_path / "l.safetensors", inputs)
