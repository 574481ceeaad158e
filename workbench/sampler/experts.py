"""The transformers of a loaded model, each with its LoRAs: one, or two experts of which one is on the device at a time.

Not covered: which noise levels are whose (families.model.Expert), reading LoRAs (adapters).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.families.base import Family
from workbench.families.lora_files import experts_of, is_of_torch, read_lora
from workbench.families.model import Expert, Model
from workbench.sampler.adapters import Adapters
from workbench.sampler.loras import Lora, read_header


@dataclass
class LoadedExpert:
    """A transformer with its LoRAs. resting: what brings its frozen weights back to the device"""

    expert: Expert
    transformer: Any
    adapters: Adapters
    resting: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


class Experts:
    """All transformers of a model. With two, none is on the device until `at` asks for it."""

    def __init__(self, family: Family, model: Model, folder: Path, load: Callable[[Expert], Any], on_gpu: bool) -> None:
        """load: the transformer of an expert, on the device"""
        self._pair, self._on_gpu = len(model.experts) > 1, on_gpu
        self.loaded: list[LoadedExpert] = []
        self._active: LoadedExpert | None = None
        for expert in model.experts:
            transformer = load(expert)
            # The stock pipeline is there for its LoRA loader.
            adapters = Adapters(family, family.load_pipeline(folder, transformer), model.title, expert.name)
            self.loaded.append(LoadedExpert(expert, transformer, adapters))
            self._rest(self.loaded[-1])

    def apply(self, loras: Sequence[Lora], cache: Path, force: bool) -> list[dict[str, Any]]:
        """Make exactly these LoRAs the active ones, each where it belongs; the record of each. Raises ConfigError."""
        wanted = [self._names(lora) for lora in loras]
        records: list[dict[str, Any]] = [{} for _ in loras]
        for one in self.loaded:
            mine = [index for index, names in enumerate(wanted) if one.expert.name in names]
            found = one.adapters.apply([loras[index] for index in mine], cache, force)
            for index, record in zip(mine, found, strict=True):
                records[index] = record | ({"experts": list(wanted[index])} if self._pair else {})
        return records

    def _names(self, lora: Lora) -> tuple[str, ...]:
        """The experts that a LoRA is for: all where its file does not say."""
        known = tuple(one.expert.name for one in self.loaded)
        if not self._pair:
            return known
        if is_of_torch(lora.file):
            named = experts_of(*read_lora(lora.file), lora.file.name) or known
        else:
            header = read_header(lora.file)
            named = experts_of(header.tensors, header.metadata, lora.file.name) or known
        if not set(named) <= set(known):
            sentence = f"the LoRA {lora.file.name} is for the expert {', '.join(named)}: choose one for this model"
            raise ConfigError(sentence, {"loras": sentence})
        return named

    def at(self, timestep: float) -> Any:
        """The transformer for a timestep, on the device."""
        needed = next(one for one in self.loaded if one.expert.covers(timestep))
        if needed is not self._active:
            self.rest()
            needed.resting.close()
            self._active = needed
        return needed.transformer

    def rest(self) -> None:
        """Of two, move the one that computed last off the device."""
        if self._active is not None:
            self._rest(self._active)
            self._active = None

    def _rest(self, one: LoadedExpert) -> None:
        if self._pair and self._on_gpu:
            from workbench.memory.block_swap import parked

            one.resting.enter_context(parked(one.transformer))
