"""Checkpoints that torch wrote (.pt, .pth, .bin, .ckpt), read as tensors and nothing else.

Not covered: what the tensors are (a family's names), safetensors (lora_files, model_files).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError

if TYPE_CHECKING:
    import torch

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
INSIDE = ("model", "module", "state_dict")  # under which trainers keep the weights


def read_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, from the disk as they are used. Raises ConfigError.

    Nothing but tensors and plain values is read: a pickle that wants more could run code.
    """
    import numpy as np
    import torch

    plain = [np.ndarray, np.dtype, type(np.dtype(np.uint32)), np.array(0).__reduce__()[0]]  # states of generators
    try:
        with torch.serialization.safe_globals(plain):
            found: Any = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"{path.name} holds more than weights, which could run code: save its weights alone with torch.save"
        ) from error
    except (RuntimeError, OSError, EOFError) as error:
        raise ConfigError(
            f"{path.name} is no checkpoint that torch can read ({str(error).splitlines()[0][:120]}): copy it again"
        ) from error
    for key in INSIDE:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    tensors = max(_weights(found), key=len, default={})
    if not tensors:
        raise ConfigError(f"{path.name} holds no weights: give another file")
    return tensors


def _weights(value: Any) -> Iterator[dict[str, torch.Tensor]]:
    """The tensors with names of a dictionary and of those in it, under whatever name a trainer keeps them."""
    import torch

    if isinstance(value, dict):
        yield {name: one for name, one in value.items() if isinstance(name, str) and torch.is_tensor(one)}
        for one in value.values():
            yield from _weights(one)
