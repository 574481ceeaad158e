"""Open video files safely and read their properties.

Allow-lists of containers and protocols keep a file from making us read another file or the network. The file's type is
checked first, because a pipe would hang any decoder. Errors are DataError with the reason in words.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from workbench.clips.media.kinds import (
    DEMUXERS,
    ENDINGS,
    check_file,
    is_encrypted,
    is_picture,
    segment_is_cut,
    without_index,
)
from workbench.errors import DataError

USUAL_METADATA = {"major_brand", "minor_version", "compatible_brands", "encoder", "creation_time"}
OPEN_OPTIONS = {"format_whitelist": DEMUXERS, "protocol_whitelist": "file"}
HDR_TRANSFERS = (16, 18)  # FFmpeg's codes for PQ and HLG
FULL_RANGE = 2
STATE_THEIR_LENGTH = ("asf", "flv")  # formats whose header states the length, even if the file is cut off
RAW_STREAMS = ("h264", "hevc", "m4v", "mpegvideo")  # without a container, so without timestamps and frame rate
JUMP_BACK = 0.25  # seconds: timestamps that go back further mean that another recording was appended
FEW_PACKETS = 2000  # packets that suffice to tell a still from a video
THREADS = 2  # fixed, so that a file encodes to the same bytes on every machine


@dataclass(frozen=True)
class VideoFacts:
    """Properties of a video file, from its header and first frame.

    width, height: stored size, after rotation.
    sample_aspect: width of a stored pixel over its height.
    frames, seconds: as declared; 0 if the file does not say.
    rotation: degrees counterclockwise that turn the picture upright.
    flipped: whether to mirror left and right after the rotation.
    matrix: FFmpeg's code for the YUV matrix (1: BT.709, 2: unspecified).
    full_range: whether luma goes from 0 to 255.
    guessed_fps: FFmpeg's estimate of the frame rate from timestamps and codec.
    tracks, track: number of video tracks, and of the one that is read (from 1).
    passed_over: why earlier tracks are skipped; "" if there are none.
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
    flipped: bool
    sample_aspect: Fraction
    interlaced: bool
    hdr: bool
    matrix: int
    full_range: bool
    alpha: bool
    audio: bool
    guessed_fps: float
    tracks: int
    track: int
    passed_over: str


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Check a file and open it: (container, first video stream with more than one frame). Raises DataError."""
    check_file(path)
    if is_picture(path):
        raise DataError("a picture, not a video: give a clip of two frames or more")
    with _container(path) as container:
        stream = _first_moving(path, container)
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = THREADS
        yield container, stream


def _container(path: Path) -> Any:
    import av

    try:
        # Accept metadata that is not UTF-8, which is the default from PyAV 19 on.
        any_metadata: dict[str, Any] = (
            {"metadata_errors": "surrogateescape"} if int(av.__version__.partition(".")[0]) < 19 else {}
        )
        # An absolute path, so that no file name passes for a protocol ("concat:...").
        return av.open(str(path.absolute()), options=dict(OPEN_OPTIONS), **any_metadata)
    except (av.FFmpegError, ValueError) as error:
        if without_index(path):
            raise DataError("the video was cut off, its index is missing: copy it again from the camera") from error
        raise DataError(f"not a readable video: use {ENDINGS}") from error


def _tracks(container: Any) -> list[Any]:
    """Return the video tracks without cover pictures."""
    import av

    return [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]


def _first_moving(path: Path, container: Any) -> Any:
    """Return the first readable video track with more than one frame, else the first readable one. Raises DataError.

    A still can come before the video without being marked as a cover.
    """
    import av

    if not (tracks := _tracks(container)):
        raise DataError("sound only: it has no pictures" if container.streams.audio else "it has no video track")
    readable = [track for track in tracks if track.codec_context is not None]
    if not readable:
        raise DataError(_unreadable(path))
    if len(readable) == 1:
        return readable[0]
    frames = {track.index: track.frames for track in readable}
    if not all(frames.values()):
        frames = dict.fromkeys(frames, 0)
        with _container(path) as other, contextlib.suppress(av.FFmpegError):
            streams = [other.streams[index] for index in frames]
            for packet in itertools.islice(other.demux(*streams), FEW_PACKETS):
                frames[packet.stream_index] += bool(packet.size)
                if min(frames.values()) > 1:
                    break
    return next((track for track in readable if frames[track.index] > 1), readable[0])


def _unreadable(path: Path) -> str:
    """Explain why an intact file cannot be decoded."""
    if is_encrypted(path):
        return "its video is encrypted (DRM), so only its own player can read it: use a file without protection"
    return "its video codec is not supported: save it again as an ordinary mp4 (H.264)"


def probe(path: Path, most_pixels: int | None = None) -> VideoFacts:
    """Read a video's properties and decode its first frame.

    Raises DataError with the reason in words, also for pictures of more than `most_pixels` (before decoding).
    """
    import av

    with opened(path) as (container, stream):
        context = stream.codec_context
        if most_pixels and context.width * context.height > most_pixels:
            raise DataError(f"too large: {context.width}x{context.height}: scale it down first")
        try:
            first = next(container.decode(stream))
        except (av.FFmpegError, StopIteration) as error:
            if is_encrypted(path):
                raise DataError(_unreadable(path)) from error
            raise DataError("the video was cut off or is damaged: no frame can be read, copy it again") from error
        rotation, flipped = orientation(first)
        turned = rotation % 180 == 90
        duration = (
            stream.duration * stream.time_base if stream.duration else Fraction(container.duration or 0, 1_000_000)
        )
        transparent = stream.metadata.get("alpha_mode") == "1"  # WebM: the decoder drops alpha
        if context.name == "gif":  # always decoded with alpha
            transparent = bool(first.to_ndarray(format="rgba")[..., 3].min() < 255)
        else:
            transparent = transparent or any(component.is_alpha for component in first.format.components)
        tracks = _tracks(container)
        before = tracks[: [track.index for track in tracks].index(stream.index)]
        kinds = {"a still picture" if track.codec_context else "of an unsupported codec" for track in before}
        rates = (stream.average_rate, stream.guessed_rate)
        declared, guessed = reversed(rates) if container.format.name in RAW_STREAMS else rates
        return VideoFacts(
            width=first.height if turned else first.width,
            height=first.width if turned else first.height,
            fps=float(declared or guessed or 0),
            frames=stream.frames,
            seconds=float(duration),
            container=container.format.name,
            codec=context.name,
            pixel_format=first.format.name,
            bits=max(component.bits for component in first.format.components),
            rotation=rotation,
            flipped=flipped,
            sample_aspect=Fraction(stream.sample_aspect_ratio or context.sample_aspect_ratio or 1),
            interlaced=bool(first.interlaced_frame),
            hdr=first.color_trc in HDR_TRANSFERS,
            matrix=int(first.colorspace),
            full_range=first.color_range == FULL_RANGE,
            alpha=transparent,
            audio=bool(container.streams.audio),
            guessed_fps=float(guessed or 0),
            tracks=len(tracks),
            track=len(before) + 1,
            passed_over=" or ".join(sorted(kinds)),
        )


def orientation(frame: Any) -> tuple[int, bool]:
    """Return how to show a frame: (rotation counterclockwise of 0, 90, 180 or 270 degrees, whether to mirror then).

    Read from the display matrix, which can also mirror (selfie cameras, screen recorders).
    """
    from av.sidedata.sidedata import Type

    rotation = round(frame.rotation / 90) * 90 % 360
    side = frame.side_data.get(Type.DISPLAYMATRIX)  # get, because iterating differs between PyAV 18 and 19
    if side is None:
        return rotation, False
    a, b, _, c, d = struct.unpack("<5i", bytes(side)[:20])  # x' = a x + c y, y' = b x + d y
    if a * d - b * c >= 0:
        return rotation, False
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return (0 if a < 0 else 180), True
    return (270 if c > 0 else 90), True


@dataclass(frozen=True)
class FrameTimes:
    """When each frame is shown, in seconds from the first, according to the file's packets.

    last: how long the last frame is shown; 0 if the file does not say.
    whole: whether the file is as long as its header says.
    by_number: whether the timestamps of decoded frames are wrong, so that the n-th frame has the n-th of these times.
        AVI and raw streams store only the decoding order, and two recordings can be joined.
    """

    presented: list[float]
    last: float
    whole: bool
    by_number: bool = False


def read_times(path: Path) -> FrameTimes:
    """Read when each frame of the video track is shown, without decoding. Raises DataError."""
    import av

    shown: list[tuple[float, float]] = []  # (time, duration)
    decoded: list[tuple[float, float]] = []
    begin, end, offset, newest, untimed, jumps = math.inf, 0.0, 0.0, -math.inf, 0, False
    with opened(path) as (container, stream), contextlib.suppress(av.FFmpegError):
        promised = (container.duration or 0) / 1e6 if container.format.name in STATE_THEIR_LENGTH else 0.0
        step, reorders, avi = frame_step(stream), stream.codec_context.has_b_frames, container.format.name == "avi"
        for packet in container.demux(stream, *container.streams.audio):
            own = packet.stream_index == stream.index
            length = float((packet.duration or 0) * packet.time_base)
            if own and packet.dts is not None:
                time = float(packet.dts * packet.time_base)
                if time + offset < newest - JUMP_BACK:
                    offset, jumps = newest + step - time, True
                newest = time + offset
                if not packet.is_discard:
                    decoded.append((newest, length))
            if packet.pts is None:
                untimed += own and bool(packet.size)
                continue
            time = float(packet.pts * packet.time_base) + (offset if own else 0.0)
            begin, end = min(begin, time), max(end, time + length)
            if own and not packet.is_discard:
                shown.append((time, length))
    whole = not segment_is_cut(path) and (not promised or end - begin + 1 >= 0.95 * promised)
    ascending = all(one[0] < other[0] for one, other in itertools.pairwise(shown))
    by_number = jumps or not shown or (reorders and (ascending or avi))
    frames = sorted(shown)
    if avi and by_number or not frames:
        frames = min(frames, decoded, key=_unevenness) if frames else decoded
    frames = frames or [(number * step, step) for number in range(untimed)]
    return FrameTimes([time - frames[0][0] for time, _ in frames], frames[-1][1] if frames else 0.0, whole, by_number)


def _unevenness(frames: list[tuple[float, float]]) -> int:
    """Count frame intervals far from the median. AVI has no timestamps, and those that FFmpeg invents can be wrong."""
    steps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(frames)]
    usual = statistics.median(steps) if steps else 0.0
    return sum(abs(step - usual) > 0.3 * usual for step in steps)


def frame_step(stream: Any) -> float:
    """Return the seconds per frame according to the stream's header."""
    raw = stream.container.format.name in RAW_STREAMS
    rates = (stream.guessed_rate, stream.average_rate) if raw else (stream.average_rate, stream.guessed_rate)
    return 1 / float(next(filter(None, rates), 25))


def has_own_metadata(path: Path) -> bool:
    """Whether a file has metadata beyond what every mp4 has, such as a title, place or notes. Raises DataError."""
    with opened(path) as (container, _):
        return any(name.lower() not in USUAL_METADATA for name in container.metadata)


def read_comment(path: Path) -> str | None:
    """Return the comment that `encode` wrote into the file's metadata, or None. Raises DataError."""
    with opened(path) as (container, _):
        comment = next((value for name, value in container.metadata.items() if name.lower() == "comment"), None)
    return None if comment is None else comment.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
