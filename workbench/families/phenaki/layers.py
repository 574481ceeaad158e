"""Layers that tokenizer, generator and critic share: positions, attention, a transformer block.

Not covered: what the tokens mean (tokenizer, transformer).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def positions(width: int, frames: int, height: int, rows: int, device: torch.device | None = None) -> Tensor:
    """Sines and cosines of each token's place, [frames, height, rows, width]: half of the width for time, a quarter for
    each side. A token's position does not depend on how many others there are."""
    parts = []
    for count, share in ((frames, width // 2), (height, width // 4), (rows, width // 4)):
        waves = torch.exp(-math.log(100.0) * torch.arange(share // 2, device=device) / max(share // 2, 1))
        angles = torch.arange(count, device=device)[:, None] * waves
        parts.append(torch.cat([angles.sin(), angles.cos()], dim=-1))
    time, down, across = parts
    shape = (frames, height, rows, -1)
    return torch.cat(
        [time[:, None, None].expand(shape), down[None, :, None].expand(shape), across[None, None].expand(shape)], dim=-1
    )


class Attention(nn.Module):
    """Attention over [N, tokens, width], or from it to a context [N, context tokens, context width]."""

    def __init__(self, width: int, heads: int, context_width: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context_width or width, width, bias=False)
        self.to_v = nn.Linear(context_width or width, width, bias=False)
        self.norm_q = nn.LayerNorm(width // heads, elementwise_affine=False)
        self.norm_k = nn.LayerNorm(width // heads, elementwise_affine=False)
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(
        self, tokens: Tensor, context: Tensor | None = None, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """mask: bool, True where the context is looked at, [N, 1, 1, context tokens]"""
        context = tokens if context is None else context

        def split(found: Tensor) -> Tensor:
            return found.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        query, key = self.norm_q(split(self.to_q(tokens))), self.norm_k(split(self.to_k(context)))
        value = split(self.to_v(context))
        query, key = query.to(value.dtype), key.to(value.dtype)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        out: Tensor = self.to_out[0](found.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """Two layers with GELU, named as diffusers names them."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.net = nn.ModuleList([nn.ModuleDict({"proj": nn.Linear(width, inner)}), nn.Identity()])
        self.net.append(nn.Linear(inner, width))

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.net[2](F.gelu(self.net[0]["proj"](tokens), approximate="tanh"))
        return found


class Block(nn.Module):
    """Attention among the tokens, to a caption where there is one, and a feed-forward."""

    def __init__(self, width: int, heads: int, text_width: int | None = None) -> None:
        super().__init__()
        self.norm1, self.attn1 = nn.LayerNorm(width), Attention(width, heads)
        self.norm3, self.ff = nn.LayerNorm(width), FeedForward(width, 4 * width)
        if text_width is not None:
            self.norm2, self.attn2 = nn.LayerNorm(width), Attention(width, heads, text_width)

    def forward(
        self, tokens: Tensor, text: Tensor | None = None, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        tokens = tokens + self.attn1(self.norm1(tokens), causal=causal)
        if text is not None:
            tokens = tokens + self.attn2(self.norm2(tokens), text, mask)
        tokens = tokens + self.ff(self.norm3(tokens))
        return tokens
