"""What is learned: the codes that were masked, and to tell codes that were filled in from the clip's own.

Sources: MaskGIT (arXiv 2202.04200), Phenaki (arXiv 2210.02399), Token-Critic (arXiv 2209.04439). The share of masked
codes is a cosine of an even number, and exactly that share, rounded, is masked; cross-entropy counts at masked codes
alone. It counts per masked code: a clip's sum is divided by the mean count of masked codes, which is the same for all
clips of a size, so that a clip's loss does not depend on the batch around it. The critic sees the clip with masked
codes filled in from the transformer's own answer, and says of every code whether it was masked, as in its paper: a code
that was filled in rightly is one of the transformer's all the same.

Not covered: generating (sampling).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from workbench.families.float64 import float64_device
from workbench.families.model_inputs import ModelInputs
from workbench.families.noise_schedules import AS_PUBLISHED, NoiseSchedule, NoiseSettings
from workbench.families.phenaki.codes import MASKED, ids

if TYPE_CHECKING:
    import torch

MEAN_RATIO = 2 / math.pi  # of the share that is masked


class MaskSchedule(NoiseSchedule):
    """A timestep is the share of codes that is masked; the noise's first channel orders them."""

    def __init__(self, chosen: NoiseSettings = AS_PUBLISHED) -> None:
        self.part = chosen.part

    def timesteps(self, quantiles: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        exact = quantiles.to(float64_device(quantiles.device)).double()
        return (math.pi / 2 * (1 - exact)).cos().float().to(quantiles.device)

    def mix(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        import torch

        masked = self.masked(noise, timesteps)
        first = torch.where(masked, MASKED, clean[:, 0].float())
        return torch.cat([first[:, None], clean[:, 1:].float()], dim=1)

    def masked(self, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """[B, f, h, w] bool: round(ratio * codes) of each clip, at least one, by the order of the noise."""
        order = noise[:, 0].flatten(1).argsort(dim=1).argsort(dim=1)
        exact = timesteps.to(float64_device(timesteps.device)).double()
        count = (exact * order.shape[1]).round().clamp(min=1).long().to(order.device)
        return (order < count[:, None]).view(noise[:, 0].shape)

    def target(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        return clean

    def clean(self, noisy: torch.Tensor, predicted: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        return predicted

    def prediction(self, noisy: torch.Tensor, clean: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        return clean

    def min_snr_weights(self, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
        """All alike: masked codes have no signal left whose strength could be weighed."""
        import torch

        return torch.ones_like(timesteps)


def generator_loss(logits: torch.Tensor, codes: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """[B] float32 of logits [B, codes, f, h, w], the clip's own codes [B, f, h, w] and which of them are masked."""
    import torch.nn.functional as F

    return _counted(F.cross_entropy(logits.float(), codes, reduction="none"), masked)


def divergence(logits: torch.Tensor, base: torch.Tensor, masked: torch.Tensor, codes: int) -> torch.Tensor:
    """[B] float32: how far the probabilities of masked codes are from those of the base model (Kullback-Leibler).

    logits, base: [B, codes or more, f, h, w]; what stands behind the codes, a critic's scores, is not compared
    """
    import torch.nn.functional as F

    ours, theirs = (found[:, :codes].float().log_softmax(1) for found in (logits, base))
    return _counted(F.kl_div(ours, theirs, reduction="none", log_target=True).sum(1), masked)


def critic_loss(scores: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """[B] float32 of the critic's logits [B, f, h, w] of a clip whose masked codes were filled in."""
    import torch.nn.functional as F

    loss = F.binary_cross_entropy_with_logits(scores.float(), masked.float(), reduction="none")
    return loss.flatten(1).mean(1)


def _counted(loss: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    return (loss * masked).flatten(1).sum(1) / (MEAN_RATIO * masked[0].numel())


def sample_codes(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Codes [B, f, h, w] sampled from logits [B, codes, f, h, w] by numbers in [0, 1) [B, f, h, w].

    As by adding Gumbel noise, with one random number a code.
    """
    edges = logits.float().softmax(1).cumsum(1)
    sampled: torch.Tensor = (edges < uniform.unsqueeze(1)).sum(1).clamp(max=logits.shape[1] - 1)
    return sampled


def losses(transformer: Any, schedule: MaskSchedule, inputs: ModelInputs) -> torch.Tensor:
    """[B]: what the generator, the critic or both learn, as the schedule says. A pure function."""
    import torch

    levels, part = transformer.config.levels, schedule.part
    codes = ids(inputs.latents, levels)
    masked = schedule.masked(inputs.noise, inputs.timesteps)
    given = codes.masked_fill(masked, math.prod(levels))
    text, seen = inputs.text["prompt_embeds"].to(transformer.dtype), inputs.text["mask"]
    with torch.set_grad_enabled(torch.is_grad_enabled() and part != "critic"):
        logits = transformer(given, text, seen)
    total = logits.new_zeros(len(codes), dtype=torch.float32)
    if part != "critic":
        total = total + generator_loss(logits, codes, masked)
    if part != "generator" and transformer.config.critic != "none":
        noise = inputs.noise[:, 1]
        uniform = torch.special.ndtr(noise.to(float64_device(noise.device)).double())
        if uniform.device != noise.device:
            uniform = uniform.float().to(noise.device)
        filled = torch.where(masked, sample_codes(logits.detach(), uniform), codes)
        total = total + critic_loss(transformer.criticise(filled, text, seen), masked)
    return total
