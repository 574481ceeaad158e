"""LoKr layers (LyCORIS) computed by their factors: peft would make the whole matrix of every layer in every step.

A layer's change is scale * kron(w1, w2), w1 [l, m] and w2 [k, n] for m * n inputs and l * k outputs. Applied to inputs
folded to [m, n], that is w1 @ inputs @ w2 transposed: the same numbers within rounding, in less memory and time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def compute_by_factors(transformer: torch.nn.Module) -> None:
    """Let every linear LoKr layer of a model compute so."""
    from peft.tuners.lokr.layer import Linear

    by_factors = type("LokrLinear", (Linear,), {"forward": _forward})
    for module in transformer.modules():
        if type(module) is Linear:
            module.__class__ = by_factors


def as_linear(transformer: torch.nn.Module) -> None:
    """Let peft take every layer beside which it has put adapters for a linear one, as it demands for a LoKr.

    A family may have replaced one by its part of a joined layer, which has all that a linear layer has.
    """
    for module in transformer.modules():
        base = getattr(module, "base_layer", None)
        if isinstance(base, torch.nn.Module) and not isinstance(base, torch.nn.Linear):
            base.__class__ = type("LinearPart", (type(base), torch.nn.Linear), {})


def _forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Of a layer with its active adapters. peft's own draws a random number each time, for a dropout of 0."""
    result: torch.Tensor = layer.base_layer(x)
    if layer.disable_adapters:
        return result
    for name in layer.active_adapters:
        if name in layer._available_adapters:
            first = layer.lokr_w1[name] if name in layer.lokr_w1 else layer.lokr_w1_a[name] @ layer.lokr_w1_b[name]
            given = x if torch.is_autocast_enabled(x.device.type) else x.to(first.dtype)
            folded = given.unflatten(-1, (first.shape[1], -1))
            if name in layer.lokr_w2:
                folded = functional.linear(folded, layer.lokr_w2[name])
            else:
                folded = functional.linear(functional.linear(folded, layer.lokr_w2_b[name]), layer.lokr_w2_a[name])
            change = torch.matmul(first, folded).flatten(-2) * layer.scaling[name]
            result = result + change.to(result.dtype)
    return result
