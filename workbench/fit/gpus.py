"""What is known of GPUs: their memory and how fast they really multiply bf16 matrices. No torch.

Rates are what trainings reach, not what is printed on the box: calibrated on published times where there are some
(docs/memory.md), else about 70 % of the maker's figure for consumer GPUs and half of it for the others. Not covered:
AMD's, which count as NVIDIA's of their memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import psutil

from workbench.errors import ConfigError
from workbench.jobs.devices import GIGABYTE, Device, pick_device

# Part of the GPU's name -> TFLOP/s. The first that fits counts.
RATES = {
    "B200": 900.0,
    "H200": 400.0,
    "H100": 394.0,
    "H800": 394.0,
    "A100": 197.0,
    "A800": 197.0,
    "L40S": 180.0,
    "L40": 120.0,
    "RTX 6000 Ada": 180.0,
    "RTX A6000": 90.0,
    "A6000": 90.0,
    "A40": 90.0,
    "A10": 60.0,
    "L4": 45.0,
    "V100": 60.0,
    "T4": 25.0,
    "PRO 6000": 280.0,
    "5090": 165.0,
    "5080": 90.0,
    "5070 Ti": 70.0,
    "5070": 50.0,
    "5060": 35.0,
    "4090": 130.0,
    "4080": 78.0,
    "4070 Ti": 64.0,
    "4070": 46.0,
    "4060": 33.0,
    "3090": 55.0,
    "3080": 45.0,
    "3070": 31.0,
    "3060": 20.0,
    "2080": 35.0,
}
# Of Apple's by class: half of what the newest is said to do. Nothing was measured.
APPLE_RATES = {"Ultra": 14.0, "Max": 8.0, "Pro": 4.0}
APPLE_RATE = 2.0
# Where the name says nothing: by memory in GiB, a usual GPU of that size.
USUAL = ((10, 33.0), (14, 35.0), (20, 70.0), (36, 110.0), (60, 150.0))
FASTEST = 300.0
CORE_RATE = 0.03  # TFLOP/s that a processor's core does in fp32
# Of its memory: the driver and the system keep some. Apple's was not measured.
USABLE = {"cuda": 0.97, "mps": 0.90, "cpu": 0.90}
HERE = "this machine"
MOST_GB = 10_000.0


@dataclass(frozen=True)
class GpuModel:
    """Where a run computes. memory_gb: GiB it has; rate: TFLOP/s that it reaches."""

    name: str
    kind: Literal["cuda", "mps", "cpu"]
    memory_gb: float
    rate: float

    @property
    def usable_gb(self) -> float:
        return self.memory_gb * USABLE[self.kind]


# Presets: a choice's name -> (memory, an example of such a GPU).
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
    """The GPU that a choice names: one of CHOICES, or gigabytes as in "20". Raises ConfigError.

    device: as the setting says, for the GPU of this machine
    """
    if choice == HERE:
        return _of(pick_device(device))
    if choice in SIZES:
        memory, example = SIZES[choice]
        return GpuModel(f"{choice} (such as {example})", "cuda", memory, RATES[_known(example)])
    try:
        memory = float(choice.lower().removesuffix("gb").strip())
    except ValueError:
        raise ConfigError(f"GPU is {choice!r}: give its memory in GB, as in 24, or choose {HERE!r}") from None
    if not 1.0 <= memory <= MOST_GB:
        raise ConfigError(
            f"GPU is {choice!r}, must have 1 to {MOST_GB:,.0f} GB of memory: give it as in 24, or choose {HERE!r}"
        )
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
