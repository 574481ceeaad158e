"""Measure blur, camera shake, flashes and similarity on small pictures of a clip's frames. Decodes nothing.

Pictures are uint8, gray [H, W] or BGR [H, W, 3].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    Picture = NDArray[Any]

Flash = tuple[int, int, float]
BLUR_WINDOW = 11  # pixels
NEIGHBORS = 4  # frames on each side that define the usual change
SMALLEST_FLASH = 8.0  # levels
UNSTEADY = 3.0  # a flash's step in brightness over the usual one
RETURNED = 0.5  # of a flash's height: the flash is over once the picture is this close to the one before it
SAME_PICTURE = 0.5  # of a flash's height: a larger change besides brightness means another picture
FLASH_SECONDS = 0.5
STILL = 0.5  # levels: smaller steps between frames are compression noise
TINY = (9, 16)  # rows, columns
PRINT_FRAMES, PRINT_SIDE = 4, 8
FEWEST_POINTS, MOST_POINTS = 12, 100  # points tracked from one picture to the next
OFF = 1.0  # pixels: RANSAC threshold for the camera's movement
CLEAR = 0.25  # share of steps with a clear camera movement, below which there is no shake value
AGREE = 0.5  # least share of agreeing points, and of the picture's width and height that they span


def small(frame: Any, longest: int, pixels: str = "bgr24") -> Pixels:
    """Convert a PyAV frame to an array, scaled down to at most `longest` pixels on its longer side."""
    scale = min(1.0, longest / max(frame.width, frame.height))
    size = {name: max(8, round(value * scale)) for name, value in (("width", frame.width), ("height", frame.height))}
    picture: Pixels = frame.reformat(**size, format=pixels, interpolation="AREA").to_ndarray()
    return picture


def shrunk(picture: Picture, width: int, height: int) -> Any:
    """Shrink a picture by averaging areas."""
    import cv2

    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def halved(picture: Picture) -> Any:
    """Average over 2x2 pixels, which removes grain."""
    return shrunk(picture, max(1, picture.shape[1] // 2), max(1, picture.shape[0] // 2))


def gray(picture: Pixels) -> Any:
    """Convert a BGR picture to gray."""
    import cv2

    return cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)


def tiny(picture: Pixels) -> bytes:
    """Shrink a BGR picture to TINY gray pixels."""
    return bytes(gray(shrunk(picture, TINY[1], TINY[0])))


def blur(gray: Pixels) -> float:
    """Return the blur metric of Crete et al. (2007), 0 (sharp) to 1: how little detail a second blur removes.

    Unlike the variance of the Laplacian, it hardly depends on the content. A picture far out of focus has no detail
    left at this scale, so the larger value at full and half size counts.
    """
    import numpy as np

    exact = gray.astype(np.float32)  # rounded values would count as detail
    return max(_blur_along(one) for picture in (exact, halved(exact)) for one in (picture, picture.T))


def _blur_along(picture: Picture) -> float:
    """Return the blur along the columns."""
    import numpy as np

    window = max(1, min(BLUR_WINDOW, picture.shape[0] // 2 * 2 - 1))
    sums = np.cumsum(np.pad(picture, ((1, 0), (0, 0))), axis=0, dtype=np.float32)
    smooth = (sums[window:] - sums[:-window]) / window
    sharp = picture[window // 2 : window // 2 + len(smooth)]
    detail, left = (np.abs(np.diff(one, axis=0)) for one in (sharp, smooth))
    total = float(detail.sum())
    return 1 - float(np.maximum(0, detail - left).sum()) / total if total else 0.0


def camera_move(before: Pixels, after: Pixels) -> tuple[float, float] | None:
    """Estimate how far the camera moved the center of a gray picture, in pixels (right, down).

    Tracks corners with optical flow and fits the shift, rotation and zoom that most of them agree on (RANSAC), which
    ignores moving subjects. None if too few points agree, or if those cover only part of the picture.
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
    """Return the mean change of camera movement from step to step, in percent of the picture's width.

    A steady pan is not shake. Steps without a clear camera movement are skipped; 0 if too few (CLEAR) remain.
    """
    turns = [
        ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
        for (x0, y0), (x, y) in ((a, b) for a, b in zip(moves, moves[1:], strict=False) if a and b)
    ]
    return 100 * sum(turns) / len(turns) / width if turns and len(turns) >= CLEAR * (len(moves) - 1) else 0.0


def flashes(pictures: Pixels, fps: float) -> list[Flash]:
    """Find jumps in brightness after which the picture returns: (first frame, first frame after it, height in levels).

    A few frames of a different picture are not a flash. pictures: gray [F, h, w], one per frame; tiny ones suffice.
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


def joint(frames: Pixels, kept: int) -> float | None:
    """Compare the jump at the joint of a continued video with its usual steps: their mean difference over the median.

    frames: [F, H, W, 3] uint8. kept: number of leading frames that come from the earlier video.

    Steps below STILL levels count as STILL. 1 is an invisible joint; None without two steps to compare with.
    """
    import numpy as np

    if not 0 < kept < len(frames) or len(frames) < 4:
        return None
    steps = [float(np.abs(after - before).mean()) for before, after in pairwise(frames.astype(np.float32))]
    at = steps.pop(kept - 1)
    return max(at, STILL) / max(float(np.median(steps)), STILL)


def fingerprint(pictures: Sequence[Pixels]) -> bytes:
    """Return a few frames at 8x8 pixels, in color."""
    return b"".join(shrunk(picture, PRINT_SIDE, PRINT_SIDE).tobytes() for picture in pictures)


def alike(prints: Sequence[bytes], threshold: float) -> list[list[int]]:
    """Group clips whose fingerprints differ by less than the threshold, as indices into `prints`.

    The difference is the RMS in levels over the lower contrast of the two, which keeps two different dark clips apart.
    Measured: up to 0.11 for re-encoded copies, 0.14 with heavy grain; 0.2 to 0.3 for parts of one nearly still shot;
    0.5 for two shapes of the same color on the same background; 1 and more for other scenes. A clip joins a group if it
    resembles any member.
    """
    import numpy as np

    if not prints:
        return []
    table = np.frombuffer(b"".join(prints), np.uint8).reshape(len(prints), -1).astype(np.float32)
    contrast = np.maximum(table.reshape(len(prints), -1, 3).var(1).mean(1) ** 0.5, 8.0)
    squares = (table**2).sum(1)
    groups = [[index] for index in range(len(prints))]  # the members of a group share one list
    for first in range(0, len(prints), 500):
        rows = slice(first, first + 500)
        apart = squares[rows, None] + squares[None] - 2 * table[rows] @ table.T
        limit = threshold * np.minimum(contrast[rows, None], contrast[None])
        for one, other in np.argwhere(apart < table.shape[1] * limit**2):
            kept, joining = sorted((groups[first + int(one)], groups[int(other)]))  # by their smallest index
            if kept is not joining:
                kept += joining
                for index in joining:
                    groups[index] = kept
    return [sorted(group) for index, group in enumerate(groups) if index == group[0] and len(group) > 1]
