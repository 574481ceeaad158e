"""What small pictures of a clip's frames tell: blur, shake, cuts, flashes, likeness. Pure numpy, nothing is decoded.

Pictures are float32 grey [H, W] or uint8 [H, W, 3], levels 0 to 255. Not covered: which of these numbers are bad
(doctor), text in the picture: no well-kept library tells it without fetching a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Grey = NDArray[np.float32]
    Pixels = NDArray[np.uint8]

BLUR_WINDOW = 11  # pixels
NEIGHBOURS = 4  # frames to each side that say how much change is usual there
SMALLEST_CUT = 10.0  # levels; less is never taken for a cut
SMALLEST_FLASH = 8.0
UNSTEADY = 3.0  # times the usual step of brightness
RETURNED = 0.5  # of a flash's height: as near as this to what was before counts as back
FLASH_SECONDS = 0.5
PRINT_FRAMES, PRINT_SIDE = 4, 8
BLACK, BLACK_SHARE = 32.0, 0.7  # level, and share of a line (there may be a logo): of what may be a bar
EXPLAINED = 0.6  # of the change between two frames must be left over at most, else no camera movement explains it


def halved(grey: Grey) -> Grey:
    """Averaged over 2x2 pixels, which grain does not survive."""
    import numpy as np

    height, width = grey.shape[0] // 2 * 2, grey.shape[1] // 2 * 2
    whole = grey[:height, :width]
    return np.asarray((whole[::2, ::2] + whole[1::2, ::2] + whole[::2, 1::2] + whole[1::2, 1::2]) / 4, np.float32)


def blur(grey: Grey) -> float:
    """0 (sharp) to 1 (blurred): how little of a picture's detail a further blur takes (Crete and others, 2007).

    Unlike the variance of the Laplacian it hardly depends on how much there is to see. A picture far out of focus has
    no detail of this size left to lose, so half the size counts as well.
    """
    half = halved(grey)
    return max(_blur_along(one) for picture in (grey, half) for one in (picture, picture.T))


def _blur_along(picture: Grey) -> float:
    """The same of the columns alone."""
    import numpy as np

    window = max(1, min(BLUR_WINDOW, picture.shape[0] // 2 * 2 - 1))
    sums = np.cumsum(np.pad(picture, ((1, 0), (0, 0))), axis=0, dtype=np.float32)
    smooth = (sums[window:] - sums[:-window]) / window
    sharp = picture[window // 2 : window // 2 + len(smooth)]
    detail, left = (np.abs(np.diff(one, axis=0)) for one in (sharp, smooth))
    total = float(detail.sum())
    return 1 - float(np.maximum(0, detail - left).sum()) / total if total else 0.0


def displacement(before: Grey, after: Grey) -> tuple[float, float] | None:
    """Pixels by which the whole picture moved (right, down), by phase correlation; None where that explains little."""
    import numpy as np

    change = float(np.abs(after - before).mean())
    if change < 0.5:
        return 0.0, 0.0
    height, width = before.shape
    window = np.outer(np.hanning(height), np.hanning(width))
    first, second = (np.fft.rfft2((one - one.mean()) * window) for one in (before, after))
    cross = second * np.conj(first)
    surface = np.fft.irfft2(cross / (np.abs(cross) + 1e-3 * np.abs(cross).max() + 1e-9), before.shape)
    row, column = np.unravel_index(int(surface.argmax()), surface.shape)
    down, right = _peak(surface[:, column], int(row)), _peak(surface[row], int(column))
    if abs(right) > width / 4 or abs(down) > height / 4:
        return None
    residue = _residue(before, after, right, down)
    return (right, down) if residue < EXPLAINED * change else None


def _peak(line: NDArray[np.float64], place: int) -> float:
    """The place of a maximum between whole pixels (by a parabola), as a signed distance from 0."""
    left, top, right = (float(line[(place + step) % len(line)]) for step in (-1, 0, 1))
    curve = left - 2 * top + right
    exact = place + (0.5 * (left - right) / curve if curve else 0.0)
    return exact - len(line) if exact > len(line) / 2 else exact


def _residue(before: Grey, after: Grey, right: float, down: float) -> float:
    """Mean change that is left once `after` is moved back."""
    import numpy as np

    moved = after
    for axis, distance in ((1, right), (0, down)):
        whole = int(np.floor(distance))
        part = distance - whole
        moved = (1 - part) * np.roll(moved, -whole, axis) + part * np.roll(moved, -whole - 1, axis)
    edge_y, edge_x = int(abs(down)) + 2, int(abs(right)) + 2
    inner = np.s_[edge_y:-edge_y, edge_x:-edge_x]
    return float(np.abs(before[inner] - moved[inner]).mean())


def shake(moves: Sequence[tuple[float, float] | None], width: int) -> float:
    """How much the camera's movement changes from step to step: percent of the picture's width, a mean.

    An even pan is no shake. Steps without a clear camera movement count as steady.
    """
    turns = [
        ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
        for (x0, y0), (x, y) in ((a, b) for a, b in zip(moves, moves[1:], strict=False) if a and b)
    ]
    return 100 * sum(turns) / (len(moves) - 1) / width if len(moves) > 1 else 0.0


def flashes(pictures: Sequence[Grey], fps: float) -> list[tuple[int, int, float]]:
    """(first frame, frame where it is over, height in levels) of each jump of brightness after which all is as before.

    pictures: one a frame; very small ones will do.
    """
    import numpy as np

    brightness = np.array([picture.mean() for picture in pictures])
    steps = np.abs(np.diff(brightness, prepend=brightness[:1]))
    found, frame, reach = [], 1, max(1, round(FLASH_SECONDS * fps))
    while frame < len(pictures):
        if steps[frame] >= max(SMALLEST_FLASH, UNSTEADY * _usual(steps, frame)):
            before = pictures[frame - 1]
            jump = float(np.abs(pictures[frame] - before).mean())
            for later in range(frame + 1, min(len(pictures), frame + 1 + reach)):
                if np.abs(pictures[later] - before).mean() <= RETURNED * jump:
                    found.append((frame, later, round(float(steps[frame]), 1)))
                    frame = later
                    break
        frame += 1
    return found


def cuts(changes: Sequence[float], interrupted: Sequence[tuple[int, int, float]]) -> list[tuple[int, float]]:
    """(first frame of the new picture, how many times the usual change) where the picture changes at once.

    changes[i] is the mean change from frame i - 1 to i, in levels; interrupted: `flashes`, which are no cuts.
    """
    import numpy as np

    steps = np.asarray(changes)
    flashing = {frame for first, over, _ in interrupted for frame in range(first, over + 1)}
    return [
        (int(frame), round(float(steps[frame]) / max(1.0, _usual(steps, int(frame))), 2))
        for frame in np.flatnonzero(steps >= SMALLEST_CUT)
        if frame not in flashing and steps[frame] > 1.5 * max(1.0, _usual(steps, int(frame)))
    ]


def _usual(steps: NDArray[np.float64], frame: int) -> float:
    """The median of the steps around a frame, its own left out."""
    import numpy as np

    around = [*steps[max(1, frame - NEIGHBOURS) : frame], *steps[frame + 1 : frame + 1 + NEIGHBOURS]]
    return float(np.median(around)) if around else 0.0


def may_have_bars(grey: Grey) -> bool:
    """Whether the outermost lines of two opposite sides are black: a quick look; bars are measured by `borders`.

    Bars of other colours are left out, since a striped or plain ground has such edges, too.
    """
    import numpy as np

    black = [float(np.mean(line < BLACK)) >= BLACK_SHARE for line in (*grey[[0, -1]], *grey.T[[0, -1]])]
    return (black[0] and black[1]) or (black[2] and black[3])


def fingerprint(pictures: Sequence[Pixels]) -> bytes:
    """A few frames at 8x8 pixels, in colour."""
    import numpy as np
    from PIL import Image

    size = (PRINT_SIDE, PRINT_SIDE)
    return b"".join(np.asarray(Image.fromarray(p).resize(size, Image.Resampling.BOX)).tobytes() for p in pictures)


def alike(prints: Sequence[bytes], threshold: float) -> list[list[int]]:
    """Groups of clips whose fingerprints differ by less than the threshold, as places in `prints`.

    The difference is the root of the mean square in levels, over the contrast of the two, so that two different dark
    clips are not taken for one. A clip joins a group when it is like any of it.
    """
    import numpy as np

    if not prints:
        return []
    table = np.frombuffer(b"".join(prints), np.uint8).reshape(len(prints), -1).astype(np.float32)
    contrast = np.maximum(table.reshape(len(prints), -1, 3).std(1).mean(1), 8.0)
    squares = (table**2).sum(1)
    group = list(range(len(prints)))
    for first in range(0, len(prints), 500):
        rows = slice(first, first + 500)
        apart = squares[rows, None] + squares[None] - 2 * table[rows] @ table.T
        limit = threshold * np.minimum(contrast[rows, None], contrast[None])
        for one, other in np.argwhere(apart < table.shape[1] * limit**2):
            _join(group, first + int(one), int(other))
    members: dict[int, list[int]] = {}
    for place in range(len(prints)):
        members.setdefault(_root(group, place), []).append(place)
    return [places for places in members.values() if len(places) > 1]


def _root(group: list[int], place: int) -> int:
    while group[place] != place:
        group[place] = group[group[place]]
        place = group[place]
    return place


def _join(group: list[int], one: int, other: int) -> None:
    one, other = sorted((_root(group, one), _root(group, other)))
    group[other] = one
