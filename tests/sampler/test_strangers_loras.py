"""LoRA files of other programs change a loaded model as their own programs do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file

from workbench.families import find_model
from workbench.sampler.adapters import Adapters
from workbench.sampler.loras import Lora

FAMILY, MODEL = find_model("tiny-cogvideox")
LAYERS = [f"transformer_blocks.{block}.attn1.to_{one}" for block in range(6) for one in "qkv"]
SIZES = {name: (one.outputs, one.inputs) for name, one in FAMILY.facts(MODEL).named()}
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def adapters() -> Adapters:
    folder = Path(MODEL.source)
    transformer = FAMILY.load_transformer(folder, torch.device("cpu"), torch.float32)
    return Adapters(FAMILY, FAMILY.load_pipeline(folder, transformer), MODEL.title)


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pairs(name: str = "transformer.{}", ends: tuple[str, str] = ("lora_A.weight", "lora_B.weight")) -> Tensors:
    found = {}
    for seed, layer in enumerate(LAYERS):
        outputs, inputs = SIZES[layer]
        text = name.format(layer.replace(".", "_") if name.endswith("_{}") else layer)
        found[f"{text}.{ends[0]}"] = values(4, inputs, seed=seed)
        found[f"{text}.{ends[1]}"] = values(outputs, 4, seed=seed)
    return found


def dense(scale: float = 1.0) -> Tensors:
    one = pairs("{}")
    return {layer: scale * one[f"{layer}.lora_B.weight"] @ one[f"{layer}.lora_A.weight"] for layer in LAYERS}


def applied(adapters: Adapters, path: Path, cache: Path, force: bool = False) -> tuple[Tensors, dict[str, Any]]:
    """Apply a LoRA; return what it adds to each weight of the loaded model, and its record."""
    (record,) = adapters.apply([Lora(path.name, path, 1.0)], cache, force)
    found = {}
    for name, module in adapters._pipeline.transformer.named_modules():
        if isinstance(module, LoraLayer):
            for adapter in module.active_adapters:
                if adapter in module.lora_A:
                    found[name] = module.get_delta_weight(adapter).detach()
    return found, record


KOHYA = pairs("lora_unet_{}", ("lora_down.weight", "lora_up.weight"))
FILES: dict[str, tuple[Tensors, dict[str, str], Tensors]] = {
    "notes that peft does not know": (
        pairs(),
        {"lora_adapter_metadata": json.dumps({"transformer.lora_alpha": 8, "transformer.r": 4, "transformer.new": 1})},
        dense(2.0),
    ),
    "alpha in the metadata": (pairs(), {"lora_alpha": "8"}, dense(2.0)),
    "kohya": (KOHYA, {"ss_network_alpha": "2"}, dense(0.5)),
    "fp8": (
        {name: one.to(torch.float8_e4m3fn) for name, one in pairs().items()},
        {},
        {
            layer: pairs()[f"transformer.{layer}.lora_B.weight"].to(torch.float8_e4m3fn).float()
            @ pairs()[f"transformer.{layer}.lora_A.weight"].to(torch.float8_e4m3fn).float()
            for layer in LAYERS
        },
    ),
    "LoKr": (
        {
            f"transformer.{layer}.lokr_{name}": values(4, 4) if name == "w1" else values(SIZES[layer][0] // 4, 32)
            for layer in LAYERS
            for name in ("w1", "w2")
        },
        {},
        {layer: torch.kron(values(4, 4), values(SIZES[layer][0] // 4, 32)) for layer in LAYERS},
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_the_loaded_model_changes_as_in_the_writers_program(kind: str, adapters: Adapters, tmp_path: Path) -> None:
    tensors, metadata, wanted = FILES[kind]
    save_file({name: one.contiguous() for name, one in tensors.items()}, tmp_path / "x.safetensors", metadata)
    found, record = applied(adapters, tmp_path / "x.safetensors", tmp_path)
    assert found.keys() == wanted.keys()
    for name, one in wanted.items():
        torch.testing.assert_close(found[name], one, rtol=1e-3, atol=1e-3)
    assert (record["matched"], record["layers"]) == (len(LAYERS), len(LAYERS))


def test_flat_matrices_of_a_convolution_are_folded(adapters: Adapters, tmp_path: Path) -> None:
    outputs, inputs = SIZES["patch_embed.proj"]
    flat = {"transformer.patch_embed.proj.lora_A.weight": values(2, inputs)}
    flat["transformer.patch_embed.proj.lora_B.weight"] = values(outputs, 2)
    save_file(flat, tmp_path / "x.safetensors")
    found, _ = applied(adapters, tmp_path / "x.safetensors", tmp_path)
    one = found["patch_embed.proj"]
    torch.testing.assert_close(one.flatten(1), values(outputs, 2) @ values(2, inputs), rtol=1e-4, atol=1e-4)
