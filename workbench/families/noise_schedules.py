"""Noise schedules: how noise is mixed with latents, and what a model predicts. Velocity and flow matching.

Timesteps are floats [B] whose meaning only the family knows. Other code measures noise by its quantile: the share of
training that sees less noise, from 0 (least) to 1 (pure noise). The module imports without torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

WITHOUT_FLOAT64 = {"mps"}  # device types


def float64_device(device: torch.device) -> torch.device:
    """Return the device for float64 computations: this one, or the CPU if it has no float64.

    Only small tensors are moved: quantiles, one number per clip.
    """
    import torch

    return torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device


Density = Literal["model", "logit-normal", "uniform"]  # "model": the family's own
TrainPart = Literal["both", "generator", "critic"]

# Version of the families' defaults. A run keeps those of its first step. Changes in 2: Wan's shift is 3 instead of 5;
# LTX-Video's mean keeps changing beyond 1,024 to 4,096 tokens; LTX-Video's text-to-video runs see their own first frame
# in a tenth of the clips; Wan's VAE and image encoder run in float32.
DEFAULTS = 2


@dataclass(frozen=True)
class NoiseSettings:
    """A run's choice of noise levels: its settings `timestep_density`, `timestep_shift` and `train_part`."""

    density: Density = "model"
    shift: float | None = None
    part: TrainPart = "both"
    between: tuple[float, float] = (0.0, 1.0)  # range of noise levels to draw from, 0 to 1: the trained expert's
    defaults: int = DEFAULTS  # version of the family's defaults for what is not chosen, see DEFAULTS


AS_PUBLISHED = NoiseSettings()


def shifted(share: torch.Tensor, shift: float) -> torch.Tensor:
    """Shift noise levels in [0, 1]: up if `shift` is above 1, not at all if it is 1 (arXiv 2403.03206)."""
    return shift * share / (1 + (shift - 1) * share)


