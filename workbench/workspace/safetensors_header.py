"""Read the header of a safetensors file: names, shapes and metadata, without the weights. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLOATS = {"F32": 4, "F16": 2, "BF16": 2}  # bytes per number, by safetensors' dtype names
INTEGERS = {"I64": 8, "I32": 4, "I16": 2, "U8": 1}
FLOAT8 = ("F8_E4M3", "F8_E5M2")
BYTES = FLOATS | INTEGERS | {"F64": 8, "I8": 1, "BOOL": 1, "U16": 2, "U32": 4, "U64": 8} | dict.fromkeys(FLOAT8, 1)
MOST_BYTES = 16 * 1024**2
HEAD_BYTES = 9


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its safetensors dtype, its shape, and the byte range in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class Header:
    """The header of a file. begin: the offset of the tensors' bytes in the file."""

    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str]
    begin: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: one.shape for name, one in self.tensors.items()}


def is_safetensors(path: Path) -> bool:
    """Whether a file begins like a safetensors file. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return head[8:] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= path.stat().st_size - 8


def read_header(path: Path) -> Header:
    """Read a file's header. Raises OSError, or ValueError saying what is wrong with the file."""
    if not is_safetensors(path):
        raise ValueError("it does not begin as one")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MOST_BYTES:
            raise ValueError(f"its header has {length:,} bytes")
        try:
            entries = json.loads(file.read(length))
            metadata = {str(name): str(text) for name, text in (entries.pop("__metadata__", None) or {}).items()}
            tensors = {str(name): _stored(entry, length + 8) for name, entry in entries.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError("its header cannot be read") from error
    return Header(tensors, metadata, length + 8)


def _stored(entry: Mapping[str, Any], base: int) -> Stored:
    """Read a tensor's entry in the header. Raises ValueError, KeyError, TypeError."""
    first, last = entry["data_offsets"]
    shape = tuple(int(size) for size in entry["shape"])
    if not 0 <= first <= last or min(shape, default=0) < 0:
        raise ValueError("offsets")
    return Stored(str(entry["dtype"]), shape, base + first, base + last)
