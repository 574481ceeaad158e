"""Track masks painted on a few frames through a clip, with a confidence for each frame.

From one frame to the next, dense optical flow (DIS) moves the mask, then GrabCut snaps its edge to the picture, using
the colors inside and around it. Frames between two painted ones are tracked from both sides and blended.

A frame's confidence is how well its mask still separates the colors that were inside the painted mask from those
around it, relative to the painted mask itself. A step in which neither the colors nor the flow agree lowers it for all
frames that follow. benchmarks/mask_tracking.py measures it against painted masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.errors import ConfigError

Frames = NDArray[np.uint8]  # [F, H, W, 3], RGB
Mask = NDArray[np.uint8]  # [H, W], 0 (outside) to 255 (inside)

SIDE = 384  # working resolution, pixels of the longer side: flow at a higher one is slow and finds no better edges
BAND = 0.02  # of the longer side: how far from the moved edge to look for the picture's edge
MIDDLE = 0.6  # of the depth nearby: what counts as the certain core of parts thinner than the band
CUTS = 2  # GrabCut iterations: more change little
AGREES = 1.5  # pixels at SIDE: tolerance of the forward-backward check of the flow
LOST = 0.3  # confidence of an empty mask: the subject has left, or the mask has lost it
FITS = 0.05  # least fit of a painted mask, for subjects whose colors do not stand out at all
LEAST = 0.6  # overlap of moved and cut mask below which the cut has leaked and is ignored
BINS = 8  # per channel, in color histograms
SURE = 0.7  # frames below this confidence are worth a look


class Tracked(NamedTuple):
    """The masks [F, H, W], 0 to 255, soft at the edges, and the confidence in each, 0 to 1; 1 for a painted one."""

    masks: NDArray[np.uint8]
    confidence: NDArray[np.float32]


def track(
    frames: Frames,
    painted: Mapping[int, Mask],
    said: Callable[[int, int], None] = lambda done, steps: None,
) -> Tracked:
    """Track painted masks through a clip.

    frames: [F, H, W, 3], RGB.
    painted: frame number -> its mask, at the size of the frames.
    said: called with the steps done and their total.

    Raises ConfigError if nothing is painted, a frame number is out of range, or a mask has the wrong size.
    """
    if not painted:
        raise ConfigError("no mask is painted: paint one on a frame that shows the whole subject")
    for number, given in painted.items():
        if not 0 <= number < len(frames):
            raise ConfigError(f"frame {number} is painted, but the clip has frames 0 to {len(frames) - 1}")
        if given.shape != frames.shape[1:3]:
            raise ConfigError(
                f"the mask of frame {number} is {given.shape[1]}×{given.shape[0]}, but the clip's frames are "
                f"{frames.shape[2]}×{frames.shape[1]}: paint it at that size"
            )
    import cv2

    height, width = frames.shape[1:3]
    scale = min(1.0, SIDE / max(height, width))
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    small = [cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames]
    flow = _Flow(small)
    keys: dict[int, Any] = {
        number: cv2.resize(mask, size, interpolation=cv2.INTER_AREA) / np.float32(255)
        for number, mask in painted.items()
    }
    order = sorted(keys)
    ways = [(key, later, 1) for key, later in zip(order, [*order[1:], len(frames)], strict=True)]
    ways += [(key, before, -1) for key, before in zip(order, [-1, *order[:-1]], strict=True)]
    steps, done = sum(abs(end - start) - 1 for start, end, _ in ways), 0
    reached: list[list[tuple[Any, float]]] = [[] for _ in frames]
    mask: Any
    for start, end, step in ways:
        mask, trust = keys[start], 1.0
        inside, outside, _ = _around(mask)
        sides = _colors(small[start], inside), _colors(small[start], outside)
        painted_fit = max(FITS, _fit(small[start], mask, sides))
        for number in range(start + step, end, step):
            mask, agreeing = _next(flow, small, number - step, number, mask)
            if (mask > 0.5).any():
                fit = min(1.0, _fit(small[number], mask, sides) / painted_fit)
            else:
                fit = LOST if (keys[start] > 0.5).any() else 1.0
            trust = min(trust, max(fit, agreeing))
            reached[number].append((mask, min(trust, fit)))
            done += 1
            said(done, steps)
    masks = np.zeros(frames.shape[:3], np.uint8)
    confidence = np.ones(len(frames), np.float32)
    for number, found in enumerate(reached):
        if number in painted:
            masks[number] = painted[number]
            continue
        there = [(mask, trust) for mask, trust in found if (mask > 0.5).any() and trust > LOST]
        found = there or found  # ignore a direction that has lost the subject
        weights = [trust + 1e-6 for _, trust in found]
        mixed = sum(mask * weight for (mask, _), weight in zip(found, weights, strict=True)) / sum(weights)
        confidence[number] = max(trust for _, trust in found)
        if len(found) == 2:  # two ways that end at different places are not both right
            confidence[number] = max(confidence[number] * overlap(*(mask for mask, _ in found)), min(weights))
        masks[number] = np.round(cv2.resize(mixed, (width, height), interpolation=cv2.INTER_LINEAR).clip(0, 1) * 255)
    return Tracked(masks, confidence)


def overlap(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the intersection over union of two soft masks, 0 to 1; 1 if both are empty."""
    union = float(np.maximum(one, other).sum())
    return float(np.minimum(one, other).sum()) / union if union > 0 else 1.0


