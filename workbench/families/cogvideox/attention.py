"""CogVideoX's joint attention over caption and video, with a choice of kernels and fused projections.

It matches diffusers' CogVideoXAttnProcessor2_0, which has neither, within rounding. The setting `attention` selects one
of PyTorch's kernels or the package flash-attn. Query, key and value become one layer, and so do the first matrices of
their LoRAs, for fewer and larger matrix products. What cannot be fused (DoRA, dropout, LoRAs on only some of the
projections, other adapters) goes through the layers' own forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from workbench.errors import ConfigError
from workbench.families.base import check_kernel


def use_attention(transformer: Any, kernel: str, device: torch.device) -> None:
    """Use this attention, or diffusers' if `kernel` is "stock". Raises ConfigError for an unavailable kernel."""
    if kernel == "stock":
        from diffusers.models.attention_processor import CogVideoXAttnProcessor2_0

        transformer.set_attn_processor(CogVideoXAttnProcessor2_0())
        return
    attend = AttentionKernel(kernel, device)
    for block in transformer.transformer_blocks:
        block.attn1.set_processor(JointAttention(attend))


class JointAttention:
    """An attention processor for diffusers. Tokens are [B, text + video, width]."""

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
        query, key, value = (part.unflatten(-1, (attn.heads, -1)) for part in project(attn, tokens))
        if attn.norm_q is not None:
            query, key = attn.norm_q(query), attn.norm_k(key)
        if image_rotary_emb is not None:
            query, key = _rotated(query, text, image_rotary_emb), _rotated(key, text, image_rotary_emb)
        # Normalization may change the dtype.
        query, key = query.to(value.dtype), key.to(value.dtype)
        attended = attn.to_out[1](attn.to_out[0](self._attend(query, key, value).flatten(2)))
        return attended[:, text:], attended[:, :text]


def _rotated(heads: torch.Tensor, text: int, positions: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotate the video's tokens in [B, tokens, heads, head width] by (cos, sin), each [video tokens, head width].

    The caption's tokens in front are rotated by 0, which avoids splitting and copying. Pairs of neighboring values are
    complex numbers, as in the stock pipeline.
    """
    cos, sin = (
        functional.pad(part[:, ::2], (0, 0, text, 0), value=still)[:, None]
        for part, still in zip(positions, (1.0, 0.0), strict=True)
    )
    real, imaginary = heads.float().unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack([real * cos - imaginary * sin, imaginary * cos + real * sin], dim=-1)
    return rotated.flatten(-2).to(heads.dtype)


# ---- the kernel

KERNELS = {
    "flash": [SDPBackend.FLASH_ATTENTION],
    "efficient": [SDPBackend.EFFICIENT_ATTENTION],
    "cudnn": [SDPBackend.CUDNN_ATTENTION],
    "math": [SDPBackend.MATH],
}
# Order of "auto" on Hopper and later: cuDNN's kernel is the fastest there, but PyTorch would try it last.
FROM_HOPPER = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
HOPPER = (9, 0)


class AttentionKernel:
    """Attention over all tokens with one kernel, a value of the setting `attention` other than "stock"."""

    def __init__(self, kernel: str, device: torch.device) -> None:
        """Raises ConfigError for an unavailable kernel."""
        check_kernel(kernel, device)
        self._flash_attention = _import_flash_attention() if kernel == "flash-attn" else None
        nvidia = device.type == "cuda" and not torch.version.hip  # AMD numbers capabilities differently
        hopper = nvidia and torch.cuda.get_device_capability(device) >= HOPPER
        self._kernels = FROM_HOPPER if kernel == "auto" and hopper else KERNELS.get(kernel)

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Inputs and result are [B, tokens, heads, head width]."""
        if self._flash_attention is not None:
            found: torch.Tensor = self._flash_attention(query, key, value)
            return found
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        with sdpa_kernel(self._kernels, set_priority=True) if self._kernels else nullcontext():
            return functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)


