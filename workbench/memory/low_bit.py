"""Quantized frozen linear layers: a quarter to half of the memory, at the price of slight rounding.

    int8  8-bit integers, one scale per row of the weight
    fp8   8-bit floats (e4m3), one scale per row
    nf4   4-bit NormalFloat (QLoRA, arXiv 2305.14314), one scale per 64 values, two values per byte

A layer unpacks its weight, in the precision of the step, whenever it computes, forward and backward. In between, only
the packed bytes are kept. Quantization is deterministic and happens one layer at a time, on the layer's device.

Why not a package: torchao 0.18 keeps the full weight of its int8 and fp8 layers for the backward pass, and its fp8
gradients are NaN. bitsandbytes 0.50 trains correctly in nf4 but keeps the scales outside of parameters and buffers,
where block swap cannot see them, and its int8 also rounds activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional

Format = Literal["int8", "fp8", "nf4"]

SMALLEST = 4096  # values; smaller weights are not worth quantizing
BLOCK = 64  # values that share a scale in nf4
# Quantiles of the normal distribution, scaled to [-1, 1] and including zero (QLoRA, appendix E).
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


class Packed(NamedTuple):
    """A quantized weight. `scale` broadcasts over `values`, except in nf4, where there is one scale per BLOCK."""

    values: torch.Tensor
    scale: torch.Tensor


# ---- packing and unpacking


def pack(weight: torch.Tensor, how: Format) -> Packed:
    """Quantize a weight [out, in]."""
    full = weight.detach().float()
    if how == "nf4":
        blocks, levels = full.reshape(-1, BLOCK), torch.tensor(NF4, device=full.device)
        scale = _largest(blocks).bfloat16()
        between = (levels[1:] + levels[:-1]) / 2
        nearest = torch.bucketize(blocks / scale.float(), between, out_int32=True).to(torch.uint8)
        first, second = nearest.view(-1, 2).unbind(1)
        return Packed(first * 16 + second, scale)
    largest = 127.0 if how == "int8" else torch.finfo(torch.float8_e4m3fn).max
    scale = _largest(full) / largest
    scaled = (full / scale).clamp_(-largest, largest)
    values = scaled.round_().to(torch.int8) if how == "int8" else scaled.to(torch.float8_e4m3fn)
    return Packed(values, scale)


def unpack(
    values: torch.Tensor, scale: torch.Tensor, table: torch.Tensor | None, rows: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return the weight [rows, in] in a dtype, rounded only once. table: `byte_table` for nf4, else None"""
    if table is None:
        return values.to(dtype).mul_(scale)  # bfloat16 and float16 represent every int8 and e4m3 number exactly
    pairs = functional.embedding(values.int(), table.to(dtype))
    return pairs.view(len(scale), BLOCK).mul_(scale).view(rows, -1)


def _largest(rows: torch.Tensor) -> torch.Tensor:
    """Return the largest absolute value of each row, [rows, 1], but never zero."""
    return rows.abs().amax(1, keepdim=True).clamp_(min=torch.finfo(torch.bfloat16).tiny)


def byte_table(device: torch.device) -> torch.Tensor:
    """Return the two values of each nf4 byte, float32 [256, 2]. Build it once, because it copies from the host."""
    levels = torch.tensor(NF4, device=device)
    return torch.stack([levels.repeat_interleave(16), levels.repeat(16)], 1)


# ---- the layer


class _Product(torch.autograd.Function):
    """x @ weight.T + bias, unpacking the weight in both passes instead of keeping it in between."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        values: torch.Tensor,
        scale: torch.Tensor,
        table: torch.Tensor | None,
        bias: torch.Tensor | None,
        rows: int,
    ) -> torch.Tensor:
        ctx.save_for_backward(values, scale, table)
        ctx.rows = rows
        return functional.linear(x, unpack(values, scale, table, rows, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        values, scale, table = ctx.saved_tensors
        if torch.compiler.is_compiling():
            # Add a value that is always zero, which the compiler cannot know. Otherwise it sees that both passes unpack
            # the same weight, and keeps it in between.
            first = grad.flatten()[0]
            scale = scale + ((first > 0) & (first <= 0))
        into_x = grad @ unpack(values, scale, table, ctx.rows, grad.dtype) if ctx.needs_input_grad[0] else None
        into_bias = grad.flatten(0, -2).sum(0) if ctx.needs_input_grad[4] else None
        return into_x, None, None, None, into_bias, None


class LowBitLinear(nn.Linear):
    """A linear layer with a packed frozen weight. It subclasses nn.Linear so that peft finds it."""

    values: torch.Tensor
    scale: torch.Tensor
    table: torch.Tensor | None

    def __init__(self, linear: nn.Linear, how: Format) -> None:
        nn.Module.__init__(self)  # nn.Linear's would allocate a weight
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.how: Format = how
        self.dtype = linear.weight.dtype
        packed = pack(linear.weight, how)
        self.register_buffer("values", packed.values)
        self.register_buffer("scale", packed.scale)
        self.register_buffer("table", byte_table(packed.values.device) if how == "nf4" else None, persistent=False)
        self.bias = linear.bias
        self.train(linear.training)

    @property
    def weight(self) -> torch.Tensor:
        """The weight [out, in], unpacked at each access; writes to it are lost."""
        return unpack(self.values, self.scale, self.table, self.out_features, self.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        device_type = x.device.type
        dtype = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else x.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        packed = (self.values, self.scale, self.table)
        if not torch.is_grad_enabled():
            return functional.linear(x.to(dtype), unpack(*packed, self.out_features, dtype), bias)
        product: torch.Tensor = _Product.apply(x.to(dtype), *packed, bias, self.out_features)
        return product

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.how}"


def shrink(blocks: Sequence[nn.Module], how: Format) -> int:
    """Replace the frozen linear layers of the blocks with LowBitLinear, one by one, and return the bytes saved."""
    saved = 0
    for parent in [module for block in blocks for module in block.modules()]:
        for name, child in list(parent.named_children()):
            if not isinstance(child, nn.Linear) or isinstance(child, LowBitLinear) or child.weight.requires_grad:
                continue
            if child.weight.numel() >= SMALLEST and child.weight.numel() % BLOCK == 0:
                packed = LowBitLinear(child, how)
                setattr(parent, name, packed)
                saved += child.weight.nbytes - sum(buffer.nbytes for buffer in packed.buffers())
    return saved
