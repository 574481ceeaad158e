"""The GPU to estimate for: this machine's or one with a given memory, and its speed. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import psutil

from workbench.errors import ConfigError
from workbench.fit.constants import APPLE_RATE, APPLE_RATES, CORE_RATE, FASTEST, RATES, USABLE, USUAL
from workbench.jobs.devices import GIGABYTE, Device, pick_device

HERE = "this machine"
MOST_GB = 10_000.0


@dataclass(frozen=True)
class GpuModel:
    """A device to estimate for. memory_gb: in GiB;  rate: the TFLOP/s it reaches."""

    name: str
    kind: Literal["cuda", "mps", "cpu"]
    memory_gb: float
    rate: float

    @property
    def usable_gb(self) -> float:
        return self.memory_gb * USABLE[self.kind]


# Choice -> (memory in GiB, an example of such a GPU).
SIZES = {
    "8 GB": (8.0, "RTX 4060"),
    "12 GB": (12.0, "RTX 4070"),
    "16 GB": (16.0, "RTX 4080"),
    "24 GB": (24.0, "RTX 4090"),
    "32 GB": (32.0, "RTX 5090"),
    "48 GB": (48.0, "RTX 6000 Ada"),
    "80 GB": (80.0, "H100"),
}
CHOICES = (HERE, *SIZES)


def gpu_of(choice: str, device: str = "auto") -> GpuModel:
    """Return the GPU that a choice names: one of CHOICES, or gigabytes such as "20". Raises ConfigError.

    device: the setting, which chooses among this machine's devices.
    """
    if choice == HERE:
        return _of(pick_device(device))
    if choice in SIZES:
        memory, example = SIZES[choice]
        return GpuModel(f"{choice} (such as {example})", "cuda", memory, RATES[_known(example)])
    try:
        memory = float(choice.lower().removesuffix("gb").strip())
    except ValueError:
        raise ConfigError(f"GPU is {choice!r}: give its memory in GB, such as 24, or choose {HERE!r}") from None
    if not 1.0 <= memory <= MOST_GB:
        rule = f"must have 1 to {MOST_GB:,.0f} GB of memory"
        raise ConfigError(f"GPU is {choice!r}, {rule}: give a number such as 24, or choose {HERE!r}")
    return GpuModel(f"{memory:g} GB", "cuda", memory, _usual(memory))


def _of(device: Device) -> GpuModel:
    if device.kind == "cpu":
        cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
        return GpuModel(device.name, "cpu", psutil.virtual_memory().total / GIGABYTE, cores * CORE_RATE)
    if device.kind == "mps":
        rate = next((rate for word, rate in APPLE_RATES.items() if word in device.name.split()), APPLE_RATE)
        return GpuModel(device.name, "mps", device.total_gb, rate)
    key = _known(device.name)
    return GpuModel(device.name, device.kind, device.total_gb, RATES[key] if key else _usual(device.total_gb))


def _known(name: str) -> str:
    return next((key for key in RATES if key.lower() in name.lower()), "")


def _usual(memory: float) -> float:
    return next((rate for most, rate in USUAL if memory <= most), FASTEST)
