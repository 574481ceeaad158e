"""From noise to latents, step by step: one loop for every family.

It equals the families' stock pipelines within rounding where they can do the same, and does what they lack: guidance
in a part of the steps, inputs of one's own, continued clips, a callback after every step. Latents have the
transformer's dtype between the steps, or float32 where the family's pipelines keep them so (`float32_latents`);
guidance is always computed in float32, as the models' authors do.

Sources of guidance: arXiv 2207.12598; the dynamic curves SAT's DynamicCFG (sgm/modules/diffusionmodules/guiders.py),
which its samplers call with `num_steps - timestep` as the step (sampling.py), and diffusers' `use_dynamic_cfg`, which
is the same; the interval arXiv 2404.07724; rescaling arXiv 2305.08891, section 3.4; CFG-Zero* arXiv 2503.18886, whose
zeros in the first step are for flow models alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from workbench.families.model_inputs import CallInputs, Given, Tensors

if TYPE_CHECKING:
    import torch

    from workbench.families.base import Family

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
        axes = tuple(range(1, prompt.dim()))
        if self.zero_star:
            along = (prompt * negative).sum(axes, keepdim=True)
            # What it is multiplied by to come nearest to the prompt's, for each of the batch.
            negative = negative * (along / negative.square().sum(axes, keepdim=True).clamp(min=1e-8))
        guided = negative + scale * (prompt - negative)
        if not self.rescale:
            return guided
        wanted, spread = (one.std(axes, keepdim=True) for one in (prompt, guided))
        return guided * (self.rescale * wanted / spread + (1 - self.rescale))


# Which steps `skip_steps` skips: none of the first (at least FIRST_STEPS, and FIRST_PART of all) and of the last.
# EXTRAPOLATION is between keeping the last clean latents (0) and continuing linearly (1): benchmarks/step_skipping.py
# compares values.
FIRST_STEPS, FIRST_PART, LAST_STEPS = 3, 0.2, 2
EXTRAPOLATION = 0.75

OnStep = Callable[[int, int, "torch.Tensor"], None]
"""Called after each denoising step with (steps done, all steps, the clean latents as predicted); may raise."""


def no_step(done: int, steps: int, clean: torch.Tensor) -> None:
    """Where nobody follows the steps."""


class SamplerSteps(Protocol):
    """The steps of one call. `adds_noise`: whether fresh noise is added on the way."""

    timesteps: torch.Tensor
    adds_noise: bool

    def begin(self, index: int) -> None:
        """Start at this step instead of the first."""

    def step(
        self, index: int, predicted: torch.Tensor, latents: torch.Tensor, noise: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(the latents after a step, the clean latents as predicted) from a prediction at a step's latents."""

    def given_at(self, given: Given, index: int, noise: torch.Generator) -> Given:
        """What is given as the model is shown it at a step: as it is, where a pipeline does nothing else."""
        return given


