"""The transformer: MaskGit, which names masked codes from the others and a caption, and a critic of what it filled in.

Every code of a clip looks at every other one, in space and time at once. The critic says how likely each code was
filled in: a head on the transformer ("self"), a transformer of its own ("token"), or there is none.

Not covered: which codes are masked and what is learned from them (objective), generating (sampling).
"""

from __future__ import annotations

import math

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.loaders import PeftAdapterMixin
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

from workbench.families.phenaki.layers import Block, positions
from workbench.families.phenaki.models import TEXT_TOKENS

CRITICS = ("self", "token", "none")
EMBEDDING_GRADIENT = 0.1  # Phenaki's share of the gradient that reaches the codes' embeddings


class PhenakiTransformer(ModelMixin, ConfigMixin, PeftAdapterMixin):
    """Codes' numbers [B, f, h, w] and a caption to logits [B, codes, f, h, w]. A masked code is one past the last."""

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
            levels: of the codes, as the tokenizer's
            critic: one of CRITICS
            critic_layers: of a "token" critic
            max_text_seq_length: tokens of a caption that it is trained on, padding included; no weight depends on it
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
        """text: a caption's embeddings [B, tokens, text_width];  mask: [B, tokens], 1 where it is read"""
        hidden = self.norm_out(self._hidden(ids, text, mask, self.embed, self.transformer_blocks))
        logits: Tensor = self.proj_out(hidden)
        return logits.transpose(1, 2).unflatten(2, ids.shape[1:])

    def criticise(self, ids: Tensor, text: Tensor, mask: Tensor) -> Tensor:
        """Logits [B, f, h, w] that each code was filled in. There must be a critic."""
        own = self.config.critic == "token"
        if own:
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
