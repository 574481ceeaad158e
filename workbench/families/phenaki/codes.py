"""Codes as numbers and as points: a code is a point of a small grid, `levels` values a dimension from -1 to 1.

Outside of the transformer codes are points, [B, dimensions, f, h, w], which are latents like any others. Not covered:
what a code stands for (tokenizer).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MASKED = 2.0  # the first coordinate of a code that is masked: outside of the grid


def ids(points: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """Numbers of codes [B, f, h, w], int64, from points [B, dimensions, f, h, w], rounded to the grid.

    A masked one has the number after the last.
    """
    import torch

    found, stride = torch.zeros_like(points[:, 0], dtype=torch.long), 1
    for dimension, count in enumerate(levels):
        index = ((points[:, dimension].float() + 1) / 2 * (count - 1)).round().long().clamp(0, count - 1)
        found, stride = found + stride * index, stride * count
    return torch.where(points[:, 0] > (1 + MASKED) / 2, math.prod(levels), found)


def points(ids: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """Points [B, dimensions, f, h, w] in [-1, 1], float32, of the numbers of codes [B, f, h, w]."""
    import torch

    found, rest = [], ids
    for count in levels:
        found.append((rest % count).float() / (count - 1) * 2 - 1)
        rest = rest // count
    return torch.stack(found, dim=1)
