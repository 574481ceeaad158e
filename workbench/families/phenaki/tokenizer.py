"""The video tokenizer, which converts clips to grids of codes and back.

It is a C-ViViT (arXiv 2210.02399) with finite scalar quantization (arXiv 2309.15505). A clip has 1 + 2k frames: patches
cover the first frame alone, and groups of the others, so that an image is a clip of one frame. Attention runs among the
patches of one time, and then, causally, over the past of each place: codes and decoded pixels of the first frames do
not depend on later ones.
"""

from __future__ import annotations

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.autoencoders.vae import AutoencoderMixin
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

from workbench.families.phenaki.transformer import Block, positions


class PhenakiTokenizer(ModelMixin, AutoencoderMixin, ConfigMixin):
    """Convert clips [B, 3, F, H, W] in [-1, 1] to points [B, dimensions, f, h, w] and back.

    Slicing and tiling both process one clip at a time, since spatial attention needs whole frames.
    """

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self,
        width: int = 512,
        heads: int = 8,
        spatial_layers: int = 4,
        temporal_layers: int = 4,
        patch: int = 8,
        patch_frames: int = 2,
        levels: tuple[int, ...] = (8, 5, 5, 5),
    ) -> None:
        super().__init__()
        self.use_slicing = self.use_tiling = False
        pixels = 3 * patch * patch
        self.embed_first = _two_layers(pixels, 2 * width, width)
        self.embed_rest = _two_layers(pixels * patch_frames, 2 * width, width)
        self.encoder = _Layers(width, heads, spatial_layers, temporal_layers, spatial_first=True)
        self.to_code = nn.Linear(width, len(levels))
        self.from_code = nn.Linear(len(levels), width)
        self.decoder = _Layers(width, heads, spatial_layers, temporal_layers, spatial_first=False)
        self.norm_out = nn.LayerNorm(width)
        self.pixels_first = _two_layers(width, 4 * width, pixels)
        self.pixels_rest = _two_layers(width, 4 * width, pixels * patch_frames)

    def encode(self, clip: Tensor) -> Tensor:
        """Encode clips to points, with straight-through gradients."""
        if (clip.shape[2] - 1) % self.config.patch_frames:
            raise ValueError(f"the clip has {clip.shape[2]} frames: use 1 + {self.config.patch_frames}k")
        if self._one_by_one(clip):
            return torch.cat([self.encode(one) for one in clip.split(1)])
        size, group = self.config.patch, self.config.patch_frames
        tokens = self.embed_first(_patched(clip[:, :, :1], size, 1))
        if clip.shape[2] > 1:
            tokens = torch.cat([tokens, self.embed_rest(_patched(clip[:, :, 1:], size, group))], dim=1)
        found = self.to_code(self.encoder(tokens)).float().tanh()
        steps = torch.tensor([(count - 1) / 2 for count in self.config.levels], device=found.device)
        rounded = ((found + 1) * steps).round() / steps - 1
        return (found + (rounded - found).detach()).permute(0, 4, 1, 2, 3)

    def decode(self, points: Tensor) -> Tensor:
        """Decode points to clips."""
        if self._one_by_one(points):
            return torch.cat([self.decode(one) for one in points.split(1)])
        tokens = self.from_code(points.permute(0, 2, 3, 4, 1).to(self.from_code.weight.dtype))
        tokens = self.norm_out(self.decoder(tokens))
        size, group = self.config.patch, self.config.patch_frames
        first = _unpatched(self.pixels_first(tokens[:, :1]), size, 1)
        if tokens.shape[1] == 1:
            return first
        return torch.cat([first, _unpatched(self.pixels_rest(tokens[:, 1:]), size, group)], dim=2)

    def forward(self, clip: Tensor) -> Tensor:
        """Reconstruct clips."""
        return self.decode(self.encode(clip))

    def _one_by_one(self, batch: Tensor) -> bool:
        return (self.use_slicing or self.use_tiling) and len(batch) > 1


class _Layers(nn.Module):
    """Spatial and causal temporal blocks on tokens [B, f, h, w, width]."""

    def __init__(self, width: int, heads: int, spatial: int, temporal: int, spatial_first: bool) -> None:
        super().__init__()
        self.spatial_first = spatial_first
        self.spatial = nn.ModuleList(Block(width, heads) for _ in range(spatial))
        self.temporal = nn.ModuleList(Block(width, heads) for _ in range(temporal))

    def forward(self, tokens: Tensor) -> Tensor:
        count, frames, height, rows, width = tokens.shape
        tokens = tokens + positions(width, frames, height, rows, tokens.device).to(tokens.dtype)
        for spatial in (self.spatial_first, not self.spatial_first):
            if spatial:
                tokens = tokens.reshape(count * frames, height * rows, width)
                for block in self.spatial:
                    tokens = block(tokens)
                tokens = tokens.reshape(count, frames, height, rows, width)
            else:
                tokens = tokens.permute(0, 2, 3, 1, 4).reshape(count * height * rows, frames, width)
                for block in self.temporal:
                    tokens = block(tokens, causal=True)
                tokens = tokens.reshape(count, height, rows, frames, width).permute(0, 3, 1, 2, 4)
        return tokens


def _two_layers(inputs: int, inner: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, inner), nn.GELU(approximate="tanh"), nn.Linear(inner, outputs))


def _patched(clip: Tensor, size: int, group: int) -> Tensor:
    """Cut clips [B, 3, F, H, W] into patches [B, f, h, w, values]."""
    found = clip.unflatten(4, (-1, size)).unflatten(3, (-1, size)).unflatten(2, (-1, group))
    return found.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4)


def _unpatched(patches: Tensor, size: int, group: int) -> Tensor:
    found = patches.unflatten(4, (3, group, size, size)).permute(0, 4, 1, 5, 2, 6, 3, 7)
    return found.flatten(6, 7).flatten(4, 5).flatten(2, 3)
