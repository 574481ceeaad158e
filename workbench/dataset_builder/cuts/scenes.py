"""Read frames of canonical clips by number, render filmstrips, and detect shots.

Only for files that an import has written or checked: nothing here guards against hostile files. Shot detection follows
PySceneDetect. Each clip is scored once and the scores are cached, so changing the threshold decodes nothing. A cut is
the first frame of the new shot. Flashes, after which the picture returns, do not count. Dissolves and fades score low
over many frames and are not found.
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
    """Hash a clip's size, first and last megabyte to 16 hex digits, in milliseconds for any length.

    An mp4's index, which contains the size of every frame, is at one of its ends. Raises DataError.
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
    """Decode (number, PyAV frame) from frame `start` to the last. Raises DataError if any is missing."""
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
    """Decode (seconds, PyAV frame) of `count` evenly spaced frames, or fewer for a shorter clip.

    If they are further apart than keyframes, take the nearest earlier keyframe instead of the exact frame, so that
    hours take no longer than minutes. Raises DataError.
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

WIDEST = 65_500  # pixels, JPEG's limit
STRIPS = "strips"  # folder of the page's filmstrips, below the workspace's cache
TILES, TILE_HEIGHT = 24, 74  # frames per strip, and height in pixels


@dataclass(frozen=True)
class Filmstrip:
    """A row of frames. path: the JPEG. times: each frame's time in seconds. width: pixels per frame."""

    path: Path
    times: tuple[float, ...]
    width: int


def filmstrip(path: Path, cache: Path, frames: int = 24, height: int = 64) -> Filmstrip:
    """Return a clip's filmstrip, cached in the folder `cache`. A clip with fewer frames has a shorter one.

    Raises DataError if the clip cannot be read or the strip would be too wide, CannotWrite.
    """
    from PIL import Image

    target = cache / f"{fingerprint(path)}-{frames}x{height}.jpg"
    if not target.exists():
        write_bytes(target, _rendered(path, frames, height))
    with Image.open(target) as picture:  # the times are stored in the file itself
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
RECIPE = 2  # increase it when scores change
LONGEST_SIDE = 128  # pixels; larger pictures give the same scores more slowly
LEAST_CONTENT = 15.0  # AdaptiveDetector's minimum difference for a cut
NEIGHBORS, MOST_TIMES = 2, 255.0  # AdaptiveDetector's window (frames on each side) and largest ratio
HASH_SIZE, HASH_FACTOR = 8, 2  # HashDetector's defaults


class Detector(NamedTuple):
    """A detector's default threshold, and its sensible range."""

    threshold: float
    low: float
    high: float


DETECTORS: dict[DetectorName, Detector] = {
    # PySceneDetect's 3.0 misses cuts between fast shots at low frame rates, where all neighbors differ much.
    "adaptive": Detector(2.0, 1.2, 10.0),  # change of a frame over that of its neighbors
    "content": Detector(27.0, 5.0, 80.0),  # mean change of hue, saturation and brightness, 0 to 255
    "hash": Detector(0.35, 0.1, 0.8),  # share of a perceptual hash's bits that flip, 0 to 1
}


def scores(path: Path, detector: DetectorName, cache: Path, tick: Tick = silent) -> Scores:
    """Return a clip's scores, cached in the folder `cache`, in constant memory.

    Raises DataError if the clip cannot be read, CannotWrite, and whatever `tick` raises.
    """
    import numpy as np

    # Not .npy: parsing its header in threads fails now and then ("AST constructor recursion depth mismatch", Python
    # 3.11).
    kept = cache / f"{fingerprint(path)}-{detector}-{RECIPE}.f4"
    with contextlib.suppress(OSError, ValueError, zlib.error):  # recompute missing or damaged scores
        return np.frombuffer(zlib.decompress(kept.read_bytes()), np.float32)
    scorer = Scorer(detector)
    for _, frame in frames_from(path):
        scorer.look(frame_metrics.small(frame, LONGEST_SIDE))
        tick()
    values: Scores = np.asarray(scorer.scores(media.probe(path).fps), np.float32)
    write_bytes(kept, zlib.compress(values.tobytes()))
    return values


def cuts(found: Scores, threshold: float) -> list[int]:
    """Return the first frame of each new shot, in order."""
    import numpy as np

    return [int(number) for number in np.flatnonzero(found >= threshold)]


class Scorer:
    """Score a clip's frames one by one."""

    def __init__(self, detector: DetectorName) -> None:
        self._name = detector
        self._last: Any = None
        self._differs: list[float] = []
        self._tiny = bytearray()

    def look(self, picture: frame_metrics.Pixels) -> None:
        """Add the next frame, uint8 BGR [H, W, 3], at most LONGEST_SIDE pixels."""
        import cv2

        seen: Any
        if self._name == "hash":  # scored by the share of bits that flip
            from scenedetect import HashDetector

            seen = HashDetector.hash_frame(picture, hash_size=HASH_SIZE, factor=HASH_FACTOR)
        else:  # scored by the mean difference, as ContentDetector does; three times as fast, because without its edges
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
        """Return the scores of all frames so far; 0 for the first frame and in flashes."""
        import numpy as np

        values = np.array(self._differs, np.float32)
        if self._name == "adaptive":
            values = _against_neighbors(values)
        for first, over, _ in frame_metrics.flashes(self.tiny, fps):
            values[first : over + 1] = 0
        return values


def _against_neighbors(content: Scores) -> Scores:
    """Return AdaptiveDetector's ratio, with fewer neighbors at the ends, to find stray frames there."""
    import numpy as np

    content = np.concatenate([[np.nan], content[1:]])  # the first frame has no difference
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(content, NEIGHBORS, constant_values=np.nan), 2 * NEIGHBORS + 1
    )
    others = np.delete(windows, NEIGHBORS, axis=1)
    usual = np.nansum(others, axis=1) / np.maximum(1, np.isfinite(others).sum(axis=1))
    ratio = np.minimum(content / np.maximum(usual, 1e-5), MOST_TIMES)
    return np.where(content >= LEAST_CONTENT, ratio, 0).astype(np.float32)
