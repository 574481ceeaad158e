"""The machine's processor and GPUs: which one a job takes, and how busy it is. No torch.

Not covered: cards that are not NVIDIA's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from workbench.errors import ConfigError

GIGABYTE = 1024**3


@dataclass(frozen=True)
class Device:
    """Where a job computes. `uuid` names a GPU across processes; `torch_name` is what torch calls the device."""

    kind: Literal["cuda", "cpu"]
    name: str
    total_gb: float
    index: int = 0
    uuid: str = ""

    @property
    def torch_name(self) -> str:
        return f"cuda:{self.index}" if self.kind == "cuda" else "cpu"


@dataclass(frozen=True)
class Load:
    """How busy a device is now: `utilisation` in percent, memory in GiB."""

    utilisation: float
    memory_used_gb: float
    memory_total_gb: float


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """The NVIDIA library, None on a machine without its driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def gpus() -> list[Device]:
    """The GPUs this process may use, in torch's numbering."""
    with _nvml() as nvml:
        if nvml is None:
            return []
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        uuids = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        chosen = list(range(len(handles)))
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            chosen = [_position(word.strip(), uuids) for word in visible.split(",") if word.strip()]
        return [
            Device(
                kind="cuda",
                name=str(nvml.nvmlDeviceGetName(handles[position])),
                total_gb=nvml.nvmlDeviceGetMemoryInfo(handles[position]).total / GIGABYTE,
                index=index,
                uuid=uuids[position],
            )
            for index, position in enumerate(chosen)
            if 0 <= position < len(handles)
        ]


def _position(word: str, uuids: list[str]) -> int:
    """Index of a CUDA_VISIBLE_DEVICES entry (a number or the start of a UUID) in the driver's list; -1 if unknown."""
    if word.isdecimal():
        return int(word)
    return next((index for index, uuid in enumerate(uuids) if uuid.startswith(word)), -1)


def pick_device(choice: str) -> Device:
    """The device for "auto", "cuda" or "cpu". Raises ConfigError when "cuda" is chosen and there is no GPU."""
    found = gpus() if choice in ("auto", "cuda") else []
    if found:
        return found[0]
    if choice == "cuda":
        raise ConfigError("device is cuda, but no NVIDIA GPU is usable here: choose auto or cpu, or install the driver")
    return Device("cpu", f"processor, {psutil.cpu_count()} cores", psutil.virtual_memory().total / GIGABYTE)


def pick_devices(choice: str, count: int) -> list[Device]:
    """The devices that share a job's work, of the kind `pick_device` takes: `count` GPUs, 0 for all of them.

    The processor shares with itself: it is in the list `count` times. Raises ConfigError when there are fewer GPUs.
    """
    first = pick_device(choice)
    if first.kind == "cpu":
        return [first] * max(1, count)
    found = gpus()
    if count > len(found):
        remedy = f"set gpus to {len(found)}, or to 0 for all"
        raise ConfigError(f"gpus is {count}, but {len(found)} can be used here: {remedy}", {"gpus": remedy})
    return found[: count or len(found)]


def load(device: Device) -> Load:
    """How busy the device is. The processor's figure covers the time since the last call."""
    if device.kind == "cuda":
        with _nvml() as nvml:
            if nvml is not None:
                handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                return Load(busy, memory.used / GIGABYTE, memory.total / GIGABYTE)
    memory = psutil.virtual_memory()
    return Load(psutil.cpu_percent(), (memory.total - memory.available) / GIGABYTE, memory.total / GIGABYTE)
