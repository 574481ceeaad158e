"""Frames of our own clips by their number, a filmstrip of them, and where one shot ends and the next begins.

PyAV, frames as stored, only from files that an import has written or checked: nothing here guards against a hostile
file. Shots are found by PySceneDetect. Frames are scored once per clip, and the scores are kept; moving the threshold
decodes nothing. A cut is the number of the frame that begins the new shot; a flash, after which all is as before, is
none. Dissolves and fades score low, spread over frames, and are not found.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from workbench.clips import frame_metrics, media
from workbench.clips.media.reading import frames_onward, opened_clip
from workbench.clips.media.writing import KEYFRAME_EVERY
from workbench.dataset_builder.tasks import Tick, silent
from workbench.errors import DataError
from workbench.workspace import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]

HEAD_AND_TAIL = 1 << 20  # bytes


def fingerprint(path: Path) -> str:
    """16 hex digits of a clip's content, in milliseconds for any length: its size, its first and its last megabyte.

    An mp4's index, with the size of every frame, lies at one of its ends. Raises DataError.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            head = file.read(HEAD_AND_TAIL)
            file.seek(max(0, size - HEAD_AND_TAIL))
            return hashlib.sha256(b"%d " % size + head + file.read(HEAD_AND_TAIL)).hexdigest()[:16]
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror}): import it again") from error


def frames_from(path: Path, start: int = 0) -> Generator[tuple[int, Any], None, None]:
    """(number, PyAV frame) from frame `start` to the last one, none left out. Raises DataError."""
    expected = start
    with opened_clip(path) as (container, stream):
        for number, frame in frames_onward(container, stream, start):
            if number < start:
                continue
            if number != expected:
                break
            yield number, frame
            expected += 1
        if expected < stream.frames:
            raise DataError(f"frame {expected} of {path.name} cannot be read: import it again")


