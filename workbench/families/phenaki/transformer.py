"""The transformer: MaskGit, which predicts masked codes from the others and a caption, and its critic.

Attention covers all codes of a clip, in space and time at once. The critic predicts which codes were filled in. It is a
head on the transformer ("self"), a second transformer ("token"), or missing ("none"). The tokenizer uses the same
layers.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.loaders import PeftAdapterMixin
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

from workbench.families.phenaki.models import TEXT_TOKENS

# ---- layers of tokenizer, generator and critic


def positions(width: int, frames: int, height: int, rows: int, device: torch.device | None = None) -> Tensor:
    """Return sinusoidal position embeddings, [frames, height, rows, width].

    Half of the width is for time, a quarter for each side. They do not depend on the clip's size.
    """
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
    """Self-attention on [N, tokens, width], or cross-attention to a context [N, context tokens, context width]."""

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
        """`mask` is bool, [N, 1, 1, context tokens], True for tokens to attend to."""
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
    """Two layers with GELU, named as in diffusers."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.net = nn.ModuleList([nn.ModuleDict({"proj": nn.Linear(width, inner)}), nn.Identity()])
        self.net.append(nn.Linear(inner, width))

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.net[2](F.gelu(self.net[0]["proj"](tokens), approximate="tanh"))
        return found


class Block(nn.Module):
    """Self-attention, cross-attention to a caption if there is one, and a feed-forward."""

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


# ---- the transformer

CRITICS = ("self", "token", "none")
EMBEDDING_GRADIENT = 0.1  # share of the gradient that reaches the codes' embeddings, as in Phenaki


class PhenakiTransformer(ModelMixin, ConfigMixin, PeftAdapterMixin):
    """Predict logits [B, codes, f, h, w] from indices of codes [B, f, h, w] and a caption.

    The index of a masked code is the number of codes.
    """

    _supports_gradient_checkpointing = True

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self,
        levels: tuple[int, ...] = (8, 5, 5, 5),
        width: int = 512,
        heads: int = 8,
        layers: int = 6,
        text_width: int = 768,
        critic: str = "self",
        critic_layers: int = 6,
        max_text_seq_length: int = TEXT_TOKENS,
    ) -> None:
        """
        Args:
            levels: Of the codes, as in the tokenizer.
            critic: One of CRITICS.
            critic_layers: Number of blocks of a "token" critic.
            max_text_seq_length: Tokens per caption in training, with padding. No weight depends on it.
        """
        super().__init__()
        codes = math.prod(levels)
        self.gradient_checkpointing = False
        self.embed = nn.Embedding(codes + 1, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.transformer_blocks = nn.ModuleList(Block(width, heads, text_width) for _ in range(layers))
        self.norm_out = nn.LayerNorm(width)
        self.proj_out = nn.Linear(width, codes)
        if critic == "self":
            self.critic_out = nn.Linear(width, 1)
        elif critic == "token":
            self.critic_embed = nn.Embedding(codes + 1, width)
            nn.init.normal_(self.critic_embed.weight, std=0.02)
            self.critic_blocks = nn.ModuleList(Block(width, heads, text_width) for _ in range(critic_layers))
            self.critic_norm = nn.LayerNorm(width)
            self.critic_out = nn.Linear(width, 1)
        elif critic != "none":
            raise ValueError(f"critic is {critic!r}: use {', '.join(CRITICS)}")

    def forward(self, ids: Tensor, text: Tensor, mask: Tensor) -> Tensor:
        """`text` is a caption's embeddings, [B, tokens, text_width]; `mask`, [B, tokens], is 0 for padding."""
        hidden = self.norm_out(self._hidden(ids, text, mask, self.embed, self.transformer_blocks))
        logits: Tensor = self.proj_out(hidden)
        return logits.transpose(1, 2).unflatten(2, ids.shape[1:])

    def criticise(self, ids: Tensor, text: Tensor, mask: Tensor) -> Tensor:
        """Return the critic's logits [B, f, h, w] that each code was filled in."""
        if self.config.critic == "token":
            hidden = self.critic_norm(self._hidden(ids, text, mask, self.critic_embed, self.critic_blocks))
        else:
            hidden = self.norm_out(self._hidden(ids, text, mask, self.embed, self.transformer_blocks))
        scores: Tensor = self.critic_out(hidden)
        return scores.squeeze(-1).unflatten(1, ids.shape[1:])

    def _hidden(self, ids: Tensor, text: Tensor, mask: Tensor, embed: nn.Module, blocks: nn.ModuleList) -> Tensor:
        tokens = embed(ids)
        tokens = EMBEDDING_GRADIENT * tokens + (1 - EMBEDDING_GRADIENT) * tokens.detach()
        tokens = tokens + positions(tokens.shape[-1], ids.shape[1], ids.shape[2], ids.shape[3], tokens.device).to(
            tokens.dtype
        )
        tokens, seen = tokens.flatten(1, 3), mask[:, None, None, :] > 0
        for block in blocks:
            if torch.is_grad_enabled() and self.gradient_checkpointing:
                tokens = self._gradient_checkpointing_func(block, tokens, text, seen)
            else:
                tokens = block(tokens, text, seen)
        return tokens
