"""LoRAs on miniatures, and the change of weights that a file makes, to compare it with its copy in another format."""

from __future__ import annotations

from typing import Any

import torch

from workbench.families.base import Family
from workbench.families.lora_files import LoraWeights, weights
from workbench.families.model import Model


def lora_on(family: Family, model: Model, part: str = "", mixed: bool = False, within: str = "") -> LoraWeights:
    """Make a LoRA on the linear layers whose names have `part` and `within`, with alpha unlike the rank.

    mixed: ranks and alphas differ from layer to layer
    """
    random = torch.Generator().manual_seed(3)
    found: dict[str, torch.Tensor] = {}
    alphas: dict[str, float] = {}
    for number, (name, linear) in enumerate(family.facts(model).named()):
        if part in name and within in name and name != "x_embedder.proj":  # a convolution
            rank = 2 + number % 3 if mixed else 2
            found[f"{name}.lora_A.weight"] = torch.randn(rank, linear.inputs, generator=random)
            found[f"{name}.lora_B.weight"] = torch.randn(linear.outputs, rank, generator=random)
            alphas[name] = 1.0 + number % 4 if mixed else 8.0
    return weights(found, alphas, "a test")


def pairs_on(transformer: Any, beginning: str) -> dict[str, torch.Tensor]:
    """Make the pairs of matrices of rank 2 on a transformer's linear layers whose names begin so, by layer names."""
    random, found = torch.Generator().manual_seed(3), dict[str, torch.Tensor]()
    for name, module in transformer.named_modules():
        if name.startswith(beginning) and isinstance(module, torch.nn.Linear):
            found[f"{name}.lora_A.weight"] = torch.randn(2, module.in_features, generator=random)
            found[f"{name}.lora_B.weight"] = torch.randn(module.out_features, 2, generator=random)
    return found


def changes(lora: LoraWeights) -> dict[str, torch.Tensor]:
    """What a LoRA adds to each layer's weight, in float32."""
    found = {}
    for layer in lora.layers:
        up, down = (lora.tensors[f"{layer}.lora_{one}.weight"].float() for one in "BA")
        found[layer] = lora.scale_of(layer) * (up.flatten(1) @ down.flatten(1)).reshape(up.shape[0], *down.shape[1:])
    return found


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], within: float = 1e-5) -> None:
    assert found.keys() == wanted.keys()
    for name, one in wanted.items():
        torch.testing.assert_close(found[name].float(), one, rtol=within, atol=within)
