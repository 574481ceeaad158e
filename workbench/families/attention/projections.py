"""Query, key and value as one layer, and the first matrices of their LoRAs together: fewer and larger multiplications.

For families whose attention processor calls `project`. What it does not know how to join (DoRA, dropout, LoRAs of some
projections only, other adapters) goes through the layers' own forward. Not covered: projections of another width, such
as those of a caption that is only looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

PROJECTIONS = ("to_q", "to_k", "to_v")


def join(attentions: Sequence[Any]) -> None:
    """Put the frozen weights of query, key and value of each into one layer, whose parts the three go on using.

    After LoRAs are attached: they need the three layers apart. Layers with weights that are trained stay as they are.
    """
    for attention in attentions:
        layers = [getattr(attention, name) for name in PROJECTIONS]
        bases = [getattr(layer, "base_layer", layer) for layer in layers]
        if all(type(base) is nn.Linear and not base.weight.requires_grad for base in bases):
            attention.to_qkv = _joined(bases)
            for index, (name, layer) in enumerate(zip(PROJECTIONS, layers, strict=True)):
                part = JoinedProjection(attention, index)
                if layer is bases[index]:
                    setattr(attention, name, part)
                else:
                    layer.base_layer = part


def _joined(layers: list[Any]) -> nn.Linear:
    first = layers[0]
    joined = nn.Linear(first.in_features, sum(layer.out_features for layer in layers), device="meta")
    joined.weight = nn.Parameter(torch.cat([layer.weight for layer in layers]), requires_grad=False)
    joined.bias = None
    if first.bias is not None:
        joined.bias = nn.Parameter(torch.cat([layer.bias for layer in layers]), requires_grad=False)
    return joined


class JoinedProjection(nn.Module):
    """One of the projections whose weights lie together in the attention's `to_qkv`."""

    def __init__(self, attention: nn.Module, index: int) -> None:
        super().__init__()
        joined: Any = attention.to_qkv
        self._whole = (attention,)  # in a tuple, so that the weights are not listed twice
        self.in_features, self.out_features = joined.in_features, joined.out_features // len(PROJECTIONS)
        self._rows = slice(index * self.out_features, (index + 1) * self.out_features)

    @property
    def weight(self) -> torch.Tensor:
        weight: torch.Tensor = self._whole[0].to_qkv.weight[self._rows]
        return weight

    @property
    def bias(self) -> torch.Tensor | None:
        bias = self._whole[0].to_qkv.bias
        return None if bias is None else bias[self._rows]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.linear(hidden, self.weight, self.bias)


def project(attn: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Query, key and value of tokens [B, T, width]."""
    layers = [getattr(attn, name) for name in PROJECTIONS]
    loras = _joinable(layers) if hasattr(attn, "to_qkv") else None
    if loras is None:
        return tuple(layer(tokens) for layer in layers)
    plain: tuple[torch.Tensor, ...] = attn.to_qkv(tokens).chunk(len(layers), dim=-1)
    if not loras:
        return plain
    downs, ups, scales = zip(*loras, strict=True)
    inner = functional.linear(tokens, torch.cat(downs).to(tokens.dtype)).split([len(down) for down in downs], dim=-1)
    return tuple(
        base + (functional.linear(part, up.to(part.dtype)) * scale).to(base.dtype)
        for base, part, up, scale in zip(plain, inner, ups, scales, strict=True)
    )


def _joinable(layers: Sequence[Any]) -> list[tuple[torch.Tensor, torch.Tensor, float]] | None:
    """(down, up, scale) of the active LoRAs, which add scale * up(down(x)): one for each layer, or none at all. None
    where they cannot be joined."""
    found = []
    for layer in layers:
        names = [name for name in getattr(layer, "active_adapters", ()) if name in layer.lora_A]
        if getattr(layer, "merged", False):
            return None
        if not names or layer.disable_adapters:
            continue
        name = names[0]
        special = len(names) > 1 or name in layer.lora_variant or layer.lora_bias.get(name)
        if special or not isinstance(layer.lora_dropout[name], nn.Identity):
            return None
        found.append((layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]))
    return found if len(found) in (0, len(layers)) else None
