"""Open a video file safely and say what it is.

Foreign files are opened by path, with allow-lists of containers and protocols, so that no file can make us read
another one or the network; and only after a look at what kind of file it is (a pipe would hang every decoder). Errors
are DataError with the reason in words.
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
HDR_TRANSFERS = (16, 18)  # FFmpeg's numbers for PQ and HLG
FULL_RANGE = 2
STATE_THEIR_LENGTH = ("asf", "flv")  # in their header, whatever is left of the rest
RAW_STREAMS = ("h264", "hevc", "m4v", "mpegvideo")  # have no container, so no times and no rate of one
JUMP_BACK = 0.25  # seconds by which times go back where one recording was appended to another
FEW_PACKETS = 2000  # are enough to tell a still from a video
THREADS = 2  # fixed, so that a file encodes to the same bytes on every machine


@dataclass(frozen=True)
class VideoFacts:
    """What a video file says of itself, and what its first frame shows.

    width, height: as stored, after rotation; sample_aspect: width of a stored pixel over its height
    frames, seconds: as declared, 0 when the file does not say
    rotation, flipped: degrees counter-clockwise to turn it upright, after which left and right change places or not
    matrix: FFmpeg's number of the YUV colors (1 is BT.709, 2 is "not said"); full_range: luma from 0 to 255
    guessed_fps: FFmpeg's second opinion on the frame rate, from its times and its codec
    tracks: how many video tracks there are;  track: the number of the one that is read, from 1
    passed_over: why the ones before it are not read, "" for the first
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
    """(container, the first video stream that moves) of a checked file. Raises DataError."""
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
        # An absolute path, so that no file name is taken for a protocol ("concat:...").
        # Opens a file whose metadata are no UTF-8, as PyAV does from version 19 on without being asked.
        any_metadata: dict[str, Any] = (
            {"metadata_errors": "surrogateescape"} if int(av.__version__.partition(".")[0]) < 19 else {}
        )
        return av.open(str(path.absolute()), options=dict(OPEN_OPTIONS), **any_metadata)
    except (av.FFmpegError, ValueError) as error:
        if without_index(path):
            raise DataError("the video was cut off, its index is missing: copy it again from the camera") from error
        raise DataError(f"not a video that can be read: give {ENDINGS}") from error


def _tracks(container: Any) -> list[Any]:
    """The video tracks; a cover picture is none."""
    import av

    return [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]


def _first_moving(path: Path, container: Any) -> Any:
    """The first video track that can be read and has more than one frame, or the first of one frame. Raises DataError.

    A picture may stand before the video without being marked as its cover.
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
    """Why the pictures of a file cannot be decoded though it is whole."""
    if is_encrypted(path):
        return "its video is encrypted (DRM), so that nobody but its player can read it: give a file without protection"
    return "its video has a codec that cannot be read: save it again as an ordinary mp4 (H.264)"


def probe(path: Path, most_pixels: int | None = None) -> VideoFacts:
    """Look at a video file; decodes its first frame, unless its header promises more than `most_pixels`.

    Raises DataError with the reason in words.
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
        transparent = stream.metadata.get("alpha_mode") == "1"  # so WebM says it; the decoder leaves alpha out
        if context.name == "gif":  # decoded with alpha in any case
            transparent = bool(first.to_ndarray(format="rgba")[..., 3].min() < 255)
        else:
            transparent = transparent or any(component.is_alpha for component in first.format.components)
        tracks = _tracks(container)
        before = tracks[: [track.index for track in tracks].index(stream.index)]
        kinds = {"a still picture" if track.codec_context else "of a codec that cannot be read" for track in before}
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
    """(degrees counter-clockwise: 0, 90, 180 or 270; whether to mirror left and right after that), as its file says.

    A display matrix may mirror, which a rotation alone cannot tell (selfie cameras, screen recorders).
    """
    from av.sidedata.sidedata import Type

    rotation = round(frame.rotation / 90) * 90 % 360
    side = frame.side_data.get(Type.DISPLAYMATRIX)  # PyAV 19 gives types where 18 gave the sides themselves
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
    """When each frame is shown, in seconds from the first, as the file's packets say.

    last:  how long the last one is shown, 0 when the file does not say
    whole: whether all is there that the file's header promises
    by_number: whether decoded frames carry times that are not theirs (AVI and raw streams know only in which order
           packets are decoded; two recordings may be appended), so that the n-th frame has the n-th of these times
    """

    presented: list[float]
    last: float
    whole: bool
    by_number: bool = False


def read_times(path: Path) -> FrameTimes:
    """The times of all frames of the video track; nothing is decoded. Raises DataError."""
    import av

    shown: list[tuple[float, float]] = []  # when, for how long
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
    """How many frames are not shown for about as long as most. FFmpeg makes up one of the times that an AVI lacks."""
    steps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(frames)]
    usual = statistics.median(steps) if steps else 0.0
    return sum(abs(step - usual) > 0.3 * usual for step in steps)


def frame_step(stream: Any) -> float:
    """Seconds from one frame to the next, by the stream's header."""
    raw = stream.container.format.name in RAW_STREAMS
    rates = (stream.guessed_rate, stream.average_rate) if raw else (stream.average_rate, stream.guessed_rate)
    return 1 / float(next(filter(None, rates), 25))


def has_own_metadata(path: Path) -> bool:
    """Whether a file says more of itself than every mp4 does: a title, a place, a program's notes. Raises DataError."""
    with opened(path) as (container, _):
        return any(name.lower() not in USUAL_METADATA for name in container.metadata)


def read_comment(path: Path) -> str | None:
    """The text that `encode` put into the file's metadata, None when there is none. Raises DataError."""
    with opened(path) as (container, _):
        comment = next((value for name, value in container.metadata.items() if name.lower() == "comment"), None)
    return None if comment is None else comment.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
