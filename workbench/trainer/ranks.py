"""The processes (ranks) that train a run together: how they share the work and what they exchange. A single process
exchanges nothing.

A step has `gradient_accumulation` batches, no matter which rank computes them: rank r of W takes the batches r, r + W,
..., each a pure function of (step, number), and the gradients are summed. The number of GPUs therefore changes the
result only as far as the order of a sum does, and a run can resume on a different number.

This module sums the gradients once per step, after the last batch, in pieces of 64 MB. DistributedDataParallel would
send them during the backward pass, but that saves only milliseconds: a LoRA has 100 MB of gradients, and a step takes
seconds. Without that wrapper there is no second copy of the gradients, there are no hooks to reconcile with compiled,
swapped or recomputed blocks, and nothing is sent before the last batch.

Large tensors use the device's backend (NCCL or gloo). Small values use gloo, and so does waiting for a rank that
generates previews, because NCCL would time out within minutes.

With `parallel=fsdp` weights are sharded (FSDP2), and each block is gathered just before it is computed:

    a LoRA              the model's frozen weights are sharded. The LoRA itself is small and stays whole on every rank,
                        so optimizer, averages and checkpoints work as they do without shards
    full fine-tuning    all weights are sharded, and with them gradients, optimizer state and averages

Files always hold whole tensors, so a run can resume with any number of ranks, sharded or not. All ranks must gather a
tensor at the same time.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from workbench.jobs.devices import Device
from workbench.trainer.launcher import SINGLE, STORE, ProcessRank

T = TypeVar("T")
PIECE = 64 << 20  # bytes of gradients per message
LONG = timedelta(days=7)  # in effect no timeout: every rank has its own stall timeout


class Ranks:
    """This process's view of the run's ranks."""

    def __init__(self, process: ProcessRank = SINGLE) -> None:
        self.rank, self.count, self.first = process.rank, process.count, process.first
        self._small: dist.ProcessGroup | None = None

    @classmethod
    @contextlib.contextmanager
    def met(cls, process: ProcessRank, device: Device, nccl_timeout: float = 60.0) -> Iterator[Ranks]:
        """Join the process group, and leave it at the end, but not after an error, when other ranks may be gone.

        nccl_timeout: how many minutes GPUs wait for each other
        """
        ranks = cls(process)
        if process.count > 1:
            timeout, store, backend = LONG, None, "gloo"
            if process.launcher_pid is not None:  # our launcher opened a local port for the ranks to meet
                address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
                opened = int(os.environ[STORE]) if process.first else None
                store = dist.TCPStore(address, port, process.count, process.first, LONG, master_listen_fd=opened)
            if device.kind == "cuda":
                torch.cuda.set_device(device.index)
                backend, timeout = "nccl", timedelta(minutes=nccl_timeout)
            if process.local_count == process.count:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            dist.init_process_group(backend, timeout=timeout, store=store, rank=process.rank, world_size=process.count)
            ranks._small = dist.new_group(backend="gloo", timeout=LONG)
        yield ranks
        if process.count > 1:
            ranks.wait()
            dist.destroy_process_group()

    # ---- work

    def share(self, work: Sequence[T]) -> Sequence[T]:
        """Return this rank's part of the work: every `count`-th item, starting with its rank."""
        return work[self.rank :: self.count]

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients over all ranks. FSDP has already summed those of sharded weights.

        A batch may leave some weights without a gradient. If another rank's batch has one, it counts as zero here.
        """
        if self.count == 1:
            return
        trained = list(parameters)
        reached = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.uint8)
        dist.all_reduce(reached, dist.ReduceOp.MAX, group=self._small)
        summed = [parameter for parameter, anywhere in zip(trained, reached.tolist(), strict=True) if anywhere]
        for parameter in summed:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        _in_pieces((parameter.grad for parameter in summed if parameter.grad is not None), dist.all_reduce)

    def begin_alike(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Copy the weights of rank 0 to all ranks: different GPU models draw different numbers from the same seed."""
        if self.count == 1:
            return
        _in_pieces((parameter.data for parameter in parameters), partial(dist.broadcast, src=0))

    # ---- values

    def gathered(self, own: T) -> list[T]:
        """Return the values of all ranks, by rank."""
        if self.count == 1:
            return [own]
        every: list[Any] = [None] * self.count
        dist.all_gather_object(every, own, group=self._small)
        return every

    def in_order(self, own: Sequence[T]) -> list[T]:
        """Return the values of all ranks in the order of the whole work; all ranks must have equally many."""
        return [one for together in zip(*self.gathered(list(own)), strict=True) for one in together]

    def from_first(self, own: T) -> T:
        """Return the value of rank 0, on every rank."""
        if self.count == 1:
            return own
        shared: list[Any] = [own]
        dist.broadcast_object_list(shared, 0, group=self._small)
        first: T = shared[0]
        return first

    def wait(self) -> None:
        """Wait for all ranks."""
        if self.count > 1:
            dist.barrier(group=self._small)

    @contextlib.contextmanager
    def first_alone(self) -> Iterator[None]:
        """Let rank 0 go first, so that the others find what it fetched."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()


def _in_pieces(tensors: Iterable[torch.Tensor], send: Callable[[torch.Tensor], Any]) -> None:
    """Call `send` on all unsharded tensors, in place, many at a time."""
    for piece in _pieces([tensor for tensor in tensors if not isinstance(tensor, DTensor)]):
        flat = torch.cat([tensor.reshape(-1) for tensor in piece])
        send(flat)
        for tensor, values in zip(piece, flat.split([tensor.numel() for tensor in piece]), strict=True):
            tensor.copy_(values.view_as(tensor))


def _pieces(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Group tensors, in order, into pieces of one dtype and about PIECE bytes."""
    piece, size = list[torch.Tensor](), 0
    for tensor in tensors:
        if piece and (size + tensor.nbytes > PIECE or tensor.dtype != piece[0].dtype):
            yield piece
            piece, size = [], 0
        piece.append(tensor)
        size += tensor.nbytes
    if piece:
        yield piece


# ---- sharded weights


def shard(blocks: Iterable[Any], transformer: Any, device: torch.device) -> None:
    """Shard the transformer's weights block by block, so that they are never all on the device.

    A LoRA's weights stay whole. The parameters are new objects afterwards.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # The model's output is a view, but nothing changes it in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    frozen = any(not parameter.requires_grad for parameter in transformer.parameters())
    left = {parameter for parameter in transformer.parameters() if parameter.requires_grad} if frozen else set()
    for parameter in left:
        parameter.data = parameter.data.to(device)
    for module in (*blocks, transformer):
        # Resharded after each use, so that averages put into the shards take effect.
        sharded: Any = fully_shard(module, mesh=mesh, reshard_after_forward=True, ignored_params=left)
        # The sum over ranks, as everywhere here, instead of the mean. gloo supports nothing else.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole tensor, gathered if it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(value: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Put a whole value, which every rank has, on the device of `tensor` and shard it likewise."""
    if not isinstance(tensor, DTensor):
        return value.to(tensor.device)
    return distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)
