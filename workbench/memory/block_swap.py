"""Frozen weights of some blocks wait in host memory and come to the device just before their block computes.

Two slots on the device, each large enough for one block. The swapped blocks are bound to them in turn, for good: the
first's tensors are views of slot 0, the second's of slot 1, the third's of slot 0 again. So nothing in a module changes
while it trains; what changes are a slot's bytes. When a swapped block is called, its bytes are on the device or are
fetched, and the copy of the one that comes after it begins: forwards the next, in a backward pass the one before. Bytes
travel from the host to the device only. What is trained is never swapped.

When a slot may be overwritten: with a block's call all work on the swapped block before it is in the device's queue.
Forwards that is plain. Backwards, a block is called because autograd wants what it recomputes, and autograd takes the
nodes of later blocks first. So gradient checkpointing that calls each block again is required. Without it autograd
refuses to go backwards ("modified by an inplace operation"), since a slot's views share its version counter.

Between the calls of its block a swapped tensor has its shape, dtype and device, but bytes of another block. Not
covered: which blocks and how many (trainer.trainable), a pass through the blocks in two threads at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

SLOTS = 2
ALIGNED = 256  # bytes; where a tensor begins in a slot, as an allocation of its own would
# Bytes pinned at once: PyTorch rounds what it pins up to a power of two, of a whole block that might be double.
PIECE = 32 << 20


class _Tensor(NamedTuple):
    """A frozen tensor of a block: its module, and where it begins in the block's bytes."""

    module: nn.Module
    name: str
    value: torch.Tensor
    begin: int


class BlockSwap:
    """Swaps the frozen tensors of `count` of the blocks, spread evenly; the other blocks are left alone.

    The blocks may lie on the host; what is trained in the swapped ones goes to the device here, the rest of the model
    may follow later (`.to(device)` leaves swapped tensors as they are). On a CPU the same happens with plain copies.
    """

    def __init__(self, blocks: Sequence[nn.Module], count: int, device: torch.device) -> None:
        """Make this after LoRA and low-bit layers, before optimizer, compilation and accelerate's `prepare`."""
        self.blocks = [blocks[index] for index in spread(len(blocks), count)]
        self.device = device
        self._tensors = [_lay_out(block) for block in self.blocks]
        sizes = [sum(_aligned(tensor.value) for tensor in tensors) for tensors in self._tensors]
        # Never filled by one tensor alone, so that `parked` knows it from a tensor of its own.
        self._slots = [
            torch.zeros(max(sizes[at::SLOTS], default=0) + ALIGNED, dtype=torch.uint8, device=device)
            for at in range(SLOTS)
        ]
        self._loaded: list[int | None] = [None] * SLOTS  # whose bytes a slot holds, or will when its copy is done
        self._copies = _StreamCopies(device) if device.type == "cuda" else _PlainCopies()
        self._last = 0
        self._hosts: list[tuple[torch.Tensor, ...]] = []
        for index, block in enumerate(self.blocks):
            self._hosts.append(self._leave(index, sizes[index]))
            for parameter in block.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.to(device)
        for index, block in enumerate(self.blocks):
            block.register_forward_pre_hook(lambda *_, index=index: self._called(index))

    # ---- before

    def _leave(self, index: int, size: int) -> tuple[torch.Tensor, ...]:
        """Copy a block's tensors into host memory and let the block see a slot in their stead; the pieces of memory."""
        memory, slot = torch.empty(size, dtype=torch.uint8), self._slots[index % SLOTS]
        for number, tensor in enumerate(self._tensors[index]):
            _view(memory, tensor).copy_(tensor.value)
            bound = tensor._replace(value=_view(slot, tensor))
            # The new tensor shares the version counter of what it is a view of.
            if bound.name in bound.module._parameters:
                bound.module._parameters[bound.name] = nn.Parameter(bound.value, requires_grad=False)
            else:
                bound.module._buffers[bound.name] = bound.value.detach()
            self._tensors[index][number] = bound
        return self._copies.kept(memory)

    # ---- while it runs

    def _called(self, index: int) -> None:
        """A swapped block is about to compute, or to compute again."""
        self._fetch(index)
        self._copies.wait(index % SLOTS)
        # The block that is called after this one: a wrong guess costs time, nothing else.
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
        self._loaded[slot] = None  # until the copy is under way: it may fail
        self._copies.start(slot, self._slots[slot], self._hosts[index])
        self._loaded[slot] = index


class _PlainCopies:
    """Copies that are done when they have been started."""

    def kept(self, memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Bytes on the host as `start` takes them."""
        return tuple(memory.split(PIECE))

    def start(self, slot: int, target: torch.Tensor, source: tuple[torch.Tensor, ...]) -> None:
        """Begin to fill a slot, after all that was queued on the device before."""
        for piece, part in zip(source, target.split(PIECE), strict=False):
            part[: len(piece)].copy_(piece, non_blocking=True)

    def wait(self, slot: int) -> None:
        """Let what is queued on the device from now on see a slot as it was filled last."""


class _StreamCopies(_PlainCopies):
    """Copies on a CUDA stream of their own, from pinned memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._done = [torch.cuda.Event() for _ in range(SLOTS)]

    def kept(self, memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        try:
            return tuple(piece.pin_memory() for piece in memory.split(PIECE))
        except RuntimeError:  # the system allows no more: slower, not wrong
            return tuple(memory.split(PIECE))

    def start(self, slot: int, target: torch.Tensor, source: tuple[torch.Tensor, ...]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            super().start(slot, target, source)
            self._done[slot].record(self._stream)
        target.record_stream(self._stream)

    def wait(self, slot: int) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._done[slot])


def spread(total: int, count: int) -> list[int]:
    """`count` positions among `total`, spread evenly: as much computing as possible between two of them."""
    count = min(count, total)
    return [(2 * at + 1) * total // (2 * count) for at in range(count)]


# ---- tensors as bytes


def _frozen(module: nn.Module) -> Iterator[tuple[nn.Module, str, torch.Tensor]]:
    """Every frozen tensor of a module: (its module, name, tensor)."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if not parameter.requires_grad:
                yield part, name, parameter
        for name, buffer in part.named_buffers(recurse=False):
            yield part, name, buffer


def _lay_out(block: nn.Module) -> list[_Tensor]:
    """A block's frozen tensors one after the other."""
    tensors, begin = [], 0
    for module, name, value in _frozen(block):
        tensors.append(_Tensor(module, name, value, begin))
        begin += _aligned(value)
    return tensors


def _aligned(value: torch.Tensor) -> int:
    return -(-int(value.nbytes) // ALIGNED) * ALIGNED


def _view(memory: torch.Tensor, tensor: _Tensor) -> torch.Tensor:
    """The part of a block's bytes that is this tensor."""
    value = tensor.value
    return memory[tensor.begin : tensor.begin + value.nbytes].view(value.dtype).view(value.shape)


# ---- making room


@contextmanager
def parked(module: nn.Module) -> Iterator[None]:
    """A module's frozen tensors in host memory meanwhile, so that something else has room on the device.

    What shares its memory with others stays, as swapped tensors do in their slots: moving it would free nothing.
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
