"""What small pictures of a clip's frames tell: blur, shake, flashes, similarity. Nothing is decoded.

Pictures are uint8, gray [H, W] or BGR [H, W, 3].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    Picture = NDArray[Any]

Flash = tuple[int, int, float]
BLUR_WINDOW = 11  # pixels
NEIGHBORS = 4  # frames to each side that say how much change is usual there
SMALLEST_FLASH = 8.0  # levels
UNSTEADY = 3.0  # times the usual step of brightness
RETURNED = 0.5  # of a flash's height: as near as this to what was before counts as back
SAME_PICTURE = 0.5  # of a flash's height: more of it that is not brightness alone makes another picture
FLASH_SECONDS = 0.5
TINY = (9, 16)  # rows, columns
PRINT_FRAMES, PRINT_SIDE = 4, 8
FEWEST_POINTS, MOST_POINTS = 12, 100  # that can be followed from one picture to the next
OFF = 1.0  # pixels by which such a point may miss the camera's movement
CLEAR = 0.25  # of the steps: fewer say nothing about the camera
AGREE = 0.5  # of the points, and of the picture's width and height that they span


def joint(frames: Pixels, at: int) -> float | None:
    """How far a clip jumps where it goes on from frames taken over: 1 is as from any frame to the next.

    Args:
        frames: [F, H, W, 3].
        at: The first frame that was not taken over.

    Returns:
        The mean change of a pixel into that frame, as a share of the median of all others; None for fewer than three
        frames, and where the others do not change.
    """
    import numpy as np

    if not 0 < at < len(frames) or len(frames) < 3:
        return None
    pairs = zip(frames, frames[1:], strict=False)
    jumps = np.array([np.abs(after.astype(np.int16) - before).mean() for before, after in pairs])
    usual = float(np.median(np.delete(jumps, at - 1)))
    return float(jumps[at - 1]) / usual if usual else None


def small(frame: Any, longest: int, pixels: str = "bgr24") -> Pixels:
    """A PyAV frame as an array, reduced to `longest` pixels on its longer side; never enlarged."""
    scale = min(1.0, longest / max(frame.width, frame.height))
    size = {name: max(8, round(value * scale)) for name, value in (("width", frame.width), ("height", frame.height))}
    picture: Pixels = frame.reformat(**size, format=pixels, interpolation="AREA").to_ndarray()
    return picture


def shrunk(picture: Picture, width: int, height: int) -> Any:
    """The means of its areas, in the same numbers."""
    import cv2

    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def halved(picture: Picture) -> Any:
    """Averaged over 2x2 pixels, which grain does not survive."""
    return shrunk(picture, max(1, picture.shape[1] // 2), max(1, picture.shape[0] // 2))


def gray(picture: Pixels) -> Any:
    """A BGR picture's brightness."""
    import cv2

    return cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)


def tiny(picture: Pixels) -> bytes:
    """A BGR picture in gray, TINY pixels."""
    return bytes(gray(shrunk(picture, TINY[1], TINY[0])))


def blur(gray: Pixels) -> float:
    """0 (sharp) to 1 (blurred): how little of a picture's detail a further blur takes (Crete and others, 2007).

    Unlike the variance of the Laplacian it hardly depends on how much there is to see. A picture far out of focus has
    no detail of this size left to lose, so half the size counts as well.
    """
    import numpy as np

    exact = gray.astype(np.float32)  # rounded levels would count as detail
    return max(_blur_along(one) for picture in (exact, halved(exact)) for one in (picture, picture.T))


