"""Where a clip cuts from one shot to the next, by PySceneDetect.

Frames are scored once per clip and detector, and the scores are kept; moving the threshold decodes nothing. A cut is
the number of the frame that begins the new shot. Not covered: dissolves and fades (they score low, spread over frames),
what becomes of the shots (splitting).
"""

from __future__ import annotations

import io
from bisect import bisect, insort
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench import media
from workbench.dataset_builder.seeking import fingerprint, frames_from
from workbench.workspace import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DetectorName = Literal["adaptive", "content", "hash"]
RECIPE = 1  # goes up when the same clip would score differently
LONGEST_SIDE = 256  # PySceneDetect's own working size; larger pictures score alike and take longer
LEAST_CONTENT = 15.0  # AdaptiveDetector's own: below it a frame differs too little to be a cut, whatever its neighbours
Tick = Callable[[], None]
"""Called after each frame; may raise to stop."""


@dataclass(frozen=True)
class Detector:
    """A way of scoring, in words. threshold: where a score begins to count as a cut; low, high: what is sensible."""

    title: str
    help: str
    threshold: float
    low: float
    high: float


DETECTORS: dict[DetectorName, Detector] = {
    "adaptive": Detector(
        "Against its neighbours",
        "How many times more a frame differs from the one before than the frames around it do. Stays calm in fast "
        "motion and shaky footage; the best first choice.",
        2.0,  # PySceneDetect's 3.0 misses cuts between fast shots of few frames a second, whose neighbours differ, too
        1.2,
        10.0,
    ),
    "content": Detector(
        "By colour and light",
        "How much hue, saturation and brightness differ from the frame before, 0 to 255. For calm footage, and for "
        "shots of only a few frames; fast motion counts as cuts.",
        27.0,
        5.0,
        80.0,
    ),
    "hash": Detector(
        "By shapes",
        "Which share of a coarse black-and-white picture turns over, 0 to 1. Not misled by flashes and changing light.",
        0.35,
        0.1,
        0.8,
    ),
}


@dataclass(frozen=True)
class Scores:
    """How much each frame of a clip differs from the one before it.

    values: float32 [F], in the detector's own unit; 0 for the first frame
    """

    detector: DetectorName
    fps: float
    values: NDArray[np.float32]


def scores(path: Path, detector: DetectorName, cache: Path, tick: Tick = lambda: None) -> Scores:
    """The clip's scores, from the folder `cache`, else computed now and kept there; long clips take no more memory.

    Raises DataError when the clip cannot be read, CannotWrite, and whatever `tick` raises.
    """
    import numpy as np

    kept = cache / f"{fingerprint(path)}-{detector}-{RECIPE}.npz"
    if not kept.exists():
        fps, values = _scored(path, detector, tick)
        data = io.BytesIO()
        np.savez_compressed(data, fps=fps, values=np.array(values, np.float32))
        write_bytes(kept, data.getvalue())
    with np.load(kept) as found:
        return Scores(detector, float(found["fps"]), found["values"])


def cuts(found: Scores, threshold: float, min_seconds: float = 0.0) -> list[int]:
    """The frames at which a new shot begins, in order. Of cuts less than `min_seconds` apart the clearest remain."""
    import numpy as np

    candidates = np.flatnonzero(found.values >= threshold)
    clearest_first = candidates[np.argsort(-found.values[candidates], kind="stable")]
    nearest, taken = min_seconds * found.fps, list[int]()
    for number in clearest_first.tolist():
        place = bisect(taken, number)
        if all(abs(number - other) >= nearest for other in taken[max(0, place - 1) : place + 1]):
            insort(taken, number)
    return taken


def _scored(path: Path, name: DetectorName, tick: Tick) -> tuple[float, list[float]]:
    """(fps, a score a frame)."""
    from scenedetect import AdaptiveDetector, ContentDetector, FrameTimecode, HashDetector

    about = media.probe(path)
    scale = min(1.0, LONGEST_SIDE / max(about.width, about.height))
    width, height = (max(1, round(side * scale)) for side in (about.width, about.height))
    detector: Any = {"adaptive": AdaptiveDetector, "content": ContentDetector, "hash": HashDetector}[name]()
    measure = _Measure("content_val" if name == "content" else detector.get_metrics()[-1])
    detector.stats_manager = measure
    for number, frame in frames_from(path):
        picture = frame.reformat(width=width, height=height, format="bgr24", interpolation="AREA").to_ndarray()
        measure.next_frame()
        detector.process_frame(FrameTimecode(number, about.fps), picture)
        tick()
    return about.fps, measure.values


class _Measure:
    """Stands where PySceneDetect puts its statistics, and keeps of them the one number a frame that decides."""

    def __init__(self, key: str) -> None:
        self.values: list[float] = []
        self._key = key
        self._content: list[float] = []

    def next_frame(self) -> None:
        self.values.append(0.0)
        self._content.append(LEAST_CONTENT)

    def set_metrics(self, timecode: Any, metrics: dict[str, float]) -> None:
        """Called by the detector, also for a frame that lies a little back."""
        number = timecode.frame_num
        self._content[number] = metrics.get("content_val", self._content[number])
        if self._key in metrics and (self._key == "content_val" or self._content[number] >= LEAST_CONTENT):
            self.values[number] = metrics[self._key]
