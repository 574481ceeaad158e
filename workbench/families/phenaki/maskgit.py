"""MaskGit on codes: the training loss and sampling.

A code is a point of a small grid with `levels` values from -1 to 1 per dimension. Outside the transformer, codes are
points [B, dimensions, f, h, w], and latents like any others.

Sources: MaskGIT (arXiv 2202.04200), Phenaki (arXiv 2210.02399), Token-Critic (arXiv 2209.04439).

The generator learns to predict masked codes, the critic to tell filled-in codes from the clip's own. The share of
masked codes is the cosine of a uniform number, and exactly that share, rounded, is masked. Cross-entropy covers masked
codes only. A clip's sum is divided by the mean number of masked codes, the same for all clips of a size, so that its
loss does not depend on the rest of the batch. The critic sees masked codes filled in by the generator and predicts
which codes were masked. As in its paper, correctly filled-in codes count as masked.

Sampling fills in masked codes, masks the least likely ones again, and repeats with fewer and fewer. After step i of n,
the share cos(pi/2 * i/n) of the codes is masked again: those with the highest critic scores, plus fading noise. Without
a critic, it is the least probable of the codes just filled in. Codes kept earlier stay, as in MaskGIT, since
nothing trains the probability of a code that the generator sees. Codes of a clip to continue are never masked.
Temperature and noise reach 0 in the last step.
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

MASKED = 2.0  # first coordinate of a masked code, outside the grid


def ids(points: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """Convert points [B, dimensions, f, h, w] to the indices of the nearest codes, int64 [B, f, h, w].

    The index of a masked code is the number of codes.
    """
    import torch

    found, stride = torch.zeros_like(points[:, 0], dtype=torch.long), 1
    for dimension, count in enumerate(levels):
        index = ((points[:, dimension].float() + 1) / 2 * (count - 1)).round().long().clamp(0, count - 1)
        found, stride = found + stride * index, stride * count
    return torch.where(points[:, 0] > (1 + MASKED) / 2, math.prod(levels), found)


def points(ids: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """Convert indices of codes [B, f, h, w] to points in [-1, 1], float32 [B, dimensions, f, h, w]."""
    import torch

    found, rest = [], ids
    for count in levels:
        found.append((rest % count).float() / (count - 1) * 2 - 1)
        rest = rest // count
    return torch.stack(found, dim=1)


# ---- the loss

MEAN_RATIO = 2 / math.pi  # mean share of masked codes


class MaskSchedule(NoiseSchedule):
    """A timestep is the share of masked codes. The noise's first channel orders them."""

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
        """Return which codes are masked, bool [B, f, h, w]: each clip's share of them, rounded, at least one."""
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
        """Return ones: masked codes have no signal-to-noise ratio."""
        import torch

        return torch.ones_like(timesteps)


def divergence(logits: torch.Tensor, base: torch.Tensor, masked: torch.Tensor, codes: int) -> torch.Tensor:
    """Return each clip's KL divergence from the base model's probabilities of masked codes, float32 [B].

    Logits are [B, codes or more, f, h, w]. A critic's, after the codes', are ignored. `masked` is bool [B, f, h, w].
    """
    import torch.nn.functional as F

    ours, theirs = (found[:, :codes].float().log_softmax(1) for found in (logits, base))
    return _mean_of_masked(F.kl_div(ours, theirs, reduction="none", log_target=True).sum(1), masked)