class _Flow:
    """Cached dense flow between neighboring frames."""

    def __init__(self, frames: list[Any]) -> None:
        import cv2

        self.gray = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
        self.engine: Any = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self.known: dict[tuple[int, int], Any] = {}

    def between(self, start: int, end: int) -> Any:
        """Return the displacement of each pixel from frame `start` to frame `end`, [H, W, 2]."""
        if (start, end) not in self.known:
            self.known[start, end] = self.engine.calc(self.gray[start], self.gray[end], None)
        return self.known[start, end]


def _moved(picture: Any, flow: Any) -> Any:
    """Warp a picture back along `flow`, which leads to it."""
    import cv2

    rows, columns = np.mgrid[: flow.shape[0], : flow.shape[1]].astype(np.float32)
    return cv2.remap(
        picture, columns + flow[..., 0], rows + flow[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )


def _next(flow: _Flow, frames: list[Any], start: int, end: int, mask: Any) -> tuple[Any, float]:
    """Move the mask of frame `start` to its neighbor `end`; also return the share of it where both flows agree."""
    back = flow.between(end, start)
    moved = _moved(mask, back)
    inside = moved > 0.5
    if not inside.any():
        return moved, 0.0
    again = back + _moved(flow.between(start, end), back)  # zero where both directions agree
    agreeing = float((np.linalg.norm(again, axis=-1) < AGREES)[inside].mean())
    cut = _cut(frames[end], moved)
    return (cut if overlap(cut, moved) >= LEAST else moved), agreeing


def _cut(frame: Any, mask: Any) -> Any:
    """Snap the edge of a mask to the colors of the picture, by at most BAND, and soften it again."""
    import cv2

    inside, outside, reach = _around(mask)
    labels = np.where(inside > 0, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[_core(inside, reach)] = cv2.GC_FGD
    labels[_core(1 - inside, reach)] = cv2.GC_BGD
    rows, columns = np.where((inside | outside) > 0)
    part = (slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1))
    here = labels[part].copy()
    if not (here == cv2.GC_BGD).any() or not ((here == cv2.GC_FGD) | (here == cv2.GC_PR_FGD)).any():
        return mask
    cv2.setRNGSeed(0)  # GrabCut initializes its color clusters at random
    picture: Any = np.ascontiguousarray(frame[part])
    whole: Any = None  # no rectangle
    cv2.grabCut(picture, here, whole, np.zeros((1, 65)), np.zeros((1, 65)), CUTS, cv2.GC_INIT_WITH_MASK)
    found = inside.copy()
    found[part] = (here == cv2.GC_FGD) | (here == cv2.GC_PR_FGD)
    # Where inside and outside look alike, the cut merely minimizes the edge's length, and would eat away at thin parts
    # such as legs frame by frame. So keep only changes that the colors support.
    likely = _likely(frame, (_colors(frame, inside), _colors(frame, outside)))
    kept = (found < inside) & (likely > 0.5) | (found > inside) & (likely < 0.5)
    return cv2.GaussianBlur(np.where(kept, inside, found).astype(np.float32), (0, 0), 0.8)


def _around(mask: Any) -> tuple[Any, Any, int]:
    """Return the inside of a mask, its surroundings (1 or 0 each), and how far its edge may be off, in pixels."""
    import cv2

    reach = max(2, round(max(mask.shape) * BAND))
    inside = (mask > 0.5).astype(np.uint8)
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
    return inside, cv2.dilate(inside, disk, iterations=4) & (1 - inside), reach


def _core(region: Any, reach: int) -> Any:
    """Return what certainly belongs to a region: everything deeper than `reach`, and the middle of thinner parts.

    Without that middle, a cut would drop legs and fill gaps, because the edge is then shorter.
    """
    import cv2

    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
    depth = cv2.distanceTransform(region, cv2.DIST_L2, 3)
    return (depth > reach) | ((depth > 1) & (depth >= MIDDLE * cv2.dilate(depth, disk)))


# ---- colors inside and outside

Sides = tuple[Any, Any]  # color histograms inside and around a mask


def _colors(frame: Any, mask: Any) -> Any:
    """Return the normalized color histogram inside a mask; all zeros for an empty mask."""
    import cv2

    found = cv2.calcHist([frame], [0, 1, 2], mask, [BINS] * 3, [0, 256] * 3)
    found = cv2.GaussianBlur(found.reshape(BINS, -1), (3, 3), 0.5).reshape(BINS, BINS, BINS)
    return found / max(1.0, float(found.sum()))


def _likely(frame: Any, sides: Sides) -> Any:
    """Return the likelihood of each pixel being inside, judged by color, 0 to 1, [H, W]."""
    import cv2

    ours, theirs = sides
    share = (ours + 1e-5) / (ours + theirs + 2e-5)
    cells = frame // (256 // BINS)
    return cv2.blur(share[cells[..., 0], cells[..., 1], cells[..., 2]].astype(np.float32), (3, 3))


def _fit(frame: Any, mask: Any, sides: Sides) -> float:
    """Return the overlap of a mask with the nearby pixels whose colors look like inside."""
    inside, outside, _ = _around(mask)
    return overlap(inside, ((_likely(frame, sides) > 0.5) & ((inside | outside) > 0)).astype(np.uint8))
