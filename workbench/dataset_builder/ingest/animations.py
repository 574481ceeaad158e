"""Animated pictures as clips: the frames of an animated WebP, and transparent parts of GIF and APNG made white.

FFmpeg reads the frames of GIF and APNG as those of any video; it cannot read those of an animated WebP, Pillow can. Not
covered: still pictures, with one frame (pictures), how frame times become a constant rate (timing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.media import VideoFacts
from workbench.dataset_builder.ingest.conversion import reduced
from workbench.dataset_builder.ingest.pictures import DAMAGED, check_size
from workbench.dataset_builder.ingest.timing import Timed
from workbench.errors import DataError

CODECS = ("gif", "apng")
MADE_WHITE = "transparent parts made white"
SHORTEST, USUAL = 0.010, 0.100  # seconds: what claims to be shown for less than that is shown for this, as in browsers


@dataclass(frozen=True)
class Animation:
    """An animated WebP. times: when each frame is shown, in seconds;  last: for how long the last one is

    transparent: whether any pixel of any frame is
    """

    path: Path
    size: tuple[int, int]
    times: list[float]
    last: float
    transparent: bool

    def frames(self, longest_side: int | None) -> Iterator[Timed]:
        """(seconds, PyAV frame of even size, as `media.VideoWriter` takes it). Raises DataError where it is damaged."""
        import numpy as np
        from PIL import Image

        size = reduced(self.size, longest_side)
        width, height = (side - side % 2 for side in size)
        for time, picture in zip(self.times, (picture for picture, _ in _pictures(self.path)), strict=False):
            white = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
            scaled = white if size == self.size else white.resize(size, Image.Resampling.LANCZOS)
            yield time, media.bt709_frame(np.asarray(scaled)[:height, :width])

    def changes(self, longest_side: int | None) -> list[str]:
        """What is changed about its pictures, in words."""
        width, height = reduced(self.size, longest_side)
        changes = ["an animated WebP: made a clip"]
        changes += [MADE_WHITE] if self.transparent else []
        if (width, height) != self.size:
            changes.append(f"scaled down from {self.size[0]}x{self.size[1]} as asked")
        return [*changes, "cut by one row or column to an even size"] if width % 2 or height % 2 else changes


def read_animation(source: Path, on_frame: Callable[[], None]) -> Animation | None:
    """What a picture file holds when it is an animated WebP, else None. Raises DataError."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # our own limit comes first
    try:
        with Image.open(source, formats=("WEBP",)) as picture:
            if getattr(picture, "n_frames", 1) < 2:
                return None
            check_size(picture.width, picture.height)
            size = picture.size
    except (OSError, SyntaxError, ValueError):
        return None  # another format, or damaged: the reader of still pictures says which
    times, time, last, transparent = [], 0.0, 0.0, False
    for frame, last in _pictures(source):
        times.append(time)
        time += last
        transparent = transparent or frame.getextrema()[3][0] < 255
        on_frame()
    return Animation(source, size, times, last, transparent)


def _pictures(source: Path) -> Iterator[tuple[Any, float]]:
    """(picture in RGBA, seconds that it is shown) of each frame. Raises DataError."""
    from PIL import Image

    try:
        with Image.open(source, formats=("WEBP",)) as animation:
            for number in range(getattr(animation, "n_frames", 1)):
                animation.seek(number)
                picture = animation.convert("RGBA")  # which reads the frame and with it its duration
                seconds = float(animation.info.get("duration", 0)) / 1000
                yield picture, seconds if seconds > SHORTEST else USUAL
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise DataError(DAMAGED) from error


def on_white(frames: Iterable[Timed], about: VideoFacts) -> Iterator[Timed]:
    """The frames of a GIF or APNG without transparency: what shows through is white. Others are passed on."""
    import av
    import numpy as np

    for time, frame in frames:
        if about.codec not in CODECS or not any(component.is_alpha for component in frame.format.components):
            yield time, frame
            continue
        pixels = frame.to_ndarray(format="rgba").astype(np.uint16)
        alpha = pixels[..., 3:]
        opaque = (pixels[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255
        whole = av.VideoFrame.from_ndarray(opaque.astype(np.uint8), format="rgb24")
        whole.pts, whole.time_base = frame.pts, frame.time_base
        yield time, whole