def _mean_of_masked(loss: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    return (loss * masked).flatten(1).sum(1) / (MEAN_RATIO * masked[0].numel())


def sample_codes(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Sample codes [B, f, h, w] from logits [B, codes, f, h, w] with uniform numbers in [0, 1), [B, f, h, w].

    The distribution is that of adding Gumbel noise, with one random number per code.
    """
    edges = logits.float().softmax(1).cumsum(1)
    sampled: torch.Tensor = (edges < uniform.unsqueeze(1)).sum(1).clamp(max=logits.shape[1] - 1)
    return sampled


def losses(transformer: Any, schedule: MaskSchedule, inputs: ModelInputs) -> torch.Tensor:
    """Return each clip's loss of generator, critic or both, as the schedule says, float32 [B]. A pure function."""
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
        total = total + _mean_of_masked(F.cross_entropy(logits.float(), codes, reduction="none"), masked)
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

CRITIC_NOISE = 1.0  # range of the noise on scores, which falls linearly to 0 in the last step


class Filling:
    """One call of `family.denoise`. Latents are [1, dimensions, f, h, w], codes [1, f, h, w]."""

    def __init__(self, transformer: Any, inputs: DenoiseInputs) -> None:
        self.transformer, self.inputs = transformer, inputs
        self.levels: tuple[int, ...] = transformer.config.levels
        self.temperature = TEMPERATURE if inputs.temperature is None else inputs.temperature

    def run(self) -> torch.Tensor:
        """Run all steps and return points [1, *latents_shape]."""
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
        """Fill in masked codes. Return the codes, and the logits that they were sampled from."""
        import torch

        logits = self._guided(self.transformer, codes, step, steps)
        temperature = self.temperature * _left(step, steps)
        sampled = sample_codes(logits / max(temperature, 1e-6), self._uniform(codes))
        return torch.where(codes == math.prod(self.levels), sampled, codes), logits

    def _doubt(
        self, codes: torch.Tensor, filled: torch.Tensor, logits: torch.Tensor, step: int, steps: int
    ) -> torch.Tensor:
        """Return how doubtful each code is, [1, f, h, w]."""
        if self.transformer.config.critic == "none":
            chosen = logits.softmax(1).gather(1, filled.unsqueeze(1)).squeeze(1)
            return (1 - chosen).masked_fill(codes != math.prod(self.levels), -math.inf)
        scores = self._guided(self.transformer.criticise, filled, step, steps)
        return scores + (self._uniform(codes) - 0.5) * CRITIC_NOISE * _left(step, steps)

    def _masked(
        self, codes: torch.Tensor, doubt: torch.Tensor, free: torch.Tensor, step: int, steps: int
    ) -> torch.Tensor:
        """Mask the most doubtful of the free codes, as many as a step begins with."""
        count = max(round(math.cos(math.pi / 2 * step / steps) * int(free.sum())), 1)
        worst = doubt.float().masked_fill(~free, -math.inf).flatten().topk(count).indices
        found = codes.flatten().clone()
        found[worst] = math.prod(self.levels)
        return found.view(codes.shape)

    def _guided(self, call: Any, codes: torch.Tensor, step: int, steps: int) -> torch.Tensor:
        """Return the float32 prediction of generator or critic, with guidance if the step is guided."""
        import torch

        def predicted(codes: torch.Tensor, text: Tensors) -> torch.Tensor:
            found: torch.Tensor = call(codes, text["prompt_embeds"].to(self.transformer.dtype), text["mask"])
            return found.float()

        inputs = self.inputs
        if not inputs.guidance.guides(step, steps):
            return predicted(codes, inputs.text)
        assert inputs.negative_text is not None
        if inputs.sequential_guidance:
            negative, prompt = predicted(codes, inputs.negative_text), predicted(codes, inputs.text)
        else:
            both = {name: torch.cat([inputs.negative_text[name], value]) for name, value in inputs.text.items()}
            negative, prompt = predicted(codes.expand(2, -1, -1, -1), both).chunk(2)
        ratio = math.cos(math.pi / 2 * step / steps)
        return inputs.guidance.combine(prompt, negative, inputs.guidance.scale_at(step, steps, 1000 * ratio))

    def _uniform(self, like: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.rand(like.shape, generator=self.inputs.noise, dtype=torch.float32).to(like.device)


def _left(step: int, steps: int) -> float:
    """Return the share of steps left after this one, a factor on temperature and noise."""
    return (steps - 1 - step) / steps
