"""CogVideoX's schedulers as the denoising loop takes them: DDIM, and DPM of second order, which adds noise.

Not covered: the loop itself (families.denoising).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.families.denoising import SamplerSteps

if TYPE_CHECKING:
    import torch

CLASSES = {"DDIM": "CogVideoXDDIMScheduler", "DPM": "CogVideoXDPMScheduler"}


def scheduler_class(name: str) -> Any:
    import diffusers

    return getattr(diffusers, CLASSES[name])


class SchedulerSteps(SamplerSteps):
    """The steps of a scheduler that belongs to one call alone; DPM's look back at what the one before predicted."""

    def __init__(self, scheduler: Any, steps: int, device: torch.device) -> None:
        scheduler.set_timesteps(steps, device=device)
        self.timesteps, self._scheduler = scheduler.timesteps, scheduler
        self.adds_noise = hasattr(scheduler, "get_variables")  # DPM alone
        self.begin(0)

    def begin(self, index: int) -> None:
        self._before: tuple[Any, Any] = (None, None)  # the timestep and clean latents of the step before

    def step(
        self, index: int, predicted: torch.Tensor, latents: torch.Tensor, noise: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        timestep, (back, old) = self.timesteps[index], self._before
        if self.adds_noise:
            after, clean = self._scheduler.step(
                predicted, old, timestep, back, latents, generator=noise, return_dict=False
            )
        else:
            after, clean = self._scheduler.step(predicted, timestep, latents, return_dict=False)
        self._before = timestep, clean
        return after, clean
