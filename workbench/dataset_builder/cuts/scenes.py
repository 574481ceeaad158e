"""Where a clip cuts from one shot to the next, by PySceneDetect: for splitting, the filmstrip and the dataset check.

Frames are scored once per clip, and the scores are kept; moving the threshold decodes nothing. A cut is the number of
the frame that begins the new shot; a flash, after which all is as before, is none. Not covered: dissolves and fades
(they score low, spread over frames), what becomes of the shots (splitting).
"""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from workbench.clips import frame_metrics, media
from workbench.dataset_builder.cuts.seeking import fingerprint, frames_from
from workbench.dataset_builder.parallel import Tick, silent
from workbench.workspace import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]  # [F]: how much each frame differs from the one before it, in the detector's unit

DetectorName = Literal["adaptive", "content", "hash"]
RECIPE = 2  # goes up when the same clip would score differently
LONGEST_SIDE = 128  # pixels; larger pictures score alike and take longer
LEAST_CONTENT = 15.0  # AdaptiveDetector's own: below it a frame differs too little to be a cut, whatever its neighbours
NEIGHBOURS, MOST_TIMES = 2, 255.0  # AdaptiveDetector's own, too: frames to each side, and where the ratio ends
HASH_SIZE, HASH_FACTOR = 8, 2  # HashDetector's own


class Detector(NamedTuple):
    """A way of scoring. threshold: where a score begins to count as a cut; low, high: what is sensible."""

    threshold: float
    low: float
    high: float


DETECTORS: dict[DetectorName, Detector] = {
    # PySceneDetect's 3.0 misses cuts between fast shots of few frames a second, whose neighbours differ, too.
    "adaptive": Detector(2.0, 1.2, 10.0),  # how many times more a frame differs than the frames around it do
    "content": Detector(27.0, 5.0, 80.0),  # how much hue, saturation and brightness differ, 0 to 255
    "hash": Detector(0.35, 0.1, 0.8),  # which share of a coarse black-and-white picture turns over, 0 to 1
}


def scores(path: Path, detector: DetectorName, cache: Path, tick: Tick = silent) -> Scores:
    """The clip's scores, from the folder `cache`, else computed now and kept there; long clips take no more memory.

    Raises DataError when the clip cannot be read, CannotWrite, and whatever `tick` raises.
    """
    import numpy as np

    # Not numpy's own format: in threads, reading its heads now and then fails ("AST constructor recursion depth
    # mismatch", Python 3.11).
    kept = cache / f"{fingerprint(path)}-{detector}-{RECIPE}.f4"
    with contextlib.suppress(OSError, ValueError, zlib.error):  # missing, or damaged: computed again
        return np.frombuffer(zlib.decompress(kept.read_bytes()), np.float32)
    scorer = Scorer(detector)
    for _, frame in frames_from(path):
        scorer.look(frame_metrics.small(frame, LONGEST_SIDE))
        tick()
    values: Scores = np.asarray(scorer.scores(media.probe(path).fps), np.float32)
    write_bytes(kept, zlib.compress(values.tobytes()))
    return values


def cuts(found: Scores, threshold: float) -> list[int]:
    """The frames at which a new shot begins, in order."""
    import numpy as np

    return [int(number) for number in np.flatnonzero(found >= threshold)]


class Scorer:
    """Scores a clip's frames as they come."""

    def __init__(self, detector: DetectorName) -> None:
        self._name = detector
        self._last: Any = None
        self._differs: list[float] = []
        self._tiny = bytearray()

    def look(self, picture: frame_metrics.Pixels) -> None:
        """Take the next frame, uint8 BGR [H, W, 3], LONGEST_SIDE at most."""
        seen, last = _seen(self._name, picture), self._last
        self._differs.append(0.0 if last is None else float(_apart(seen, last)))
        self._tiny += frame_metrics.tiny(picture)
        self._last = seen

    @property
    def tiny(self) -> frame_metrics.Pixels:
        """All frames in grey, uint8 [F, h, w]."""
        import numpy as np

        return np.frombuffer(self._tiny, np.uint8).reshape(-1, *frame_metrics.TINY)

    def scores(self, fps: float) -> Scores:
        """The scores of all frames that came; 0 for the first one and in flashes."""
        import numpy as np

        values = np.array(self._differs, np.float32)
        if self._name == "adaptive":
            values = _against_neighbours(values)
        for first, over, _ in frame_metrics.flashes(self.tiny, fps):
            values[first : over + 1] = 0
        return values


def _seen(detector: DetectorName, picture: frame_metrics.Pixels) -> Any:
    """What the detector compares of a picture: bits of its shapes, or hue, saturation and brightness."""
    import cv2

    if detector == "hash":
        from scenedetect import HashDetector

        return HashDetector.hash_frame(picture, hash_size=HASH_SIZE, factor=HASH_FACTOR)
    # ContentDetector's numbers without its edges, which it computes with them: three times as fast.
    return cv2.cvtColor(picture, cv2.COLOR_BGR2HSV)


def _apart(one: Any, other: Any) -> Any:
    """The share of the bits, or the mean of the levels, by which two of those differ."""
    import cv2

    return (one != other).mean() if one.dtype == bool else cv2.absdiff(one, other).mean()


def _against_neighbours(content: Scores) -> Scores:
    """AdaptiveDetector's ratio, at a clip's ends with the neighbours that there are: stray frames of another shot."""
    import numpy as np

    content = np.concatenate([[np.nan], content[1:]])  # nothing is before the first frame
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(content, NEIGHBOURS, constant_values=np.nan), 2 * NEIGHBOURS + 1
    )
    others = np.delete(windows, NEIGHBOURS, axis=1)
    usual = np.nansum(others, axis=1) / np.maximum(1, np.isfinite(others).sum(axis=1))
    ratio = np.minimum(content / np.maximum(usual, 1e-5), MOST_TIMES)
    return np.where(content >= LEAST_CONTENT, ratio, 0).astype(np.float32)
