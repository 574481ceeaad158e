"""CogVideoX's attention over caption and video together, with positions rotated without copies.

It equals diffusers' CogVideoXAttnProcessor2_0, whose attention backend cannot be chosen, within rounding. Not covered:
kernels and joined projections (families.attention), video tokens apart from the text's (one attention sees both).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from workbench.families.attention import projections
from workbench.families.attention.kernels import AttentionKernel


def use_attention(transformer: Any, kernel: str, device: torch.device) -> None:
    """Compute the transformer's attention here, or as diffusers does ("stock").

    device: where it will compute. Raises ConfigError for a kernel that is not installed.
    """
    if kernel == "stock":
        from diffusers.models.attention_processor import CogVideoXAttnProcessor2_0

        transformer.set_attn_processor(CogVideoXAttnProcessor2_0())
        return
    attend = AttentionKernel(kernel, device)
    for block in transformer.transformer_blocks:
        block.attn1.set_processor(JointAttention(attend))


class JointAttention:
    """diffusers' processor protocol. Tokens are [B, text + video, width], heads [B, heads, tokens, head width]."""

    def __init__(self, attend: AttentionKernel) -> None:
        self._attend = attend

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        image_rotary_emb: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert attention_mask is None, "CogVideoX attends to everything"
        text = encoder_hidden_states.shape[1]
        tokens = torch.cat([encoder_hidden_states, hidden_states], dim=1)
        query, key, value = (part.unflatten(-1, (attn.heads, -1)) for part in projections.project(attn, tokens))
        if attn.norm_q is not None:
            query, key = attn.norm_q(query), attn.norm_k(key)
        if image_rotary_emb is not None:
            query, key = _rotated(query, text, image_rotary_emb), _rotated(key, text, image_rotary_emb)
        # Normalising may leave another number format than the value's.
        query, key = query.to(value.dtype), key.to(value.dtype)
        attended = attn.to_out[1](attn.to_out[0](self._attend(query, key, value).flatten(2)))
        return attended[:, text:], attended[:, :text]


def _rotated(heads: torch.Tensor, text: int, positions: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Heads [B, T, H, W] with the video's tokens rotated by their positions' angles (cos, sin: [video tokens, W]).

    The text in front is rotated by 0, so that nothing has to be split. Neighbouring values are one complex
    number, as in the stock pipeline.
    """
    cos, sin = (
        functional.pad(part[:, ::2], (0, 0, text, 0), value=still)[:, None]
        for part, still in zip(positions, (1.0, 0.0), strict=True)
    )
    real, imaginary = heads.float().unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack([real * cos - imaginary * sin, imaginary * cos + real * sin], dim=-1)
    return rotated.flatten(-2).to(heads.dtype)
