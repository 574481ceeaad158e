"""CogVideoX's schedulers as the denoising loop takes them: DDIM, and DPM of second order, which adds noise.

Not covered: the loop itself (families.denoising).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.families.denoising import SamplerSteps
from workbench.workspace import read_json

if TYPE_CHECKING:
    import torch


def scheduler_class(name: str) -> Any:
    import diffusers

    return {"DDIM": diffusers.CogVideoXDDIMScheduler, "DPM": diffusers.CogVideoXDPMScheduler}[name]


def load_scheduler(folder: Path, name: str = "model") -> Any:
    """The scheduler of that name, with the model's noise levels; "model": the one that it was published with."""
    found = read_json(folder / "scheduler" / "scheduler_config.json")
    own = "DPM" if "DPM" in found["_class_name"] else "DDIM"
    return scheduler_class(own if name == "model" else name).from_config(found)


def sampler_steps(scheduler: Any, steps: int, device: torch.device) -> SamplerSteps:
    """The steps of a scheduler that belongs to one call alone."""
    scheduler.set_timesteps(steps, device=device)
    return DPMSteps(scheduler) if hasattr(scheduler, "get_variables") else DDIMSteps(scheduler)


class DDIMSteps(SamplerSteps):
    """Steps without fresh noise."""

    adds_noise = False

    def __init__(self, scheduler: Any) -> None:
        self.timesteps, self._scheduler = scheduler.timesteps, scheduler

    def begin(self, index: int) -> None:
        """Each step is found by its timestep."""

    def step(
        self, index: int, predicted: torch.Tensor, latents: torch.Tensor, noise: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        after, clean = self._scheduler.step(predicted, self.timesteps[index], latents, return_dict=False)
        return after, clean


class DPMSteps(SamplerSteps):
    """Steps of second order: each but the first looks back at the clean latents that the one before predicted."""

    adds_noise = True

    def __init__(self, scheduler: Any) -> None:
        self.timesteps, self._scheduler = scheduler.timesteps, scheduler
        self._first, self._clean = 0, None

    def begin(self, index: int) -> None:
        self._first = index

    def step(
        self, index: int, predicted: torch.Tensor, latents: torch.Tensor, noise: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        back = self.timesteps[index - 1] if index > self._first else None
        after, self._clean = self._scheduler.step(
            predicted, self._clean, self.timesteps[index], back, latents, generator=noise, return_dict=False
        )
        assert self._clean is not None
        return after, self._clean
