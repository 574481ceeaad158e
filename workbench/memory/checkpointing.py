"""Levels of gradient checkpointing: a block's activations are dropped and recomputed in the backward pass.

    none             keep all activations: fastest, most memory
    keep attention   keep only the attention's output, which is the most expensive part to recompute
    full             keep only the block's inputs
    offloaded        keep only the block's inputs, in CPU memory until the block needs them

All levels give the same numbers. They use PyTorch's non-reentrant checkpointing, its selective checkpointing to keep
attention, and hooks on saved tensors to offload inputs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Level = Literal["none", "keep attention", "full", "offloaded"]
Recompute = Callable[..., Any]  # (function, *arguments) -> function's result

BLOCK_INPUT_AXES = 3  # [batch, tokens, width]; positions and masks have fewer axes
AHEAD = 3  # tensors to fetch ahead; a block has two inputs of its own
_KERNELS = (
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "flash_attn::_flash_attn_forward",
)


def recomputing(level: Level, random: bool) -> Recompute:
    """Return the function that calls a block at a checkpointing level.

    random: whether the block draws random numbers (dropout), which recomputation must repeat
    """
    usual = partial(checkpoint, use_reentrant=False, preserve_rng_state=random)
    if level == "keep attention":

        def keeping(function: Callable[..., Any], *arguments: Any) -> Any:
            # If a step calls the model twice, autocast still caches the weights cast by the first call. Recomputation
            # casts them again, and PyTorch would then look for saved results of casts that never ran.
            torch.clear_autocast_cache()
            return usual(function, *arguments, context_fn=partial(create_selective_checkpoint_contexts, _keep))

        return keeping
    if level == "full":
        return usual
    assert level == "offloaded", f"nothing is recomputed at level {level}"
    offloaded = _OffloadedInputs()

    def offloading(function: Callable[..., Any], *arguments: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(offloaded.pack, offloaded.unpack):
            return usual(function, *arguments)

    return offloading


def _keep(context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    kept = str(getattr(operation, "_schema", operation)).split("(")[0].split(".")[0] in _KERNELS
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


class _HostCopy:
    """One tensor in host memory. left, arrived: CUDA events for its copies to the host and back"""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.of = _identity(tensor)
        self.device = tensor.device
        self.host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
        self.back: torch.Tensor | None = None
        self.left: Any = None
        self.arrived: Any = None


def _identity(tensor: torch.Tensor) -> tuple[StorageWeakRef, int, torch.Size]:
    """Return an identity that only views of the same bytes share, for as long as it is held."""
    return StorageWeakRef(tensor.untyped_storage()), tensor.storage_offset(), tensor.shape


class _OffloadedInputs:
    """Block inputs in host memory: copied there while the next block computes, and back one block ahead.

    On a GPU, copies use pinned memory and a separate stream; elsewhere they are plain.
    """

    def __init__(self) -> None:
        self._order: list[weakref.ref[_HostCopy]] = []  # in the order of packing; the autograd graph keeps them alive
        self._stream: Any = None

    def pack(self, tensor: torch.Tensor) -> Any:
        """Move a tensor saved by a checkpoint to the host.

        Tensors that an earlier block saved too, such as an encoded caption or timesteps per token, stay: the model
        holds them anyway, and each block would make a copy.
        """
        waiting = [other for reference in self._order if (other := reference()) is not None]
        if tensor.dim() < BLOCK_INPUT_AXES or any(other.of == _identity(tensor) for other in waiting):
            return tensor
        copy = _HostCopy(tensor)
        if tensor.is_cuda:
            stream = self._copy_stream(tensor.device)
            stream.wait_stream(torch.cuda.current_stream(tensor.device))
            with torch.cuda.stream(stream):
                copy.host.copy_(tensor, non_blocking=True)
                tensor.record_stream(stream)
                copy.left = stream.record_event()
        else:
            copy.host.copy_(tensor)
        self._order = [weakref.ref(other) for other in (*waiting, copy)]
        return copy

    def unpack(self, packed: Any) -> torch.Tensor:
        """Return what was packed, and fetch the inputs of earlier blocks, which the backward pass needs next."""
        if not isinstance(packed, _HostCopy):
            kept: torch.Tensor = packed
            return kept
        waiting = [copy for reference in self._order if (copy := reference()) is not None]
        at = waiting.index(packed)
        for copy in reversed(waiting[max(0, at - AHEAD) : at + 1]):
            self._fetch(copy)
        tensor, packed.back = packed.back, None
        assert tensor is not None
        if packed.arrived is not None:
            current = torch.cuda.current_stream(packed.device)
            current.wait_event(packed.arrived)
            tensor.record_stream(current)
        return tensor

    def _fetch(self, copy: _HostCopy) -> None:
        if copy.back is not None:
            return
        if copy.left is None:
            copy.back = copy.host.clone()
            return
        stream = self._copy_stream(copy.device)
        with torch.cuda.stream(stream):
            stream.wait_event(copy.left)
            copy.back = copy.host.to(copy.device, non_blocking=True)
            copy.arrived = stream.record_event()

    def _copy_stream(self, device: torch.device) -> Any:
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        return self._stream
