"""Weights cut into pieces, one a process (FSDP2): each block's are put together just before it is computed.

    a LoRA              the model's frozen weights are cut. The LoRA itself is small and stays whole in every process,
                        so that optimizer, averages and checkpoints are those of a run without pieces
    full fine-tuning    all weights are cut, and with them gradients, the optimizer's memory and averages

Files always hold whole tensors, as one process writes them: a run may go on with any number of processes, cut or not.
Every process must ask for a whole tensor at the same time. Not covered: gradients of what is whole (ranks).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor


def cut(blocks: Iterable[Any], transformer: Any, device: torch.device) -> None:
    """Cut the transformer's weights, block by block: the whole of them is never on the device.

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
        # Pieces between any two uses: what is put into them by others (averages) must be what is computed with.
        piece: Any = fully_shard(module, mesh=mesh, reshard_after_forward=True, ignored_params=left)
        # The sum over the processes, as everywhere, and not the mean; gloo knows no other.
        piece.set_gradient_divide_factor(1.0)
        piece.set_force_sum_reduction_for_comms(True)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with all its pieces."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def cut_like(value: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A whole value, which every process has, as `tensor` is: on its device and, where that is cut, in pieces."""
    if not isinstance(tensor, DTensor):
        return value.to(tensor.device)
    return distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)
