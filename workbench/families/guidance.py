"""Classifier-free guidance: how far a video is pushed from the negative prompt's prediction to the prompt's.

Sources: guidance arXiv 2207.12598; the dynamic curves SAT's DynamicCFG (sgm/modules/diffusionmodules/guiders.py), which
its samplers call with `num_steps - timestep` as the step (sampling.py), and diffusers' `use_dynamic_cfg`, which is the
same; the interval arXiv 2404.07724; rescaling arXiv 2305.08891, section 3.4; CFG-Zero* arXiv 2503.18886, whose zeros in
the first step are for flow models alone.
Not covered: making the two predictions (a family's denoising).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Curve = Literal["off", "cosine", "stock"]


@dataclass(frozen=True)
class Guidance:
    """How one video is guided.

    scale:      1 or less is none
    curve:      off: the scale is the same at every step; stock: the authors' samplers' and diffusers' pipelines', whose
                formula is given the timestep (999 to 0) where it expects a step: it jumps between 1 and 1 + scale;
                cosine: the same formula given the step: it rises from 1 to 1 + scale
    begin, end: parts of the steps between which it is guided
    rescale:    how much of what guidance adds to the prediction's spread is taken back, 0 to 1
    second, below: the scale at timesteps below that, where a model has two experts; None: the same
    zero_star:  whether the negative prediction is first scaled to lie as near as it can to the prompt's
    """

    scale: float
    curve: Curve = "off"
    begin: float = 0.0
    end: float = 1.0
    rescale: float = 0.0
    zero_star: bool = False
    second: float | None = None
    below: float = 0.0

    @property
    def wanted(self) -> bool:
        """Whether any step needs the negative prompt."""
        return max(self.scale, self.second or 0.0) > 1 and self.begin < self.end

    def guides(self, step: int, steps: int) -> bool:
        """Whether this step, counted from 0, is guided."""
        return self.wanted and int(self.begin * steps) <= step < int(self.end * steps)

    def scale_at(self, step: int, steps: int, timestep: float) -> float:
        """The scale of a step."""
        scale = self.second if self.second is not None and timestep < self.below else self.scale
        if self.curve == "off":
            return scale
        part = step / steps if self.curve == "cosine" else (steps - timestep) / steps
        return 1 + scale * (1 - math.cos(math.pi * part**5.0)) / 2

    def combine(self, prompt: torch.Tensor, negative: torch.Tensor, scale: float) -> torch.Tensor:
        """The guided prediction of two, [B, ...] each."""
        if self.zero_star:
            axes = tuple(range(1, prompt.dim()))
            along = (prompt * negative).sum(axes, keepdim=True)
            # What it is multiplied by to come nearest to the prompt's, for each of the batch.
            negative = negative * (along / negative.square().sum(axes, keepdim=True).clamp(min=1e-8))
        guided = negative + scale * (prompt - negative)
        if not self.rescale:
            return guided
        return guided * (self.rescale * _spread(prompt) / _spread(guided) + (1 - self.rescale))


def _spread(prediction: torch.Tensor) -> torch.Tensor:
    axes: Any = tuple(range(1, prediction.dim()))
    return prediction.std(axes, keepdim=True)
