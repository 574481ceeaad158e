"""Animated pictures as clips: WebP and AVIF, numbered pictures, and transparent parts of GIF and APNG made white.

FFmpeg reads the frames of GIF and APNG as those of any video; those of WebP and AVIF are read with Pillow. Not
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
from workbench.dataset_builder.ingest.pictures import DAMAGED, check_size, read_picture
from workbench.dataset_builder.ingest.timing import Timed
from workbench.errors import DataError

CODECS = ("gif", "apng")
FORMATS = ("WEBP", "AVIF")
MADE_WHITE = "transparent parts made white"
SHORTEST, USUAL = 0.010, 0.100  # seconds: what claims to be shown for less than that is shown for this, as in browsers


@dataclass(frozen=True)
class Animation:
    """An animated WebP or AVIF. times: when each frame is shown, in seconds;  last: for how long the last one is

    transparent: whether any pixel of any frame is
    """

    path: Path
    kind: str
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
        white = [MADE_WHITE] if self.transparent else []
        return [f"an animated {self.kind}: made a clip", *white, *_size_changes(self.size, longest_side)]


@dataclass(frozen=True)
class NumberedFrames:
    """Pictures that are the frames of a video, one file each, in order; `times` and `last` as in Animation."""

    paths: list[Path]
    fps: float
    size: tuple[int, int]

    @property
    def times(self) -> list[float]:
        return [number / self.fps for number in range(len(self.paths))]

    @property
    def last(self) -> float:
        return 1 / self.fps

    def frames(self, longest_side: int | None) -> Iterator[Timed]:
        """As those of an Animation. Raises DataError where one is damaged or of another size."""
        import numpy as np
        from PIL import Image

        size = reduced(self.size, longest_side)
        width, height = (side - side % 2 for side in size)
        for number, (time, path) in enumerate(zip(self.times, self.paths, strict=True), 1):
            try:
                picture = read_picture(path)[0]
            except DataError as error:
                raise DataError(f"its frame {number} cannot be used: {error}") from error
            if picture.size != self.size:
                raise DataError(
                    f"its frames differ in size ({self.size[0]}x{self.size[1]}, frame {number} is {picture.width}x"
                    f"{picture.height}): import them as pictures, without frames_as_video"
                )
            scaled = picture if size == self.size else picture.resize(size, Image.Resampling.LANCZOS)
            yield time, media.bt709_frame(np.asarray(scaled)[:height, :width])

    def changes(self, longest_side: int | None) -> list[str]:
        """What is made of them, in words."""
        made = f"{len(self.paths)} numbered pictures: made a clip of {self.fps:g} fps"
        return [made, *_size_changes(self.size, longest_side)]


def read_numbered(paths: list[Path], fps: float) -> NumberedFrames:
    """Raises DataError when the first picture cannot be read."""
    return NumberedFrames(paths, fps, read_picture(paths[0])[0].size)


def _size_changes(size: tuple[int, int], longest_side: int | None) -> list[str]:
    width, height = reduced(size, longest_side)
    changes = [f"scaled down from {size[0]}x{size[1]} as asked"] if (width, height) != size else []
    return [*changes, "cut by one row or column to an even size"] if width % 2 or height % 2 else changes


def read_animation(source: Path, on_frame: Callable[[], None]) -> Animation | None:
    """What a picture file holds when it is an animated WebP or AVIF, else None. Raises DataError."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # our own limit comes first
    try:
        with Image.open(source, formats=FORMATS) as picture:
            if getattr(picture, "n_frames", 1) < 2:
                return None
            check_size(picture.width, picture.height)
            size, kind = picture.size, "WebP" if picture.format == "WEBP" else "AVIF"
    except (OSError, SyntaxError, ValueError):
        return None  # another format, or damaged: the reader of still pictures says which
    times, time, last, transparent = [], 0.0, 0.0, False
    for frame, last in _pictures(source):
        times.append(time)
        time += last
        transparent = transparent or frame.getextrema()[3][0] < 255
        on_frame()
    return Animation(source, kind, size, times, last, transparent)


def _pictures(source: Path) -> Iterator[tuple[Any, float]]:
    """(picture in RGBA, seconds that it is shown) of each frame. Raises DataError."""
    from PIL import Image

    try:
        with Image.open(source, formats=FORMATS) as animation:
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