class FlowSteps(SamplerSteps):
    """The steps of a diffusers scheduler for flow matching. steps: None where `more` gives the noise levels"""

    adds_noise = False

    def __init__(self, scheduler: Any, steps: int | None, device: torch.device, **more: Any) -> None:
        scheduler.set_timesteps(steps, device=device, **more)
        self.timesteps, self._scheduler = scheduler.timesteps, scheduler
        self.begin(0)

    def begin(self, index: int) -> None:
        self._scheduler.set_begin_index(index)

    def step(
        self, index: int, predicted: torch.Tensor, latents: torch.Tensor, noise: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sigma = self._scheduler.sigmas[index].to(latents.device)
        clean = latents.float() - sigma * predicted
        after = self._scheduler.step(predicted, self.timesteps[index], latents, return_dict=False)[0]
        return after, clean


@dataclass(frozen=True)
class StepOptions:
    """Which steps go from noise to latents. scheduler: one of the family's `schedulers`, or "model" for the model's own

    shift: of the noise levels, for models with the setting `flow_shift`; None: the scheduler's own
    """

    folder: Path
    steps: int
    latents_shape: tuple[int, ...]
    device: torch.device
    scheduler: str = "model"
    shift: float | None = None


@dataclass(frozen=True)
class DenoiseInputs:
    """What one clip is made of; `family.denoise` takes it.

    folder:     of the model
    text, negative_text: of one caption each, on the device where the transformer computes, in its dtype; None where
                nothing is guided
    noise:      a generator of the processor; the pipelines' order: what `given_to_sample` takes goes first
    scheduler, flow_shift: as `StepOptions` has them
    given:      of a batch of one, for models that start from a picture
    prefix:     latents of the clip that this one continues, as `sample_latents` makes them of one frame or a legal
                number: they are put back at every step, noised to that step, and clean at the end
    source:     latents of the clip to change; `strength` says how far: the part of the steps that is made
    sequential_guidance: compute the two predictions of guidance one after the other, which takes less memory
    skip_steps: skip steps in the middle whose clean latents can be extrapolated from earlier ones
    at_timestep: gives the transformer for a timestep, where the model has two experts
    temperature: of the first step, for models that sample codes; None: the family's own
    conditioning_scale: of what a side branch adds, for models that have one
    """

    folder: Path
    text: Tensors
    negative_text: Tensors | None
    latents_shape: tuple[int, ...]
    steps: int
    guidance: Guidance
    noise: torch.Generator
    scheduler: str = "model"
    flow_shift: float | None = None
    on_step: OnStep = no_step
    given: Given | None = None
    prefix: torch.Tensor | None = None
    source: torch.Tensor | None = None
    strength: float = 1.0
    sequential_guidance: bool = False
    skip_steps: bool = False
    fps: float = 8.0
    at_timestep: Callable[[float], Any] | None = None
    temperature: float | None = None
    conditioning_scale: float = 1.0

    @property
    def device(self) -> torch.device:
        return next(iter(self.text.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """What the transformer computes in."""
        return next(iter(self.text.values())).dtype

    def first_of(self, steps: int) -> int:
        """The step that is made first of so many."""
        return 0 if self.source is None else max(steps - min(int(steps * self.strength), steps), 0)


class Denoising:
    """One call of `family.denoise`."""

    def __init__(self, family: Family, transformer: Any, inputs: DenoiseInputs) -> None:
        self.family, self.transformer, self.inputs = family, transformer, inputs
        device = inputs.device
        self.schedule = family.noise_schedule(inputs.folder, device)
        self.steps = family.sampler_steps(
            StepOptions(inputs.folder, inputs.steps, inputs.latents_shape, device, inputs.scheduler, inputs.flow_shift)
        )
        self._given: Given | None = None
        self._known: list[tuple[int, torch.Tensor]] = []  # (step, clean latents it predicted)

    def run(self) -> torch.Tensor:
        """The latents [1, *latents_shape] after all steps. Raises ConfigError."""
        import torch

        inputs = self.inputs
        self.family.check_inputs(self.transformer, inputs)
        device, dtype = inputs.device, torch.float32 if self.family.float32_latents else inputs.dtype
        start = inputs.first_of(len(self.steps.timesteps))
        self.steps.begin(start)
        timesteps = self.steps.timesteps[start:]
        self._given = inputs.given and inputs.given.to(device, dtype)
        if self._given is not None and self._given.first is not None:
            first = self._given.first
        else:
            first = torch.randn(1, *inputs.latents_shape, generator=inputs.noise, dtype=dtype).to(device)
        latents = first
        if inputs.source is not None:
            latents = self.schedule.mix(inputs.source.to(device, dtype), first, timesteps[:1]).to(dtype)
        latents = self._with_prefix(latents, first, timesteps, 0)
        with torch.no_grad():
            for step, timestep in enumerate(timesteps):
                given = self._given and self.steps.given_at(self._given, start + step, inputs.noise)
                latents = self.family.with_known(latents, given)
                if self._may_skip(step, len(timesteps)):
                    # The prediction that leads to the clean latents extrapolated from the two computed last.
                    (before, old), (last, new) = self._known
                    clean = new + EXTRAPOLATION * (step - last) / (last - before) * (new - old)
                    predicted = self.schedule.prediction(latents, clean, timestep[None])
                else:
                    predicted = self._predicted(latents, timestep, step, len(timesteps), given)
                    if inputs.skip_steps:
                        clean = self.schedule.clean(latents, predicted, timestep[None])
                        self._known = [*self._known[-1:], (step, clean)]
                latents, clean = self.steps.step(start + step, predicted, latents, inputs.noise)
                latents = self._with_prefix(latents.to(dtype), first, timesteps, step + 1)
                inputs.on_step(step + 1, len(timesteps), clean)
        return self.family.with_known(latents, given)

    def _predicted(
        self, latents: torch.Tensor, timestep: torch.Tensor, step: int, steps: int, given: Given | None
    ) -> torch.Tensor:
        """The prediction of one step, guided if this step is, float32."""
        import torch

        inputs = self.inputs
        if not inputs.guidance.guides(step, steps):
            return self._call(latents, inputs.text, timestep, given)
        assert inputs.negative_text is not None
        if inputs.sequential_guidance:
            negative = self._call(latents, inputs.negative_text, timestep, given)
            prompt = self._call(latents, inputs.text, timestep, given)
        else:
            texts = {name: torch.cat([inputs.negative_text[name], tensor]) for name, tensor in inputs.text.items()}
            negative, prompt = self._call(torch.cat([latents] * 2), texts, timestep, given).chunk(2)
        scale = inputs.guidance.scale_at(step, steps, float(timestep))
        return inputs.guidance.combine(prompt, negative, scale)

    def _call(self, latents: torch.Tensor, text: Tensors, timestep: torch.Tensor, given: Given | None) -> torch.Tensor:
        count = len(latents)
        inputs = self.inputs
        given = given and given.repeated(count).to(inputs.device, inputs.dtype)
        transformer = self.transformer if inputs.at_timestep is None else inputs.at_timestep(float(timestep))
        latents = latents.to(inputs.dtype)
        call = CallInputs(latents, text, timestep.expand(count), given, inputs.fps, inputs.conditioning_scale)
        return self.family.call(transformer, call).float()

    def _may_skip(self, step: int, steps: int) -> bool:
        """Whether the clean latents of this step can be extrapolated: in the middle, where they change evenly. Where
        the scheduler adds fresh noise they change more, and fewer steps are skipped."""
        head, every = max(FIRST_STEPS, int(steps * FIRST_PART)), 2 if self.steps.adds_noise else 3
        return self.inputs.skip_steps and head <= step < steps - LAST_STEPS and (step - head) % every != every - 1

    def _with_prefix(
        self, latents: torch.Tensor, first: torch.Tensor, timesteps: torch.Tensor, step: int
    ) -> torch.Tensor:
        """Latents before the given step with the prefix in its place, noised as they are; clean after the last step."""
        import torch

        if self.inputs.prefix is None:
            return latents
        axis, shape = self.family.frame_axis, self.inputs.latents_shape
        prefix = self.family.as_prefix(self.inputs.prefix, shape).to(latents.device, torch.float32)
        kept = prefix.shape[axis]
        if step < len(timesteps):
            prefix = self.schedule.mix(prefix, first.narrow(axis, 0, kept), timesteps[step][None])
        rest = latents.narrow(axis, kept, latents.shape[axis] - kept)
        return torch.cat([prefix.to(latents.dtype), rest], dim=axis)
