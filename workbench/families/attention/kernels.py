"""The kernel that computes an attention: PyTorch's own, chosen by the setting `attention`, or the package flash-attn.

For families that compute an attention themselves. Not covered: which kernels a GPU has (PyTorch finds out), diffusers'
attention backends (diffusers_family).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from workbench.errors import ConfigError

KERNELS = {
    "flash": [SDPBackend.FLASH_ATTENTION],
    "efficient": [SDPBackend.EFFICIENT_ATTENTION],
    "cudnn": [SDPBackend.CUDNN_ATTENTION],
    "math": [SDPBackend.MATH],
}
# What "auto" tries in turn on Hopper and later: cuDNN's kernel is the fastest there, PyTorch would try it last.
FROM_HOPPER = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
HOPPER = (9, 0)


def check_kernel(kernel: str, device: torch.device) -> None:
    """Raises ConfigError for a kernel of the attention that the device does not have."""
    if device.type != "cuda" and kernel not in ("auto", "stock", "math"):
        sentence = f"attention is {kernel}, which only an NVIDIA GPU has, and this is the {device.type}: choose auto"
        raise ConfigError(sentence, {"attention": sentence})


class AttentionKernel:
    """Computes an attention over all tokens with one kernel."""

    def __init__(self, kernel: str, device: torch.device) -> None:
        """kernel: a value of the setting `attention`, not "stock". Raises ConfigError for one that is not there."""
        check_kernel(kernel, device)
        self._flash_attention = _import_flash_attention() if kernel == "flash-attn" else None
        nvidia = device.type == "cuda" and not torch.version.hip  # AMD counts its capabilities otherwise
        hopper = nvidia and torch.cuda.get_device_capability(device) >= HOPPER
        self._kernels = FROM_HOPPER if kernel == "auto" and hopper else KERNELS.get(kernel)

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """All [B, tokens, heads, head width], as is the result."""
        if self._flash_attention is not None:
            found: torch.Tensor = self._flash_attention(query, key, value)
            return found
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        with sdpa_kernel(self._kernels, set_priority=True) if self._kernels else nullcontext():
            return functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)


def _import_flash_attention() -> Any:
    """The function of the package flash-attn: version 3 where it is installed, else 2. Raises ConfigError."""
    try:
        from flash_attn_interface import flash_attn_func
    except ImportError:
        try:
            from flash_attn import flash_attn_func
        except ImportError:
            sentence = "attention is flash-attn, which is not installed: pip install flash-attn, or choose auto"
            raise ConfigError(sentence, {"attention": sentence}) from None
    return flash_attn_func
