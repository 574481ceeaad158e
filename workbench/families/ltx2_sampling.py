"""LTX-2's noise levels in training, and the loop that denoises picture and sound together."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from workbench.families.denoising import DenoiseInputs, Denoising, StepOptions
from workbench.families.ltx_conditioning import EXTRA, packed
from workbench.families.model_inputs import CallInputs, Given, Tensors
from workbench.families.noise_schedules import FlowSchedule, NoiseSettings, float64_device, shifted

if TYPE_CHECKING:
    import torch

    from workbench.families.ltx2 import LTX2

# ---- noise levels


class StretchedSchedule(FlowSchedule):
    """Noise levels of the authors' trainer (ShiftedLogitNormalTimestepSampler), by their quantiles.

    The mean of the logit-normal rises by a line through 0.95 at 1,024 tokens and 2.05 at 4,096. Its draws are stretched
    and those below LEAST reflected; SHARE of all draws is uniform from LEAST to 1. Chosen densities are not stretched.
    """

    LEAST, SHARE, LOW, HIGH = 1e-3, 0.1, -2.5758, 3.0902

    def __init__(self, chosen: NoiseSettings) -> None:
        super().__init__(chosen)
        self._stretched = chosen.density == "model"

    def mean(self, latents_shape: tuple[int, ...]) -> float:
        return 0.95 + (math.prod(latents_shape[1:]) - 1024) / (4096 - 1024) * (2.05 - 0.95)

    def timesteps(self, quantiles: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        import torch

        if not self._stretched:
            return super().timesteps(quantiles, latents_shape)
        mean = self.mean(latents_shape)

        def below(level: torch.Tensor) -> torch.Tensor:
            return torch.special.ndtr(level.clamp(min=1e-300).logit() - mean)

        wanted = quantiles.to(float64_device(quantiles.device)).double()
        low, high = torch.full_like(wanted, self.LEAST), torch.ones_like(wanted)
        for _ in range(50):  # halve the interval in which the share of lower draws reaches the quantile
            middle = (low + high) / 2
            above = self._share_below(middle, mean, below) < wanted
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return (1000 * shifted(high, self.shift)).float().to(quantiles.device)

    def _quantile(self, share: float, latents_shape: tuple[int, ...]) -> float:
        if not self._stretched or share in (0, 1):
            return super()._quantile(share, latents_shape)
        mean, plain = self.mean(latents_shape), share / (self.shift - (self.shift - 1) * share)

        def below(level: float) -> float:
            return NormalDist().cdf(math.log(level / (1 - level)) - mean) if level > 0 else 0.0

        return float(self._share_below(plain, mean, below)) if plain > self.LEAST else 0.0

    def _share_below(self, level: Any, mean: float, below: Callable[[Any], Any]) -> Any:
        """Return the share of draws below a noise level from LEAST to 1, before the shift.

        Args:
            level: A number or a tensor.
            below: Returns the same of the logit-normal density, before it is stretched.
        """
        low, high = (1 / (1 + math.exp(-mean - end)) for end in (self.LOW, self.HIGH))
        kept, reflected = (below(low + one * (high - low)) for one in (level, 2 * self.LEAST - level))
        uniform = (level - self.LEAST) / (1 - self.LEAST)
        return (1 - self.SHARE) * (kept - reflected) + self.SHARE * uniform


# ---- sampling


class JointDenoising(Denoising):
    """The loop for picture and sound. A step that is skipped moves the sound on in its last direction.

    A given sound or picture stays as it is.
    """

    AUDIO_SCALE, PERTURBED_SCALE, MODALITY_SCALE, RESCALE = 7.0, 1.0, 3.0, 0.7

    family: LTX2

    def __init__(self, family: LTX2, transformer: Any, inputs: DenoiseInputs) -> None:
        super().__init__(family, transformer, inputs)
        channels, *sizes = inputs.latents_shape
        extra = None if inputs.given is None else inputs.given.tokens.get(EXTRA)
        # The pipelines' noise levels depend on the number of all tokens.
        shape = (channels, math.prod(sizes) + (0 if extra is None else extra.shape[1]))
        options = StepOptions(inputs.folder, inputs.steps, shape, inputs.device, inputs.scheduler)
        self.steps, self._sound_steps = family.sampler_steps(options), family.sampler_steps(options)
        self.sound: torch.Tensor | None = None  # its latents, [1, tokens, channels]
        self._direction: torch.Tensor | None = None

    def _predicted(
        self, latents: torch.Tensor, timestep: torch.Tensor, step: int, steps: int, given: Given | None
    ) -> torch.Tensor:
        import torch

        inputs = self.inputs
        if step == 0 and (inputs.source is None or inputs.sound is not None):
            noise = self.family.sound_noise(inputs)
            self.sound = noise if inputs.sound is None else inputs.sound[:, : noise.shape[1]].to(noise)
        latents = latents if inputs.picture is None else inputs.picture.to(latents)
        both = partial(self._both, latents, timestep, given)
        prompt = both(inputs.text)
        if not inputs.guidance.guides(step, steps):
            predicted, self._direction = prompt
            return unpacked(predicted, latents.shape[2:])
        assert inputs.negative_text is not None
        kept = {"prompt_embeds": inputs.picture, "audio_embeds": inputs.sound}  # a given stream keeps its prompt
        negative_text = {
            name: inputs.text[name] if kept.get(name) is not None else one for name, one in inputs.negative_text.items()
        }
        negative, others = both(negative_text), []  # the others with their shares
        if perturbed := perturbed_block(self.transformer.config):
            with self._undisturbed(perturbed):
                others.append((self.PERTURBED_SCALE, both(inputs.text, perturbed=perturbed)))
        if self.sound is not None:
            others.append((self.MODALITY_SCALE - 1, both(inputs.text, isolated=True)))
        scale, level = inputs.guidance.scale_at(step, steps, float(timestep)), float(timestep) / 1000

        def combined(number: int, noisy: torch.Tensor, scale: float) -> torch.Tensor:
            """Guide the tokens of the picture (0) or the sound (1), and rescale their clean latents."""
            guidance, own = replace(inputs.guidance, rescale=0.0), prompt[number]
            guided = guidance.combine(own, negative[number], scale)
            guided = guided + sum(share * (own - other[number]) for share, other in others)
            clean = noisy - level * guided
            factor = (noisy - level * own).std() / clean.std()
            share = inputs.guidance.rescale or self.RESCALE
            return (noisy - clean * (share * factor + 1 - share)) / level

        if self.sound is not None and inputs.sound is None:
            self._direction = combined(1, self.sound, self.AUDIO_SCALE)
        if inputs.picture is not None:
            return unpacked(prompt[0], latents.shape[2:])
        tokens, extra = packed(latents.float()), None if given is None else given.tokens.get(EXTRA)
        noisy = tokens if extra is None else torch.cat([tokens, extra.to(tokens)], dim=1)
        return unpacked(combined(0, noisy, scale), latents.shape[2:])

    @contextlib.contextmanager
    def _undisturbed(self, block: int) -> Iterator[None]:
        """Keep the self-attention of a given stream in a block that is computed without self-attention."""
        inputs, hooks = self.inputs, []

        def whole(_: Any, args: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            return args, {**inputs, "perturbation_mask": None, "all_perturbed": False}

        for name, own in (("attn1", inputs.picture), ("audio_attn1", inputs.sound)):
            if own is not None:
                attention = getattr(self.family.blocks(self.transformer)[block], name)
                hooks.append(attention.register_forward_pre_hook(whole, with_kwargs=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _both(
        self, latents: torch.Tensor, timestep: torch.Tensor, given: Given | None, text: Tensors, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the float32 predictions for the picture's tokens and for the sound."""
        inputs = self.inputs
        given = given and given.to(inputs.device, inputs.dtype)
        own, times = (timestep.expand(1) * (0 if one is not None else 1) for one in (inputs.picture, inputs.sound))
        call = CallInputs(latents.to(inputs.dtype), text, own, given, inputs.fps)
        sound = None if self.sound is None else self.sound.to(inputs.dtype)
        picture, sound = self.family.tokens(self.transformer, call, sound, times=times, **more)
        return picture.float(), sound.float()

    def _step(self, index: int, predicted: torch.Tensor, latents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.sound is not None and self.inputs.sound is None:
            assert self._direction is not None
            self.sound = self._sound_steps.step(index, self._direction, self.sound, self.inputs.noise)[0]
        if self.inputs.picture is not None:
            return (picture := self.inputs.picture.to(latents)), picture
        return super()._step(index, predicted, latents)


def unpacked(tokens: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Convert the first tokens [B, n, C] to latents [B, C, f, h, w] of (frames, height, width)."""
    latents: torch.Tensor = tokens[:, : math.prod(sizes)].transpose(1, 2).unflatten(2, tuple(sizes))
    return latents


def perturbed_block(transformer: Mapping[str, Any]) -> int:
    """Return the block without self-attention in a perturbed prediction: 28 or the last; 0 for models without one."""
    return min(28, transformer["num_layers"] - 1) if transformer.get("perturbed_attn") else 0
