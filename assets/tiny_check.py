"""Automatic check of a clip: name its background, color, shape and direction of motion, or a concept.

It measures a clip [3, F, H, W] in [-1, 1] without its caption. Training and tests first validate it on clips with known
content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from tiny_world import COLOURS, COUNTS, MANNERS, MOTIONS, NEW_COLOURS, NEW_MOTIONS, VAE_SHAPES, Spec, shape_mask
from torch import Tensor

TEMPLATE = 32
EDGE_ROWS = 4
STRIPED = 0.2  # least unevenness of a striped background; real ones reach 0.4, plain ones 0.03 at most
FOREGROUND = 0.3  # least distance from the background's color, in [-1, 1] units over the three channels
LEAST, GONE = 15, 8  # pixels in a frame: fewest of a shape; with fewer than GONE, there is no shape
SHRUNK = 0.45  # largest final area of a shrunk shape, relative to the middle of the clip; ideal ones end at 0.16
GROWN = 1.4  # least final area of a grown shape; ideal ones end at 1.7 to 2.1, depending on how the edge cuts them
SHADED = 0.4  # least difference between the top and the bottom of a gradient; real ones have 0.6 to 0.8
WIDE, FILLED = 1.6, 0.7  # least aspect ratio of a rectangle, ideally 2.4, and least share of its bounding box
TRAVEL, TURNED = 4.0, 0.5  # least pixels of a path, and least share of it to return; ideal ones go 8 and return 8
PARTS = ("background", "colour", "shape", "motion")


@dataclass(frozen=True)
class Finding:
    """What a clip shows, with None for what is unclear. `score` is the overlap of the shape, 0 to 1."""

    background: str
    colour: str | None = None
    shape: str | None = None
    motion: str | None = None
    score: float = 0.0

    def matches(self, spec: Spec) -> dict[str, bool]:
        """Return which parts match the specification, and under "all" whether every part does."""
        found = {part: getattr(self, part) == getattr(spec, part) for part in PARTS}
        return found | {"all": all(found.values())}


def palette() -> Tensor:
    """Return the named colors [C, 3] in [-1, 1]."""
    return torch.tensor(list(COLOURS.values()), dtype=torch.float32) / 127.5 - 1


def nearest_colour(pixels: Tensor) -> Tensor:
    """Return the index of the nearest named color for pixels [..., 3]."""
    return torch.cdist(pixels.reshape(-1, 3), palette()).argmin(-1).view(pixels.shape[:-1])


def normalise(matte: Tensor) -> Tensor:
    """Crop a matte [H, W] to its bounding box and scale it to TEMPLATE x TEMPLATE, keeping the aspect ratio."""
    rows, columns = torch.where(matte > 0.5)
    cut = matte[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    height, width = cut.shape
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    cut = F.pad(cut, (left, side - width - left, top, side - height - top))
    return F.interpolate(cut[None, None], size=(TEMPLATE, TEMPLATE), mode="bilinear", align_corners=False)[0, 0]


@cache
def templates() -> tuple[tuple[str, ...], Tensor]:
    """Return the names and normalized mattes [S, T, T] of all shapes, drawn at their size in a clip."""
    names = VAE_SHAPES
    centre = torch.tensor([0.5])
    return names, torch.stack([normalise(shape_mask(name, centre, centre, 0.22, 40)[0]) for name in names])


def foreground(clip: Tensor) -> tuple[str, str | None, Tensor]:
    """Return the background, the color of the shape (None without one) and its matte [F, H, W] in [0, 1]."""
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


def way(frames: Tensor, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Return how far the center [F] moves over these frames, right and down in pixels, from fitted lines."""
    time = frames.float() - frames.float().mean()
    travel = (frames[-1] - frames[0]) / time.square().sum()
    return float((time * x).sum() * travel), float((time * y).sum() * travel)


def direction(frames: Tensor, x: Tensor, y: Tensor) -> str | None:
    """Return the direction in which the center [F] moves (left, right, up, down), or None if it hardly moves."""
    right, down = way(frames, x, y)
    if max(abs(right), abs(down)) < 5:
        return None
    if abs(right) > abs(down):
        return "right" if right > 0 else "left"
    return "down" if down > 0 else "up"


