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
from tiny_world import COLOURS, COUNTS, MANNERS, MOTIONS, NEW_COLOURS, NEW_MOTIONS, VAE_SHAPES, Spec, shape_mask
from torch import Tensor

TEMPLATE = 32
EDGE_ROWS = 4
STRIPED = 0.2  # a background this uneven is striped: real ones reach 0.4, plain ones 0.03 at most
FOREGROUND = 0.3  # distance from the background's colour (in [-1, 1] units, over the three channels)
LEAST, GONE = 15, 8  # pixels of a frame: a shape has at least so many, and less than so many are none at all
SHRUNK = 0.45  # a shape that ends this much smaller than it was in the middle has shrunk: ideal ones end at 0.16
GROWN = 1.4  # one that ends this much larger has grown: ideal ones end at 1.7 to 2.1, as far as the edge cuts them
SHADED = 0.4  # how much paler the top of a background is than its bottom: real gradients have 0.6 to 0.8
WIDE, FILLED = 1.6, 0.7  # a rectangle's width next to its height, ideally 2.4, and how much of its box it covers
TRAVEL, TURNED = 4.0, 0.5  # pixels of a way, and its share that is gone back: ideal ones go 8 there and 8 back
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


def way(frames: Tensor, x: Tensor, y: Tensor) -> tuple[float, float]:
    """How far the centre [F] goes over these frames, right and down, in pixels, by the slopes of fitted lines."""
    time = frames.float() - frames.float().mean()
    travel = (frames[-1] - frames[0]) / time.square().sum()
    return float((time * x).sum() * travel), float((time * y).sum() * travel)


def direction(frames: Tensor, x: Tensor, y: Tensor) -> str | None:
    """Where the centre [F] goes, left, right, up or down; None if it hardly moves."""
    right, down = way(frames, x, y)
    if max(abs(right), abs(down)) < 5:
        return None
    if abs(right) > abs(down):
        return "right" if right > 0 else "left"
    return "down" if down > 0 else "up"


def centres(matte: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The frames [N] in which a shape is seen in a matte [F, H, W], and its centre's x and y there, in pixels."""
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
    """How striped the background of a clip [3, F, H, W] is: the brightness of its columns varies by this much.

    Looked at above and below the shape's way, where a plain background has the same brightness everywhere.
    """
    edges = torch.cat([clip[:, :, :EDGE_ROWS], clip[:, :, -EDGE_ROWS:]], dim=2).clamp(-1, 1)
    return float(edges.mean((0, 1, 2)).std())


def dots(clip: Tensor) -> float:
    """How dotted the background is: as `stripes`, but its columns and its rows vary by this much."""
    turned = stripes(clip.transpose(2, 3))
    return min(stripes(clip), turned)


def shaded(clip: Tensor) -> float:
    """How much paler the top of a clip [3, F, H, W] is than its bottom."""
    top, bottom = clip[:, :, :EDGE_ROWS].clamp(-1, 1), clip[:, :, -EDGE_ROWS:].clamp(-1, 1)
    return float(top.mean() - bottom.mean())


def is_rectangle(clip: Tensor) -> bool:
    """Whether most frames show something that is much wider than high and fills its box."""
    shown = [_is_wide(frame) for frame in foreground(clip)[2] > 0.5 if int(frame.sum()) >= LEAST]
    return 2 * sum(shown) > clip.shape[1]


def _is_wide(mask: Tensor) -> bool:
    """Of a mask [H, W] that covers something."""
    rows, columns = torch.where(mask)
    height, width = (int(places.max() - places.min()) + 1 for places in (rows, columns))
    return width >= WIDE * height and int(mask.sum()) >= FILLED * width * height


def manner(clip: Tensor) -> str | None:
    """What becomes of the shape in a clip's second half (one of `MANNERS`); None if there is none to begin with."""
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
    """Whether a clip's shape ends larger than it was in the middle. `manner` does not ask: a blur may look so."""
    sizes = (foreground(clip)[2] > 0.5).flatten(1).sum(1)
    middle, last = int(sizes[len(sizes) // 2]), int(sizes[-1])
    return middle >= LEAST and last > GROWN * middle


def turned_back(matte: Tensor) -> bool:
    """Whether what a matte [F, H, W] shows goes back in the second half where it went in the first."""
    half = len(matte) // 2
    (seen, *there), (later, *back) = centres(matte[: half + 1]), centres(matte[half:])
    if min(len(seen), len(later)) < 3:
        return False
    (x, y), (back_x, back_y) = way(seen, *there), way(later, *back)
    length = max((x * x + y * y) ** 0.5, 1e-6)
    return length >= TRAVEL and -(x * back_x + y * back_y) / length >= TURNED * length


def shapes_in(clip: Tensor) -> int:
    """How many separate shapes most frames of a clip show; parts of fewer than GONE pixels do not count."""
    matte = foreground(clip)[2] > 0.5
    counts = [pieces(frame) for frame in matte]
    return max(set(counts), key=counts.count)


def pieces(mask: Tensor) -> int:
    """How many connected parts of GONE pixels or more a mask [H, W] has; corners that touch connect."""
    labels = torch.arange(1, mask.numel() + 1, dtype=torch.float32).view(1, 1, *mask.shape) * mask
    while True:
        spread = F.max_pool2d(labels, 3, stride=1, padding=1) * mask
        if torch.equal(spread, labels):
            return int((labels[labels > 0].unique(return_counts=True)[1] >= GONE).sum())
        labels = spread


def colour_of_shape(clip: Tensor) -> str | None:
    """The nearest colour, a new one included, to what stands out of the background; None if nothing does."""
    names = COLOURS | NEW_COLOURS
    known = torch.tensor(list(names.values()), dtype=torch.float32) / 127.5 - 1
    pixels = clip.clamp(-1, 1)
    background = torch.cat([pixels[:, :, :2].flatten(1), pixels[:, :, -2:].flatten(1)], dim=1).median(1).values
    inside = (pixels - background.view(3, 1, 1, 1)).norm(dim=0) > 2 * FOREGROUND
    if inside.sum() < LEAST * len(inside):
        return None
    return list(names)[int((known - pixels[:, inside].median(1).values).norm(dim=-1).argmin())]


def shows(clip: Tensor, concept: str) -> bool:
    """Whether a clip shows a concept (tiny_world.CONCEPTS), whatever was asked for."""
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
    """Share of clips in which each part, and "all" of them, is what its specification asked for."""
    rows = [inspect(clip).matches(spec) for clip, spec in zip(clips, specs, strict=True)]
    return {part: sum(row[part] for row in rows) / len(rows) for part in (*PARTS, "all")}


assert set(MOTIONS) == {"left", "right", "up", "down"}