def _blur_along(picture: Picture) -> float:
    """The same of the columns alone."""
    import numpy as np

    window = max(1, min(BLUR_WINDOW, picture.shape[0] // 2 * 2 - 1))
    sums = np.cumsum(np.pad(picture, ((1, 0), (0, 0))), axis=0, dtype=np.float32)
    smooth = (sums[window:] - sums[:-window]) / window
    sharp = picture[window // 2 : window // 2 + len(smooth)]
    detail, left = (np.abs(np.diff(one, axis=0)) for one in (sharp, smooth))
    total = float(detail.sum())
    return 1 - float(np.maximum(0, detail - left).sum()) / total if total else 0.0


def camera_move(before: Pixels, after: Pixels) -> tuple[float, float] | None:
    """Pixels by which the camera moved the middle of the gray picture (right, down).

    Points that are easy to find again are followed, and the movement, turn and zoom is taken that most of them agree
    on: so what moves on its own does not count. None where they do not agree, or only in one part of the picture.
    """
    import cv2
    import numpy as np

    points: Any = cv2.goodFeaturesToTrack(before, MOST_POINTS, 0.01, 5)
    if points is None:
        return None
    moved, followed, _ = cv2.calcOpticalFlowPyrLK(before, after, points, points.copy(), winSize=(11, 11))
    first, second = (one[followed.ravel() == 1].reshape(-1, 2) for one in (points, moved))
    if len(first) < FEWEST_POINTS:
        return None
    matrix, agreeing = cv2.estimateAffinePartial2D(first, second, ransacReprojThreshold=OFF)
    if matrix is None:
        return None
    inside = agreeing.ravel() == 1
    size = np.array(before.shape[::-1])
    if inside.mean() < AGREE or (np.ptp(first[inside], axis=0) < AGREE * size).any():
        return None
    middle = size / 2
    right, down = matrix[:, :2] @ middle + matrix[:, 2] - middle
    return float(right), float(down)


def shake(moves: Sequence[tuple[float, float] | None], width: int) -> float:
    """How much the camera's movement changes from step to step: percent of the picture's width, a mean.

    An even pan is no shake. Steps without a clear camera movement do not count; 0 where hardly any has one.
    """
    turns = [
        ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
        for (x0, y0), (x, y) in ((a, b) for a, b in zip(moves, moves[1:], strict=False) if a and b)
    ]
    return 100 * sum(turns) / len(turns) / width if turns and len(turns) >= CLEAR * (len(moves) - 1) else 0.0


def flashes(pictures: Pixels, fps: float) -> list[Flash]:
    """(first frame, frame where it is over, height in levels) of each jump of brightness after which all is as before.

    pictures: gray [F, h, w], one a frame; very small ones will do. A few frames of another picture are no flash.
    """
    import numpy as np

    brightness = pictures.mean(axis=(1, 2))
    steps = np.abs(np.diff(brightness, prepend=brightness[:1]))
    found, reach, over = list[Flash](), max(1, round(FLASH_SECONDS * fps)), 0
    for frame in np.flatnonzero(steps >= SMALLEST_FLASH).tolist():
        around = [*steps[max(1, frame - NEIGHBORS) : frame], *steps[frame + 1 : frame + 1 + NEIGHBORS]]
        if frame <= over or steps[frame] < UNSTEADY * (float(np.median(around)) if around else 0.0):
            continue
        before = pictures[frame - 1].astype(np.float32)
        change = pictures[frame] - before
        jump = np.abs(change).mean()
        if np.abs(change - change.mean()).mean() > SAME_PICTURE * jump:
            continue
        back = np.abs(pictures[frame + 1 : frame + 1 + reach] - before).mean(axis=(1, 2)) <= RETURNED * jump
        if back.any():
            over = frame + 1 + int(back.argmax())
            found.append((frame, over, round(float(steps[frame]), 1)))
    return found


def fingerprint(pictures: Sequence[Pixels]) -> bytes:
    """A few frames at 8x8 pixels, in color."""
    return b"".join(shrunk(picture, PRINT_SIDE, PRINT_SIDE).tobytes() for picture in pictures)


def alike(prints: Sequence[bytes], threshold: float) -> list[list[int]]:
    """Groups of clips whose fingerprints differ by less than the threshold, as places in `prints`.

    The difference is the root of the mean square in levels, over the contrast of the two, so that two different dark
    clips are not taken for one. Measured: copies written anew reach 0.11, with much grain 0.14; pieces of one shot in
    which hardly anything moves 0.2 to 0.3; two shapes of one color on one ground 0.5; other scenes 1 and more. A clip
    joins a group when it is like any of it.
    """
    import numpy as np

    if not prints:
        return []
    table = np.frombuffer(b"".join(prints), np.uint8).reshape(len(prints), -1).astype(np.float32)
    contrast = np.maximum(table.reshape(len(prints), -1, 3).var(1).mean(1) ** 0.5, 8.0)
    squares = (table**2).sum(1)
    groups = [[index] for index in range(len(prints))]  # one list, shared by all of a group
    for first in range(0, len(prints), 500):
        rows = slice(first, first + 500)
        apart = squares[rows, None] + squares[None] - 2 * table[rows] @ table.T
        limit = threshold * np.minimum(contrast[rows, None], contrast[None])
        for one, other in np.argwhere(apart < table.shape[1] * limit**2):
            kept, joining = sorted((groups[first + int(one)], groups[int(other)]))  # by their first, smallest index
            if kept is not joining:
                kept += joining
                for index in joining:
                    groups[index] = kept
    return [sorted(group) for index, group in enumerate(groups) if index == group[0] and len(group) > 1]
