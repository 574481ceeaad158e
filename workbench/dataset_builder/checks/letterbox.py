"""Black bars around a picture, letterbox, pillarbox or both: for cropping by hand and for the dataset check.

Found only where it is sure: bars on opposite sides that are black and never change, with a straight edge along which
the picture begins at once. A dark scene, a black ground, stripes or a logo in a bar do not mislead it. Not covered:
bars of other colours (a plain or striped ground looks the same), blurred or moving fill, a bar on one side alone,
cropping (cutting).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.dataset_builder.cuts.seeking import stills

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Video = NDArray[np.float32]  # [frames, lines, places along a line, colours]

LOOKS = 16  # frames
BLACK, BLACK_SHARE = 32, 0.7  # level, and share of an outermost line, for a logo
PIECES, SHORTEST = 32, 12  # a line is looked at in pieces of so many pixels or more, whose means noise hardly moves
TOLERANCE = 8.0  # levels by which a piece of a bar may differ from the bar's colour, in any frame
IN_BAR = 0.25  # share of a line's pieces that differ at most in a bar, for a logo; beside it half and more do
BEGINS = 0.6  # share of a bar's length along which the picture begins at one time
EDGE = 8  # lines over which an encoder may blur the edge: the block it works in
THINNEST, THICKEST = 0.01, 0.4  # of the picture's side
ALIKE = 0.25  # by which opposite bars may differ, of the thicker one
Box = tuple[int, int, int, int]


def find_letterbox(path: Path) -> Box | None:
    """(left, top, width, height) of the picture inside its bars, even pixels; None when there are surely no bars.

    Reads one of our own clips. Raises DataError.
    """
    import numpy as np

    pictures = []
    for _, frame in stills(path, LOOKS):
        pictures.append(frame.to_ndarray(format="rgb24"))
        if not _black_edges(pictures[-1]):
            return None  # most clips end here, after one frame
    height, width, _ = pictures[0].shape
    left, right = _bars(np.stack([_pieces(one, 1) for one in pictures]))
    top, bottom = _bars(np.stack([_pieces(one[:, left : width - right], 0) for one in pictures]))
    if (top or bottom) and not (left or right):  # beside a low picture, bars at the sides show in few rows
        left, right = _bars(np.stack([_pieces(one[top : height - bottom], 1) for one in pictures]))
    if not (left or right or top or bottom):
        return None
    left, top, right, bottom = (side + side % 2 for side in (left, top, right, bottom))
    return left, top, width - left - right, height - top - bottom


def _black_edges(picture: Any) -> bool:
    """Whether the outermost lines of two opposite sides are black."""
    black = (picture < BLACK).all(axis=2)
    left, right, top, bottom = (side.mean() >= BLACK_SHARE for side in (black[:, 0], black[:, -1], black[0], black[-1]))
    return bool((left and right) or (top and bottom))


def _pieces(picture: Any, axis: int) -> Any:
    """Means over pieces of each line (a row for axis 0, a column for axis 1), float32 [lines, PIECES or fewer, 3]."""
    import numpy as np

    lines = np.moveaxis(picture, axis, 0)
    pieces = max(1, min(PIECES, lines.shape[1] // SHORTEST))
    length = lines.shape[1] - lines.shape[1] % pieces
    return lines[:, :length].reshape(lines.shape[0], pieces, -1, 3).mean(axis=2, dtype=np.float32)


def _bars(video: Video) -> tuple[int, int]:
    """How many lines the bars at the beginning and at the end have; (0, 0) unless both are surely there."""
    first, last = _bar(video), _bar(video[:, ::-1])
    if not first or not last or abs(first - last) > max(EDGE, ALIKE * max(first, last)):
        return 0, 0
    return first, last


def _bar(video: Video) -> int:
    """How many lines from the beginning are a bar, with those that its edge is blurred over; 0 for none."""
    import numpy as np

    lines = video.shape[1]
    colour = np.median(video[:, : max(2, int(THINNEST * lines))], axis=(0, 1, 2))
    differs = np.abs(video - colour).max(axis=3)  # [frames, lines, pieces]: in any colour
    in_bar = (differs.max(axis=0) > TOLERANCE).mean(axis=1) <= IN_BAR
    bar = lines if in_bar.all() else int(np.argmin(in_bar))
    if colour.max() >= BLACK or not max(2, THINNEST * lines) <= bar <= THICKEST * lines:
        return 0
    if (differs[:, bar : bar + EDGE] > TOLERANCE / 2).mean(axis=2).max() < BEGINS:
        return 0  # a thing that moves over a black ground
    if in_bar[bar + EDGE : lines - int(THICKEST * lines)].any():
        return 0  # a striped ground
    usual = np.median(differs.max(axis=0), axis=1)
    picture = np.median(usual[bar + EDGE : bar + 3 * EDGE])
    begun = np.flatnonzero((usual[bar : bar + EDGE] >= picture / 2) & (usual[bar : bar + EDGE] > TOLERANCE))
    return bar + int(begun[0]) if begun.size else 0
