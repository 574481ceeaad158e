"""Frames of our own clips by their number: from one onward, or some of them evenly spaced. PyAV, frames as stored.

Only for files that an import has written or checked: nothing here guards against a hostile file (media, ingest do).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from workbench.clips.media.reading import frames_onward, opened_clip
from workbench.clips.media.writing import KEYFRAME_EVERY
from workbench.errors import DataError

HEAD_AND_TAIL = 1 << 20  # bytes


def fingerprint(path: Path) -> str:
    """16 hex digits of a clip's content, in milliseconds for any length: its size, its first and its last megabyte.

    An mp4's index, with the size of every frame, lies at one of its ends. Raises DataError.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            head = file.read(HEAD_AND_TAIL)
            file.seek(max(0, size - HEAD_AND_TAIL))
            return hashlib.sha256(b"%d " % size + head + file.read(HEAD_AND_TAIL)).hexdigest()[:16]
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror}): import it again") from error


def frames_from(path: Path, start: int = 0) -> Generator[tuple[int, Any], None, None]:
    """(number, PyAV frame) from frame `start` to the last one, none left out. Raises DataError."""
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


def stills(path: Path, count: int) -> Iterator[tuple[float, Any]]:
    """(seconds, PyAV frame) of `count` frames, each from the middle of its share of the clip; fewer in a shorter clip.

    Where a share is longer than the way between two keyframes, the last keyframe before its middle will do: so hours
    take no longer than minutes. Raises DataError.
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
