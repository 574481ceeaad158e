"""The processes that compute a run together, as the training loop uses them: who does what, and what they send one
another. With one process nothing is ever sent.

A step has `gradient_accumulation` batches, whoever computes them: rank r of W takes the batches r, r + W, ..., each of
which is a pure function of (step, number), and the gradients are summed. So the number of GPUs changes what is learned
no more than the order of a sum does, and a run may go on with another number.

The gradients are summed by this module, once a step, after its last batch, in pieces of 64 MB. A wrapper around the
model (DistributedDataParallel) would send them during the backward pass, which hides some milliseconds: a LoRA has
100 MB of gradients where a step takes seconds. In return there is no wrapper: no second copy of the gradients, no
hooks that compiled blocks, swapped blocks or recomputed blocks would have to agree with, and nothing sent for the
batches before the last.

Tensors travel by the device's own means (NCCL, gloo). Everything small travels by gloo, as does waiting for a rank that
generates previews: NCCL gives up on that after minutes.

With `parallel=fsdp` weights are sharded (FSDP2); each block's are gathered just before it is computed:

    a LoRA              the model's frozen weights are sharded. The LoRA itself is small and stays whole in every
                        process, so that optimizer, averages and checkpoints are those of a run without shards
    full fine-tuning    all weights are sharded, and with them gradients, the optimizer's memory and averages

Files always hold whole tensors, as one process writes them: a run may go on with any number of processes, sharded or
not. Every process must ask for a whole tensor at the same time.
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
PIECE = 64 << 20  # bytes of gradients that are sent at once
LONG = timedelta(days=7)  # a process that is waited for has its own stall timeout


class Ranks:
    """This process among those of its run."""

    def __init__(self, process: ProcessRank = SINGLE) -> None:
        self.rank, self.count, self.first = process.rank, process.count, process.first
        self._small: dist.ProcessGroup | None = None

    @classmethod
    @contextlib.contextmanager
    def met(cls, process: ProcessRank, device: Device, nccl_timeout: float = 60.0) -> Iterator[Ranks]:
        """Join the process group, and leave it at the end; not after an error, when others may be gone.

        nccl_timeout: minutes that GPUs wait for one another
        """
        ranks = cls(process)
        if process.count > 1:
            timeout, store, backend = LONG, None, "gloo"
            if process.launcher_pid is not None:  # our launcher has opened a port to this machine, where they meet
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
        """This process's part of the work: every `count`-th piece, from its rank on."""
        return work[self.rank :: self.count]

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Give every process the sum of all gradients; those of sharded weights are summed already."""
        if self.count == 1:
            return
        gradients = (parameter.grad for parameter in parameters)
        _in_pieces((gradient for gradient in gradients if gradient is not None), dist.all_reduce)

    def begin_alike(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Give every process the weights of rank 0: another model of GPU samples other numbers from the same seed."""
        if self.count == 1:
            return
        _in_pieces((parameter.data for parameter in parameters), partial(dist.broadcast, src=0))

    # ---- values

    def gathered(self, own: T) -> list[T]:
        """The values of all processes, by rank."""
        if self.count == 1:
            return [own]
        every: list[Any] = [None] * self.count
        dist.all_gather_object(every, own, group=self._small)
        return every

    def in_order(self, own: Sequence[T]) -> list[T]:
        """The values of all shares, in the order of the whole; every share has the same length."""
        return [one for together in zip(*self.gathered(list(own)), strict=True) for one in together]

    def from_first(self, own: T) -> T:
        """The value of rank 0, in every process."""
        if self.count == 1:
            return own
        shared: list[Any] = [own]
        dist.broadcast_object_list(shared, 0, group=self._small)
        first: T = shared[0]
        return first

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.count > 1:
            dist.barrier(group=self._small)

    @contextlib.contextmanager
    def first_alone(self) -> Iterator[None]:
        """Rank 0 goes first, the others after it: what it fetches is there for them."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()


def _in_pieces(tensors: Iterable[torch.Tensor], send: Callable[[torch.Tensor], Any]) -> None:
    """Do something with all tensors that are whole, in place, many together."""
    for piece in _pieces([tensor for tensor in tensors if not isinstance(tensor, DTensor)]):
        flat = torch.cat([tensor.reshape(-1) for tensor in piece])
        send(flat)
        for tensor, values in zip(piece, flat.split([tensor.numel() for tensor in piece]), strict=True):
            tensor.copy_(values.view_as(tensor))


def _pieces(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The tensors in their order, so many together that a piece has about PIECE bytes; each of one dtype."""
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
    """Shard the transformer's weights, block by block: the whole of them is never on the device.

    A LoRA's weights stay whole. Parameters are other objects afterwards.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # The model's output is a view, and nobody changes it in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    frozen = any(not parameter.requires_grad for parameter in transformer.parameters())
    left = {parameter for parameter in transformer.parameters() if parameter.requires_grad} if frozen else set()
    for parameter in left:
        parameter.data = parameter.data.to(device)
    for module in (*blocks, transformer):
        # Sharded between any two uses: what others put into the shards (averages) must be what is computed with.
        sharded: Any = fully_shard(module, mesh=mesh, reshard_after_forward=True, ignored_params=left)
        # The sum over the processes, as everywhere, and not the mean; gloo knows no other.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with all its shards."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(value: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A whole value, which every process has, as `tensor` is: on its device and sharded where that is."""
    if not isinstance(tensor, DTensor):
        return value.to(tensor.device)
    return distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)
