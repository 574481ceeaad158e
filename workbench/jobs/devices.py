"""The machine's CPU and GPUs: which one a job takes, and how busy it is. Imports no torch.

NVIDIA     "cuda", found with the driver's library (NVML)
AMD        "cuda" with `rocm` set, found by a torch build for ROCm (torch_devices)
Apple      "mps", found by torch on macOS; one device, which shares the machine's memory
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import psutil
from pydantic import PlainSerializer, ValidatorFunctionWrapHandler, WrapValidator

from workbench.errors import ConfigError
from workbench.jobs import torch_devices

GIGABYTE = torch_devices.GIGABYTE
INDEXED = re.compile(r"cuda:(0|[1-9][0-9]{0,3})")
AUTO = "WORKBENCH_DEVICE"  # the environment variable that says what "auto" means, if not the first GPU
NO_XPU = "Intel GPUs (XPU) are not supported: choose auto, which takes an NVIDIA, AMD or Apple GPU, or cpu"


def _checked(value: object, listed: ValidatorFunctionWrapHandler) -> object:
    """Accept a listed choice or a numbered GPU, which depends on the machine and so is not listed."""
    if str(value).lower().partition(":")[0] == "xpu":
        raise ValueError(f"device is {value}, but {NO_XPU}")
    return value if isinstance(value, str) and INDEXED.fullmatch(value) else listed(value)


# A numbered GPU such as cuda:1 is legal, too; forms and docs show only the choices that every machine has.
DeviceChoice = Annotated[Literal["auto", "cuda", "mps", "cpu"], WrapValidator(_checked), PlainSerializer(str)]


@dataclass(frozen=True)
class Device:
    """A device that a job computes on.

    Attributes:
        kind: torch's name for the kind of device; AMD's GPUs are "cuda", too.
        uuid: identifies a GPU across processes; "" for the CPU.
        rocm: the version of ROCm; "" without it.
    """

    kind: Literal["cuda", "mps", "cpu"]
    name: str
    total_gb: float
    index: int = 0
    uuid: str = ""
    rocm: str = ""

    @property
    def is_gpu(self) -> bool:
        return self.kind != "cpu"

    @property
    def torch_name(self) -> str:
        return f"cuda:{self.index}" if self.kind == "cuda" else self.kind

    @property
    def alone(self) -> dict[str, str]:
        """Environment variables that hide all other GPUs from a process."""
        if self.rocm:
            visible = next(filter(None, map(os.environ.get, ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))), "")
            listed = [word.strip() for word in visible.split(",") if word.strip()]
            return {"HIP_VISIBLE_DEVICES": listed[self.index] if listed else str(self.index)}
        return {"CUDA_VISIBLE_DEVICES": self.uuid} if self.kind == "cuda" else {}


# Said when this kind of GPU was asked for and the machine has none.
MISSING = {
    "cuda": "no NVIDIA GPU is usable here, and no AMD GPU with ROCm: choose auto or cpu, or install the driver",
    "mps": "torch finds no Apple GPU here (MPS needs Apple silicon and macOS 14): choose auto or cpu",
}


@dataclass(frozen=True)
class Load:
    """How busy a device is now: `utilization` in percent, memory in GiB. None where it is not reported."""

    utilization: float | None
    memory_used_gb: float | None
    memory_total_gb: float


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """Yield NVIDIA's library, or None on a machine without the driver."""
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
    """List the GPUs this process may use, in torch's numbering."""
    if torch_devices.build() == "hip" or sys.platform == "darwin":
        return [Device(**one) for one in torch_devices.found()]
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
    """Return the driver's index of a CUDA_VISIBLE_DEVICES entry (a number or a UUID's beginning); -1 if unknown."""
    if word.isdecimal():
        return int(word)
    return next((index for index, uuid in enumerate(uuids) if uuid.startswith(word)), -1)


def _resolved(choice: str) -> tuple[str, str]:
    """Return what "auto" stands for, and the name of the setting or variable that says so. Raises ConfigError."""
    chosen = os.environ.get(AUTO, "").strip()
    if choice != "auto" or not chosen:
        return choice, "device"
    if chosen == "xpu":
        raise ConfigError(f"{AUTO} is xpu, but {NO_XPU}")
    if chosen not in ("auto", *MISSING, "cpu") and not INDEXED.fullmatch(chosen):
        raise ConfigError(f"{AUTO} is {chosen!r}, must be one of auto, cuda, mps, cpu: unset it")
    return chosen, AUTO


