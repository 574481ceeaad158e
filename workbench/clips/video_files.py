"""Identify, check and open video files, and read their properties.

Files are identified by name and first bytes before a decoder sees them; truncated ones are detected (an mp4 without its
index, a cut-off Matroska or WebM). Allow-lists of containers and protocols keep a file from making us read another file
or the network. A pipe would hang any decoder. Errors are DataError with the reason in words.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import stat
import statistics
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

from workbench.errors import DataError
from workbench.workspace import disk

# FFmpeg demuxers that never open another file or address.
DEMUXERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,asf,flv,ogg,dv,mxf,gif,apng,"
    "h264,hevc,m4v,ivf,yuv4mpegpipe"
)
SOUND_DEMUXERS = f"{DEMUXERS},wav,flac,mp3,aac,aiff"
OBSOLETE_SUFFIXES = (".rm", ".rmvb", ".swf", ".wtv")  # refused, with an import result that says why
SUFFIXES = (
    *(".mp4", ".mov", ".m4v", ".mkv", ".mk3d", ".webm", ".avi", ".divx", ".3gp", ".3g2", ".f4v", ".qt", ".mp4v"),
    *(".mpg", ".mpeg", ".mpe", ".m1v", ".m2v", ".mp2v", ".m2p", ".vob", ".mod", ".tod", ".wmv", ".asf", ".flv"),
    *(".ts", ".mts", ".m2ts", ".m2t", ".trp", ".ogv", ".ogg", ".ogm", ".ogx", ".dv", ".mxf", ".gif", ".gifv", ".apng"),
    *(".h264", ".264", ".avc", ".hevc", ".h265", ".265", ".ivf", ".y4m", *OBSOLETE_SUFFIXES),
)
RAW_SUFFIXES = (
    *(".dng", ".cr2", ".cr3", ".crw", ".nef", ".nrw", ".arw", ".srf", ".sr2", ".raf", ".rw2", ".rwl", ".orf", ".pef"),
    *(".srw", ".x3f", ".3fr", ".fff", ".iiq", ".mos", ".mef", ".mrw", ".erf", ".kdc", ".dcr", ".gpr"),
)
# Unsupported picture formats: refused, with an import result that says what to do.
OTHER_IMAGE_SUFFIXES = (
    *(".heic", ".heif", ".heics", ".hif", ".tif", ".tiff", ".jxl", ".psd", ".psb", ".jp2", ".j2k", ".jpx", ".tga"),
    *(".exr", ".hdr", *RAW_SUFFIXES),
)
ENDINGS = "mp4, mov, mkv, webm, avi, mpg, ts, wmv, flv, ogv, dv or gif"
HEAD_BYTES = 4096
MOST_INDEX_BYTES = 16 * 1024**2
EBML, SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
AVIF = (b"ftypavif", b"ftypavis")
TO_PICTURE, TO_VIDEO = "convert it to JPEG or PNG first", "convert it to mp4 first"
RAW_PICTURE = f"a raw camera picture: {TO_PICTURE}"
REFUSED = {
    **dict.fromkeys((b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"MMOR", b"IIU\0", b"FOVb", b"\0MRM"), RAW_PICTURE),
    b"\0\0\0\x0cjP  ": f"a JPEG 2000 picture: {TO_PICTURE}",
    b"\x76\x2f\x31\x01": f"an OpenEXR picture: {TO_PICTURE}",
    b"\x49\x49\x2a\0": f"a TIFF or raw camera picture: {TO_PICTURE}",
    b"\x4d\x4d\0\x2a": f"a TIFF or raw camera picture: {TO_PICTURE}",
    b"8BPS": f"a Photoshop picture: {TO_PICTURE}",
    b"\xff\x0a": f"a JPEG XL picture: {TO_PICTURE}",
    b"\0\0\0\x0cJXL ": f"a JPEG XL picture: {TO_PICTURE}",
    b".RMF": f"a RealMedia file: {TO_VIDEO}",
    b"FWS": f"a Flash program, not a video: {TO_VIDEO}",
    b"CWS": f"a Flash program, not a video: {TO_VIDEO}",
    b"\xb7\xd8\x00\x20\x37\x49\xda\x11": f"a Windows TV recording: {TO_VIDEO}",
    b"%PDF": "a PDF document, not a video: give the videos or pictures themselves",
    b"ID3": "sound only: it has no pictures",
    b"fLaC": "sound only: it has no pictures",
}


def check_file(path: Path, name: str = "") -> None:
    """Raise DataError for files that are clearly neither a video nor a supported picture, before a decoder sees them.

    name: the file's original name; its suffix identifies unsupported picture formats.
    """
    head = _head(path)
    if not head:
        raise DataError("empty file: copy or download it again")
    if mix_up := _look_alike(head):
        raise DataError(mix_up)
    if name.lower().endswith(OTHER_IMAGE_SUFFIXES) and not is_picture(path):
        raw = name.lower().endswith(RAW_SUFFIXES)
        raise DataError(RAW_PICTURE if raw else f"an unsupported picture format: {TO_PICTURE}")


def is_picture(path: Path) -> bool:
    """Whether a file's content is a still picture (PNG, JPEG, WebP, AVIF, BMP). Raises DataError."""
    head = _head(path)
    # "BM" alone proves nothing, so compare the size in the header, too.
    bitmap = head.startswith(b"BM") and int.from_bytes(head[2:6], "little") == path.stat().st_size
    png = head.startswith(b"\x89PNG") and b"acTL" not in head  # an animated PNG is a video
    webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return png or webp or bitmap or head.startswith(b"\xff\xd8\xff") or head[4:12] in AVIF


