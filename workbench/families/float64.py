"""float64 where the device has none, Apple's GPUs (MPS): on the processor what is small, in float32 the rest.

Imported without torch. Not covered: what libraries make there by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WITHOUT_FLOAT64 = {"mps"}  # kinds of devices


def float64_device(device: torch.device) -> torch.device:
    """Where float64 is computed for tensors of a device: there, or on the processor where the device has none.

    Only what is small is sent there and back: quantiles, a number for each clip.
    """
    import torch

    return torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device


def without_float64(module: Any, device: torch.device) -> Any:
    """The module with float64 buffers in float32, where it comes to a device without float64, now or later.

    CogVideoX 2B has its positions in such a buffer, and uses them in the precision of the step.
    """
    import torch

    if device.type in WITHOUT_FLOAT64 or torch.backends.mps.is_available():
        for buffer in module.buffers():
            if buffer.dtype == torch.float64:
                buffer.data = buffer.data.float()
    return module
