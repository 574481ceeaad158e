"""Encoded clips and captions on disk, found again by their content: cache/<key>.safetensors.

A key is the hash of everything that decides the tensors: the clip's bytes, the frames and crop taken, the model and its
revision, the dtype. So nothing goes stale, and two datasets with the same clip encode it once. Not covered: removal.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.families.base import Model
from workbench.workspace import write_bytes

if TYPE_CHECKING:
    import torch

MEMORY_BYTES = 2 * 1024**3


def key_of(what: Mapping[str, Any]) -> str:
    """A file name from everything that decides the tensors."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:40]


def part_identity(model: Model, folder: Path, part: str) -> str:
    """Names the weights of a part of a model: the pinned revision, or a local folder's file sizes and times."""
    if model.revision:
        return f"{model.pinned}/{part}"
    files = sorted((folder / part).iterdir())
    return f"{folder}/{part}:" + ",".join(f"{f.name}={f.stat().st_size}/{f.stat().st_mtime_ns}" for f in files)


class Cache:
    """Tensors by key: on disk for good, in memory while there is room (2 GiB, least recently used leaves first)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._memory: OrderedDict[str, dict[str, torch.Tensor]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()  # of what is in memory

    def __contains__(self, key: str) -> bool:
        """Whether the tensors are there, whole; what a full disk or a bad copy cut off is removed."""
        from safetensors import SafetensorError, safe_open

        path = self._path(key)
        if not path.exists():
            return False
        try:
            with safe_open(path, "pt"):
                return True
        except SafetensorError:
            path.unlink()
            return False

    def put(self, key: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Store tensors under a key, atomically. Raises CannotWrite."""
        from safetensors.torch import save

        write_bytes(
            self._path(key), save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        )

    def get(self, key: str) -> dict[str, torch.Tensor]:
        """The tensors of a key that is in the cache."""
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
        from safetensors.torch import load_file

        tensors = load_file(self._path(key))
        with self._lock:
            if key not in self._memory:
                self._memory[key] = tensors
                self._bytes += _bytes(tensors)
            while self._bytes > MEMORY_BYTES and len(self._memory) > 1:
                self._bytes -= _bytes(self._memory.popitem(last=False)[1])
        return tensors

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.safetensors"


def _bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
