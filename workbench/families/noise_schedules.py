"""How noise is mixed with latents, and what a model predicts of the mixture: velocity and flow matching.

Timesteps are floats [B] that only the family's model reads. Everything else names noise by its quantile: the share of
training that sees less noise, from 0 (least) to 1 (pure noise). Methods work on tensors, and the module is imported
without torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

WITHOUT_FLOAT64 = {"mps"}  # kinds of devices


def float64_device(device: torch.device) -> torch.device:
    """Where float64 is computed for tensors of a device: there, or on the processor where the device has none.

    Only what is small is sent there and back: quantiles, a number for each clip.
    """
    import torch

    return torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device


Density = Literal["model", "logit-normal", "uniform"]  # "model": as the model's family does
TrainPart = Literal["both", "generator", "critic"]


# What an empty setting stands for, numbered: a run goes on with the defaults that its first step had. 2: Wan's shift is
# 3 instead of 5; LTX-Video's mean keeps rising beyond 4,096 tokens and falling below 1,024; LTX-Video's text-to-video
# runs are shown their own first frame in a tenth of the clips; Wan's VAE and image encoder compute in float32.
DEFAULTS = 2


@dataclass(frozen=True)
class NoiseSettings:
    """How a run draws its noise levels: the settings `timestep_density` and `timestep_shift`; and `train_part`.

    between:  shares of noise: of the expert that is trained, a run's quantiles
    defaults: the version of the families' own values that fill what is not chosen
    """

    density: Density = "model"
    shift: float | None = None
    part: TrainPart = "both"
    between: tuple[float, float] = (0.0, 1.0)
    defaults: int = DEFAULTS


AS_PUBLISHED = NoiseSettings()


def shifted(share: torch.Tensor, shift: float) -> torch.Tensor:
    """Shares of noise with more of it for a shift above 1, as they are at 1 (arXiv 2403.03206)."""
    return shift * share / (1 + (shift - 1) * share)


class NoiseSchedule(ABC):
    """The noise levels of one model. Mixtures and targets are float32 [B, ...], shaped as the latents."""

    @abstractmethod
    def timesteps(self, quantiles: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        """The timesteps, float32 [B], of quantiles [B] for latents of a shape (without the batch axis)."""

    @abstractmethod
    def mix(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """Clean latents noised to the timesteps."""

    @abstractmethod
    def target(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """What the model should predict."""

    @abstractmethod
    def clean(self, noisy: torch.Tensor, predicted: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """The clean latents that a prediction stands for."""

    @abstractmethod
    def prediction(self, noisy: torch.Tensor, clean: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """The prediction that stands for clean latents: `clean` the other way round. Some noise is needed."""

    @abstractmethod
    def min_snr_weights(self, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
        """What the loss of each timestep counts under min-SNR weighting (arXiv 2303.09556), float32 [B]."""


class AddedNoise(NoiseSchedule):
    """A schedule whose mixtures are weighted sums of latents and noise."""

    @abstractmethod
    def levels(self, timesteps: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What clean latents and noise are multiplied by, float32, shaped to multiply `like` [B, ...]."""

    def mix(self, clean: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        signal, sigma = self.levels(timesteps, clean)
        return signal * clean.to(signal.dtype) + sigma * noise.to(signal.dtype)


class VelocitySchedule(AddedNoise):
    """A variance-preserving schedule of discrete timesteps, all equally likely unless they are shifted.

    The model predicts velocity, sqrt(a) * noise - sqrt(1 - a) * clean (arXiv 2202.00512), a the cumulative product of
    alphas. A shift turns the share s of all timesteps into shift * s / (1 + (shift - 1) * s).
    """

    def __init__(self, alphas_cumprod: torch.Tensor, shift: float = 1.0) -> None:
        """alphas_cumprod: float32 [timesteps], on the device: in bfloat16 the first would hold no noise at all."""
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
        """min(snr, gamma) / (snr + 1): the form for predicted velocity; snr = a / (1 - a)."""
        alpha = self.alphas_cumprod[timesteps.long()]
        # Multiplied out by (1 - a), so that nothing divides by zero where there is no noise or no signal.
        return alpha.minimum(gamma * (1 - alpha))


class FlowSchedule(AddedNoise):
    """Straight lines from clean latents to noise (arXiv 2210.02747, 2209.03003); the model predicts noise - clean.

    A timestep is 1000 * s, s the share of noise. Training draws s from a density, logit-normal (sigmoid(normal + mean),
    arXiv 2403.03206) or uniform, and shifts it by s -> shift * s / (1 + (shift - 1) * s).
    """

    def __init__(self, chosen: NoiseSettings, shift: float = 1.0, density: Density = "logit-normal") -> None:
        """shift, density: of the model, where none is chosen; a shift above 1 gives more noise"""
        self.shift = shift if chosen.shift is None else chosen.shift
        self.between = chosen.between
        self.density = density if chosen.density == "model" else chosen.density

    def mean(self, latents_shape: tuple[int, ...]) -> float:
        """What is added to the normal number, which some models make depend on the latents' size."""
        return 0.0

    def timesteps(self, quantiles: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        lowest, highest = (self._quantile(share, latents_shape) for share in self.between)
        share = lowest + (highest - lowest) * quantiles.to(float64_device(quantiles.device)).double()
        if self.density == "logit-normal":
            import torch

            share = (torch.special.ndtri(share) + self.mean(latents_shape)).sigmoid()  # at 0 and 1: 0 and 1
        return (1000 * shifted(share, self.shift)).float().to(quantiles.device)

    def share_above(self, noise: float, latents_shape: tuple[int, ...]) -> float:
        """Which share of the draws has more noise than that."""
        return 1 - self._quantile(noise, latents_shape)

    def _quantile(self, share: float, latents_shape: tuple[int, ...]) -> float:
        """The quantile of a share of noise among all levels."""
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
        """min((1 - s)^2, gamma * s^2): min(snr, gamma) of the clean latents' error, which is s times the prediction's;
        snr = ((1 - s) / s)^2."""
        share = timesteps.float() / 1000
        return (1 - share).square().minimum(gamma * share.square())