class NoiseSchedule(ABC):
    """One model's noise schedule. Mixtures and targets are float32 [B, ...], shaped as the latents."""

    @abstractmethod
    def timesteps(self, quantiles: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        """Map quantiles [B] to timesteps, float32 [B]. `latents_shape` is without the batch axis."""

    @abstractmethod
    def mix(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """Noise clean latents to the timesteps."""

    @abstractmethod
    def target(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """Return what the model should predict."""

    @abstractmethod
    def clean(self, noisy: torch.Tensor, predicted: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """Return the clean latents that a prediction implies."""

    @abstractmethod
    def prediction(self, noisy: torch.Tensor, clean: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """Return the prediction that implies clean latents, the inverse of `clean`. Undefined without noise."""

    @abstractmethod
    def min_snr_weights(self, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
        """Return loss weights, float32 [B], for min-SNR weighting (arXiv 2303.09556)."""


class AddedNoise(NoiseSchedule):
    """A schedule whose mixtures are weighted sums of latents and noise."""

    @abstractmethod
    def levels(self, timesteps: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the factors of clean latents and noise, float32, broadcastable to `like` [B, ...]."""

    def mix(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        signal, sigma = self.levels(timesteps, clean)
        return signal * clean.to(signal.dtype) + sigma * noise.to(signal.dtype)


class VelocitySchedule(AddedNoise):
    """A variance-preserving schedule of discrete timesteps, drawn uniformly unless shifted.

    The model predicts velocity (arXiv 2202.00512): sqrt(a) * noise - sqrt(1 - a) * clean, where a is the cumulative
    product of alphas.
    """

    def __init__(self, alphas_cumprod: torch.Tensor, shift: float = 1.0) -> None:
        """Take `alphas_cumprod`, [timesteps] on the device, in float32: in bfloat16 the first would hold no noise."""
        self.alphas_cumprod = alphas_cumprod
        self.shift = shift

    def timesteps(self, quantiles: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        count = len(self.alphas_cumprod)
        share = shifted(quantiles.to(float64_device(quantiles.device)).double(), self.shift)
        return (share * count).floor().clamp(max=count - 1).float().to(quantiles.device)

    def levels(self, timesteps: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        alpha = self.alphas_cumprod[timesteps.long()].view(-1, *[1] * (like.ndim - 1))
        return alpha.sqrt(), (1 - alpha).sqrt()

    def target(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        signal, sigma = self.levels(timesteps, clean)
        return signal * noise.to(signal.dtype) - sigma * clean.to(signal.dtype)

    def clean(self, noisy: torch.Tensor, predicted: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        signal, sigma = self.levels(timesteps, noisy)
        return signal * noisy.float() - sigma * predicted

    def prediction(self, noisy: torch.Tensor, clean: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        signal, sigma = self.levels(timesteps, noisy)
        return (signal * noisy.float() - clean) / sigma

    def min_snr_weights(self, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
        """Return min(snr, gamma) / (snr + 1), the form for velocity, with snr = a / (1 - a)."""
        alpha = self.alphas_cumprod[timesteps.long()]
        # Multiplied out by (1 - a), so that nothing divides by zero without noise or without signal.
        return alpha.minimum(gamma * (1 - alpha))


class FlowSchedule(AddedNoise):
    """Flow matching (arXiv 2210.02747, 2209.03003): x = (1 - s) * clean + s * noise; the model predicts noise - clean.

    A timestep is 1000 * s. Training draws s logit-normal (sigmoid(normal + mean), arXiv 2403.03206) or uniform, then
    shifts it.
    """

    def __init__(self, chosen: NoiseSettings, shift: float = 1.0, density: Density = "logit-normal") -> None:
        """Take the model's `shift` and `density`, for what is not chosen. A shift above 1 means more noise."""
        self.shift = shift if chosen.shift is None else chosen.shift
        self.between = chosen.between
        self.density = density if chosen.density == "model" else chosen.density

    def mean(self, latents_shape: tuple[int, ...]) -> float:
        """Return the mean of the logit-normal density, which in some models depends on the latents' size."""
        return 0.0

    def timesteps(self, quantiles: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        lowest, highest = (self._quantile(share, latents_shape) for share in self.between)
        share = lowest + (highest - lowest) * quantiles.to(float64_device(quantiles.device)).double()
        if self.density == "logit-normal":
            import torch

            share = (torch.special.ndtri(share) + self.mean(latents_shape)).sigmoid()  # at 0 and 1: 0 and 1
        return (1000 * shifted(share, self.shift)).float().to(quantiles.device)

    def share_above(self, noise: float, latents_shape: tuple[int, ...]) -> float:
        """Return the share of draws whose noise level is above `noise`, 0 to 1."""
        return 1 - self._quantile(noise, latents_shape)

    def _quantile(self, share: float, latents_shape: tuple[int, ...]) -> float:
        """Return the quantile of a noise level, 0 to 1."""
        plain = share / (self.shift - (self.shift - 1) * share)
        if self.density == "uniform" or plain in (0, 1):
            return plain
        return NormalDist().cdf(math.log(plain / (1 - plain)) - self.mean(latents_shape))

    def levels(self, timesteps: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        share = (timesteps.float() / 1000).view(-1, *[1] * (like.ndim - 1))
        return 1 - share, share

    def target(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        return noise.float() - clean.float()

    def clean(self, noisy: torch.Tensor, predicted: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        return noisy.float() - self.levels(timesteps, noisy)[1] * predicted

    def prediction(self, noisy: torch.Tensor, clean: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        return (noisy.float() - clean) / self.levels(timesteps, noisy)[1]

    def min_snr_weights(self, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
        """Return min((1 - s)^2, gamma * s^2): min(snr, gamma), with snr = ((1 - s) / s)^2, times s^2.

        The clean latents' error is s times the prediction's.
        """
        share = timesteps.float() / 1000
        return (1 - share).square().minimum(gamma * share.square())
