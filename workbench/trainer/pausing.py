"""A paused run leaves its device: its tensors wait in CPU memory, and the device's lock is lent to others.

Every bit comes back as it was, so a run that was paused ends in the same weights as one that was not. Nothing is moved
where several processes share the steps: their devices stay theirs. Slots of swapped blocks (memory.block_swap) stay,
and so does what the driver keeps for a process. Not covered: when to pause (commands), who is next (runs.queue).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch

from workbench.jobs.torch_devices import free_memory
from workbench.trainer.session import Session


@contextmanager
def device_lent(session: Session) -> Iterator[None]:
    """The session's device is free for others meanwhile, if it is this process's to lend.

    After an error nothing comes back, and neither does the device.
    """
    if session.slot is None:
        yield
        return
    moved = []
    if session.device.type == "cuda":
        moved = to_host(held_by(session))
        session.inputs.release()
    free_memory()
    with session.slot.lent():
        yield
    for tensor, device in moved:
        tensor.data = tensor.data.to(device)


def held_by(session: Session) -> Iterator[torch.Tensor]:
    """Every tensor that a session keeps between two steps: the model, what is trained, the optimizer's, the average."""
    model = session.bare_transformer
    averages = session.ema.model.shadow_params if session.ema is not None else []
    states = (value for state in session.optimizer.state.values() for value in _tensors(state))
    return chain(model.parameters(), model.buffers(), session.trainable.parameters, averages, states)


def to_host(tensors: Iterable[torch.Tensor]) -> list[tuple[torch.Tensor, torch.device]]:
    """Move tensors into host memory, each once; returns which, and where they were.

    What shares its memory with others stays: moving it would free nothing.
    """
    moved = []
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        own = tensor.untyped_storage().nbytes() == tensor.nbytes and not getattr(tensor, "is_paged", False)
        if own and tensor.device.type != "cpu":
            moved.append((tensor, tensor.device))
            tensor.data = tensor.data.cpu()
    return moved


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, dict):
        yield from chain.from_iterable(map(_tensors, value.values()))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_tensors, value))
