"""Encoded clips and captions on disk, found again by their content: cache/<key>.safetensors.

A key is the hash of everything that decides the tensors: the clip's bytes, the frames and crop taken, the model and its
revision, the dtype. So nothing goes stale, and two datasets with the same clip encode it once. Each file holds a
checksum of its tensors, which is compared whenever they are read. Not covered: encoding again (encoder), removal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.workspace import write_bytes

if TYPE_CHECKING:
    import torch

MEMORY_BYTES = 2 * 1024**3
CHECKSUM = "sha256"  # in a file's metadata: of names, dtypes, shapes and bytes of its tensors


class Damaged(Exception):
    """The tensors of a key are not as they were stored, or gone; whatever was left of them is removed."""


def key_of(what: Mapping[str, Any]) -> str:
    """A file name from everything that decides the tensors."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:40]


class Cache:
    """Tensors by key: on disk for good, in memory while there is room (2 GiB, least recently used leaves first)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._memory: OrderedDict[str, dict[str, torch.Tensor]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()  # of what is in memory

    def __contains__(self, key: str) -> bool:
        """Whether the tensors seem to be there; what a full disk or a bad copy cut off is removed."""
        from safetensors import SafetensorError, safe_open

        path = self._path(key)
        with contextlib.suppress(SafetensorError, OSError), safe_open(path, "pt") as file:
            if CHECKSUM in (file.metadata() or {}):
                return True
        path.unlink(missing_ok=True)
        return False

    def put(self, key: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Store tensors under a key, atomically. Raises CannotWrite."""
        from safetensors.torch import save

        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_bytes(self._path(key), save(stored, {CHECKSUM: _checksum(stored)}))

    def get(self, key: str) -> dict[str, torch.Tensor]:
        """The tensors of a key. Raises Damaged."""
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
        tensors = self._read(key)
        with self._lock:
            if key not in self._memory:
                self._memory[key] = tensors
                self._bytes += _bytes(tensors)
            while self._bytes > MEMORY_BYTES and len(self._memory) > 1:
                self._bytes -= _bytes(self._memory.popitem(last=False)[1])
        return tensors

    def _read(self, key: str) -> dict[str, torch.Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            data = self._path(key).read_bytes()  # not mapped into memory, where a file cut short would end the process
            stored = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"][CHECKSUM]
            tensors = load(data)
            if stored == _checksum(tensors):
                return tensors
        except (FileNotFoundError, SafetensorError, ValueError, KeyError, TypeError):
            pass
        self._path(key).unlink(missing_ok=True)
        raise Damaged(key)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.safetensors"


def _checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    import torch

    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def _bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
