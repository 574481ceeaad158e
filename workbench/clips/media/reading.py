"""Read frames: of any video in order, of canonical clips by number; and compare two videos.

Uses PyAV, and decord for windows of canonical clips where it is faster.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.clips.media.opening import THREADS, frame_step, opened, orientation, read_times
from workbench.clips.media.writing import KEYFRAME_EVERY
from workbench.errors import DataError
from workbench.workspace import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
else:
    Pixels = Any

THUMBNAIL_SIDE = 320  # pixels of the longer side


def raw_frames(path: Path) -> Iterator[tuple[float, Any]]:
    """Decode (seconds from the first frame, PyAV frame as stored). Raises DataError where the file is damaged."""
    import av

    with opened(path) as (container, stream):
        step, start, time = frame_step(stream), None, -frame_step(stream)
        # An mp4 without B-frames, such as a canonical clip, always has correct timestamps.
        sure = "mp4" in container.format.name and not stream.codec_context.has_b_frames
        times = None if sure else read_times(path)
        presented = times.presented if times is not None and times.by_number else []
        try:
            for number, frame in enumerate(container.decode(stream)):
                if frame.is_corrupt and number:
                    raise DataError(f"damaged: frame {number + 1} cannot be read")
                if number < len(presented):
                    time = presented[number]
                elif presented or frame.time is None:
                    time += step
                else:
                    start = frame.time if start is None else start
                    time = frame.time - start
                yield time, frame
        except av.FFmpegError as error:
            raise DataError(f"damaged: it cannot be read to its end ({error.strerror})") from error


def decode(path: Path) -> Iterator[tuple[float, Pixels]]:
    """Decode (seconds from the first frame, upright uint8 [H, W, 3] picture), one at a time. Raises DataError."""
    import numpy as np

    for time, frame in raw_frames(path):
        rotation, flipped = orientation(frame)
        upright = np.rot90(frame.to_ndarray(format="rgb24"), rotation // 90)
        yield time, np.ascontiguousarray(upright[:, ::-1] if flipped else upright)


def read_frames(
    path: Path,
    indices: Sequence[int],
    resize: tuple[int, int] | None = None,
    crop: tuple[int, int, int, int] | None = None,
) -> Pixels:
    """Read frames of a canonical clip, uint8 [F, h, w, 3], scaled to `resize` (h, w), cut to `crop` (top, left, h, w).

    Downscaling is antialiased (bicubic with wider support), so nothing flickers. Raises DataError.
    """
    with opened_clip(path) as (container, stream):
        return fitted(_pick(path, container, stream, indices), resize, crop)


def fitted(frames: Pixels, resize: tuple[int, int] | None, crop: tuple[int, int, int, int] | None) -> Pixels:
    """Scale and crop frames, uint8 [F, H, W, 3], as `read_frames` does."""
    import numpy as np
    from PIL import Image

    if resize and resize != frames.shape[1:3]:
        size = (resize[1], resize[0])
        frames = np.stack([np.asarray(Image.fromarray(f).resize(size, Image.Resampling.BICUBIC)) for f in frames])
    if crop:
        top, left, height, width = crop
        frames = frames[:, top : top + height, left : left + width]
    return np.ascontiguousarray(frames)


@contextlib.contextmanager
def opened_clip(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open a canonical clip: (container, video stream). Decoder errors become DataError."""
    import av

    with opened(path) as (container, stream):
        try:
            yield container, stream
        except av.FFmpegError as error:
            raise DataError(f"{path.name} is damaged ({error.strerror}): import it again") from error


def frames_onward(container: Any, stream: Any, start: int) -> Iterator[tuple[int, Any]]:
    """Decode (number, PyAV frame) of a canonical clip from the last keyframe at or before frame `start`."""
    origin, rate = stream.start_time or 0, stream.average_rate or 1
    container.seek(origin + int(start / rate / stream.time_base), stream=stream)
    for frame in container.decode(stream):
        yield round((frame.pts - origin) * stream.time_base * rate), frame


def _pick(path: Path, container: Any, stream: Any, indices: Sequence[int]) -> Pixels:
    """Read frames of an open clip, seeking once for each group of nearby ones. Raises DataError."""
    import numpy as np

    wanted = set(indices)
    found: dict[int, Any] = {}
    groups: list[list[int]] = []  # there is always a keyframe between two groups
    for number in sorted(wanted):
        if not groups or number - groups[-1][-1] > KEYFRAME_EVERY:
            groups.append([])
        groups[-1].append(number)
    for group in groups:
        for number, frame in frames_onward(container, stream, group[0]):
            if number in wanted:
                found[number] = frame.to_ndarray(format="rgb24")
            if number >= group[-1]:
                break
    if missing := sorted(wanted - found.keys()):
        raise DataError(f"{path.name} has no frame {missing[0]}: import it again")
    return np.stack([found[number] for number in indices])


