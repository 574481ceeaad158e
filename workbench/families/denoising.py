"""From noise to latents, step by step: one loop for every family.

It equals the families' stock pipelines within rounding where they can do the same, and does what they lack: guidance in
a part of the steps, inputs of one's own, continued clips, a callback after every step. Not covered: everything before
and after, which needs no transformer (text, VAE: the family's methods).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from workbench.errors import ConfigError
from workbench.families.guidance import Guidance
from workbench.families.noise_schedules import NoiseSchedule

if TYPE_CHECKING:
    import torch

    from workbench.families.base import Family, OnStep
    from workbench.families.model_inputs import Given, Tensors

# Which steps `skip_steps` skips: none of the first (at least FIRST_STEPS, and FIRST_PART of all) and of the last.
# EXTRAPOLATION is between keeping the last clean latents (0) and continuing linearly (1): benchmarks/step_skipping.py
# compares values.
FIRST_STEPS, FIRST_PART, LAST_STEPS = 3, 0.2, 2
EXTRAPOLATION = 0.75


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

    def known_at(self, known: torch.Tensor, index: int, noise: torch.Generator) -> torch.Tensor:
        """Known first frames as the model is shown them at a step: as they are, where a pipeline does nothing else."""
        return known


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


@dataclass
class Denoising:
    """One call of `family.denoise`, which describes each argument. `steps` belong to this call alone."""

    family: Family
    transformer: Any
    schedule: NoiseSchedule
    steps: SamplerSteps
    text: Tensors
    negative: Tensors | None
    latents_shape: tuple[int, ...]
    guidance: Guidance
    noise: torch.Generator
    given: Given | None = None
    prefix: torch.Tensor | None = None
    source: torch.Tensor | None = None
    sequential_guidance: bool = False
    skip_steps: bool = False
    fps: float = 8.0
    at_timestep: Callable[[float], Any] | None = None
    _known: list[tuple[int, torch.Tensor]] = field(default_factory=list)  # (step, clean latents it predicted)

    def check(self) -> None:
        """Refuse what the model cannot generate, before anything is computed. Raises ConfigError."""
        self.family.check_start(self.transformer, self.latents_shape, self.given, self.prefix)
        if self.guidance.wanted and self.negative is None:
            raise ConfigError(
                f"guidance scale is {self.guidance.scale:g}, which needs a negative prompt: encode an empty one"
            )

    def run(self, strength: float, on_step: OnStep) -> torch.Tensor:
        """The latents [1, *latents_shape] after all steps. Raises ConfigError."""
        import torch

        self.check()
        text = next(iter(self.text.values()))
        device, dtype, all_steps = text.device, text.dtype, len(self.steps.timesteps)
        start = 0 if self.source is None else max(all_steps - min(int(all_steps * strength), all_steps), 0)
        self.steps.begin(start)
        timesteps = self.steps.timesteps[start:]
        first = torch.randn(1, *self.latents_shape, generator=self.noise, dtype=dtype).to(device)
        latents = first
        if self.source is not None:
            latents = self.schedule.mix(self.source.to(device, dtype), first, timesteps[:1]).to(dtype)
        self.given = self.given and self.given.to(device, dtype)
        latents = self._with_prefix(latents, first, timesteps, 0)
        with torch.no_grad():
            for step, timestep in enumerate(timesteps):
                latents = self.family.with_known(latents, given := self._given_at(start + step))
                if self.skip_steps and self._may_skip(step, len(timesteps)):
                    predicted = self._extrapolated(latents, timestep, step)
                else:
                    predicted = self._predicted(latents, timestep, step, len(timesteps))
                    self._remember(latents, predicted, timestep, step)
                latents, clean = self.steps.step(start + step, predicted, latents, self.noise)
                latents = self._with_prefix(latents.to(dtype), first, timesteps, step + 1)
                on_step(step + 1, len(timesteps), clean)
        return self.family.with_known(latents, given)

    def _given_at(self, index: int) -> Given | None:
        if self.given is None or self.given.known is None:
            return self.given
        return replace(self.given, known=self.steps.known_at(self.given.known, index, self.noise))

    def _predicted(self, latents: torch.Tensor, timestep: torch.Tensor, step: int, steps: int) -> torch.Tensor:
        """The prediction of one step, guided if this step is, float32."""
        import torch

        if not self.guidance.guides(step, steps):
            return self._call(latents, self.text, timestep)
        assert self.negative is not None
        if self.sequential_guidance:
            negative = self._call(latents, self.negative, timestep)
            prompt = self._call(latents, self.text, timestep)
        else:
            texts = {name: torch.cat([self.negative[name], tensor]) for name, tensor in self.text.items()}
            negative, prompt = self._call(torch.cat([latents] * 2), texts, timestep).chunk(2)
        scale = self.guidance.scale_at(step, steps, float(timestep))
        return self.guidance.combine(prompt, negative, scale)

    def _call(self, latents: torch.Tensor, text: Tensors, timestep: torch.Tensor) -> torch.Tensor:
        count = len(latents)
        given = self.given and self.given.repeated(count)
        transformer = self.transformer if self.at_timestep is None else self.at_timestep(float(timestep))
        return self.family.call(transformer, latents, text, timestep.expand(count), given, self.fps).float()

    # ---- skipped steps

    def _may_skip(self, step: int, steps: int) -> bool:
        """Whether the clean latents of this step can be extrapolated: in the middle, where they change evenly. Where
        the scheduler adds fresh noise they change more, and fewer steps are skipped."""
        head, every = max(FIRST_STEPS, int(steps * FIRST_PART)), 2 if self.steps.adds_noise else 3
        return head <= step < steps - LAST_STEPS and (step - head) % every != every - 1

    def _remember(self, latents: torch.Tensor, predicted: torch.Tensor, timestep: torch.Tensor, step: int) -> None:
        if self.skip_steps:
            self._known = [*self._known[-1:], (step, self.schedule.clean(latents, predicted, timestep[None]))]

    def _extrapolated(self, latents: torch.Tensor, timestep: torch.Tensor, step: int) -> torch.Tensor:
        """The prediction that leads to the clean latents extrapolated from the two computed last."""
        (before, old), (last, new) = self._known
        clean = new + EXTRAPOLATION * (step - last) / (last - before) * (new - old)
        return self.schedule.prediction(latents, clean, timestep[None])

    # ---- continued clips

    def _with_prefix(
        self, latents: torch.Tensor, first: torch.Tensor, timesteps: torch.Tensor, step: int
    ) -> torch.Tensor:
        """Latents before the given step with the prefix in its place, noised as they are; clean after the last step."""
        import torch

        if self.prefix is None:
            return latents
        axis = self.family.frame_axis
        prefix = self.family.as_prefix(self.prefix, self.latents_shape).to(latents.device, torch.float32)
        kept = prefix.shape[axis]
        if step < len(timesteps):
            prefix = self.schedule.mix(prefix, first.narrow(axis, 0, kept), timesteps[step][None])
        rest = latents.narrow(axis, kept, latents.shape[axis] - kept)
        return torch.cat([prefix.to(latents.dtype), rest], dim=axis)
