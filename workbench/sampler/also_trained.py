"""Weights that a run trained in full beside its LoRA (setting `train_also`): in the place of the model's own, and back.

They lie beside the LoRA as also.safetensors. At a scale s a weight is own + s * (trained - own), summed over the LoRAs
of a request; at 1 it is what was trained. Not covered: the LoRAs themselves (adapters), training them
(trainer.trainable).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.lora_files import plain_name
from workbench.sampler.loras import Lora, read_header
from workbench.workspace.lora_names import ALSO

if TYPE_CHECKING:
    import torch

SAME = ("base_model", "step", "seed")  # in the metadata of both files
NOT_AS_TRAINED = (
    "the LoRA {lora} was trained together with the model's {weight}, which is not loaded as it was trained: choose its "
    "own model, and a speed other than low-memory"
)


def file_beside(lora: Path) -> Path | None:
    """The file of such weights that was written with a LoRA; None where there is none. Raises ConfigError."""
    path = lora.with_name(ALSO)
    if lora.suffix != ".safetensors" or not path.is_file():
        return None
    own, other = read_header(lora).metadata, read_header(path).metadata
    return path if all(name in own and own[name] == other.get(name) for name in SAME) else None


class AlsoTrained:
    """Puts them into one transformer that stays loaded."""

    def __init__(self, transformer: Any) -> None:
        self._transformer = transformer
        self._own: dict[str, torch.Tensor] = {}  # what was replaced
        self._active: list[tuple[Path, int, float]] = []

    def apply(self, loras: Sequence[Lora]) -> list[Path | None]:
        """Make the weights beside exactly these LoRAs the active ones; the file of each. Raises ConfigError."""
        files = [file_beside(lora.file) if lora.scale else None for lora in loras]
        found = [(path, lora) for path, lora in zip(files, loras, strict=True) if path is not None]
        wanted = [(path, path.stat().st_mtime_ns, lora.scale) for path, lora in found]
        if wanted != self._active:
            self.restore()
            parameters = self._parameters()
            for name, value in _sums(parameters, found).items():
                self._own[name] = parameters[name].data.clone()
                parameters[name].data.copy_(value)
            self._active = wanted
        return files

    def restore(self) -> None:
        """The model's own weights again."""
        parameters = self._parameters() if self._own else {}
        for name, own in self._own.items():
            parameters[name].data.copy_(own)
        self._own, self._active = {}, []

    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        """By the names that they have without any LoRA."""
        named = self._transformer.named_parameters()
        return {plain_name(name): one for name, one in named if ".lora_" not in name}


def _sums(
    parameters: Mapping[str, torch.nn.Parameter], found: Sequence[tuple[Path, Lora]]
) -> Mapping[str, torch.Tensor]:
    """What each weight becomes, float32 where it is between two values."""
    from safetensors.torch import load_file

    sums = dict[str, Any]()
    for path, lora in found:
        for name, trained in load_file(path).items():
            own = parameters[name].data if name in parameters else None
            if own is None or own.shape != trained.shape:
                sentence = NOT_AS_TRAINED.format(lora=lora.name, weight=name)
                raise ConfigError(sentence, {"loras": sentence})
            trained = trained.to(own.device)
            if lora.scale == 1 and name not in sums:
                sums[name] = trained
            else:
                sums[name] = sums.get(name, own).float() + lora.scale * (trained.float() - own.float())
    return sums
