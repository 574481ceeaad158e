"""What kind of file something is, from its name and its first bytes; no decoder sees it yet.

Also whether it ends before its own structure says so: an mp4 without its index, a cut Matroska or WebM.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from workbench.errors import DataError
from workbench.workspace import disk

# FFmpeg's demuxers of one file each, none of which opens another file or address by itself.
DEMUXERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,asf,flv,ogg,dv,mxf,gif,apng,"
    "h264,hevc,m4v,ivf,yuv4mpegpipe"
)
OBSOLETE_SUFFIXES = (".rm", ".rmvb", ".swf", ".wtv")  # nobody takes these any more, but each gets its verdict
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
# No picture that is taken, but each gets its import result, which says what to do with it.
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
    """Refuse what is no video and no picture before a decoder sees it. Raises DataError.

    name: what people call the file, whose ending tells a picture of an unknown kind from a video
    """
    head = _head(path)
    if not head:
        raise DataError("empty file: copy or download it again")
    if mix_up := _look_alike(head):
        raise DataError(mix_up)
    if name.lower().endswith(OTHER_IMAGE_SUFFIXES) and not is_picture(path):
        raw = name.lower().endswith(RAW_SUFFIXES)
        raise DataError(RAW_PICTURE if raw else f"a picture of a kind that cannot be read: {TO_PICTURE}")


def is_picture(path: Path) -> bool:
    """Whether its content is a still picture's (PNG, JPEG, WebP, AVIF, BMP), whatever its name. Raises DataError."""
    head = _head(path)
    # Two letters are no proof: the size that a BMP states must be the file's.
    bitmap = head.startswith(b"BM") and int.from_bytes(head[2:6], "little") == path.stat().st_size
    png = head.startswith(b"\x89PNG") and b"acTL" not in head  # an animated one is a video
    webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return png or webp or bitmap or head.startswith(b"\xff\xd8\xff") or head[4:12] in AVIF


def _head(path: Path) -> bytes:
    """The first bytes of an ordinary file. Raises DataError for anything else."""
    try:
        descriptor = disk.open_ordinary(path)
    except (OSError, ValueError) as error:
        link = isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.EMLINK)
        words = error.strerror if isinstance(error, OSError) else str(error)
        reason = "it is a link: give the file itself" if link else f"{words}: check name and permissions"
        raise DataError(f"it cannot be opened: {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError("not an ordinary file (a folder, pipe or device): give a video file")
    with open(descriptor, "rb") as file:
        return file.read(HEAD_BYTES)


def _look_alike(head: bytes) -> str | None:
    """Why a file that starts like this is no video, for the mix-ups that people meet."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body", b"<svg")):
        return "looks like a web page, not a video: the download probably asked for a login, fetch it again"
    if text.startswith((b"#extm3u", b"ffconcat", b"[playlist]", b"v=0")):
        return "a playlist that names other files, not a video: give the video files themselves"
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
    """Whether it is an mp4 without its index (moov), as a recorder leaves it when power fails."""
    boxes = [name for name, _, _ in _boxes(path)]
    return bool(boxes) and boxes[0] == b"ftyp" and b"moov" not in boxes


def _boxes(path: Path) -> list[tuple[bytes, int, int]]:
    """(name, position, bytes) of an mp4's outermost boxes, in file order."""
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
    """Whether an mp4's index says that its tracks are protected."""
    with path.open("rb") as file:
        for name, start, size in _boxes(path):
            if name == b"moov":
                file.seek(start)
                index = file.read(min(size, MOST_INDEX_BYTES))
                return b"encv" in index or b"sinf" in index or b"pssh" in index
    return False


def segment_is_cut(path: Path) -> bool:
    """Whether it is a Matroska or WebM file that is shorter than its one segment. A live recording states no size."""
    with path.open("rb") as file:
        if file.read(4) != EBML or (header := _size(file)) is None:
            return False
        file.seek(header, 1)
        if file.read(4) != SEGMENT or (size := _size(file)) is None:
            return False
        return file.tell() + size > path.stat().st_size


def _size(file: IO[bytes]) -> int | None:
    """EBML's number of variable length at this place; None when it says "not known" or is none."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    length = 9 - first[0].bit_length()
    value = int.from_bytes(bytes([first[0] & (0xFF >> length)]) + file.read(length - 1), "big")
    return None if value == (1 << 7 * length) - 1 else value
