"""The change of weights that a LoRA file makes, by layer, to compare a file with its copy in another format."""

from __future__ import annotations

import torch

from workbench.families.lora_files import LoraWeights


def changes(lora: LoraWeights) -> dict[str, torch.Tensor]:
    tensors = lora.tensors
    return {
        layer: lora.scale_of(layer) * tensors[f"{layer}.lora_B.weight"] @ tensors[f"{layer}.lora_A.weight"]
        for layer in lora.layers
    }


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, one in wanted.items():
        torch.testing.assert_close(found[name], one, rtol=1e-5, atol=1e-5)