def thumbnail(path: Path, target: Path) -> None:
    """Write a small JPEG of a clip's middle frame. Raises DataError, CannotWrite."""
    with opened_clip(path) as (container, stream):
        pixels = _pick(path, container, stream, [max(1, stream.frames) // 2])[0]
    write_thumbnail(pixels, target)


def write_thumbnail(pixels: Pixels, target: Path) -> None:
    """Write a small JPEG of a picture, uint8 [H, W, 3]. Raises CannotWrite."""
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=88)
    write_bytes(target, data.getvalue())


def write_poster(text: str, size: tuple[int, int], target: Path) -> None:
    """Write a thumbnail with text, for clips without pictures. size: clip's width and height. Raises CannotWrite."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    width, height = THUMBNAIL_SIDE, max(64, round(THUMBNAIL_SIDE * size[1] / max(1, size[0])))
    poster = Image.new("RGB", (width, height), "#30343b")
    font = ImageFont.load_default(width // 10)
    ImageDraw.Draw(poster).text((width // 2, height // 2), text, "#d5d9e0", font=font, anchor="mm")
    write_thumbnail(np.asarray(poster), target)


def first_frame_png(path: Path) -> bytes:
    """Return the first frame of a video as a PNG. Raises DataError."""
    return png(read_frames(path, [0])[0])


def last_frame_png(path: Path) -> bytes:
    """Return the last frame of a video as a PNG. Raises DataError."""
    last = deque(decode(path), maxlen=1)
    if not last:
        raise DataError(f"{path.name} has no frame: import it again")
    return png(last[0][1])


def png(pixels: Pixels) -> bytes:
    """Encode a picture, uint8 [H, W, 3] or gray [H, W], as a PNG."""
    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


# ---- windows of canonical clips, for training ------------------------------------------------------------------------

# Both decoders return the same pixels, bit for bit (tests/clips/test_media_windows.py). The limits for decord come from
# benchmarks/clip_reading.py.
SMALLEST_SIDE = 128  # pixels; for narrower clips (16, 24, 48, 72) decord returns wrong shapes or fails
LARGEST = 256 * 256  # pixels; with larger pictures, PyAV is faster
LONGEST = 600  # frames; decord scans all packets of a clip before it reads the first frame
FEWEST = 8  # frames


def suits_decord(shape: tuple[int, int, int], indices: Sequence[int]) -> bool:
    """Whether decord reads these frames of a clip [F, H, W] faster: many adjacent ones of a small, short clip."""
    frames, height, width = shape
    close = len(indices) >= FEWEST and max(indices) - min(indices) < 1.5 * len(indices)
    return close and frames <= LONGEST and height * width <= LARGEST and min(height, width) >= SMALLEST_SIDE


def read_own_clip(
    path: Path,
    shape: tuple[int, int, int],
    indices: Sequence[int],
    resize: tuple[int, int] | None = None,
    crop: tuple[int, int, int, int] | None = None,
) -> Pixels:
    """Read frames as `read_frames` does, with decord where faster. Raises DataError.

    shape: the clip's [F, H, W]. The caller has verified the file's checksum.
    """
    frames = _read_with_decord(path, shape, indices) if suits_decord(shape, indices) and _has_decord() else None
    return read_frames(path, indices, resize, crop) if frames is None else fitted(frames, resize, crop)


@cache
def _has_decord() -> bool:
    """Whether decord is installed; it has no wheels for macOS and ARM."""
    return importlib.util.find_spec("decord") is not None


def _read_with_decord(path: Path, shape: tuple[int, int, int], indices: Sequence[int]) -> Any:
    """Read frames with decord; None if it fails or finds another shape than expected."""
    import decord

    try:
        reader = decord.VideoReader(str(path), num_threads=THREADS)
        if len(reader) != shape[0]:
            return None
        frames = reader.get_batch(list(indices)).asnumpy()
    except (decord.DECORDError, OSError):
        return None
    return frames if frames.shape[1:] == (*shape[1:], 3) else None


# ---- how much two videos differ --------------------------------------------------------------------------------------

SAME = 99.0  # dB, reported for equal videos
SEEN = 6.0  # levels from which people see a difference
ANOTHER = 25.0  # levels from which it is another video
# How a difference below so many levels looks.
WORDS = {1: "the same", SEEN: "nearly the same", ANOTHER: "clearly different", math.inf: "another video"}


class Difference(NamedTuple):
    """levels: mean absolute difference of the pixels, 0 to 255. psnr: in dB."""

    levels: float
    psnr: float


def difference(one: Path, other: Path) -> Difference | None:
    """Compare two videos over the length of the shorter one; None if their sizes differ. Raises DataError."""
    import numpy as np

    total = squares = count = 0.0
    for (_, left), (_, right) in zip(decode(one), decode(other), strict=False):
        if left.shape != right.shape:
            return None
        apart = left.astype(np.float32) - right
        total += float(np.abs(apart).sum())
        squares += float((apart**2).sum())
        count += apart.size
    if not count:
        return None
    psnr = 10 * math.log10(255**2 * count / squares) if squares else SAME
    return Difference(round(total / count, 2), round(min(psnr, SAME), 1))


def in_words(levels: float) -> str:
    """Describe a difference in levels: "nearly the same"."""
    return next(words for limit, words in WORDS.items() if levels < limit)
