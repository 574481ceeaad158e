"""Gradient checkpointing by levels: what a block computes is thrown away and computed again when the gradient needs it.

    none             everything is kept: fastest, most memory
    keep attention   only the attention's output is kept, the part that costs most to repeat
    full             only a block's inputs are kept
    offloaded        they, too, leave: they wait in CPU memory until their block needs them

All levels give the same numbers. Recomputing is PyTorch's own (non-reentrant); the choice of what to keep is its
selective checkpointing; offloading is a pair of hooks on what it saves.
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
Recompute = Callable[..., Any]  # (function, *arguments) -> what function returns

BLOCK_INPUT_AXES = 3  # [batch, tokens, width]; positions and masks have fewer
AHEAD = 3  # tensors fetched before they are needed: a block has two inputs of its own
_KERNELS = (
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "flash_attn::_flash_attn_forward",
)


def recomputing(level: Level, random: bool) -> Recompute:
    """What calls a block so that the level holds.

    random: whether the block samples random numbers (dropout), which must come out the same the second time
    """
    usual = partial(checkpoint, use_reentrant=False, preserve_rng_state=random)
    if level == "keep attention":

        def keeping(function: Callable[..., Any], *arguments: Any) -> Any:
            # Where a step calls the model twice, autocast still has the weights that the first call cast; the block
            # computed again casts them anew, and PyTorch would look for results of operations that there were not.
            torch.clear_autocast_cache()
            return usual(function, *arguments, context_fn=partial(create_selective_checkpoint_contexts, _keep))

        return keeping
    if level == "full":
        return usual
    assert level == "offloaded", f"nothing is recomputed at level {level}"
    waiting = _Waiting()

    def offloading(function: Callable[..., Any], *arguments: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(waiting.leave, waiting.come_back):
            return usual(function, *arguments)

    return offloading


def _keep(context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    kept = str(getattr(operation, "_schema", operation)).split("(")[0].split(".")[0] in _KERNELS
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


class _HostCopy:
    """One tensor that waits in host memory. `left`, `arrived`: when its copies are done, on a GPU."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.of = _identity(tensor)
        self.device = tensor.device
        self.host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
        self.back: torch.Tensor | None = None
        self.left: Any = None
        self.arrived: Any = None


def _identity(tensor: torch.Tensor) -> tuple[StorageWeakRef, int, torch.Size]:
    """The same for two views of the same bytes; no other tensor's as long as it is held."""
    return StorageWeakRef(tensor.untyped_storage()), tensor.storage_offset(), tensor.shape


class _Waiting:
    """Block inputs in host memory: they leave while the next block computes, and come back one block ahead.

    On a GPU copies run on a stream of their own between it and pinned memory; elsewhere they are plain copies.
    """

    def __init__(self) -> None:
        self._order: list[weakref.ref[_HostCopy]] = []  # as they left; the graph that needs them keeps them alive
        self._stream: Any = None

    def leave(self, tensor: torch.Tensor) -> Any:
        """Called with every tensor a checkpoint saves. What a block before saved too stays, such as an encoded caption
        or timesteps by token: the model holds it anyway, and each block would have a copy."""
        waiting = [other for reference in self._order if (other := reference()) is not None]
        if tensor.dim() < BLOCK_INPUT_AXES or any(other.of == _identity(tensor) for other in waiting):
            return tensor
        copy = _HostCopy(tensor)
        if tensor.is_cuda:
            stream = self._copying(tensor.device)
            stream.wait_stream(torch.cuda.current_stream(tensor.device))
            with torch.cuda.stream(stream):
                copy.host.copy_(tensor, non_blocking=True)
                tensor.record_stream(stream)
                copy.left = stream.record_event()
        else:
            copy.host.copy_(tensor)
        self._order = [weakref.ref(other) for other in (*waiting, copy)]
        return copy

    def come_back(self, packed: Any) -> torch.Tensor:
        """Called with what `leave` returned, the last block's first: gradients go backwards."""
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
        stream = self._copying(copy.device)
        with torch.cuda.stream(stream):
            stream.wait_event(copy.left)
            copy.back = copy.host.to(copy.device, non_blocking=True)
            copy.arrived = stream.record_event()

    def _copying(self, device: torch.device) -> Any:
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        return self._stream
