"""The denoising loop of every family, from noise to latents.

It matches the families' stock pipelines within rounding, and adds what they lack: guidance in part of the steps, clips
to continue or change, and a callback after every step. Between steps, latents have the transformer's dtype, or float32
if the family's pipelines keep them so (`float32_latents`). Guidance is always computed in float32, as the models'
authors do.

Sources for guidance: arXiv 2207.12598. Dynamic curves: SAT's DynamicCFG (sgm/modules/diffusionmodules/guiders.py),
whose samplers pass `num_steps - timestep` as the step (sampling.py), and diffusers' equal `use_dynamic_cfg`. Interval:
arXiv 2404.07724. Rescaling: arXiv 2305.08891, section 3.4. CFG-Zero*: arXiv 2503.18886, without its zeros in the first
step, which are for flow models only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from workbench.errors import ConfigError
from workbench.families.model_inputs import CallInputs, Given, Tensors

if TYPE_CHECKING:
    import torch

    from workbench.families.base import Family

Curve = Literal["off", "cosine", "stock"]


@dataclass(frozen=True)
class Guidance:
    """Classifier-free guidance of one video."""

    scale: float  # 1 or less turns guidance off
    # "off": the same scale at every step. "cosine": the scale rises from 1 to 1 + scale. "stock": the authors' and
    # diffusers' version of it, which passes the timestep (999 to 0) instead of the step, so that the scale jumps
    # between 1 and 1 + scale.
    curve: Curve = "off"
    # begin, end: the guided part of the steps, 0 to 1
    begin: float = 0.0
    end: float = 1.0
    rescale: float = 0.0  # how much of the std that guidance adds to the prediction is removed, 0 to 1
    zero_star: bool = False  # first scale the negative prediction to fit the prompt's best (CFG-Zero*)
    # second, below: scale at timesteps below `below`, for models with two experts; None: the same
    second: float | None = None
    below: float = 0.0

    @property
    def wanted(self) -> bool:
        """Whether any step needs the negative prompt."""
        return max(self.scale, self.second or 0.0) > 1 and self.begin < self.end

    def guides(self, step: int, steps: int) -> bool:
        """Return whether a step, counted from 0, is guided."""
        return self.wanted and int(self.begin * steps) <= step < int(self.end * steps)

    def scale_at(self, step: int, steps: int, timestep: float) -> float:
        """Return the scale of a step, counted from 0."""
        scale = self.second if self.second is not None and timestep < self.below else self.scale
        if self.curve == "off":
            return scale
        part = step / steps if self.curve == "cosine" else (steps - timestep) / steps
        return 1 + scale * (1 - math.cos(math.pi * part**5.0)) / 2

    def combine(self, prompt: torch.Tensor, negative: torch.Tensor, scale: float) -> torch.Tensor:
        """Combine the predictions for the two prompts, [B, ...] each."""
        axes = tuple(range(1, prompt.dim()))
        if self.zero_star:
            along = (prompt * negative).sum(axes, keepdim=True)
            # The least-squares factor for each clip.
            negative = negative * (along / negative.square().sum(axes, keepdim=True).clamp(min=1e-8))
        guided = negative + scale * (prompt - negative)
        if not self.rescale:
            return guided
        wanted, spread = (one.std(axes, keepdim=True) for one in (prompt, guided))
        return guided * (self.rescale * wanted / spread + (1 - self.rescale))


# `skip_steps`: COMPUTED is the share of the steps; EXTRAPOLATION lies between repeating the last clean latents (0) and
# continuing linearly (1); benchmarks/step_skipping.py compares values. Tried on the built-in models without
# a gain: parabolas, noise levels in place of step numbers, redoing skipped steps once the next is known, and guidance
# that is computed less often.
FEWEST_COMPUTED, COMPUTED, ENDS, EXTRAPOLATION = 8, 0.5, 0.6, 0.5


def computed_steps(steps: int) -> set[int]:
    """Return the steps that `skip_steps` computes: about half of them, but at least 8.

    The first and the last are among them. They are denser towards both ends by the factor 1 - ENDS.
    """
    count = min(steps, max(FEWEST_COMPUTED, round(steps * COMPUTED)))
    shares = [number / max(1, count - 1) for number in range(count)]
    return {round((steps - 1) * (share - ENDS * share * (1 - share) * (1 - 2 * share))) for share in shares}


OnStep = Callable[[int, int, "torch.Tensor"], None]
"""Called after each denoising step with (steps done, all steps, predicted clean latents). It may raise."""


def no_step(done: int, steps: int, clean: torch.Tensor) -> None:
    """An OnStep that does nothing."""


class SamplerSteps(Protocol):
    """The steps of one `denoise` call."""

    timesteps: torch.Tensor  # one per step, most noise first

    def begin(self, index: int) -> None:
        """Start at this step instead of the first."""

    def step(
        self, index: int, predicted: torch.Tensor, latents: torch.Tensor, noise: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (latents after a step, predicted clean latents) from the prediction at the step's latents."""

    def given_at(self, given: Given, index: int, noise: torch.Generator) -> Given:
        """Return the conditioning at a step, for pipelines that change it from step to step."""
        return given


