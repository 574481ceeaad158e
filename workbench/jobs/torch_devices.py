"""The GPUs that torch itself finds, where no library of NVIDIA's tells of them: AMD's (ROCm) and Apple's (MPS).

`python -m workbench.jobs.torch_devices` prints them as a line of JSON: a process without torch asks that way, once.
And what all that compute do with a device: copy to it, leave it for a while, free and count its memory. torch is
imported inside functions only.
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
ANSWER_SECONDS = 120.0  # importing torch from a cold disk
BUILD = re.compile(r"^(hip|xpu)\b[^=]*= *'([^']+)'", re.MULTILINE)


def describe() -> list[dict[str, Any]]:
    """The fields of each Device, in torch's numbering."""
    import torch

    if torch.version.hip:
        return [_amd(index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        # What Metal lets one program use: the memory is the machine's own.
        total = torch.mps.recommended_max_memory() / GIGABYTE
        return [{"kind": "mps", "name": torch.backends.mps.get_name(), "total_gb": total, "uuid": "mps"}]
    return []


def _amd(index: int) -> dict[str, Any]:
    import torch

    about = torch.cuda.get_device_properties(index)
    return {
        "kind": "cuda",
        "name": about.name,
        "total_gb": about.total_memory / GIGABYTE,
        "index": index,
        "uuid": f"amd-{getattr(about, 'uuid', index)}",
        "rocm": torch.version.hip,
    }


@functools.cache
def found() -> tuple[dict[str, Any], ...]:
    """What `describe` returns, from a child process where this one has not imported torch. Empty where torch fails."""
    if "torch" in sys.modules:
        return tuple(describe())
    return tuple(processes.answer_of(__name__, ANSWER_SECONDS) or ())


@functools.cache
def build() -> Literal["hip", "xpu", ""]:
    """The GPUs that the installed torch was built for, where they are not NVIDIA's. Read from its file: no import."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return ""
    version = Path(spec.submodule_search_locations[0]) / "version.py"
    named = BUILD.search(version.read_text(encoding="utf-8")) if version.is_file() else None
    return "" if named is None else "hip" if named[1] == "hip" else "xpu"


def used_gb(kind: str, index: int) -> float | None:
    """Memory in use, GiB: of an AMD GPU by all programs, of Apple's by this process. None where torch is not loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    if kind == "mps":
        return float(torch.mps.driver_allocated_memory() / GIGABYTE)
    free, total = torch.cuda.mem_get_info(index)
    return float((total - free) / GIGABYTE)


def held_gb(device: Device) -> float:
    """Memory this process holds, GiB: the GPU's peak, of Apple's the present, or the process's own on a processor."""
    import torch

    if device.kind == "cuda":
        return float(torch.cuda.max_memory_reserved() / GIGABYTE)
    if device.kind == "mps":
        return float(torch.mps.driver_allocated_memory() / GIGABYTE)
    return float(psutil.Process().memory_info().rss / GIGABYTE)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to the device. On a GPU of the kind "cuda" it is queued there: nothing waits for earlier work.

    A plain copy from ordinary memory would first wait until the GPU has done all that was queued.
    """
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    try:
        pinned = tensor.pin_memory()
    except RuntimeError:  # the system allows no more: slower, not wrong
        return tensor.to(device)
    return pinned.to(device, non_blocking=True)


@contextlib.contextmanager
def moved_to_host(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Keep tensors in host memory meanwhile; every bit comes back, but after an error nothing does.

    What shares its memory with others stays: moving it would free nothing.
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
    """Every tensor in nested dictionaries and lists."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one)


def make_current(device: Device) -> None:
    """Have torch use this GPU wherever no device is named: by Accelerate, by counters of memory, by compiled code."""
    if device.kind == "cuda":
        import torch

        torch.cuda.set_device(device.index)


def free_memory() -> None:
    """Give the memory of what was dropped back to the GPU, where torch has used one."""
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
