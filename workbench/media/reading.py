"""Read a video's frames: a foreign file's one after another, our own clips' by number. PyAV does both.

benchmarks/clip_reading.py measures it against decord and torchcodec. Not covered: opening (opening), mending
(dataset_builder.normalise).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import DataError
from workbench.media.opening import opened, orientation
from workbench.workspace import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
else:
    Pixels = Any

THUMBNAIL_SIDE = 320  # pixels, of the longer one


def raw_frames(path: Path) -> Iterator[tuple[float, Any]]:
    """(seconds from the first frame, PyAV frame as stored) of a video. Raises DataError where the file is damaged."""
    import av

    with opened(path) as (container, stream):
        start, step = None, 1 / float(stream.average_rate or 25)
        try:
            for number, frame in enumerate(container.decode(stream)):
                if frame.is_corrupt and number:
                    raise DataError(f"damaged: frame {number + 1} cannot be read")
                time = frame.time if frame.time is not None else number * step
                start = time if start is None else start
                yield time - start, frame
        except av.FFmpegError as error:
            raise DataError(f"damaged: it cannot be read to its end ({error.strerror})") from error


def decode(path: Path) -> Iterator[tuple[float, Pixels]]:
    """(seconds from the first frame, upright uint8 [H, W, 3] picture), one at a time. Raises DataError."""
    import numpy as np

    for time, frame in raw_frames(path):
        rotation, mirrored = orientation(frame)
        upright = np.rot90(frame.to_ndarray(format="rgb24"), rotation // 90)
        yield time, np.ascontiguousarray(upright[:, ::-1] if mirrored else upright)


def read_frames(
    path: Path,
    indices: Sequence[int],
    resize: tuple[int, int] | None = None,
    crop: tuple[int, int, int, int] | None = None,
) -> Pixels:
    """Frames of one of our own clips, uint8 [F, h, w, 3]: scaled to `resize` (h, w), cut to `crop` (top, left, h, w).

    Reducing averages over all pixels (bicubic with its support widened), so nothing flickers. Raises DataError.
    """
    import numpy as np
    from PIL import Image

    with opened(path) as (container, stream):
        frames = _pick(path, container, stream, indices)
    if resize and resize != frames.shape[1:3]:
        size = (resize[1], resize[0])
        frames = np.stack([np.asarray(Image.fromarray(f).resize(size, Image.Resampling.BICUBIC)) for f in frames])
    if crop:
        top, left, height, width = crop
        frames = frames[:, top : top + height, left : left + width]
    return np.ascontiguousarray(frames)


def _pick(path: Path, container: Any, stream: Any, indices: Sequence[int]) -> Pixels:
    """The frames of an open file: back to the keyframe before the first one wanted, then forward. Raises DataError."""
    import av
    import numpy as np

    wanted, found = set(indices), {}
    start, rate = stream.start_time or 0, stream.average_rate or 1
    try:
        container.seek(start + int(min(wanted) / rate / stream.time_base), stream=stream)
        for frame in container.decode(stream):
            number = round((frame.pts - start) * stream.time_base * rate)
            if number in wanted:
                found[number] = frame.to_ndarray(format="rgb24")
            if number >= max(wanted):
                break
    except av.FFmpegError as error:
        raise DataError(f"{path.name} is damaged ({error.strerror}): import it again") from error
    if missing := sorted(wanted - found.keys()):
        raise DataError(f"{path.name} has no frame {missing[0]}: import it again")
    return np.stack([found[number] for number in indices])


def thumbnail(path: Path, target: Path) -> None:
    """A JPEG of the clip's middle frame. Raises DataError, CannotWrite."""
    with opened(path) as (container, stream):
        pixels = _pick(path, container, stream, [max(1, stream.frames) // 2])[0]
    write_thumbnail(pixels, target)


def write_thumbnail(pixels: Pixels, target: Path) -> None:
    """A small JPEG of a picture, uint8 [H, W, 3]. Raises CannotWrite."""
    import io

    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=88)
    write_bytes(target, data.getvalue())
