"""Both transformers of a model that has two, for previews of a run that trains one: the other is as it was published.

One of them is on the device at a time. Not covered: generating (previews).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from workbench.families.base import Family
from workbench.families.model import Model
from workbench.memory.block_swap import parked
from workbench.runs.settings import TrainSettings
from workbench.trainer.model import memory_levels

Offloading = Callable[[], contextlib.AbstractContextManager[None]]


class PreviewExperts(contextlib.ExitStack):
    """A context in which `at` gives the transformer for a timestep; afterwards the one in training is back."""

    def __init__(
        self,
        family: Family,
        model: Model,
        folder: Path,
        settings: TrainSettings,
        device: torch.device,
        dtype: torch.dtype,
        trained: Any,
        make_room: Offloading,
    ) -> None:
        """make_room: moves the transformer in training off the device, and back"""
        super().__init__()
        self._family, self._device, self._trained, self._make_room = family, device, trained, make_room
        self._settings = settings.changed(compile=False, gradient_checkpointing="none")
        self._own = model.expert(settings.expert)
        (other,) = (one for one in model.experts if one != self._own)
        self._published = family.load_transformer(folder, torch.device("cpu"), dtype, other.part)
        family.use_attention(self._published, settings.attention, device)
        self._levels = False  # whether the published one is ready to compute
        self._trained_aside, self._published_aside = contextlib.ExitStack(), contextlib.ExitStack()
        self._published_computes = False
        self.callback(self._trained_aside.close)

    def at(self, timestep: float) -> Any:
        """The transformer for a timestep, on the device."""
        published = not self._own.covers(timestep)
        if published != self._published_computes:
            (self._bring if published else self._leave)()
            self._published_computes = published
        return self._published if published else self._trained

    def _bring(self) -> None:
        self._trained_aside.enter_context(self._make_room())
        if not self._levels:
            memory_levels.put_on(self._family, self._published, self._settings, self._device)
            self._levels = True
        self._published_aside.close()

    def _leave(self) -> None:
        self._published_aside.enter_context(parked(self._published))
        self._trained_aside.close()