def _head(path: Path) -> bytes:
    """Read the first bytes of a regular file. Raises DataError for anything else."""
    try:
        descriptor = disk.open_ordinary(path)
    except (OSError, ValueError) as error:
        link = isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.EMLINK)
        words = error.strerror if isinstance(error, OSError) else str(error)
        reason = "it is a link: give the file itself" if link else f"{words}: check its name and permissions"
        raise DataError(f"it cannot be opened: {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError("not an ordinary file (a folder, pipe or device): give a video file")
    with open(descriptor, "rb") as file:
        return file.read(HEAD_BYTES)


def _look_alike(head: bytes) -> str | None:
    """Recognize files that are commonly mistaken for videos; return the reason for refusing them."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body", b"<svg")):
        return "looks like a web page, not a video: the site probably asked for a login, download it again"
    if text.startswith((b"#extm3u", b"ffconcat", b"[playlist]", b"v=0")):
        return "a playlist, not a video: give the video files themselves"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the video: fetch the real file (git lfs pull)"
    if head[8:12] == b"WAVE":
        return "sound only: it has no pictures"
    if head[4:8] == b"ftyp" and head[8:12] in HEIF and b"avif" not in head[:64]:
        return f"a HEIC picture, as iPhones take them: {TO_PICTURE}"
    if head[4:12] == b"ftypcrx ":
        return RAW_PICTURE
    return next((reason for start, reason in REFUSED.items() if head.startswith(start)), None)


def _boxes(path: Path) -> list[tuple[bytes, int, int]]:
    """List (name, offset, size in bytes) of an mp4's top-level boxes, in file order."""
    found: list[tuple[bytes, int, int]] = []
    with path.open("rb") as file:
        end, position = path.stat().st_size, 0
        while position + 8 <= end and len(found) < 1000:
            file.seek(position)
            head = file.read(16)
            size = int.from_bytes(head[:4], "big")
            size = int.from_bytes(head[8:16], "big") if size == 1 else size or end - position
            found.append((head[4:8], position, size))
            if size < 8:
                break
            position += size
    return found


def is_encrypted(path: Path) -> bool:
    """Whether an mp4's index marks its tracks as encrypted."""
    with path.open("rb") as file:
        for name, start, size in _boxes(path):
            if name == b"moov":
                file.seek(start)
                index = file.read(min(size, MOST_INDEX_BYTES))
                return b"encv" in index or b"sinf" in index or b"pssh" in index
    return False


def segment_is_cut(path: Path) -> bool:
    """Whether a Matroska or WebM file is shorter than its segment. Live recordings, which state no size, never are."""
    with path.open("rb") as file:
        if file.read(4) != EBML or (header := _size(file)) is None:
            return False
        file.seek(header, 1)
        if file.read(4) != SEGMENT or (size := _size(file)) is None:
            return False
        return file.tell() + size > path.stat().st_size


def _size(file: IO[bytes]) -> int | None:
    """Read an EBML variable-length integer; None if it is invalid or means "unknown"."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    length = 9 - first[0].bit_length()
    value = int.from_bytes(bytes([first[0] & (0xFF >> length)]) + file.read(length - 1), "big")
    return None if value == (1 << 7 * length) - 1 else value


# ---- opening ---------------------------------------------------------------------------------------------------------

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


@contextlib.contextmanager
def opened_sound(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open a video, or a file of sound alone: (container, its video stream or None). Raises DataError."""
    if not _head(path):
        raise DataError("empty file: copy or download it again")
    with _container(path, SOUND_DEMUXERS) as container:
        if not container.streams.audio:
            raise DataError("no sound: give a video or a sound file (wav, mp3, flac, m4a, ogg)")
        yield container, next(iter(_tracks(container)), None)


def _container(path: Path, demuxers: str = DEMUXERS) -> Any:
    import av

    try:
        # Accept metadata that is not UTF-8, which is the default from PyAV 19 on.
        any_metadata: dict[str, Any] = (
            {"metadata_errors": "surrogateescape"} if int(av.__version__.partition(".")[0]) < 19 else {}
        )
        # An absolute path, so that no file name passes for a protocol ("concat:...").
        options = {**OPEN_OPTIONS, "format_whitelist": demuxers}
        return av.open(str(path.absolute()), options=options, **any_metadata)
    except (av.FFmpegError, ValueError) as error:
        boxes = [name for name, _, _ in _boxes(path)]
        if boxes[:1] == [b"ftyp"] and b"moov" not in boxes:
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
