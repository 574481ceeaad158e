"""Automatic check of a clip: what is its background, its colour, its shape, and where does it move?

The check knows nothing of captions: it measures a clip [3, F, H, W] in [-1, 1] and names what it finds, the new
concepts included. `assets/train_tiny_model.py` and the tests first hold it against clips whose content is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from tiny_world import COLOURS, MOTIONS, VAE_SHAPES, Spec, shape_mask
from torch import Tensor

TEMPLATE = 32
EDGE_ROWS = 4
STRIPED = 0.2  # a background this uneven is striped: real ones reach 0.4, plain ones 0.03 at most
FOREGROUND = 0.3  # distance from the background's colour (in [-1, 1] units, over the three channels)
LEAST, GONE = 15, 8  # pixels of a frame: a shape has at least so many, and less than so many are none at all
SHRUNK = 0.45  # a shape that ends this much smaller than it was in the middle has shrunk: ideal ones end at 0.16
PARTS = ("background", "colour", "shape", "motion")


@dataclass(frozen=True)
class Finding:
    """What a clip shows; None for what could not be told. `score` is the shape's overlap, 0 to 1."""

    background: str
    colour: str | None = None
    shape: str | None = None
    motion: str | None = None
    score: float = 0.0

    def matches(self, spec: Spec) -> dict[str, bool]:
        """Which parts agree with what was asked for, and under "all" whether every one does."""
        found = {part: getattr(self, part) == getattr(spec, part) for part in PARTS}
        return found | {"all": all(found.values())}


def palette() -> Tensor:
    """The named colours [C, 3] in [-1, 1]."""
    return torch.tensor(list(COLOURS.values()), dtype=torch.float32) / 127.5 - 1


def nearest_colour(pixels: Tensor) -> Tensor:
    """Index of the nearest named colour for pixels [..., 3]."""
    return torch.cdist(pixels.reshape(-1, 3), palette()).argmin(-1).view(pixels.shape[:-1])


def normalise(matte: Tensor) -> Tensor:
    """Cut a matte [H, W] to its bounding box and scale it to TEMPLATE x TEMPLATE, keeping the aspect."""
    rows, columns = torch.where(matte > 0.5)
    cut = matte[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    height, width = cut.shape
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    cut = F.pad(cut, (left, side - width - left, top, side - height - top))
    return F.interpolate(cut[None, None], size=(TEMPLATE, TEMPLATE), mode="bilinear", align_corners=False)[0, 0]


@cache
def templates() -> tuple[tuple[str, ...], Tensor]:
    """Names and normalised mattes [S, T, T] of all shapes, drawn at the size they have in a clip."""
    names = VAE_SHAPES
    centre = torch.tensor([0.5])
    return names, torch.stack([normalise(shape_mask(name, centre, centre, 0.22, 40)[0]) for name in names])


def foreground(clip: Tensor) -> tuple[str, str | None, Tensor]:
    """Background, colour of the shape (None: nothing there) and its matte [F, H, W] in [0, 1]."""
    pixels = clip.clamp(-1, 1).permute(1, 2, 3, 0)
    index = nearest_colour(pixels)
    names = list(COLOURS)
    edge = torch.cat(
        [
            index[:, :3].flatten(),
            index[:, -3:].flatten(),
            index[:, :, :3].flatten(),
            index[:, :, -3:].flatten(),
        ]
    )
    background = int(edge.bincount(minlength=len(names)).argmax())
    background_value = pixels[index == background].mean(0)
    difference = pixels - background_value
    inside = (difference.norm(dim=-1) > FOREGROUND) & (index != background)
    if inside.sum() < LEAST * len(pixels):
        return names[background], None, torch.zeros(index.shape)
    colour = int(index[inside].bincount(minlength=len(names)).argmax())
    towards = pixels[inside & (index == colour)].mean(0) - background_value
    matte = (difference @ towards / towards.square().sum()).clamp(0, 1)
    return names[background], names[colour], matte


def direction(frames: Tensor, x: Tensor, y: Tensor) -> str | None:
    """Where the centre [F] (pixels) goes, by the slope of a fitted line; None if it hardly moves."""
    time = frames.float() - frames.float().mean()
    slope_x, slope_y = float((time * x).sum()), float((time * y).sum())
    travel = (frames[-1] - frames[0]) / time.square().sum()
    if max(abs(slope_x), abs(slope_y)) * travel < 5:
        return None
    if abs(slope_x) > abs(slope_y):
        return "right" if slope_x > 0 else "left"
    return "down" if slope_y > 0 else "up"


def inspect(clip: Tensor) -> Finding:
    """Measure a clip [3, F, H, W] in [-1, 1] of about 40x40 pixels."""
    background, colour, matte = foreground(clip)
    if colour is None:
        return Finding(background)
    visible = torch.nonzero((matte > 0.5).flatten(1).sum(1) >= LEAST).flatten()
    if len(visible) <= len(matte) // 2:
        return Finding(background, colour)
    names, known = templates()
    seen = torch.stack([normalise(matte[i]) for i in visible])[:, None]
    overlap = torch.minimum(seen, known).sum((2, 3)) / torch.maximum(seen, known).sum((2, 3))
    scores = overlap.mean(0)
    best = int(scores.argmax())
    weight = matte[visible] * (matte[visible] > 0.3)
    total = weight.sum((1, 2))
    x = (weight.sum(1) * torch.arange(matte.shape[2])).sum(1) / total
    y = (weight.sum(2) * torch.arange(matte.shape[1])).sum(1) / total
    motion = direction(visible, x, y)
    return Finding(background, colour, names[best], motion, float(scores[best]))


def stripes(clip: Tensor) -> float:
    """How striped the background of a clip [3, F, H, W] is: the brightness of its columns varies by this much.

    Looked at above and below the shape's way, where a plain background has the same brightness everywhere.
    """
    edges = torch.cat([clip[:, :, :EDGE_ROWS], clip[:, :, -EDGE_ROWS:]], dim=2).clamp(-1, 1)
    return float(edges.mean((0, 1, 2)).std())


def manner(clip: Tensor) -> str | None:
    """What becomes of the shape in a clip's second half (one of `MANNERS`); None if there is none to begin with."""
    sizes = (foreground(clip)[2] > 0.5).flatten(1).sum(1)
    middle, last = int(sizes[len(sizes) // 2]), int(sizes[-1])
    if middle < LEAST:
        return None
    if last < GONE:
        return "fades"
    return "shrinks" if last < SHRUNK * middle else "straight"


def accuracy(clips: Sequence[Tensor] | Tensor, specs: Sequence[Spec]) -> dict[str, float]:
    """Share of clips in which each part, and "all" of them, is what its specification asked for."""
    rows = [inspect(clip).matches(spec) for clip, spec in zip(clips, specs, strict=True)]
    return {part: sum(row[part] for row in rows) / len(rows) for part in (*PARTS, "all")}


assert set(MOTIONS) == {"left", "right", "up", "down"}