def _import_flash_attention() -> Any:
    """Import flash-attn's function, from version 3 if installed, else 2. Raises ConfigError."""
    try:
        from flash_attn_interface import flash_attn_func
    except ImportError:
        try:
            from flash_attn import flash_attn_func
        except ImportError:
            raise ConfigError.about(
                "attention is flash-attn, which is not installed: pip install flash-attn, or choose auto"
            ) from None
    return flash_attn_func


# ---- query, key and value as one layer

PROJECTIONS = ("to_q", "to_k", "to_v")


def join(attentions: Sequence[Any]) -> None:
    """Fuse the frozen weights of each attention's query, key and value into one layer, of which the three use parts.

    Call it after attaching LoRAs, which need separate layers. Layers with trainable weights stay unchanged.
    """
    for attention in attentions:
        layers = [getattr(attention, name) for name in PROJECTIONS]
        bases = [getattr(layer, "base_layer", layer) for layer in layers]
        if all(type(base) is nn.Linear and not base.weight.requires_grad for base in bases):
            joined = nn.Linear(bases[0].in_features, sum(base.out_features for base in bases), device="meta")
            joined.weight = nn.Parameter(torch.cat([base.weight for base in bases]), requires_grad=False)
            joined.bias = None
            if bases[0].bias is not None:
                joined.bias = nn.Parameter(torch.cat([base.bias for base in bases]), requires_grad=False)
            attention.to_qkv = joined
            for index, (name, layer) in enumerate(zip(PROJECTIONS, layers, strict=True)):
                part = JoinedProjection(attention, index)
                if layer is bases[index]:
                    setattr(attention, name, part)
                else:
                    layer.base_layer = part


class JoinedProjection(nn.Module):
    """One of the projections whose weights are rows of the attention's `to_qkv`."""

    def __init__(self, attention: nn.Module, index: int) -> None:
        super().__init__()
        joined: Any = attention.to_qkv
        self._whole = (attention,)  # in a tuple, so that it is not registered as a submodule
        self.in_features, self.out_features = joined.in_features, joined.out_features // len(PROJECTIONS)
        self._rows = slice(index * self.out_features, (index + 1) * self.out_features)

    @property
    def weight(self) -> torch.Tensor:
        weight: torch.Tensor = self._whole[0].to_qkv.weight[self._rows]
        return weight

    @property
    def bias(self) -> torch.Tensor | None:
        bias = self._whole[0].to_qkv.bias
        return None if bias is None else bias[self._rows]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.linear(hidden, self.weight, self.bias)


def project(attn: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return query, key and value of tokens [B, T, width]."""
    layers = [getattr(attn, name) for name in PROJECTIONS]
    loras = _joinable(layers) if hasattr(attn, "to_qkv") else None
    if loras is None:
        return tuple(layer(tokens) for layer in layers)
    plain: tuple[torch.Tensor, ...] = attn.to_qkv(tokens).chunk(len(layers), dim=-1)
    if not loras:
        return plain
    downs, ups, scales = zip(*loras, strict=True)
    inner = functional.linear(tokens, torch.cat(downs).to(tokens.dtype)).split([len(down) for down in downs], dim=-1)
    return tuple(
        base + (functional.linear(part, up.to(part.dtype)) * scale).to(base.dtype)
        for base, part, up, scale in zip(plain, inner, ups, scales, strict=True)
    )


def _joinable(layers: Sequence[Any]) -> list[tuple[torch.Tensor, torch.Tensor, float]] | None:
    """Return (down, up, scale) of the active LoRAs, one per layer or none at all; None if they cannot be fused."""
    found = []
    for layer in layers:
        if hasattr(layer, "active_adapters") and not hasattr(layer, "lora_A"):  # a LoKr
            return None
        names = [name for name in getattr(layer, "active_adapters", ()) if name in layer.lora_A]
        if getattr(layer, "merged", False) or getattr(layer, "base_layer", layer)._forward_hooks:
            return None
        if not names or layer.disable_adapters:
            continue
        name = names[0]
        special = len(names) > 1 or name in layer.lora_variant or layer.lora_bias.get(name)
        if special or not isinstance(layer.lora_dropout[name], nn.Identity):
            return None
        found.append((layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]))
    return found if len(found) in (0, len(layers)) else None
