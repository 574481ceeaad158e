"""What a device cannot do is refused in a sentence before a run waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.jobs.devices import Device
from workbench.runs.checks import MPS, ROCM, check_device
from workbench.runs.settings import TrainSettings
from workbench.settings import specs

APPLE = Device("mps", "Apple M2 Max", 48.0, uuid="mps")
AMD = Device("cuda", "AMD Instinct MI300X", 192.0, uuid="amd-0", rocm="7.1.0")
NVIDIA = Device("cuda", "NVIDIA H100", 80.0, uuid="GPU-1")
CPU = Device("cpu", "processor", 24.0)
REFUSED = [
    (APPLE, "blocks_to_swap", 4, 0), (APPLE, "gradient_checkpointing", "offloaded", "full"),
    (APPLE, "base_model_precision", "fp8", "int8"), (APPLE, "optimizer", "adamw-8bit", "adamw"),
    (APPLE, "optimizer", "adam-8bit", "adam"), (APPLE, "compile", True, False), (APPLE, "exact", True, False),
    (APPLE, "attention", "flash", "auto"), (AMD, "attention", "cudnn", "auto"),
]  # fmt: skip


@pytest.mark.parametrize(("device", "name", "value", "instead"), REFUSED)
def test_refused_with_a_remedy_that_is_accepted(device: Device, name: str, value: Any, instead: Any) -> None:
    settings = TrainSettings().changed(**{name: value})
    with pytest.raises(ConfigError) as error:
        check_device(settings, device)
    sentence = error.value.problems[name]
    assert sentence.startswith(f"{name} is {value}, but the device is {'mps' if device is APPLE else 'an AMD GPU'}")
    assert sentence.endswith(f": set {name} to {instead}")
    check_device(settings.changed(**{name: instead}), device)
    for other in (NVIDIA, CPU):
        check_device(settings, other)


def test_several_are_named_at_once() -> None:
    check_device(TrainSettings(), APPLE)
    with pytest.raises(ConfigError) as error:
        check_device(TrainSettings().changed(compile=True, blocks_to_swap=2), APPLE)
    assert error.value.problems.keys() == {"compile", "blocks_to_swap"}
    known = {spec.name: spec for spec in specs(TrainSettings)}
    for rule in (*MPS, *ROCM):
        assert set(rule.refused) <= set(known[rule.setting].choices)
