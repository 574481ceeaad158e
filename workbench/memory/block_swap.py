"""Block swap: the frozen weights of some blocks wait in host memory and come to the device just before they are needed.

The device has two slots, each large enough for one block. The swapped blocks are bound to the slots in turn, for good:
the tensors of the first are views of slot 0, of the second views of slot 1, of the third views of slot 0 again. Nothing
in a module changes during training, only the bytes in a slot. When a swapped block is called, its bytes are fetched if
they are not there, and the copy for the following block starts: the next one in a forward pass, the previous one in a
backward pass. Bytes are only ever copied from the host to the device. Trained weights are never swapped.

A slot can be overwritten because, once a block is called, all work on the swapped block called before it is in the
device's queue. In the forward pass that is obvious. In the backward pass, a block is called because autograd needs what
it recomputes, and autograd processes later blocks first. Block swap therefore requires gradient checkpointing, which
calls each block again. Without it, autograd refuses the backward pass ("modified by an inplace operation"), because a
slot's views share its version counter.

Between calls, a swapped tensor has the right shape, dtype and device, but the bytes of another block. Two threads must
not run through the blocks at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

import torch
from torch import nn

SLOTS = 2
ALIGNED = 256  # bytes; tensors in a slot are aligned like separate allocations
# Bytes pinned at a time. PyTorch rounds pinned memory up to a power of two, which could double a whole block.
PIECE = 32 << 20


class _Tensor(NamedTuple):
    """A frozen tensor of a block. begin: its offset in the block's bytes"""

    module: nn.Module
    name: str
    value: torch.Tensor
    begin: int


class BlockSwap:
    """Swaps the frozen tensors of `count` of the blocks, spread evenly.

    The blocks may still be on the host. The trained weights of the swapped blocks are moved to the device here; the
    rest of the model may follow later (`.to(device)` leaves swapped tensors alone). On a CPU the copies are plain.
    """

    def __init__(self, blocks: Sequence[nn.Module], count: int, device: torch.device) -> None:
        """Call this after adding LoRA and low-bit layers, before optimizer, compilation and accelerate's `prepare`."""
        self.blocks = [blocks[index] for index in spread(len(blocks), count)]
        self.device = device
        self._tensors = [_lay_out(block) for block in self.blocks]
        sizes = [sum(_aligned(tensor.value) for tensor in tensors) for tensors in self._tensors]
        # Larger than any single tensor, so that `parked` can tell a slot's views from other tensors.
        self._slots = [
            torch.zeros(max(sizes[at::SLOTS], default=0) + ALIGNED, dtype=torch.uint8, device=device)
            for at in range(SLOTS)
        ]
        self._loaded: list[int | None] = [None] * SLOTS  # the block whose bytes are in each slot, or on their way
        self._copies = _Copies(device)
        self._last = 0
        self._hosts: list[tuple[torch.Tensor, ...]] = []
        for index, block in enumerate(self.blocks):
            self._hosts.append(self._move_to_host(index, sizes[index]))
            for parameter in block.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.to(device)
        for index, block in enumerate(self.blocks):
            block.register_forward_pre_hook(lambda *_, index=index: self._called(index))

    # ---- setup

    def _move_to_host(self, index: int, size: int) -> tuple[torch.Tensor, ...]:
        """Copy a block's tensors to host memory, bind the block to its slot, and return the memory in pieces."""
        memory, slot = torch.empty(size, dtype=torch.uint8), self._slots[index % SLOTS]
        for number, tensor in enumerate(self._tensors[index]):
            _view(memory, tensor).copy_(tensor.value)
            bound = tensor._replace(value=_view(slot, tensor))
            # A new parameter or detached buffer keeps sharing the slot's version counter.
            if bound.name in bound.module._parameters:
                bound.module._parameters[bound.name] = nn.Parameter(bound.value, requires_grad=False)
            else:
                bound.module._buffers[bound.name] = bound.value.detach()
            self._tensors[index][number] = bound
        return self._copies.kept(memory)

    # ---- training

    def _called(self, index: int) -> None:
        """Fetch a swapped block before it computes, or recomputes, and start fetching the following one."""
        self._fetch(index)
        self._copies.wait(index % SLOTS)
        # Guess which block is called next. A wrong guess only costs time.
        end = len(self.blocks) - 1
        backwards = torch.is_grad_enabled() and (index < self._last or index == end)
        following = index - 1 if backwards and index > 0 else index + 1 if index < end else 0
        self._last = index
        if following % SLOTS != index % SLOTS:
            self._fetch(following)

    def _fetch(self, index: int) -> None:
        slot = index % SLOTS
        if self._loaded[slot] == index:
            return
        self._loaded[slot] = None  # in case the copy fails
        self._copies.start(slot, self._slots[slot], self._hosts[index])
        self._loaded[slot] = index


