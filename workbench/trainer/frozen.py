"""Frozen LoRAs beside the base model's layers, switched on for training, for previews, or off.

Each adds `scale * B(A(x))` to a base layer's output. Nothing is merged into stored weights, so switching them off gives
exactly the base model, and quantized, swapped or sharded layers stay as they are. The trained LoRA is not affected.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from workbench.errors import ConfigError
from workbench.families.base import Family
from workbench.families.lora_files import DOWN, UP, UP_BIAS, check_finite, of_expert, without_layers
from workbench.families.lora_names import check_fit
from workbench.runs.frozen_loras import IN_PREVIEWS, IN_TRAINING, FrozenLora
from workbench.sampler.adapters import shaped, shapes_of


@dataclass
class FrozenLoras:
    """The frozen LoRAs of one run. on: the settings whose LoRAs are switched on"""

    loras: Sequence[FrozenLora] = ()
    on: frozenset[str] = frozenset(IN_TRAINING)
    _held: list[torch.Tensor] = field(default_factory=list)

    def attach(self, family: Family, transformer: Any, title: str, expert: str = "", trained: bool = True) -> None:
        """Add them to a transformer for good, after its memory levels are applied.

        Args:
            title: The model's title, for messages.
            expert: Which of the model's two transformers this is; "" if it has one.
            trained: Whether this transformer is in training. The other one is used in previews only.

        Raises:
            ConfigError: A file cannot be read, is a DoRA or does not fit.
        """
        for lora in self.loras:
            if trained or lora.setting in IN_PREVIEWS:
                self._add(family, transformer, lora, title, expert)

    @contextlib.contextmanager
    def only(self, settings: Collection[str]) -> Iterator[None]:
        """Switch on the LoRAs of these settings and no others."""
        before, self.on = self.on, frozenset(settings)
        try:
            yield
        finally:
            self.on = before

    def previewing(self) -> contextlib.AbstractContextManager[None]:
        return self.only(IN_PREVIEWS)

    def off(self) -> contextlib.AbstractContextManager[None]:
        return self.only(())

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield their matrices, which are on the device."""
        return iter(self._held)

    def _add(self, family: Family, transformer: Any, lora: FrozenLora, title: str, expert: str) -> None:
        tensors, metadata = family.lora_tensors(lora.path)
        check_finite(lora.path, tensors)
        weights = family.lora_weights(of_expert(tensors, expert), metadata)
        if weights.expert and expert and weights.expert != expert:
            return  # it belongs to the other transformer
        if weights.dora:
            raise ConfigError.of(
                lora.setting,
                f"{lora.setting} is {lora.name}, a DoRA, whose scale depends on the base model's weights: convert it "
                f"to a plain LoRA first (workbench loras resize)",
            )
        shapes = dict(shapes_of(transformer))
        sizes = {name: (shape[0], math.prod(shape[1:])) for name, shape in shapes.items() if len(shape) > 1}
        try:
            wrong = check_fit(f"the LoRA {lora.path.name}", weights, sizes, title)
        except ConfigError as error:
            raise ConfigError.of(lora.setting, f"{lora.setting} is {lora.name}: {error}") from None
        fitting = without_layers(shaped(weights, shapes), wrong)
        modules = {name.removesuffix(".base_layer"): module for name, module in transformer.named_modules()}
        like = next(parameter for parameter in transformer.parameters())
        for layer in fitting.layers:
            down, up = fitting.tensors[f"{layer}.{DOWN}"], fitting.tensors[f"{layer}.{UP}"]
            bias = fitting.tensors.get(f"{layer}.{UP_BIAS}")
            scale = lora.scale * fitting.scale_of(layer)
            moved = [one.to(like.device, transformer.dtype) for one in (down, up.float() * scale)]
            moved += [] if bias is None else [(bias.float() * scale).to(like.device, transformer.dtype)]
            self._held += moved
            _Beside(self, lora.setting, *moved).hook(modules[layer])


class _Beside:
    """One layer's frozen LoRA."""

    def __init__(
        self, owner: FrozenLoras, setting: str, down: torch.Tensor, up: torch.Tensor, bias: torch.Tensor | None = None
    ) -> None:
        self.owner, self.setting, self.down, self.up, self.bias = owner, setting, down, up, bias

    def hook(self, layer: torch.nn.Module) -> None:
        base = getattr(layer, "base_layer", layer)  # inside peft's layer, if a LoRA is trained here
        base.register_forward_hook(self._added)

    def _added(self, layer: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        if self.setting not in self.owner.on:
            return output
        (x,) = inputs
        down, up = self.down.to(x.dtype), self.up.to(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if down.ndim == 2:
            return output + functional.linear(functional.linear(x, down), up, bias).to(output.dtype)
        convolve = getattr(functional, f"conv{down.ndim - 2}d")
        inner = convolve(x, down, None, layer.stride, layer.padding, layer.dilation)
        return output + convolve(inner, up, bias).to(output.dtype)
