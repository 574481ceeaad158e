"""Read and write videos and pictures: frames in order or by number, mp4 files, thumbnails, GIFs; compare two videos.

Uses PyAV, and decord for windows of canonical clips where it is faster. The mp4 files play in every browser and decode
to the same frames everywhere.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
import os
import tempfile
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

# "as": also reached as media.NAME
from workbench.clips.video_files import THREADS, frame_step, opened, orientation
from workbench.clips.video_files import check_file as check_file
from workbench.clips.video_files import has_own_metadata as has_own_metadata
from workbench.clips.video_files import is_picture as is_picture
from workbench.clips.video_files import probe as probe
from workbench.clips.video_files import read_comment as read_comment
from workbench.clips.video_files import read_times as read_times
from workbench.errors import DataError
from workbench.workspace import disk, sync_folder, write_bytes, writing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
else:
    Pixels = Any

KEYFRAME_EVERY = 30  # frames: a seek decodes at most this many extra
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


def spread_frames(path: Path, count: int) -> Iterator[tuple[float, Any]]:
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
    """Write a thumbnail with text, for clips without pictures of this size (width, height). Raises CannotWrite."""
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

    shape: the clip's [F, H, W]; the caller has verified the file's checksum.
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


# ---- writing mp4 files -----------------------------------------------------------------------------------------------

BT709, LIMITED_RANGE = 1, 1  # FFmpeg's codes for the colors that browsers assume
# A constant quantizer bounds the error of every block: at least 46 dB even for pure noise, where a constant rate factor
# of the same size on ordinary footage drops to 40. Slower presets save no space.
FAITHFUL = {"qp": "13", "preset": "superfast"}


class VideoWriter:
    """Write an mp4 for browsers (H.264 yuv420p, index first) atomically. A context manager.

    Args:
        crf, preset: Quality of videos for display; crf None writes at FAITHFUL quality, for training clips.
        like: A PyAV frame with the color matrix, primaries and transfer of the frames; None for BT.709.
        comment: Text for the file's metadata.
    """

    def __init__(
        self,
        path: Path,
        width: int,
        height: int,
        fps: float | Fraction,
        *,
        comment: str | None = None,
        crf: int | None = None,
        preset: str = "medium",
        like: Any = None,
    ) -> None:
        import av

        self.path = path
        self.frames = 0
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._container = av.open(str(self._temporary), "w", format="mp4", options={"movflags": "+faststart"})
        if comment is not None:
            self._container.metadata["comment"] = comment
        rate = Fraction(fps).limit_denominator(1001)
        # Without B-frames, every decoder counts and seeks alike, those of other trainers too.
        options = {"bf": "0", "g": str(KEYFRAME_EVERY)}
        options |= FAITHFUL if crf is None else {"crf": str(crf), "preset": preset}
        self._stream: Any = self._container.add_stream("libx264", rate=rate, options=options)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        context = self._stream.codec_context
        context.thread_count = THREADS
        context.time_base = 1 / rate
        context.colorspace = BT709 if like is None else like.colorspace
        context.color_primaries = BT709 if like is None else like.color_primaries
        context.color_trc = BT709 if like is None else like.color_trc
        context.color_range = LIMITED_RANGE

    def write(self, frame: Any) -> None:
        """Append a yuv420p PyAV frame with the writer's size and colors."""
        import av

        frame.pts, frame.time_base = self.frames, self._stream.codec_context.time_base
        frame.pict_type = av.video.frame.PictureType.NONE  # do not copy the source's keyframes
        with writing(self.path):
            self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            with writing(self.path):
                if error is None:
                    self._container.mux(self._stream.encode())
                self._container.close()
                if error is None:
                    with self._temporary.open("rb") as file:
                        os.fsync(file.fileno())
                    disk.replace(self._temporary, self.path)
                    sync_folder(self.path.parent)
        finally:
            self._temporary.unlink(missing_ok=True)


def filter_graph(first: Any, steps: Sequence[tuple[str, str]]) -> Any:
    """Chain FFmpeg filters, given as (name, arguments), for PyAV frames like `first`: push a frame, then pull."""
    import av

    graph = av.filter.Graph()
    last = graph.add_buffer(
        width=first.width, height=first.height, format=first.format, time_base=first.time_base or Fraction(1, 1000)
    )
    for name, arguments in (*steps, ("buffersink", "")):
        node = graph.add(name, arguments) if arguments else graph.add(name)
        last.link_to(node)
        last = node
    graph.configure()
    return graph


def encode(frames: Pixels, path: Path, fps: float, comment: str | None = None, crf: int | None = 14) -> None:
    """Write uint8 [F, H, W, 3] with `VideoWriter`, padding odd sizes by repeating the last row or column.

    Raises CannotWrite.
    """
    import numpy as np

    _, height, width, _ = frames.shape
    frames = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    with VideoWriter(path, frames.shape[2], frames.shape[1], fps, comment=comment, crf=crf) as writer:
        for picture in frames:
            writer.write(bt709_frame(picture))


def copy_packets(source: Path, target: Path, sound: bool = False, **options: str) -> None:
    """Copy the packets of the video stream, and of its sound, into a new mp4.

    Raises DataError, ValueError if an mp4 cannot hold them.
    """
    import av

    options = {"movflags": "+faststart", **options}
    with opened(source) as (container, stream), av.open(str(target), "w", "mp4", options) as copy:
        streams = [stream, *(container.streams.audio[:1] if sound else ())]
        tracks: dict[int, Any] = {one.index: copy.add_stream_from_template(one) for one in streams}
        for packet in container.demux(*streams):
            if packet.dts is not None:  # the last one is empty
                packet.stream = tracks[packet.stream.index]
                copy.mux(packet)