class FlowSteps(SamplerSteps):
    """Steps of a diffusers scheduler for flow matching. `steps` is None if `more` sets the noise levels."""

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
    """Options of the steps from noise to latents."""

    folder: Path
    steps: int
    latents_shape: tuple[int, ...]  # without the batch axis
    device: torch.device
    scheduler: str = "model"  # one of the family's `schedulers`, or "model" for the model's own
    # Shift of the noise levels, for models with the setting `flow_shift`; None: the scheduler's own
    shift: float | None = None


def steps_shifted_by_tokens(scheduler: Any, options: StepOptions, title: str) -> FlowSteps:
    """Return evenly spaced noise levels, shifted by the number of tokens as the scheduler's config says.

    Raises ConfigError for too few steps.
    """
    import numpy as np

    steps, values = options.steps, scheduler.config
    if values.shift_terminal:
        check_two_levels(steps, title)
    slope = (values.max_shift - values.base_shift) / (values.max_image_seq_len - values.base_image_seq_len)
    mu = values.base_shift + slope * (math.prod(options.latents_shape[1:]) - values.base_image_seq_len)
    return FlowSteps(scheduler, None, options.device, sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)


def check_two_levels(steps: int, title: str) -> None:
    """Refuse a single step. Raises ConfigError. `title` is the family's."""
    if steps < 2:
        raise ConfigError.about(f"steps is {steps}, {title} needs at least two noise levels: use 2 or more")