def stills(path: Path, count: int) -> Iterator[tuple[float, Any]]:
    """(seconds, PyAV frame) of `count` frames, each from the middle of its share of the clip; fewer in a shorter clip.

    Where a share is longer than the way between two keyframes, the last keyframe before its middle will do: so hours
    take no longer than minutes. Raises DataError.
    """
    with opened_clip(path) as (container, stream):
        rate, total = float(stream.average_rate), stream.frames
        count = min(count, total)
        wanted = [(2 * number + 1) * total // (2 * count) for number in range(count)]
        share = total / max(1, count)
        if share >= KEYFRAME_EVERY:
            for middle in wanted:
                for number, frame in frames_onward(container, stream, middle):
                    if number >= middle - share / 2:
                        yield number / rate, frame
                        break
            return
    chosen = set(wanted)
    yield from ((number / rate, frame) for number, frame in frames_from(path) if number in chosen)


# ---- filmstrip -------------------------------------------------------------------------------------------------------

WIDEST = 65_500  # pixels, what a JPEG can hold
STRIPS = "strips"  # folder of the page's filmstrips, below the workspace's cache
TILES, TILE_HEIGHT = 24, 74  # frames and pixels of one of those


@dataclass(frozen=True)
class Filmstrip:
    """A row of frames. path: the JPEG; times: seconds of each frame, from the left; width: pixels of one frame."""

    path: Path
    times: tuple[float, ...]
    width: int


def filmstrip(path: Path, cache: Path, frames: int = 24, height: int = 64) -> Filmstrip:
    """The clip's strip from the folder `cache`, else made now and kept there; a clip of fewer frames has fewer.

    Raises DataError when the clip cannot be read or the strip would be too wide, CannotWrite.
    """
    from PIL import Image

    target = cache / f"{fingerprint(path)}-{frames}x{height}.jpg"
    if not target.exists():
        write_bytes(target, _rendered(path, frames, height))
    with Image.open(target) as picture:  # the times are in the file itself, so that the two cannot part
        about = json.loads(picture.info["comment"])
    return Filmstrip(target, tuple(about["times"]), about["width"])


def _rendered(path: Path, count: int, height: int) -> bytes:
    from PIL import Image

    times, pictures = [], []
    for seconds, frame in stills(path, count):
        width = max(1, round(frame.width * height / frame.height))
        if width * count > WIDEST:
            raise DataError(f"a strip of {count} frames of {width} pixels is too wide: use {WIDEST // width} or fewer")
        times.append(round(seconds, 6))
        pictures.append(frame.reformat(width=width, height=height, format="rgb24", interpolation="AREA").to_ndarray())
    if not pictures:
        raise DataError(f"{path.name} has no frames: import it again")
    strip = Image.new("RGB", (len(pictures) * width, height))
    for index, picture in enumerate(pictures):
        strip.paste(Image.fromarray(picture), (index * width, 0))
    data = io.BytesIO()
    strip.save(data, "JPEG", quality=80, comment=json.dumps({"times": times, "width": width}))
    return data.getvalue()


# ---- shots -----------------------------------------------------------------------------------------------------------

DetectorName = Literal["adaptive", "content", "hash"]
RECIPE = 2  # goes up when the same clip would score differently
LONGEST_SIDE = 128  # pixels; larger pictures score alike and take longer
LEAST_CONTENT = 15.0  # AdaptiveDetector's own: below it a frame differs too little to be a cut, whatever its neighbors
NEIGHBORS, MOST_TIMES = 2, 255.0  # AdaptiveDetector's own, too: frames to each side, and where the ratio ends
HASH_SIZE, HASH_FACTOR = 8, 2  # HashDetector's own


class Detector(NamedTuple):
    """A way of scoring. threshold: where a score begins to count as a cut; low, high: what is sensible."""

    threshold: float
    low: float
    high: float


DETECTORS: dict[DetectorName, Detector] = {
    # PySceneDetect's 3.0 misses cuts between fast shots of few frames a second, whose neighbors differ, too.
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
        import cv2

        seen: Any
        if self._name == "hash":  # bits of the picture's shapes, of which the share that differs counts
            from scenedetect import HashDetector

            seen = HashDetector.hash_frame(picture, hash_size=HASH_SIZE, factor=HASH_FACTOR)
        else:
            # Hue, saturation and brightness, of which the mean difference counts: ContentDetector's numbers without its
            # edges, which it computes with them: three times as fast.
            seen = cv2.cvtColor(picture, cv2.COLOR_BGR2HSV)
        if (last := self._last) is None:
            differs = 0.0
        else:
            differs = float((seen != last).mean() if seen.dtype == bool else cv2.absdiff(seen, last).mean())
        self._differs.append(differs)
        self._tiny += frame_metrics.tiny(picture)
        self._last = seen

    @property
    def tiny(self) -> frame_metrics.Pixels:
        """All frames in gray, uint8 [F, h, w]."""
        import numpy as np

        return np.frombuffer(self._tiny, np.uint8).reshape(-1, *frame_metrics.TINY)

    def scores(self, fps: float) -> Scores:
        """The scores of all frames that came; 0 for the first one and in flashes."""
        import numpy as np

        values = np.array(self._differs, np.float32)
        if self._name == "adaptive":
            values = _against_neighbors(values)
        for first, over, _ in frame_metrics.flashes(self.tiny, fps):
            values[first : over + 1] = 0
        return values


def _against_neighbors(content: Scores) -> Scores:
    """AdaptiveDetector's ratio, at a clip's ends with the neighbors that there are: stray frames of another shot."""
    import numpy as np

    content = np.concatenate([[np.nan], content[1:]])  # nothing is before the first frame
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(content, NEIGHBORS, constant_values=np.nan), 2 * NEIGHBORS + 1
    )
    others = np.delete(windows, NEIGHBORS, axis=1)
    usual = np.nansum(others, axis=1) / np.maximum(1, np.isfinite(others).sum(axis=1))
    ratio = np.minimum(content / np.maximum(usual, 1e-5), MOST_TIMES)
    return np.where(content >= LEAST_CONTENT, ratio, 0).astype(np.float32)
