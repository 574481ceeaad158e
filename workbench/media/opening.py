"""Open a video file safely and say what it is.

Foreign files are opened by path, with allow-lists of containers and protocols, so that no file can make us read
another one or the network; and only after a look at what kind of file it is (a pipe would hang every decoder). Errors
are DataError with the reason in words. Not covered: time and memory limits (dataset_builder.ingest runs this module in
children), still pictures (dataset_builder.pictures), audio.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from workbench.errors import DataError

OPEN_OPTIONS = {"format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi", "protocol_whitelist": "file"}
SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".3gp")
HDR_TRANSFERS = (16, 18)  # FFmpeg's numbers for PQ and HLG
FULL_RANGE = 2
THREADS = 2  # fixed, so that a file encodes to the same bytes on every machine
HEAD_BYTES = 4096


@dataclass(frozen=True)
class Probe:
    """What a video file says of itself, and what its first frame shows.

    width, height: as stored, after rotation; sample_aspect: width of a stored pixel over its height
    frames, seconds: as declared, 0 when the file does not say; rotation: degrees counter-clockwise to turn it upright
    matrix: FFmpeg's number of the YUV colours (1 is BT.709, 2 is "not said"); full_range: luma from 0 to 255
    tracks: how many video tracks there are, of which the first is read
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
    matrix: int
    full_range: bool
    alpha: bool
    audio: bool
    tracks: int


def check_file(path: Path) -> None:
    """Refuse what is no video and no picture before a decoder sees it. Raises DataError."""
    head = _head(path)
    if not head:
        raise DataError("empty file: copy or download it again")
    if mix_up := _look_alike(head):
        raise DataError(mix_up)


def is_picture(path: Path) -> bool:
    """Whether its content is a still picture's (PNG, JPEG, WebP, BMP), whatever its name. Raises DataError."""
    head = _head(path)
    # Two letters are no proof: the size that a BMP states must be the file's.
    bitmap = head.startswith(b"BM") and int.from_bytes(head[2:6], "little") == path.stat().st_size
    return head.startswith((b"\x89PNG", b"\xff\xd8\xff")) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP") or bitmap


def _head(path: Path) -> bytes:
    """The first bytes of an ordinary file. Raises DataError for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        link = path.is_symlink()
        words = error.strerror if isinstance(error, OSError) else str(error)
        reason = "it is a link: give the file itself" if link else f"{words}: check name and permissions"
        raise DataError(f"it cannot be opened: {reason}") from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DataError("not an ordinary file (a folder, pipe or device): give a video file")
        return file.read(HEAD_BYTES)


def _look_alike(head: bytes) -> str | None:
    """Why a file that starts like this is no video, for the mix-ups that people meet."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return "looks like a web page, not a video: the download probably asked for a login, fetch it again"
    if text.startswith((b"#extm3u", b"ffconcat", b"[playlist]", b"v=0")):
        return "a playlist that names other files, not a video: give the video files themselves"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the video: fetch the real file (git lfs pull)"
    if head[8:12] == b"WAVE" or head.startswith((b"ID3", b"fLaC", b"OggS")):
        return "sound only: it has no pictures"
    if head.startswith(b"GIF8"):
        return "a GIF animation, not a video: convert it to mp4 first"
    return None


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """(container, first video stream) of a checked file. Raises DataError."""
    import av

    check_file(path)
    if is_picture(path):
        raise DataError("a picture, not a video: give a clip of two frames or more")
    try:
        # An absolute path, so that no file name is taken for a protocol ("concat:...").
        container = av.open(str(path.absolute()), options=dict(OPEN_OPTIONS), **_any_metadata())
    except (av.FFmpegError, ValueError) as error:
        if _without_index(path):
            raise DataError("the recording was cut off, its index is missing: copy it again from the camera") from error
        raise DataError("not a video that can be read: give an mp4, mov, mkv, webm or avi file") from error
    with container:
        if not (videos := _tracks(container)):
            raise DataError("sound only: it has no pictures" if container.streams.audio else "it has no video track")
        stream = videos[0]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = THREADS
        yield container, stream


def _any_metadata() -> dict[str, Any]:
    """What lets PyAV open a file whose metadata are no UTF-8: from version 19 on it always does, without an option."""
    import av

    return {"metadata_errors": "surrogateescape"} if int(av.__version__.partition(".")[0]) < 19 else {}


def _tracks(container: Any) -> list[Any]:
    """The video tracks; a cover picture is none."""
    import av

    return [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]


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


def probe(path: Path, most_pixels: int | None = None) -> Probe:
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
            raise DataError("the recording was cut off or is damaged: no frame can be read, copy it again") from error
        turned = first.rotation % 180 == 90
        duration = (
            stream.duration * stream.time_base if stream.duration else Fraction(container.duration or 0, 1_000_000)
        )
        transparent = stream.metadata.get("alpha_mode") == "1"  # so WebM says it; the decoder leaves alpha out
        return Probe(
            width=first.height if turned else first.width,
            height=first.width if turned else first.height,
            fps=float(stream.average_rate or stream.guessed_rate or 0),
            frames=stream.frames,
            seconds=float(duration),
            container=container.format.name,
            codec=context.name,
            pixel_format=first.format.name,
            bits=max(component.bits for component in first.format.components),
            rotation=first.rotation % 360,
            sample_aspect=Fraction(stream.sample_aspect_ratio or context.sample_aspect_ratio or 1),
            interlaced=bool(first.interlaced_frame),
            hdr=first.color_trc in HDR_TRANSFERS,
            matrix=int(first.colorspace),
            full_range=first.color_range == FULL_RANGE,
            alpha=transparent or any(component.is_alpha for component in first.format.components),
            audio=bool(container.streams.audio),
            tracks=len(_tracks(container)),
        )


def presentation_times(path: Path) -> list[float]:
    """When each frame is shown, in seconds from the first, as the file's packets say: nothing is decoded."""
    import av

    times: list[float] = []
    with opened(path) as (container, stream), contextlib.suppress(av.FFmpegError):
        for packet in container.demux(stream):
            if packet.pts is not None and not packet.is_discard:
                times.append(float(packet.pts * packet.time_base))
    times.sort()
    return [time - times[0] for time in times]


def read_comment(path: Path) -> str | None:
    """The text that `encode` put into the file's metadata, None when there is none. Raises DataError."""
    with opened(path) as (container, _):
        comment = next((value for name, value in container.metadata.items() if name.lower() == "comment"), None)
    return None if comment is None else comment.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