def centres(matte: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the frames [N] of a matte [F, H, W] that show a shape, and the x and y of its center in pixels."""
    seen = torch.nonzero((matte > 0.5).flatten(1).sum(1) >= LEAST).flatten()
    weight = matte[seen] * (matte[seen] > 0.3)
    total = weight.sum((1, 2))
    x = (weight.sum(1) * torch.arange(matte.shape[2])).sum(1) / total
    y = (weight.sum(2) * torch.arange(matte.shape[1])).sum(1) / total
    return seen, x, y


def inspect(clip: Tensor) -> Finding:
    """Measure a clip [3, F, H, W] in [-1, 1] of about 40x40 pixels."""
    background, colour, matte = foreground(clip)
    if colour is None:
        return Finding(background)
    visible, x, y = centres(matte)
    if len(visible) <= len(matte) // 2:
        return Finding(background, colour)
    names, known = templates()
    seen = torch.stack([normalise(matte[i]) for i in visible])[:, None]
    overlap = torch.minimum(seen, known).sum((2, 3)) / torch.maximum(seen, known).sum((2, 3))
    scores = overlap.mean(0)
    best = int(scores.argmax())
    motion = direction(visible, x, y)
    return Finding(background, colour, names[best], motion, float(scores[best]))


def stripes(clip: Tensor) -> float:
    """Return how striped the background of a clip [3, F, H, W] is: the deviation of its columns' brightness.

    Measured above and below the shape's path, where a plain background is uniform.
    """
    edges = torch.cat([clip[:, :, :EDGE_ROWS], clip[:, :, -EDGE_ROWS:]], dim=2).clamp(-1, 1)
    return float(edges.mean((0, 1, 2)).std())


def dots(clip: Tensor) -> float:
    """Return how dotted the background is: like `stripes`, but both columns and rows must vary."""
    turned = stripes(clip.transpose(2, 3))
    return min(stripes(clip), turned)


def shaded(clip: Tensor) -> float:
    """Return how much paler the top of a clip [3, F, H, W] is than its bottom."""
    top, bottom = clip[:, :, :EDGE_ROWS].clamp(-1, 1), clip[:, :, -EDGE_ROWS:].clamp(-1, 1)
    return float(top.mean() - bottom.mean())


def is_rectangle(clip: Tensor) -> bool:
    """Return whether most frames show something much wider than high that fills its bounding box."""
    shown = [_is_wide(frame) for frame in foreground(clip)[2] > 0.5 if int(frame.sum()) >= LEAST]
    return 2 * sum(shown) > clip.shape[1]


def _is_wide(mask: Tensor) -> bool:
    rows, columns = torch.where(mask)
    height, width = (int(places.max() - places.min()) + 1 for places in (rows, columns))
    return width >= WIDE * height and int(mask.sum()) >= FILLED * width * height


def manner(clip: Tensor) -> str | None:
    """Return what happens to the shape in the second half of a clip (one of `MANNERS`), or None without a shape."""
    matte = foreground(clip)[2]
    sizes = (matte > 0.5).flatten(1).sum(1)
    half = len(sizes) // 2
    middle, last = int(sizes[half]), int(sizes[-1])
    if middle < LEAST:
        return None
    if last < GONE:
        return "fades"
    if last < SHRUNK * middle:
        return "shrinks"
    return "turns" if turned_back(matte) else "straight"


def has_grown(clip: Tensor) -> bool:
    """Return whether the shape ends larger than in the middle. `manner` omits this, because a blur may look so."""
    sizes = (foreground(clip)[2] > 0.5).flatten(1).sum(1)
    middle, last = int(sizes[len(sizes) // 2]), int(sizes[-1])
    return middle >= LEAST and last > GROWN * middle


def turned_back(matte: Tensor) -> bool:
    """Return whether the shape in a matte [F, H, W] moves back in the second half."""
    half = len(matte) // 2
    (seen, *there), (later, *back) = centres(matte[: half + 1]), centres(matte[half:])
    if min(len(seen), len(later)) < 3:
        return False
    (x, y), (back_x, back_y) = way(seen, *there), way(later, *back)
    length = max((x * x + y * y) ** 0.5, 1e-6)
    return length >= TRAVEL and -(x * back_x + y * back_y) / length >= TURNED * length


def shapes_in(clip: Tensor) -> int:
    """Return how many separate shapes most frames of a clip show, ignoring parts of fewer than GONE pixels."""
    matte = foreground(clip)[2] > 0.5
    counts = [pieces(frame) for frame in matte]
    return max(set(counts), key=counts.count)


def pieces(mask: Tensor) -> int:
    """Return the number of 8-connected parts of a mask [H, W] with at least GONE pixels."""
    labels = torch.arange(1, mask.numel() + 1, dtype=torch.float32).view(1, 1, *mask.shape) * mask
    while True:
        spread = F.max_pool2d(labels, 3, stride=1, padding=1) * mask
        if torch.equal(spread, labels):
            return int((labels[labels > 0].unique(return_counts=True)[1] >= GONE).sum())
        labels = spread


def colour_of_shape(clip: Tensor) -> str | None:
    """Return the color nearest to that of the foreground, new colors included, or None if nothing stands out."""
    names = COLOURS | NEW_COLOURS
    known = torch.tensor(list(names.values()), dtype=torch.float32) / 127.5 - 1
    pixels = clip.clamp(-1, 1)
    background = torch.cat([pixels[:, :, :2].flatten(1), pixels[:, :, -2:].flatten(1)], dim=1).median(1).values
    inside = (pixels - background.view(3, 1, 1, 1)).norm(dim=0) > 2 * FOREGROUND
    if inside.sum() < LEAST * len(inside):
        return None
    return list(names)[int((known - pixels[:, inside].median(1).values).norm(dim=-1).argmin())]


def shows(clip: Tensor, concept: str) -> bool:
    """Return whether a clip shows a concept (tiny_world.CONCEPTS)."""
    if concept == "grows":
        return has_grown(clip)
    if concept in MANNERS:
        return manner(clip) == concept
    if concept in ("stripes", "dots"):
        return (dots(clip) if concept == "dots" else stripes(clip)) > STRIPED
    if concept == "gradient":
        return shaded(clip) > SHADED
    if concept == "rectangle":
        return is_rectangle(clip)
    if concept in COUNTS:
        return shapes_in(clip) == COUNTS[concept][0]
    if concept in NEW_COLOURS:
        return colour_of_shape(clip) == concept
    if concept in NEW_MOTIONS:
        right, down = way(*centres(foreground(clip)[2]))
        step_x, step_y = NEW_MOTIONS[concept]
        return min(right * step_x, down * step_y) >= TRAVEL
    return inspect(clip).shape == concept


def accuracy(clips: Sequence[Tensor] | Tensor, specs: Sequence[Spec]) -> dict[str, float]:
    """Return the share of clips in which each part, and "all" parts, match the specification."""
    rows = [inspect(clip).matches(spec) for clip, spec in zip(clips, specs, strict=True)]
    return {part: sum(row[part] for row in rows) / len(rows) for part in (*PARTS, "all")}


assert set(MOTIONS) == {"left", "right", "up", "down"}
