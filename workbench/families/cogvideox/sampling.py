"""Drawing through the stock pipelines, with what they lack: conditions of our own, raw scale, clips that go on.

The pipeline's `prepare_latents` is replaced for the time of one drawing; everything else is the pipeline's own. Not
covered: which pipeline (family), checks of shapes (tensors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.base import ImageScale
from workbench.families.cogvideox.files import scheduler_class
from workbench.families.cogvideox.tensors import check_positions, pad_front, padded_frames, without_padding

if TYPE_CHECKING:
    import torch


@dataclass
class Drawing:
    """What one drawing asks of the pipeline beyond its own arguments."""

    pipeline: Any
    frames: int
    image_scale: ImageScale
    condition: torch.Tensor | None
    prefix: torch.Tensor | None
    noise: torch.Tensor | None = None  # of the prefix, known once the pipeline has drawn its first latents

    def check(self, height: int, width: int) -> None:
        """Refuse what the model cannot draw, before anything is computed. Raises ConfigError."""
        config, spatial = self.pipeline.transformer.config, self.pipeline.vae_scale_factor_spatial
        frames = padded_frames(self._clip_frames, config.patch_size_t)
        check_positions(config, frames, height // spatial, width // spatial)
        if self.prefix is not None and without_padding(self.prefix).shape[1] >= self._clip_frames:
            raise ConfigError(
                f"the clip to continue has {without_padding(self.prefix).shape[1]} latent frames and the new one "
                f"{self._clip_frames}: draw more frames, or continue fewer"
            )

    def image_arguments(self, image: torch.Tensor | None, height: int, width: int) -> dict[str, Any]:
        """What the pipeline is given as first frame: {} for text-to-video. Raises ConfigError."""
        import torch

        config = self.pipeline.transformer.config
        if config.in_channels == config.out_channels:
            if image is not None or self.condition is not None:
                raise ConfigError("this model draws from text alone: leave out the image, or choose one for images")
            return {}
        if self.condition is not None:
            return {"image": torch.zeros(1, 3, height, width)}  # the pipeline wants one, `_prepare` does without
        if image is None:
            raise ConfigError("this model draws from a first frame: give an image")
        return {"image": (image + 1) / 2}  # the pipeline takes tensors from 0 to 1

    @property
    def _clip_frames(self) -> int:
        """Latent frames of the clip, without those put in front."""
        return int((self.frames - 1) // self.pipeline.vae_scale_factor_temporal + 1)

    @contextmanager
    def prepared(self, scheduler: str) -> Iterator[None]:
        """The pipeline as this drawing needs it; afterwards as it was."""
        pipeline, own = self.pipeline, self.pipeline.scheduler
        stock = pipeline.prepare_latents
        if scheduler != "model":
            pipeline.scheduler = scheduler_class(scheduler).from_config(own.config)
        pipeline.prepare_latents = lambda *args, **kwargs: self._prepare(stock, *args, **kwargs)
        try:
            yield
        finally:
            del pipeline.prepare_latents
            pipeline.scheduler = own

    def _prepare(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """In place of the pipeline's `prepare_latents`: noise, for image-to-video also the condition."""
        if self.condition is not None:
            latents, condition = self._noise_like_condition(*args, **kwargs)
            return self.put_back(latents, 0), condition
        if self.image_scale == "raw":
            own = self.pipeline.vae_scaling_factor_image
            self.pipeline.vae_scaling_factor_image = 1.0  # the pipeline divides by it or multiplies with it
            try:
                prepared = stock(*args, **kwargs)
            finally:
                self.pipeline.vae_scaling_factor_image = own
        else:
            prepared = stock(*args, **kwargs)
        if isinstance(prepared, tuple):
            return self.put_back(prepared[0], 0), prepared[1]
        return self.put_back(prepared, 0)

    def _noise_like_condition(
        self,
        image: torch.Tensor,
        batch_size: int,
        channels: int,
        frames: int,
        height: int,
        width: int,
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator,
        latents: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The arguments are those of the image-to-video pipeline, whose image is not encoded here."""
        from diffusers.utils.torch_utils import randn_tensor

        assert self.condition is not None
        shape = (batch_size, *self.condition.shape[1:])
        noise = randn_tensor(shape, generator=generator, device=device, dtype=dtype)
        return noise * self.pipeline.scheduler.init_noise_sigma, self.condition.expand(shape).to(device, dtype)

    def put_back(self, latents: torch.Tensor, step: int) -> torch.Tensor:
        """Latents before the given step with the prefix in its place, noised as they are; clean after the last step."""
        import torch

        if self.prefix is None:
            return latents
        if self.noise is None:
            self.noise = latents
        prefix = without_padding(self.prefix).to(latents.device, torch.float32)
        prefix = pad_front(prefix, prefix.shape[1] + latents.shape[1] - self._clip_frames)
        kept = prefix.shape[1]
        scheduler = self.pipeline.scheduler
        if step < len(scheduler.timesteps):
            alpha = scheduler.alphas_cumprod.to(latents.device)[scheduler.timesteps[step]]
            prefix = alpha.sqrt() * prefix + (1 - alpha).sqrt() * self.noise[:, :kept].float()
        placed = prefix.expand(len(latents), -1, -1, -1, -1).to(latents.dtype)
        return torch.cat([placed, latents[:, kept:]], dim=1)
