"""What CogVideoX's numbers are: noise levels, the padding of latents, positions.

Each function equals what SAT and diffusers' pipelines do, and is tested against them. `config` is a transformer's.
"""

from __future__ import annotations

import math
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError

if TYPE_CHECKING:
    import torch

OFS = 2.0  # the value that 1.5 image-to-video always gets


# ---- latents [B, f, C, h, w]


def padded_frames(frames: int, patch_size_t: int | None) -> int:
    """Latent frames as the transformer takes them: 1.5 takes them in groups of patch_size_t."""
    return math.ceil(frames / (patch_size_t or 1)) * (patch_size_t or 1)


def pad_front(latents: torch.Tensor, frames: int) -> torch.Tensor:
    """Latents of so many frames: copies of the first in front, because inference drops what stands in front."""
    import torch

    missing = frames - latents.shape[1]
    return torch.cat([latents[:, :1].expand(-1, missing, -1, -1, -1), latents], dim=1) if missing else latents


def padding(frames: int) -> int:
    """How many of so many latent frames stand in front of the clip's own: see without_padding."""
    return 1 - frames % 2


def without_padding(latents: torch.Tensor) -> torch.Tensor:
    """Latents without the frame that `pad_front` put there.

    Legal clips (8k+1 frames, or a picture) have an odd number of latent frames and no published model takes them in
    groups of more than two, so an even number has one in front.
    """
    return latents[:, padding(latents.shape[1]) :]


# ---- positions


def rotary_embeddings(
    config: Any, latent_frames: int, latent_height: int, latent_width: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(cos, sin) for latents of this size, as the stock pipelines make them; None for models without rotary ones."""
    if not config.use_rotary_positional_embeddings:
        return None
    grid = (latent_height // config.patch_size, latent_width // config.patch_size)
    base = (config.sample_height // config.patch_size, config.sample_width // config.patch_size)
    return _rotary(config.attention_head_dim, config.patch_size_t, latent_frames, grid, base, device)


@lru_cache(maxsize=16)
def _rotary(
    head_dim: int,
    patch_size_t: int | None,
    frames: int,
    grid: tuple[int, int],
    base: tuple[int, int],
    device: torch.device,
) -> tuple[torch.Tensor, torch.Tensor]:
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    from diffusers.pipelines.cogvideo.pipeline_cogvideox import get_resize_crop_region_for_grid

    crop, how = None, {"grid_type": "slice", "max_size": base}
    if patch_size_t is None:
        crop, how = get_resize_crop_region_for_grid(grid, base[1], base[0]), {}
    groups = padded_frames(frames, patch_size_t) // (patch_size_t or 1)
    cos, sin = get_3d_rotary_pos_embed(head_dim, crop, grid, groups, device=device, **how)
    return cos, sin


def keep_learned_positions(transformer: Any) -> None:
    """Make a model with learned positions use the first of them for fewer frames, as SAT does.

    diffusers would silently replace all of them by computed ones that the model was not trained with.
    """
    if transformer.config.use_learned_positional_embeddings:
        embed = transformer.patch_embed
        embed._get_positional_embeddings = MethodType(_first_positions, embed)


def _first_positions(embed: Any, height: int, width: int, frames: int, device: Any = None) -> torch.Tensor:
    """In place of CogVideoXPatchEmbed's method: `frames` of pixels, `height` and `width` of latents."""
    latent_frames = (frames - 1) // embed.temporal_compression_ratio + 1
    patches = latent_frames * (height // embed.patch_size) * (width // embed.patch_size)
    positions: torch.Tensor = embed.pos_embedding[:, : embed.max_text_seq_length + patches]
    return positions


def check_positions(config: Any, latent_frames: int, latent_height: int, latent_width: int) -> None:
    """Refuse latents for which the model has no positions. Raises ConfigError."""
    own = (config.sample_height, config.sample_width)
    if config.use_learned_positional_embeddings:
        longest = (config.sample_frames - 1) // config.temporal_compression_ratio + 1
        if (latent_height, latent_width) != own or latent_frames > longest:
            raise ConfigError(
                f"the clip has {latent_frames} latent frames of {latent_width}x{latent_height}, and this model learned "
                f"positions of at most {longest} of {own[1]}x{own[0]}: use its own size and no more frames than its own"
            )
    elif config.patch_size_t is not None and (latent_height > own[0] or latent_width > own[1]):
        raise ConfigError(
            f"the clip has latents of {latent_width}x{latent_height}, and this model's positions end at "
            f"{own[1]}x{own[0]}: use a smaller size, and width for height if it is upright"
        )
