"""What an image-to-video model gets beside the caption: the noised first frame, or the clip in low resolution.

As the published image-to-video models were trained (SAT diffusion_video.py): the first frame gets noise of its own
before it is encoded, its sigma sampled anew for every clip and step from exp(N(mean, deviation)); now and then there is
no picture at all. Every random number has its own seed, so a step's condition does not depend on what was sampled
before. Not covered: where the pixels come from (encoder), how a picture becomes a condition (the family)."""

from __future__ import annotations

from typing import Any

import torch

from workbench.families.model_inputs import Given, Tensors
from workbench.jobs.torch_devices import free_memory, to_device
from workbench.runs.data import seed_for
from workbench.runs.settings import TrainSettings
from workbench.trainer.inputs.encoder import Encoder


class FirstFrames:
    """Noises and encodes first frames. On a GPU the VAE comes over for some steps at a time and leaves again."""

    def __init__(self, encoder: Encoder, settings: TrainSettings) -> None:
        """encoder: of the run, whose model, device and dtype are used"""
        self._encoder, self._settings = encoder, settings
        self._family, self._device = encoder.family, encoder.device
        self._vae: Any = None

    def moments(self, pixels: torch.Tensor, purpose: str, *indices: int) -> Tensors:
        """The VAE's moments of the noised first frames, uint8 [B, 3, H, W], on the device."""
        generator = self._generator(f"{purpose}: first frame", *indices)
        assert self._family.image_noise is not None
        mean, deviation = self._family.image_noise
        sigma = torch.exp(torch.randn(len(pixels), 1, 1, 1, generator=generator) * deviation + mean)
        noised = pixels.float() / 127.5 - 1.0 + sigma * torch.randn(pixels.shape, generator=generator)
        return self._family.encode_image(
            self._loaded(), None, to_device(noised, self._device), 1, self._settings.image_latent_scale
        )

    def finish(
        self, moments: Tensors, shape: tuple[int, ...], kept: torch.Tensor, purpose: str, *indices: int
    ) -> Given:
        """The condition beside latents [B, *shape], sampled from the moments; all zero where `kept` [B] is false."""
        generator = self._generator(f"{purpose}: first frame's latents", *indices)
        noise = torch.randn(len(kept), *self._family.one_frame(shape), generator=generator)
        everywhere = self._settings.condition_frames == "every"
        noise, kept = to_device(noise, self._device), to_device(kept, self._device)
        return self._family.given(moments, noise, shape, kept, everywhere)

    def rest(self) -> None:
        """Leave the GPU until the next moments are needed."""
        if self._vae is not None and self._device.type == "cuda":
            self._vae.to("cpu")
            free_memory()

    def _loaded(self) -> Any:
        if self._vae is None:
            dtype = self._family.vae_dtype(self._encoder.dtype)
            self._vae = self._family.load_vae(self._encoder.folder, torch.device("cpu"), dtype)
        return self._vae.to(self._device)

    def _generator(self, purpose: str, *indices: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(self._settings.seed, purpose, *indices))
