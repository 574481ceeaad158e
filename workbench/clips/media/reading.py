"""Read a video's frames with PyAV: a foreign file's one after another, our own clips' by number."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips.media.opening import frame_step, opened, orientation, read_times
from workbench.clips.media.writing import KEYFRAME_EVERY
from workbench.errors import DataError
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
        step, start, time = frame_step(stream), None, -frame_step(stream)
        # The times of an mp4 without B-frames, such as our own clips, are always those of its frames.
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
    """(seconds from the first frame, upright uint8 [H, W, 3] picture), one at a time. Raises DataError."""
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
    """Frames of one of our own clips, uint8 [F, h, w, 3]: scaled to `resize` (h, w), cut to `crop` (top, left, h, w).

    Reducing averages over all pixels (bicubic with its support widened), so nothing flickers. Raises DataError.
    """
    with opened_clip(path) as (container, stream):
        return fitted(_pick(path, container, stream, indices), resize, crop)


def fitted(frames: Pixels, resize: tuple[int, int] | None, crop: tuple[int, int, int, int] | None) -> Pixels:
    """Frames, uint8 [F, H, W, 3], scaled and cut as `read_frames` does."""
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
    """(container, video stream) of one of our own clips; errors of the decoder become DataError."""
    import av

    with opened(path) as (container, stream):
        try:
            yield container, stream
        except av.FFmpegError as error:
            raise DataError(f"{path.name} is damaged ({error.strerror}): import it again") from error


def frames_onward(container: Any, stream: Any, start: int) -> Iterator[tuple[int, Any]]:
    """(number, PyAV frame) of one of our own clips from the last keyframe at or before frame `start`."""
    origin, rate = stream.start_time or 0, stream.average_rate or 1
    container.seek(origin + int(start / rate / stream.time_base), stream=stream)
    for frame in container.decode(stream):
        yield round((frame.pts - origin) * stream.time_base * rate), frame


def _pick(path: Path, container: Any, stream: Any, indices: Sequence[int]) -> Pixels:
    """The frames of an open clip: back to the keyframe before each stretch of them, then forward. Raises DataError."""
    import numpy as np

    wanted = set(indices)
    found: dict[int, Any] = {}
    for stretch in _stretches(indices):
        for number, frame in frames_onward(container, stream, stretch[0]):
            if number in wanted:
                found[number] = frame.to_ndarray(format="rgb24")
            if number >= stretch[-1]:
                break
    if missing := sorted(wanted - found.keys()):
        raise DataError(f"{path.name} has no frame {missing[0]}: import it again")
    return np.stack([found[number] for number in indices])


def _stretches(indices: Sequence[int]) -> list[list[int]]:
    """The numbers in order, parted where a keyframe lies between two of them for certain."""
    stretches: list[list[int]] = []
    for number in sorted(set(indices)):
        if not stretches or number - stretches[-1][-1] > KEYFRAME_EVERY:
            stretches.append([])
        stretches[-1].append(number)
    return stretches


def thumbnail(path: Path, target: Path) -> None:
    """A JPEG of the clip's middle frame. Raises DataError, CannotWrite."""
    with opened_clip(path) as (container, stream):
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


def write_poster(text: str, size: tuple[int, int], target: Path) -> None:
    """A thumbnail that says what a clip without pictures is. size: the clip's width and height. Raises CannotWrite."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    width, height = THUMBNAIL_SIDE, max(64, round(THUMBNAIL_SIDE * size[1] / max(1, size[0])))
    poster = Image.new("RGB", (width, height), "#30343b")
    font = ImageFont.load_default(width // 10)
    ImageDraw.Draw(poster).text((width // 2, height // 2), text, "#d5d9e0", font=font, anchor="mm")
    write_thumbnail(np.asarray(poster), target)


def first_frame_png(path: Path) -> bytes:
    """The first frame of a video as a PNG. Raises DataError."""
    import io

    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(read_frames(path, [0])[0]).save(data, "PNG")
    return data.getvalue()
