"""A moving average of the trained weights, kept by diffusers' EMAModel: update it, use it, write it down.

Not covered: schedule-free's own average (optimizers.averaged).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from workbench.trainer.distributed.sharding import cut_like, whole


class Ema:
    """The average of these (name, parameter) pairs, in float32 on their device.

    After step n it is decay x average + (1 - decay) x weights, with min(decay, n / (9 + n)) for decay: a short run
    looks back less far, and the first step starts the average (decay 0).
    """

    def __init__(self, named: Sequence[tuple[str, torch.nn.Parameter]], decay: float) -> None:
        from diffusers.training_utils import EMAModel

        self.names, self.parameters = [name for name, _ in named], [parameter for _, parameter in named]
        self.model = EMAModel(self.parameters, decay=decay)
        self.model.to(dtype=torch.float32)

    def update(self, step: int) -> None:
        """Take in the weights after this step (1, 2, ...); call it once a step."""
        self.model.optimization_step = step - 1  # it counts itself; the step given leaves nothing to be resumed
        self.model.step(self.parameters)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average in place of the weights, for measuring, previews and the export; then the weights again."""
        if self.model.temp_stored_params is not None:  # in place already
            yield
            return
        self.model.store(self.parameters)
        self.model.copy_to(self.parameters)
        try:
            yield
        finally:
            self.model.restore(self.parameters)

    def tensors(self, keep: bool = True) -> dict[str, torch.Tensor]:
        """The average by parameter name, on the CPU; {} where it is not kept. Every process must call this."""
        found = dict[str, Any]()
        for name, value in zip(self.names, self.model.shadow_params, strict=True):
            value = whole(value)
            found |= {name: value.to("cpu", copy=True)} if keep else {}
        return found

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from what `tensors` gave. Raises KeyError when a parameter has none."""
        for name, value in zip(self.names, self.model.shadow_params, strict=True):
            value.copy_(cut_like(tensors[name], value))