class _Copies:
    """Copies to the slots: on CUDA from pinned memory on a separate stream, elsewhere plain and synchronous."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._done = [torch.cuda.Event() for _ in range(SLOTS)] if self._stream is not None else []

    def kept(self, memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Split host memory into the pieces that `start` copies."""
        pieces = tuple(memory.split(PIECE))
        with suppress(RuntimeError):  # no more memory can be pinned: slower, but correct
            return pieces if self._stream is None else tuple(piece.pin_memory() for piece in pieces)
        return pieces

    def start(self, slot: int, target: torch.Tensor, source: tuple[torch.Tensor, ...]) -> None:
        """Start to fill a slot, after everything already queued on the device."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            for piece, part in zip(source, target.split(PIECE), strict=False):
                part[: len(piece)].copy_(piece, non_blocking=True)
        if self._stream is not None:
            self._done[slot].record(self._stream)
            target.record_stream(self._stream)

    def wait(self, slot: int) -> None:
        """Make work queued on the device from now on wait for a slot's latest copy."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_event(self._done[slot])


def spread(total: int, count: int) -> list[int]:
    """Return `count` of `total` positions, spread evenly so that copies have the most time between two of them."""
    count = min(count, total)
    return [(2 * at + 1) * total // (2 * count) for at in range(count)]


# ---- tensors as bytes


def _frozen(module: nn.Module) -> Iterator[tuple[nn.Module, str, torch.Tensor]]:
    """Yield (owning module, name, tensor) of every frozen tensor of a module."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if not parameter.requires_grad:
                yield part, name, parameter
        for name, buffer in part.named_buffers(recurse=False):
            yield part, name, buffer


def _lay_out(block: nn.Module) -> list[_Tensor]:
    """Lay out a block's frozen tensors one after the other."""
    tensors, begin = [], 0
    for module, name, value in _frozen(block):
        tensors.append(_Tensor(module, name, value, begin))
        begin += _aligned(value)
    return tensors


def _aligned(value: torch.Tensor) -> int:
    return -(-int(value.nbytes) // ALIGNED) * ALIGNED


def _view(memory: torch.Tensor, tensor: _Tensor) -> torch.Tensor:
    """Return the tensor's part of its block's bytes."""
    value = tensor.value
    return memory[tensor.begin : tensor.begin + value.nbytes].view(value.dtype).view(value.shape)


# ---- making room


@contextmanager
def parked(module: nn.Module) -> Iterator[None]:
    """Keep a module's frozen tensors in host memory to make room on the device.

    Tensors that share memory with others, such as swapped tensors in their slots, stay: moving them frees nothing.
    """
    tensors = [tensor for _, _, tensor in _frozen(module) if tensor.untyped_storage().nbytes() == tensor.nbytes]
    devices = [tensor.device for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.data = tensor.data.cpu()
        yield
    finally:
        for tensor, device in zip(tensors, devices, strict=True):
            tensor.data = tensor.data.to(device)
