"""Video files: look at them, read their frames, write them. PyAV does it; decord reads our own clips where it can.

Foreign files are opened by path, with allow-lists of containers and protocols, so that no file can make us read
another one or the network; and only after a look at what kind of file it is (a pipe would hang every decoder). Errors
are DataError with the reason in words. Not covered: mending foreign files (dataset_builder.normalise), time and memory
limits (dataset_builder.ingest runs this module in children), audio.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import DataError
from workbench.workspace import sync_folder, write_bytes, writing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

OPEN_OPTIONS = {"format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi", "protocol_whitelist": "file"}
SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".3gp")
BT709, LIMITED_RANGE = 1, 1  # FFmpeg's numbers for the colours every browser assumes
HDR_TRANSFERS = (16, 18)  # PQ, HLG
KEYFRAME_EVERY = 30  # a seek decodes at most this many frames in vain
THREADS = 2  # fixed, so that a file encodes to the same bytes on every machine


@dataclass(frozen=True)
class Probe:
    """What a video file says of itself, and what its first frame shows.

    width, height: as stored, after rotation; sample_aspect: width of a stored pixel over its height
    frames, seconds: as declared, 0 when the file does not say; rotation: degrees counter-clockwise to turn it upright
    """

    width: int
    height: int
    fps: float
    frames: int
    seconds: float
    container: str
    codec: str
    pixel_format: str
    bits: int
    rotation: int
    sample_aspect: Fraction
    interlaced: bool
    hdr: bool
    audio: bool


# ---- opening --------------------------------------------------------------------------------------------------------


def check_file(path: Path) -> None:
    """Refuse what is no video before a decoder sees it. Raises DataError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        link = path.is_symlink()
        reason = "it is a link: give the file itself" if link else f"{error.strerror}: check name and permissions"
        raise DataError(f"it cannot be opened: {reason}") from error
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise DataError("not an ordinary file (a folder, pipe or device): give a video file")
        if not about.st_size:
            raise DataError("empty file: copy or download it again")
        head = file.read(4096)
    if mix_up := _look_alike(head):
        raise DataError(mix_up)


def _look_alike(head: bytes) -> str | None:
    """Why a file that starts like this is no video, for the mix-ups that people meet."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return "looks like a web page, not a video: the download probably asked for a login, fetch it again"
    if text.startswith((b"#extm3u", b"ffconcat", b"[playlist]", b"v=0")):
        return "a playlist that names other files, not a video: give the video files themselves"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the video: fetch the real file (git lfs pull)"
    if head.startswith((b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"BM")) or head[8:12] == b"WEBP":
        return "a picture, not a video: give a clip of two frames or more"
    return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """(container, first video stream) of a checked file. Raises DataError."""
    import av

    check_file(path)
    try:
        # An absolute path, so that no file name is taken for a protocol ("concat:...").
        container = av.open(str(path.absolute()), options=dict(OPEN_OPTIONS), metadata_errors="replace")
    except (av.FFmpegError, ValueError) as error:
        if _without_index(path):
            raise DataError("the recording was cut off, its index is missing: copy it again from the camera") from error
        raise DataError("not a video that can be read: give an mp4, mov, mkv, webm or avi file") from error
    with container:
        videos = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
        if not videos:
            raise DataError("sound only: it has no pictures" if container.streams.audio else "it has no video track")
        stream = videos[0]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = THREADS
        yield container, stream


def _without_index(path: Path) -> bool:
    """Whether it is an mp4 without its index (moov), as a recorder leaves it when power fails."""
    boxes = _boxes(path)
    return bool(boxes) and boxes[0] == b"ftyp" and b"moov" not in boxes


def _boxes(path: Path) -> list[bytes]:
    """Names of an mp4's outermost boxes, in file order."""
    names: list[bytes] = []
    with path.open("rb") as file:
        end, position = path.stat().st_size, 0
        while position + 8 <= end and len(names) < 1000:
            file.seek(position)
            head = file.read(16)
            size = int.from_bytes(head[:4], "big")
            size = int.from_bytes(head[8:16], "big") if size == 1 else size or end - position
            names.append(head[4:8])
            if size < 8:
                break
            position += size
    return names


# ---- looking and reading --------------------------------------------------------------------------------------------


def probe(path: Path) -> Probe:
    """Look at a video file; decodes its first frame. Raises DataError with the reason in words."""
    import av

    with _opened(path) as (container, stream):
        try:
            first = next(container.decode(stream))
        except (av.FFmpegError, StopIteration) as error:
            raise DataError("the recording was cut off or is damaged: no frame can be read, copy it again") from error
        turned = first.rotation % 180 == 90
        duration = (
            stream.duration * stream.time_base if stream.duration else Fraction(container.duration or 0, 1_000_000)
        )
        return Probe(
            width=first.height if turned else first.width,
            height=first.width if turned else first.height,
            fps=float(stream.average_rate or stream.guessed_rate or 0),
            frames=stream.frames,
            seconds=float(duration),
            container=container.format.name,
            codec=stream.codec_context.name,
            pixel_format=first.format.name,
            bits=max(component.bits for component in first.format.components),
            rotation=first.rotation % 360,
            sample_aspect=Fraction(stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio or 1),
            interlaced=bool(first.interlaced_frame),
            hdr=first.color_trc in HDR_TRANSFERS,
            audio=bool(container.streams.audio),
        )


