"""float64 where the device has none, Apple's GPUs (MPS): computed on the processor.

Imported without torch. Not covered: what libraries make there by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WITHOUT_FLOAT64 = {"mps"}  # kinds of devices


def float64_device(device: torch.device) -> torch.device:
    """Where float64 is computed for tensors of a device: there, or on the processor where the device has none.

    Only what is small is sent there and back: quantiles, a number for each clip.
    """
    import torch

    return torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device
