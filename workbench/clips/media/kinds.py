"""Identify files by name and first bytes, before a decoder sees them.

Also detects truncated files: an mp4 without its index, a cut-off Matroska or WebM.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from workbench.errors import DataError
from workbench.workspace import disk

# FFmpeg demuxers that never open another file or address.
DEMUXERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,asf,flv,ogg,dv,mxf,gif,apng,"
    "h264,hevc,m4v,ivf,yuv4mpegpipe"
)
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


def without_index(path: Path) -> bool:
    """Whether a file is an mp4 without its index (moov), such as a recording cut off by a power failure."""
    boxes = [name for name, _, _ in _boxes(path)]
    return bool(boxes) and boxes[0] == b"ftyp" and b"moov" not in boxes


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
