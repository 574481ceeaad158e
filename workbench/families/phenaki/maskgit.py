"""Codes, what is learned of them, and how a clip's are filled in.

A code is a point of a small grid, `levels` values a dimension from -1 to 1. Outside of the transformer codes are
points, [B, dimensions, f, h, w], which are latents like any others.

Sources: MaskGIT (arXiv 2202.04200), Phenaki (arXiv 2210.02399), Token-Critic (arXiv 2209.04439).

Learned are the codes that were masked, and to tell codes that were filled in from the clip's own. The share of masked
codes is a cosine of an even number, and exactly that share, rounded, is masked; cross-entropy counts at masked codes
alone. It counts per masked code: a clip's sum is divided by the mean count of masked codes, which is the same for all
clips of a size, so that a clip's loss does not depend on the batch around it. The critic sees the clip with masked
codes filled in from the transformer's own answer, and says of every code whether it was masked, as in its paper: a
code that was filled in rightly is one of the transformer's all the same.

Sampling fills in masked codes, masks the least likely again, and so on with fewer each time. After step i of n the
share cos(pi/2 * i/n) of the codes is masked again: those that the critic doubts most, its scores moved by noise that
fades. Without a critic, those of the codes just filled in that are least probable; what an earlier step kept stays,
as in MaskGIT: nothing trains the probability of a code that the transformer is shown. Codes of a clip to continue are
never masked. Temperature and noise reach 0 in the last step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.families.denoising import DenoiseInputs
from workbench.families.model_inputs import ModelInputs, Tensors
from workbench.families.noise_schedules import AS_PUBLISHED, NoiseSchedule, NoiseSettings, float64_device
from workbench.families.phenaki.models import TEMPERATURE

if TYPE_CHECKING:
    import torch

MASKED = 2.0  # the first coordinate of a code that is masked: outside of the grid


def ids(points: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """Numbers of codes [B, f, h, w], int64, from points [B, dimensions, f, h, w], rounded to the grid.

    A masked one has the number after the last.
    """
    import torch

    found, stride = torch.zeros_like(points[:, 0], dtype=torch.long), 1
    for dimension, count in enumerate(levels):
        index = ((points[:, dimension].float() + 1) / 2 * (count - 1)).round().long().clamp(0, count - 1)
        found, stride = found + stride * index, stride * count
    return torch.where(points[:, 0] > (1 + MASKED) / 2, math.prod(levels), found)


def points(ids: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """Points [B, dimensions, f, h, w] in [-1, 1], float32, of the numbers of codes [B, f, h, w]."""
    import torch

    found, rest = [], ids
    for count in levels:
        found.append((rest % count).float() / (count - 1) * 2 - 1)
        rest = rest // count
    return torch.stack(found, dim=1)


# ---- the objective

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


def divergence(logits: torch.Tensor, base: torch.Tensor, masked: torch.Tensor, codes: int) -> torch.Tensor:
    """[B] float32: how far the probabilities of masked codes are from those of the base model (Kullback-Leibler).

    logits, base: [B, codes or more, f, h, w]; what stands behind the codes, a critic's scores, is not compared
    """
    import torch.nn.functional as F

    ours, theirs = (found[:, :codes].float().log_softmax(1) for found in (logits, base))
    return _counted(F.kl_div(ours, theirs, reduction="none", log_target=True).sum(1), masked)


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
    import torch.nn.functional as F

    levels, part = transformer.config.levels, schedule.part
    codes = ids(inputs.latents, levels)
    masked = schedule.masked(inputs.noise, inputs.timesteps)
    given = codes.masked_fill(masked, math.prod(levels))
    text, seen = inputs.text["prompt_embeds"].to(transformer.dtype), inputs.text["mask"]
    with torch.set_grad_enabled(torch.is_grad_enabled() and part != "critic"):
        logits = transformer(given, text, seen)
    total = logits.new_zeros(len(codes), dtype=torch.float32)
    if part != "critic":
        total = total + _counted(F.cross_entropy(logits.float(), codes, reduction="none"), masked)
    if part != "generator" and transformer.config.critic != "none":
        noise = inputs.noise[:, 1]
        uniform = torch.special.ndtr(noise.to(float64_device(noise.device)).double())
        if uniform.device != noise.device:
            uniform = uniform.float().to(noise.device)
        filled = torch.where(masked, sample_codes(logits.detach(), uniform), codes)
        scores = transformer.criticise(filled, text, seen).float()
        loss = F.binary_cross_entropy_with_logits(scores, masked.float(), reduction="none")
        total = total + loss.flatten(1).mean(1)
    return total


# ---- sampling

CRITIC_NOISE = 1.0  # how far scores are moved at most, both ways together; it falls evenly to 0 in the last step


class Filling:
    """One call of `family.denoise`; shapes of latents are [dimensions, f, h, w]."""

    def __init__(self, transformer: Any, inputs: DenoiseInputs) -> None:
        self.transformer, self.inputs = transformer, inputs
        self.levels: tuple[int, ...] = transformer.config.levels
        self.temperature = TEMPERATURE if inputs.temperature is None else inputs.temperature

    def run(self) -> torch.Tensor:
        """Points [1, *latents_shape] after all steps."""
        import torch

        inputs, steps, device = self.inputs, self.inputs.steps, self.inputs.device
        codes = torch.full((1, *inputs.latents_shape[1:]), math.prod(self.levels), dtype=torch.long, device=device)
        free, start = torch.ones_like(codes, dtype=torch.bool), inputs.first_of(steps)
        if inputs.source is not None:
            codes = ids(inputs.source.to(device), self.levels)
        if inputs.prefix is not None:
            known = ids(inputs.prefix.to(device), self.levels)
            codes[:, : known.shape[1]], free[:, : known.shape[1]] = known, False
        if inputs.source is not None:
            codes = self._masked(codes, self._uniform(codes), free, start, steps)
        with torch.no_grad():
            for step in range(start, steps):
                filled, logits = self._filled(codes, step, steps)
                inputs.on_step(step + 1 - start, steps - start, points(filled, self.levels))
                if step < steps - 1:
                    doubt = self._doubt(codes, filled, logits, step, steps)
                    filled = self._masked(filled, doubt, free, step + 1, steps)
                codes = filled
        return points(codes, self.levels)

    def _filled(self, codes: torch.Tensor, step: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes with the masked ones filled in, and the logits that they were sampled from."""
        import torch

        logits = self._guided(self.transformer, codes, step, steps)
        temperature = self.temperature * _left(step, steps)
        sampled = sample_codes(logits / max(temperature, 1e-6), self._uniform(codes))
        return torch.where(codes == math.prod(self.levels), sampled, codes), logits

    def _doubt(
        self, codes: torch.Tensor, filled: torch.Tensor, logits: torch.Tensor, step: int, steps: int
    ) -> torch.Tensor:
        """How doubtful each filled-in code is, [1, f, h, w]; those with the most doubt are masked again."""
        if self.transformer.config.critic == "none":
            chosen = logits.softmax(1).gather(1, filled.unsqueeze(1)).squeeze(1)
            return (1 - chosen).masked_fill(codes != math.prod(self.levels), -math.inf)
        scores = self._guided(self.transformer.criticise, filled, step, steps)
        return scores + (self._uniform(codes) - 0.5) * CRITIC_NOISE * _left(step, steps)

    def _masked(
        self, codes: torch.Tensor, doubt: torch.Tensor, free: torch.Tensor, step: int, steps: int
    ) -> torch.Tensor:
        """Codes with as many masked as a step begins with: the most doubtful of those that are free."""
        count = max(round(math.cos(math.pi / 2 * step / steps) * int(free.sum())), 1)
        worst = doubt.float().masked_fill(~free, -math.inf).flatten().topk(count).indices
        found = codes.flatten().clone()
        found[worst] = math.prod(self.levels)
        return found.view(codes.shape)

    def _guided(self, call: Any, codes: torch.Tensor, step: int, steps: int) -> torch.Tensor:
        """The transformer's or the critic's answer, guided if this step is, float32."""
        import torch

        def answer(codes: torch.Tensor, text: Tensors) -> torch.Tensor:
            found: torch.Tensor = call(codes, text["prompt_embeds"].to(self.transformer.dtype), text["mask"])
            return found.float()

        inputs = self.inputs
        if not inputs.guidance.guides(step, steps):
            return answer(codes, inputs.text)
        assert inputs.negative_text is not None
        if inputs.sequential_guidance:
            negative, prompt = answer(codes, inputs.negative_text), answer(codes, inputs.text)
        else:
            both = {name: torch.cat([inputs.negative_text[name], value]) for name, value in inputs.text.items()}
            negative, prompt = answer(codes.expand(2, -1, -1, -1), both).chunk(2)
        ratio = math.cos(math.pi / 2 * step / steps)
        return inputs.guidance.combine(prompt, negative, inputs.guidance.scale_at(step, steps, 1000 * ratio))

    def _uniform(self, like: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.rand(like.shape, generator=self.inputs.noise, dtype=torch.float32).to(like.device)


def _left(step: int, steps: int) -> float:
    """The share of the steps that come after this one: what temperature and noise are multiplied by."""
    return (steps - 1 - step) / steps
