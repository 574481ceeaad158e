"""What a kind of device cannot do: a sentence for each setting, with its value, the rule and the remedy. No torch.

NVIDIA's GPUs and processors can do all that other checks leave. Not covered: which devices are here (jobs.devices),
attention kernels that a model's family knows (families).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import ConfigError
from workbench.jobs.devices import Device
from workbench.runs.settings import TrainSettings


@dataclass(frozen=True)
class DeviceRule:
    """A setting, the values that the device refuses (empty: all but `instead`), why, and what to set instead."""

    setting: str
    refused: Sequence[Any]
    why: str
    instead: Any

    def broken_by(self, value: Any) -> bool:
        return value in self.refused if self.refused else value != self.instead


SHARED = "shares the machine's memory, so that what leaves it frees nothing"
MPS = (
    DeviceRule("blocks_to_swap", (), "shares the machine's memory, so that a block that leaves frees nothing", 0),
    DeviceRule(
        "gradient_checkpointing",
        ("offloaded",),
        "shares the machine's memory, so that what leaves frees nothing",
        "full",
    ),
    DeviceRule("base_model_precision", ("fp8",), "has no 8-bit floats", "int8"),
    DeviceRule("optimizer", ("adamw-8bit",), "is none of those for which bitsandbytes has this optimizer", "adamw"),
    DeviceRule("optimizer", ("adam-8bit",), "is none of those for which bitsandbytes has this optimizer", "adam"),
    DeviceRule("compile", (), "is one for which PyTorch's compiler is a prototype", False),
    DeviceRule("exact", (), "is not promised to give the same bits twice; device cpu is", False),
    DeviceRule(
        "attention",
        ("flash", "efficient", "cudnn", "flash-attn"),
        "has one kernel of its own, which auto takes",
        "auto",
    ),
)
ROCM = (DeviceRule("attention", ("cudnn",), "has no cuDNN", "auto"),)


def check(settings: TrainSettings, device: Device) -> None:
    """Refuse what the device cannot do. Raises ConfigError that names every such setting."""
    what, rules = ("mps", MPS) if device.kind == "mps" else ("an AMD GPU", ROCM) if device.rocm else ("", ())
    problems = {}
    for rule in rules:
        if rule.broken_by(value := getattr(settings, rule.setting)):
            problems[rule.setting] = (
                f"{rule.setting} is {value}, but the device is {what}, which {rule.why}: set {rule.setting} to "
                f"{rule.instead}"
            )
    if problems:
        raise ConfigError("; ".join(problems.values()), problems)