def without_comment(path: Path) -> bytes:
    """Return the bytes of one of our mp4 files without its metadata, deterministically. Raises DataError."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "video.mp4"
        copy_packets(path, target, sound=True, fflags="+bitexact")
        return target.read_bytes()


def bt709_frame(picture: Pixels) -> Any:
    """Convert a uint8 [H, W, 3] picture to a PyAV frame for `VideoWriter`."""
    import av
    import numpy as np
    from av.video.reformatter import ColorRange, Colorspace

    return av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24").reformat(
        format="yuv420p",
        dst_colorspace=Colorspace.ITU709,
        src_color_range=ColorRange.JPEG,
        dst_color_range=ColorRange.MPEG,
    )


# ---- GIFs, PNGs and strips of stills ---------------------------------------------------------------------------------

GIF_FPS = 12.5  # the most that a GIF has
LARGEST_ONE, LARGEST_GRID = 640, 1280  # pixels: the width of one video; width and height of the grid
PIXEL_ART, ENLARGED = 128, 192  # videos up to the first width are enlarged to about the second
DEFAULT_FPS = 8.0  # for videos that do not state a rate


def write_gif(rows: Sequence[Sequence[Path]], path: Path) -> None:
    """Write a GIF of videos, at a lower frame rate, with narrow videos enlarged and wide ones reduced.

    The first video sets the tile size and the frame rate. All play at their own speed, and shorter ones hold their
    last frame. Raises DataError.
    """
    from PIL import Image, ImageOps

    facts = {video: probe(video) for row in rows for video in row}
    first, columns = facts[rows[0][0]], max(map(len, rows))
    every = max(1, round((first.fps or DEFAULT_FPS) / GIF_FPS))
    seconds = every / (first.fps or DEFAULT_FPS)
    count = max(math.ceil(one.frames / (one.fps or DEFAULT_FPS) / seconds - 1e-6) for one in facts.values())
    sharp = first.width <= PIXEL_ART
    how = Image.Resampling.NEAREST if sharp else Image.Resampling.BICUBIC
    most = min(LARGEST_GRID / (columns * first.width), LARGEST_GRID / (len(rows) * first.height))
    enlarged = max(1, min(round(ENLARGED / first.width), int(most)))
    scale = enlarged if sharp else min(1.0, LARGEST_ONE / first.width, most)
    width, height = (max(1, round(side * scale)) for side in (first.width, first.height))
    tiles = []
    for top, row in enumerate(rows):
        for left, video in enumerate(row):
            fps = facts[video].fps or DEFAULT_FPS
            frames = _frames_at(video, (int(number * seconds * fps + 1e-6) for number in range(count)))
            tiles.append(((left * width, top * height), frames))
    pictures = []
    for _ in range(count):
        whole = Image.new("RGB", (columns * width, len(rows) * height), "white")
        for corner, frames in tiles:
            whole.paste(ImageOps.pad(Image.fromarray(next(frames)), (width, height), how), corner)
        pictures.append(whole.quantize(256, dither=Image.Dither.NONE))
    duration = round(1000 * seconds)
    pictures[0].save(path, "GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)


def write_png(rows: Sequence[Sequence[Path]], path: Path) -> None:
    """Write a PNG of the videos' first frames, in tiles of the first video's size. Raises DataError."""
    from PIL import Image, ImageOps

    first = probe(rows[0][0])
    columns = max(map(len, rows))
    whole = Image.new("RGB", (columns * first.width, len(rows) * first.height), "white")
    for top, row in enumerate(rows):
        for left, video in enumerate(row):
            picture = Image.fromarray(next(_frames_at(video, [0])))
            whole.paste(ImageOps.pad(picture, (first.width, first.height)), (left * first.width, top * first.height))
    whole.save(path, "PNG")


def stills(video: Path, count: int = 3, height: int = 96) -> bytes:
    """Return a JPEG strip of evenly spaced frames, for places where no video plays; b"" if the video is unreadable."""
    from PIL import Image

    try:
        facts = probe(video)
        last = max(0, facts.frames - 1)
        indices = sorted({round(number * last / max(count - 1, 1)) for number in range(count)})
        frames = [Image.fromarray(frame) for frame in _frames_at(video, indices)]
    except DataError:
        return b""
    width = max(1, round(height * facts.width / facts.height))
    how = Image.Resampling.NEAREST if facts.width <= PIXEL_ART else Image.Resampling.BICUBIC
    whole, data = Image.new("RGB", (len(frames) * width, height)), io.BytesIO()
    for number, frame in enumerate(frames):
        whole.paste(frame.resize((width, height), how), (number * width, 0))
    whole.save(data, "JPEG", quality=85)
    return data.getvalue()


def _frames_at(video: Path, indices: Iterable[int]) -> Iterator[Pixels]:
    """Yield the frames at ascending indices, repeating the last one beyond the end."""
    frames = enumerate(frame for _, frame in decode(video))
    at, frame = next(frames)
    for index in indices:
        while at < index:
            at, frame = next(frames, (index, frame))
        yield frame


# ---- how much two videos differ --------------------------------------------------------------------------------------

SAME = 99.0  # dB, reported for equal videos
SEEN = 6.0  # levels from which people see a difference
ANOTHER = 25.0  # levels from which it is another video
# How a difference below so many levels looks.
WORDS = {1: "the same", SEEN: "nearly the same", ANOTHER: "clearly different", math.inf: "another video"}


def psnr(one: Pixels, other: Pixels) -> float:
    """Compare two pictures of one size, in dB."""
    import numpy as np

    return 10 * math.log10(255**2 / max(float(np.mean((one.astype(np.float32) - other) ** 2)), 1e-9))


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
