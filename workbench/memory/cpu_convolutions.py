"""Faster 3D convolutions of video autoencoders on a CPU.

For a single small clip in float32, PyTorch unfolds the input and multiplies matrices (`slow_conv3d`), which takes two
to ten times as long as oneDNN: use_mkldnn in aten/src/ATen/native/Convolution.cpp wants two clips, groups, or more than
20,480 values in the first four axes. Results differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OneDNNConvolutions(TorchFunctionMode):
    """While active, compute float32 convolutions over time and space with oneDNN, whatever their input's size."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.conv3d and len(args) == 7 and _suits(*args[:2], padding=args[4]):
            clips, weight, bias, stride, padding, dilation, groups = args
            return torch.mkldnn_convolution(clips, weight, bias, padding, stride, dilation, groups)
        return func(*args, **(kwargs or {}))


def _suits(clips: torch.Tensor, weight: torch.Tensor, padding: Any) -> bool:
    """Whether oneDNN computes this as `conv3d` does; kernels of one pixel are faster as a product of matrices."""
    on_cpu = type(clips) is torch.Tensor and clips.device.type == "cpu"  # fake tensors have no kernel for it
    in_float32 = clips.dtype == weight.dtype == torch.float32
    return on_cpu and in_float32 and clips.dim() == 5 and weight.shape[-1] > 1 and isinstance(padding, tuple)


def faster_convolutions(model: torch.nn.Module) -> AbstractContextManager[object]:
    """Return a context in which a model's convolutions take oneDNN, if that generates code for this CPU."""
    vectors = torch.backends.cpu.get_cpu_capability().startswith("AVX") and torch.backends.mkldnn.is_available()
    on_cpu = next(model.parameters()).device.type == "cpu"
    return OneDNNConvolutions() if vectors and on_cpu else nullcontext()
