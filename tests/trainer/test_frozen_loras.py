"""Frozen LoRAs on the base model: when they are active, exact results when off, resume, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.driving import create, go, saved, session
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, ResumeRefused
from workbench.families.model import Model
from workbench.runs.checks import check
from workbench.trainer.evaluation import EvaluationInput
from workbench.trainer.loop import export, preview
from workbench.trainer.session import Session
from workbench.workspace import Workspace


def write_lora(path: Path, seed: int, layers: tuple[str, ...] = ("to_q", "to_v", "to_out.0"), width: int = 16) -> Path:
    """Write a LoRA of random numbers in ComfyUI's format, with its own alpha."""
    noise = torch.Generator().manual_seed(seed)
    tensors = dict[str, torch.Tensor]()
    for layer in layers:
        name = f"transformer.transformer_blocks.0.attn1.{layer}"
        tensors[f"{name}.lora_down.weight"] = torch.randn(2, width, generator=noise)
        tensors[f"{name}.lora_up.weight"] = torch.randn(width, 2, generator=noise)
        tensors[f"{name}.alpha"] = torch.tensor(1.0)
    save_file(tensors, path)
    return path


@pytest.fixture
def width(toy_model: Model) -> int:
    config = json.loads((Path(toy_model.source) / "transformer" / "config.json").read_text())
    return int(config["num_attention_heads"] * config["attention_head_dim"])


def inputs_of(made: Session) -> EvaluationInput:
    return next(made.inputs.clips([made.data.train[0]]))


def output(made: Session) -> torch.Tensor:
    """Return the model's prediction for the first clip at half noise."""
    probe, item = inputs_of(made), made.data.train[0]
    assert probe.moments is not None
    latents = made.family.sample_latents(probe.moments, made.inputs.noise(item, "probe"))
    noised = probe.noised(made.schedule, latents, made.inputs.noise(item, "probe noise"), quantile=0.5)
    made.transformer.eval()
    with torch.no_grad():
        return made.family.predict(made.transformer, made.schedule, noised)


@pytest.mark.parametrize("attention", ["auto", "stock"])
def test_each_is_on_where_it_belongs_and_off_is_the_base_model_exactly(
    workspace: Workspace, dataset: Dataset, toy_model: Model, tmp_path: Path, width: int, attention: str
) -> None:
    plain = output(session(create(workspace, toy_model.source, attention=attention)))
    shutil.rmtree(workspace.runs)
    paths = {
        name: str(write_lora(tmp_path / f"{name}.safetensors", seed, width=width)) + "=0.5"
        for seed, name in enumerate(("training_adapter", "base_lora", "preview_lora"))
    }
    made = session(create(workspace, toy_model.source, attention=attention, **paths))
    both = output(made)
    with made.frozen.off():
        assert torch.equal(output(made), plain)
    found = {}
    for name in paths:
        with made.frozen.only({name}):
            found[name] = output(made)
    assert len({tuple(one.flatten()[:8].tolist()) for one in (plain, both, *found.values())}) == 5
    with made.frozen.previewing(), made.base_model():
        assert not torch.equal(output(made), plain), "base_lora and preview_lora are on without the LoRA, too"
    assert torch.equal(output(made), both)
    trained = {name for name, parameter in made.transformer.named_parameters() if parameter.requires_grad}
    assert trained
    assert all(".lora_" in name for name in trained)


def test_what_is_added_equals_the_weights_with_the_lora_merged(
    workspace: Workspace, dataset: Dataset, toy_model: Model, tmp_path: Path, width: int
) -> None:
    path = write_lora(tmp_path / "base.safetensors", 0, width=width)
    made = session(create(workspace, toy_model.source, base_lora=f"{path}=0.5"))
    beside = output(made)
    tensors = load_file(path)
    with made.frozen.off():
        for name, module in made.bare_transformer.named_modules():
            layer = f"transformer.{name}"
            if f"{layer}.alpha" in tensors:
                change = tensors[f"{layer}.lora_up.weight"] @ tensors[f"{layer}.lora_down.weight"]
                weight = getattr(module, "base_layer", module).weight
                weight.data += 0.5 * 1.0 / 2 * change
        torch.testing.assert_close(output(made), beside, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "values",
    [
        {"base_model_precision": "int8", "blocks_to_swap": 1, "gradient_checkpointing": "full"},
        {"lora_dropout": 0.2, "preservation_weight": 0.5},
    ],
)
def test_memory_levels_and_an_exact_resume(
    workspace: Workspace, dataset: Dataset, toy_model: Model, tmp_path: Path, width: int, values: dict[str, Any]
) -> None:
    path = write_lora(tmp_path / "base.safetensors", 0, width=width)
    adapter = write_lora(tmp_path / "adapter.safetensors", 1, width=width)
    values = {**values, "base_lora": str(path), "training_adapter": f"{adapter}=-1", "steps": 4}

    whole = create(workspace, toy_model.source, **values)
    want = saved(whole, 4)
    shutil.rmtree(whole.folder)
    broken = create(workspace, toy_model.source, **values)
    saved(broken, 2)
    assert saved(broken, 4) == want
    write_lora(path, 7, width=width)
    with pytest.raises(ResumeRefused, match="base_lora has changed"):
        session(broken)


def test_previews_and_export_say_what_is_needed(
    workspace: Workspace, dataset: Dataset, toy_model: Model, tmp_path: Path, width: int
) -> None:
    base = write_lora(tmp_path / "base.safetensors", 0, width=width)
    speed = write_lora(tmp_path / "speed.safetensors", 1, width=width)
    run = create(
        workspace,
        toy_model.source,
        base_lora=f"{base}=0.5",
        preview_lora=str(speed),
        preview_every=2,
        preview_steps=1,
        preview_prompts=["a ring"],
        steps=2,
    )
    made = go(run, 2)
    preview(made)
    record = json.loads(next((run.folder / "previews" / "step-00000002").glob("0.json")).read_text())
    assert record["settings"]["loras"] == [f"{base}=0.5", f"{speed}=1", "one=1"]
    export(made)
    with safe_open(run.folder / "lora.safetensors", "pt") as file:
        assert file.metadata()["trained_over_scale"] == "0.5"
        assert not [name for name in file.keys() if "frozen" in name or "beside" in name]  # noqa: SIM118
    card = (run.folder / "README.md").read_text()
    assert 'trained on top of the LoRA "base.safetensors" at strength 0.5' in card
    assert '["lora", "base"], [1.0, 0.5]' in card


def test_what_does_not_fit_is_refused_before_the_start(
    workspace: Workspace, dataset: Dataset, toy_model: Model, tmp_path: Path, width: int
) -> None:
    run = create(workspace, toy_model.source)
    other = write_lora(tmp_path / "other.safetensors", 0, width=width + 8)
    good = write_lora(tmp_path / "good.safetensors", 0, width=width)
    check(workspace, run.settings.changed(base_lora=str(good)))
    for values, said in (
        ({"base_lora": str(other)}, "only 0 of its 3 layers fit"),
        ({"preview_lora": "nobody"}, "preview_lora is 'nobody', which is neither a LoRA of the library"),
        ({"training_adapter": f"{good}=x"}, "write LORA=STRENGTH"),
        ({"base_lora": "one"}, "a run that has exported no LoRA"),
        ({"base_lora": str(good), "dora": True}, "dora is on and base_lora is set"),
        ({"base_lora": str(tmp_path / "x.pt")}, "convert it first"),
    ):
        with pytest.raises(ConfigError, match=said):
            check(workspace, run.settings.changed(**values))
