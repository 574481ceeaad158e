"""A LoKr is trained, resumed exactly, verified, sampled, merged, exported and imported; the rest is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.driving import create, go, saved, session
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.low_rank import factorized
from workbench.families.model import Model
from workbench.fit.gpus import HERE, gpu_of
from workbench.fit.memory import sizes
from workbench.loras.library import find
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.adapters import Adapters
from workbench.sampler.loras import Lora
from workbench.trainer import lora
from workbench.trainer.loop import export, preview
from workbench.workspace import Workspace

LOKR: dict[str, Any] = {"method": "lokr", "rank": 2, "alpha": 4.0, "lokr_factor": 4}
CPU = torch.device("cpu")


@pytest.mark.parametrize("factor", [2, 3, 4, 5, 8, 12, 16, 32])
def test_sizes_are_split_as_peft_splits_them(factor: int) -> None:
    from peft.tuners.lokr.layer import factorization

    for size in (7, 12, 32, 96, 127, 128, 360, 1536, 3072, 5120):
        assert factorized(size, factor) == factorization(size, factor)


@pytest.mark.parametrize("values", [{"rank": 2}, {"rank": 64}, {"rank": 2, "targets": "all-linear", "blocks": "0"}])
def test_it_computes_what_peft_would_and_its_size_is_known(toy_model: Model, values: dict[str, Any]) -> None:
    from peft.tuners.lokr.layer import LoKrLayer

    family, model = find_model(toy_model.source)
    transformer = family.load_transformer(Path(model.source), CPU, torch.float32)
    settings = TrainSettings(dataset="x", model=toy_model.source).changed(**{**LOKR, **values})
    trained = lora.attach(family, transformer, settings, seed=0)
    for _, parameter in trained:
        torch.nn.init.normal_(parameter)
    layers = [module for module in transformer.modules() if isinstance(module, LoKrLayer)]
    assert layers
    for layer in layers:
        x = torch.randn(2, 5, layer.in_features)
        change = layer.get_delta_weight("default")
        torch.testing.assert_close(layer(x), layer.base_layer(x) + x @ change.T, rtol=1e-4, atol=1e-4)
    estimated = sizes(settings, model, family.facts(model), gpu_of(HERE))
    assert estimated.trained == sum(parameter.numel() for _, parameter in trained)


@pytest.mark.parametrize(
    "values",
    [
        {"base_model_precision": "int8", "preservation_weight": 0.5, "gradient_checkpointing": "full"},
        {"dora": True, "lora_dropout": 0.5, "lora_init": "pissa"},  # settings of plain LoRAs, without effect here
    ],
)
def test_a_run_resumes_exactly(
    workspace: Workspace, dataset: Dataset, toy_model: Model, values: dict[str, Any]
) -> None:
    whole = create(workspace, toy_model.source, **{**LOKR, **values}, steps=4)
    want = saved(whole, 4)
    shutil.rmtree(whole.folder)
    broken = create(workspace, toy_model.source, **{**LOKR, **values}, steps=4)
    saved(broken, 2)
    assert saved(broken, 4) == want


@pytest.fixture
def finished(workspace: Workspace, dataset: Dataset, toy_model: Model) -> Run:
    """A LoKr that was trained, previewed, verified and exported."""
    values = {**LOKR, "preview_every": 2, "preview_steps": 1, "preview_prompts": ["a ring"], "steps": 2}
    run = create(workspace, toy_model.source, **values)
    made = go(run, 2)
    made.evaluate()
    preview(made)
    export(made)
    assert made.job.outcome["change"] > 0
    return run


def test_its_file_says_what_it_is_and_the_library_shows_it(workspace: Workspace, finished: Run) -> None:
    assert finished.lora is not None
    with safe_open(finished.lora, "pt") as file:
        names, notes = list(file.keys()), json.loads(file.metadata()["lora_adapter_metadata"])
    assert all(".lokr_w" in name for name in names)
    assert (notes["transformer.peft_type"], notes["transformer.r"], notes["transformer.alpha"]) == ("LOKR", 2, 4.0)
    shown = find(workspace, "runs/one")
    assert (shown.rank, shown.alpha, shown.lokr, shown.sound) == (2, 4.0, True, "")
    card = (finished.folder / "README.md").read_text()
    assert "A LoKr of rank 2, factor 4" in card
    assert "pipe.transformer.load_lora_adapter(" in card


def test_samples_and_formats_have_the_same_change(
    workspace: Workspace, finished: Run, toy_model: Model, tmp_path: Path
) -> None:
    assert finished.lora is not None
    family, model = find_model(toy_model.source)
    tensors, metadata = family.lora_tensors(finished.lora)
    weights = family.lora_weights(tensors, metadata)
    assert weights.converted == "a LoKr"
    assert weights.lost < 1e-6
    layer = weights.layers[0]
    factors = {name.rpartition(".")[2]: one for name, one in load_file(finished.lora).items() if layer in name}
    second = factors.get("lokr_w2")
    second = factors["lokr_w2_a"] @ factors["lokr_w2_b"] if second is None else second
    want = 2.0 * torch.kron(factors["lokr_w1"], second)
    pair = (weights.tensors[f"{layer}.lora_B.weight"], weights.tensors[f"{layer}.lora_A.weight"])
    torch.testing.assert_close(weights.scale_of(layer) * pair[0] @ pair[1], want, rtol=1e-4, atol=1e-6)

    written, notes = family.export_lora(weights, "comfyui")
    assert any(name.endswith(".lokr_w1") for name in written)
    again = family.lora_weights(written, notes)
    assert again.layers == weights.layers
    other = (again.tensors[f"{layer}.lora_B.weight"], again.tensors[f"{layer}.lora_A.weight"])
    torch.testing.assert_close(again.scale_of(layer) * other[0] @ other[1], want, rtol=1e-4, atol=1e-6)
    plain, _ = family.export_lora(weights, "portable")
    assert all(".lora_" in name for name in plain)

    transformer = family.load_transformer(Path(model.source), CPU, torch.float32)
    adapters = Adapters(family, family.load_pipeline(Path(model.source), transformer), model.title)
    (record,) = adapters.apply([Lora("one", finished.lora, 1.0)], tmp_path)
    assert record["converted"] == "a LoKr"


def test_a_run_goes_on_from_one_and_is_refused_another(workspace: Workspace, finished: Run, toy_model: Model) -> None:
    values = {**LOKR, "steps": 1, "dataset": "squares", "held_out": 1, "model": toy_model.source, "start_from": "one"}
    first = session(Run.create(workspace, TrainSettings().changed(**values), "two"))
    kept = load_file(finished.lora or Path())
    own = {f"transformer.{name}": one for name, one in lora.state(first.bare_transformer).items()}
    assert all(torch.equal(own[name], one) for name, one in kept.items())
    for wrong in ({"lokr_factor": 8}, {"method": "lora", "lokr_factor": 8}):
        with pytest.raises(ConfigError, match="one has"):
            Run.create(workspace, TrainSettings().changed(**{**values, **wrong}), "three")
