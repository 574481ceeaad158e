"""AMD's (ROCm) and Apple's (MPS) GPUs, which only torch can find, and what every computing job does with a device.

`python -m workbench.jobs.torch_devices` prints the GPUs as a line of JSON, for processes without torch. Jobs use the
rest: copy tensors to a device, move them off it for a while, and measure and free its memory.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from workbench.jobs import processes

if TYPE_CHECKING:
    import torch

    from workbench.jobs.devices import Device

GIGABYTE = 1024**3
ANSWER_SECONDS = 120.0  # enough to import torch from a cold disk
BUILD = re.compile(r"^(hip|xpu)\b[^=]*= *'([^']+)'", re.MULTILINE)


def describe() -> list[dict[str, Any]]:
    """Return the fields of each Device, in torch's numbering."""
    import torch

    if torch.version.hip:
        abouts = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        return [
            {
                "kind": "cuda",
                "name": about.name,
                "total_gb": about.total_memory / GIGABYTE,
                "index": index,
                "uuid": f"amd-{getattr(about, 'uuid', index)}",
                "rocm": torch.version.hip,
            }
            for index, about in enumerate(abouts)
        ]
    if torch.backends.mps.is_available():
        # What Metal lets one program use of the machine's memory.
        total = torch.mps.recommended_max_memory() / GIGABYTE
        return [{"kind": "mps", "name": torch.backends.mps.get_name(), "total_gb": total, "uuid": "mps"}]
    return []


@functools.cache
def found() -> tuple[dict[str, Any], ...]:
    """Return what `describe` does, using a child process if torch is not imported here. Empty if torch fails."""
    if "torch" in sys.modules:
        return tuple(describe())
    return tuple(processes.answer_of(__name__, ANSWER_SECONDS) or ())


@functools.cache
def build() -> Literal["hip", "xpu", ""]:
    """Return which GPUs other than NVIDIA's the installed torch was built for. Read from a file, without an import."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return ""
    version = Path(spec.submodule_search_locations[0]) / "version.py"
    named = BUILD.search(version.read_text(encoding="utf-8")) if version.is_file() else None
    return "" if named is None else "hip" if named[1] == "hip" else "xpu"


def used_gb(kind: str, index: int) -> float | None:
    """Return the memory in use in GiB: by all programs on an AMD GPU, by this process on Apple's.

    None if torch is not loaded.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    if kind == "mps":
        return float(torch.mps.driver_allocated_memory() / GIGABYTE)
    free, total = torch.cuda.mem_get_info(index)
    return float((total - free) / GIGABYTE)


def held_gb(device: Device) -> float:
    """Return the memory this process holds in GiB: the peak on a CUDA GPU, the current amount elsewhere."""
    import torch

    if device.kind == "cuda":
        return float(torch.cuda.max_memory_reserved() / GIGABYTE)
    if device.kind == "mps":
        return float(torch.mps.driver_allocated_memory() / GIGABYTE)
    return float(psutil.Process().memory_info().rss / GIGABYTE)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to the device. On a CUDA GPU the copy is asynchronous, through pinned memory.

    A plain copy from pageable memory would first wait for all queued work of the GPU.
    """
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    try:
        pinned = tensor.pin_memory()
    except RuntimeError:  # no more memory can be pinned: slower, not wrong
        return tensor.to(device)
    return pinned.to(device, non_blocking=True)


@contextlib.contextmanager
def moved_to_host(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Keep tensors in host memory inside the block, then move them back unchanged; after an error they stay there.

    Tensors that share their memory with others are not moved, as that would free nothing.
    """
    moved = []
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        own = tensor.untyped_storage().nbytes() == tensor.nbytes and not getattr(tensor, "is_paged", False)
        if own and tensor.device.type != "cpu":
            moved.append((tensor, tensor.device))
            tensor.data = tensor.data.cpu()
    free_memory()
    yield
    for tensor, device in moved:
        tensor.data = tensor.data.to(device)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor in nested dictionaries and lists."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one)


def make_current(device: Device) -> None:
    """Make this GPU torch's default, which Accelerate, memory counters and compiled code use."""
    if device.kind == "cuda":
        import torch

        torch.cuda.set_device(device.index)


def free_memory() -> None:
    """Collect garbage and return torch's cached memory to the GPU."""
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(describe())}\n")
