"""What a LoRA changes, layer by layer, and the base weights where that depends on them.

A plain LoRA's change is scale * B @ A. A DoRA's also stretches each row of the weight to a length of its own, so it is
known only beside the weight. A change is [outputs, inputs]; a convolution's is flattened. All is computed in float64,
so that the stated errors are the errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.base import ResolvedModel
from workbench.families.lora_files import DOWN, LENGTHS, UP, UP_BIAS, LoraWeights
from workbench.loras.opened import Opened, Report

if TYPE_CHECKING:
    import torch


class ModelWeights:
    """The weights of a folder of safetensors files, read one at a time."""

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self._files: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(path, framework="pt") as file:
                    self._files |= dict.fromkeys(file.keys(), path)
            except (SafetensorError, OSError) as error:
                raise ConfigError(f"{path} cannot be read ({error}): download or export it again") from error
        if not self._files:
            raise ConfigError(f"{folder} holds no .safetensors weights: name a folder of a transformer")

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __getitem__(self, name: str) -> torch.Tensor:
        from safetensors import safe_open

        with safe_open(self._files[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor


def base_weights_of(model: ResolvedModel, report: Report) -> ModelWeights:
    """The transformer's weights of a model, downloaded if need be. Raises ModelUnavailable."""
    return ModelWeights(model.fetch(report) / model.family.lora_prefix)


def base_for(loras: list[Opened], model: str, report: Report) -> ModelWeights | None:
    """The weights that these LoRAs' changes depend on, None where they depend on none. Raises ConfigError."""
    stretching = [lora for lora in loras if lora.weights.dora]
    if not stretching:
        return None
    if not model:
        raise ConfigError(
            f"{stretching[0].title} is a DoRA and does not say for which model, whose weights are needed: import it "
            f"with its model first"
        )
    return base_weights_of(find_model(model), report)


@dataclass(frozen=True)
class WeightChange:
    """One layer's change: up [outputs, rank] @ down [rank, inputs], or a matrix where it is no product."""

    up: torch.Tensor | None = None
    down: torch.Tensor | None = None
    whole: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        if self.whole is not None:
            return self.whole.shape[0], self.whole.shape[1]
        assert self.up is not None
        assert self.down is not None
        return self.up.shape[0], self.down.shape[1]

    def matrix(self) -> torch.Tensor:
        """[outputs, inputs], float64."""
        if self.whole is not None:
            return self.whole
        assert self.up is not None
        assert self.down is not None
        return self.up.double() @ self.down.double()


def change(lora: LoraWeights, layer: str, scale: float, base: ModelWeights | None) -> WeightChange:
    """What the LoRA at a scale changes of a layer's weight, flat. base: needed for a DoRA."""
    up = lora.tensors[f"{layer}.{UP}"].double().flatten(1) * (scale * lora.scale_of(layer))
    down = lora.tensors[f"{layer}.{DOWN}"].double().flatten(1)
    lengths = lora.tensors.get(f"{layer}.{LENGTHS}")
    if lengths is None or scale == 0:
        return WeightChange(up, down)
    assert base is not None
    weight = base[f"{layer}.weight"].double().flatten(1)
    moved = weight + up @ down
    return WeightChange(whole=moved * (lengths.double() / moved.norm(dim=1))[:, None] - weight)


def bias_change(lora: LoraWeights, layer: str, scale: float) -> torch.Tensor | None:
    """What the LoRA at a scale adds to a layer's bias; None where it leaves it alone."""
    bias = lora.tensors.get(f"{layer}.{UP_BIAS}")
    return None if bias is None else bias.double() * (scale * lora.scale_of(layer))