def presentation_times(path: Path) -> list[float]:
    """When each frame is shown, in seconds from the first, as the file's packets say: nothing is decoded."""
    import av

    times: list[float] = []
    with _opened(path) as (container, stream), contextlib.suppress(av.FFmpegError):
        for packet in container.demux(stream):
            if packet.pts is not None and not packet.is_discard:
                times.append(float(packet.pts * packet.time_base))
    return [time - min(times) for time in sorted(times)]


def raw_frames(path: Path) -> Iterator[tuple[float, Any]]:
    """(seconds from the first frame, PyAV frame as stored) of a video. Raises DataError where the file is damaged."""
    import av

    with _opened(path) as (container, stream):
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
        yield time, np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90))


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

    frames = _read_decord(path, indices)
    if frames is None:
        frames = _read_pyav(path, indices)
    if resize and resize != frames.shape[1:3]:
        size = (resize[1], resize[0])
        frames = np.stack([np.asarray(Image.fromarray(f).resize(size, Image.Resampling.BICUBIC)) for f in frames])
    if crop:
        top, left, height, width = crop
        frames = frames[:, top : top + height, left : left + width]
    return np.ascontiguousarray(frames)


def _read_decord(path: Path, indices: Sequence[int]) -> Pixels | None:
    """Frames by decord; None where it is missing or gives frames of a wrong shape (it does when width is 16 or 48)."""
    try:
        import decord
    except ImportError:
        return None
    with _opened(path) as (_, stream):
        expected = (len(indices), stream.height, stream.width, 3)
    try:
        frames: Pixels = decord.VideoReader(str(path.absolute()), num_threads=1).get_batch(list(indices)).asnumpy()
    except (decord.DECORDError, IndexError):
        return None
    return frames if frames.shape == expected else None


def _read_pyav(path: Path, indices: Sequence[int]) -> Pixels:
    """Frames by PyAV: back to the keyframe before the first one wanted, then forward. Raises DataError."""
    import av
    import numpy as np

    wanted, found = set(indices), {}
    with _opened(path) as (container, stream):
        start, rate = stream.start_time or 0, stream.average_rate
        first = start + int(min(wanted) / rate / stream.time_base)
        try:
            container.seek(first, stream=stream)
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


# ---- writing --------------------------------------------------------------------------------------------------------


class Writer:
    """An mp4 every browser plays (H.264 yuv420p, index first, BT.709), there whole or not at all. A context manager."""

    def __init__(
        self,
        path: Path,
        width: int,
        height: int,
        fps: float,
        *,
        comment: str | None = None,
        crf: int,
        preset: str = "medium",
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
        # No B-frames: every decoder, decord's old one too, then counts and seeks alike.
        options = {"crf": str(crf), "preset": preset, "bf": "0", "g": str(KEYFRAME_EVERY)}
        self._stream: Any = self._container.add_stream("libx264", rate=rate, options=options)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        context = self._stream.codec_context
        context.thread_count = THREADS
        context.time_base = 1 / rate
        context.color_primaries = context.color_trc = context.colorspace = BT709
        context.color_range = LIMITED_RANGE

    def write(self, frame: Any) -> None:
        """Append a PyAV frame of the writer's size in yuv420p, BT.709."""
        import av

        frame.pts, frame.time_base = self.frames, self._stream.codec_context.time_base
        frame.pict_type = av.video.frame.PictureType.NONE  # else the source's keyframes would be imitated
        with writing(self.path):
            self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def __enter__(self) -> Writer:
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
                    os.replace(self._temporary, self.path)
                    sync_folder(self.path.parent)
        finally:
            self._temporary.unlink(missing_ok=True)


def encode(frames: Pixels, path: Path, fps: float, comment: str | None = None, crf: int = 14) -> None:
    """Write uint8 [F, H, W, 3] as an mp4 that plays in every browser; odd sizes gain one repeated row or column.

    `comment` is kept in the file's metadata (we put JSON there). Raises CannotWrite.
    """
    import av
    import numpy as np
    from av.video.reformatter import ColorRange, Colorspace

    _, height, width, _ = frames.shape
    frames = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    with Writer(path, frames.shape[2], frames.shape[1], fps, comment=comment, crf=crf) as writer:
        for picture in frames:
            writer.write(
                av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24").reformat(
                    format="yuv420p",
                    dst_colorspace=Colorspace.ITU709,
                    src_color_range=ColorRange.JPEG,
                    dst_color_range=ColorRange.MPEG,
                )
            )


def read_comment(path: Path) -> str | None:
    """The text that `encode` put into the file's metadata, None when there is none. Raises DataError."""
    with _opened(path) as (container, _):
        return next((value for name, value in container.metadata.items() if name.lower() == "comment"), None)


def thumbnail(path: Path, target: Path, longest: int = 320) -> None:
    """A JPEG of the clip's middle frame. Raises DataError, CannotWrite."""
    import io

    from PIL import Image

    frames = max(1, probe(path).frames)
    picture = Image.fromarray(read_frames(path, [frames // 2])[0])
    picture.thumbnail((longest, longest))
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=88)
    write_bytes(target, data.getvalue())