def pick_device(choice: str) -> Device:
    """Return the device for "auto", "cuda", "cuda:1", "mps" or "cpu". Raises ConfigError if the machine has none.

    GPUs have torch's numbers, which CUDA_VISIBLE_DEVICES affects. The variable WORKBENCH_DEVICE says what "auto"
    takes, such as cpu on a machine whose GPU causes trouble.
    """
    choice, name = _resolved(choice)
    if INDEXED.fullmatch(choice):
        numbered = {gpu.torch_name: gpu for gpu in gpus() if gpu.kind == "cuda"}
        if choice in numbered:
            return numbered[choice]
        if numbered:
            names = ", ".join(numbered)
            raise ConfigError(f"{name} is {choice}, but this machine has {names}: choose one of them, or auto")
        raise ConfigError(f"{name} is {choice}, but {MISSING['cuda']}")
    found = [] if choice == "cpu" else [gpu for gpu in gpus() if choice in ("auto", gpu.kind)]
    if found:
        return found[0]
    if choice in MISSING:
        raise ConfigError(f"{name} is {choice}, but {MISSING[choice]}")
    return Device("cpu", f"CPU, {psutil.cpu_count()} cores", psutil.virtual_memory().total / GIGABYTE)


def pick_devices(choice: str, count: int) -> list[Device]:
    """Return the devices that share a job's work: `count` GPUs of the kind that `pick_device` takes, 0 for all.

    The CPU is listed `count` times. Raises ConfigError when there are fewer GPUs.
    """
    first = pick_device(choice)
    if not first.is_gpu:
        return [first] * max(1, count)
    choice, name = _resolved(choice)
    if INDEXED.fullmatch(choice):
        if count != 1:
            remedy = "set gpus to 1, or device to cuda"
            raise ConfigError(f"{name} is {choice}, a single GPU, but gpus is {count}: {remedy}", {"gpus": remedy})
        return [first]
    found = gpus()
    if count > len(found):
        remedy = f"set gpus to {len(found)}, or to 0 for all"
        raise ConfigError(f"gpus is {count}, but {len(found)} can be used here: {remedy}", {"gpus": remedy})
    return found[: count or len(found)]


def gpus_of(choice: str) -> list[Device]:
    """Return the GPUs that a job's workers may use: a numbered GPU alone, none for "cpu", otherwise all."""
    first = pick_device(choice)
    return [first] if INDEXED.fullmatch(_resolved(choice)[0]) else gpus() if first.is_gpu else []


CPU_SECONDS = 1.0  # least time that the CPU's load is measured over: several views ask in the same moment
_cpu = {"at": -CPU_SECONDS, "busy": 0.0}  # time.monotonic() of the last measurement, percent


def _cpu_busy() -> float:
    """Return the CPU's load in percent since the last measurement, which is at least CPU_SECONDS old."""
    if (now := time.monotonic()) - _cpu["at"] >= CPU_SECONDS:
        _cpu.update(at=now, busy=psutil.cpu_percent())
    return _cpu["busy"]


def load(device: Device) -> Load:
    """Return how busy the device is.

    Only torch reports an AMD GPU's memory, so it is None in a process without torch. Apple's GPU shares the
    machine's memory.
    """
    memory = psutil.virtual_memory()
    if device.kind == "mps":
        free = min(device.total_gb - (torch_devices.used_gb("mps", 0) or 0.0), memory.available / GIGABYTE)
        return Load(None, device.total_gb - max(0.0, free), device.total_gb)
    if device.rocm:
        return Load(None, torch_devices.used_gb("cuda", device.index), device.total_gb)
    if device.kind == "cuda":
        with _nvml() as nvml:
            if nvml is not None:
                handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)
                held = nvml.nvmlDeviceGetMemoryInfo(handle)
                busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                return Load(busy, held.used / GIGABYTE, held.total / GIGABYTE)
    return Load(_cpu_busy(), (memory.total - memory.available) / GIGABYTE, memory.total / GIGABYTE)
