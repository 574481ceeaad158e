"""Whether a video file ends before its own structure says so: an mp4 without its index, a cut Matroska or WebM.

Not covered: damage inside of a file, which shows when it is decoded (reading).
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

EBML, SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def without_index(path: Path) -> bool:
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