@dataclass(frozen=True)
class DenoiseInputs:
    """Inputs of `Family.denoise`, for one clip."""

    folder: Path  # the model's
    # text, negative_text: encodings of one caption each, on the transformer's device and in its dtype. The negative one
    # may be None without guidance.
    text: Tensors
    negative_text: Tensors | None
    latents_shape: tuple[int, ...]  # without the batch axis
    steps: int
    guidance: Guidance
    noise: torch.Generator  # CPU generator. `given_to_sample` draws from it first, as the pipelines do.
    # scheduler, flow_shift: see StepOptions
    scheduler: str = "model"
    flow_shift: float | None = None
    on_step: OnStep = no_step  # called after each step
    given: Given | None = None  # conditioning, for a batch of one
    # Latents of the clip to continue, from `sample_latents`, of one frame or a legal number of frames. They are put
    # back at every step, noised to its level, and clean at the end.
    prefix: torch.Tensor | None = None
    source: torch.Tensor | None = None  # latents of the clip to change
    strength: float = 1.0  # how far to change it: the part of the steps that runs
    sequential_guidance: bool = False  # predict for the two prompts one after the other, which takes less memory
    # Compute only `computed_steps`, and extrapolate the clean latents of the others from earlier ones
    skip_steps: bool = False
    fps: float = 8.0
    # Returns the transformer for a timestep, for models with two experts
    at_timestep: Callable[[float], Any] | None = None
    # Temperature of the first step, for models that sample codes; None: the family's own
    temperature: float | None = None
    conditioning_scale: float = 1.0  # factor on a side branch's output, for models that have one
    # sound, picture: clean latents of a sound [1, tokens, channels] that the picture is made for, or of a picture that
    # the sound is made for, for models that make both
    sound: torch.Tensor | None = None
    picture: torch.Tensor | None = None

    @property
    def device(self) -> torch.device:
        return next(iter(self.text.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """The transformer's dtype."""
        return next(iter(self.text.values())).dtype

    def first_of(self, steps: int) -> int:
        """Return the first of `steps` steps to run."""
        return 0 if self.source is None else steps - min(int(steps * self.strength), steps)


class Denoising:
    """One call of `family.denoise`."""

    def __init__(self, family: Family, transformer: Any, inputs: DenoiseInputs) -> None:
        self.family, self.transformer, self.inputs = family, transformer, inputs
        device = inputs.device
        self.schedule = family.noise_schedule(inputs.folder, device)
        self.steps = family.sampler_steps(
            StepOptions(inputs.folder, inputs.steps, inputs.latents_shape, device, inputs.scheduler, inputs.flow_shift)
        )
        self._predictions: list[tuple[int, torch.Tensor]] = []  # (step, predicted clean latents), the last two

    def run(self) -> torch.Tensor:
        """Run all steps and return the latents [1, *latents_shape]. Raises ConfigError."""
        import torch

        inputs = self.inputs
        self.family.check_inputs(self.transformer, inputs)
        device, dtype = inputs.device, torch.float32 if self.family.float32_latents else inputs.dtype
        start = inputs.first_of(len(self.steps.timesteps))
        self.steps.begin(start)
        timesteps = self.steps.timesteps[start:]
        conditioning = inputs.given and inputs.given.to(device, dtype)
        if conditioning is not None and conditioning.first is not None:
            first = conditioning.first
        else:
            first = self.family.first_noise(inputs.latents_shape, inputs.noise, dtype).to(device)
        latents = first
        if inputs.source is not None:
            latents = self.schedule.mix(inputs.source.to(device, dtype), first, timesteps[:1]).to(dtype)
        latents = self._with_prefix(latents, first, timesteps, 0)
        computed = computed_steps(len(timesteps))
        with torch.no_grad():
            for step, timestep in enumerate(timesteps):
                given = conditioning and self.steps.given_at(conditioning, start + step, inputs.noise)
                latents = self.family.with_known(latents, given)
                if inputs.skip_steps and step not in computed:
                    (before, old), (last, new) = self._predictions[0], self._predictions[-1]
                    clean = new + EXTRAPOLATION * (step - last) / max(1, last - before) * (new - old)
                    predicted = self.schedule.prediction(latents, clean, timestep[None])
                else:
                    predicted = self._predicted(latents, timestep, step, len(timesteps), given)
                    if inputs.skip_steps:
                        clean = self.schedule.clean(latents, predicted, timestep[None])
                        self._predictions = [*self._predictions[-1:], (step, clean)]
                latents, clean = self._step(start + step, predicted, latents)
                latents = self._with_prefix(latents.to(dtype), first, timesteps, step + 1)
                inputs.on_step(step + 1, len(timesteps), clean)
        return self.family.with_known(latents, given)

    def _step(self, index: int, predicted: torch.Tensor, latents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (latents after a step, predicted clean latents)."""
        return self.steps.step(index, predicted, latents, self.inputs.noise)

    def _predicted(
        self, latents: torch.Tensor, timestep: torch.Tensor, step: int, steps: int, given: Given | None
    ) -> torch.Tensor:
        """Return the float32 prediction of one step, with guidance if the step is guided."""
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
        inputs, count = self.inputs, len(latents)
        given = given and given.repeated(count).to(inputs.device, inputs.dtype)
        transformer = self.transformer if inputs.at_timestep is None else inputs.at_timestep(float(timestep))
        latents = latents.to(inputs.dtype)
        call = CallInputs(latents, text, timestep.expand(count), given, inputs.fps, inputs.conditioning_scale)
        return self.family.call(transformer, call).float()

    def _with_prefix(
        self, latents: torch.Tensor, first: torch.Tensor, timesteps: torch.Tensor, step: int
    ) -> torch.Tensor:
        """Put the prefix into the latents before a step, noised to its level, or clean after the last step."""
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
