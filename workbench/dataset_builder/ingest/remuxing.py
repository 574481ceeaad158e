"""Take a canonical video stream out of its file as it is: packets are copied byte for byte, the sound is left behind.

Nothing is believed: every frame of the copy is decoded and compared with the source's, its time too. Not covered: files
whose pictures or times have to be converted (canonical).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.media.opening import opened
from workbench.errors import DataError
from workbench.workspace import sync_folder, writing

SAME_TIME = 1e-3  # seconds


def copy_video(source: Path, target: Path, promised: int, on_frame: Callable[[], None]) -> Any:
    """Write the first video stream of `source` as an mp4 of its own; its middle frame (PyAV).

    None, and no file, when the copy would not show exactly the source's `promised` frames at their times. `on_frame` is
    called after each frame compared. Raises CannotWrite.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        if not _copied(source, temporary):
            return None
        middle = _compared(source, temporary, promised, on_frame)
        if middle is not None:
            with writing(target):
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(temporary, target)
                sync_folder(target.parent)
        return middle
    finally:
        temporary.unlink(missing_ok=True)


def _copied(source: Path, target: Path) -> bool:
    """Whether all packets went into a new mp4. Raises CannotWrite."""
    import av

    options = {"movflags": "+faststart"}
    try:
        with opened(source) as (container, stream), writing(target), av.open(str(target), "w", "mp4", options) as new:
            copy = new.add_stream_from_template(stream)
            for packet in container.demux(stream):
                if packet.dts is not None:  # the last one is empty
                    packet.stream = copy
                    new.mux(packet)
    except ValueError:  # a stream that an mp4 cannot hold as it is, or a damaged one
        return False
    return True


def _compared(source: Path, copy: Path, promised: int, on_frame: Callable[[], None]) -> Any:
    """The middle frame, when both hold the same frames at the same times; else None."""
    import numpy as np

    frames, middle = 0, None
    try:
        for one, other in zip_longest(media.raw_frames(source), media.raw_frames(copy)):
            if one is None or other is None or abs(one[0] - other[0]) > SAME_TIME:
                return None
            if not np.array_equal(one[1].to_ndarray(), other[1].to_ndarray()):
                return None
            middle = other[1] if frames == promised // 2 else middle
            frames += 1
            on_frame()
    except DataError:
        return None
    return middle if frames == promised else None
