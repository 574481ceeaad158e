"""First frames of a sample: a picture's file, or the last frames of a video, scaled and cropped to the sample's size.

The files are a person's own, from anywhere: only plain picture formats are read, videos through `media`. Not covered:
encoding them (the family).
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.clips import media
from workbench.clips.media import Pixels
from workbench.errors import ConfigError, DataError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "BMP")


def check_picture(path: Path) -> None:
    """Refuse what is no picture that can be read, by its header. Raises ConfigError."""
    _open(path).close()


def read_picture(path: Path, height: int, width: int) -> Pixels:
    """The picture, upright, cut to the middle of what covers the size: uint8 [1, height, width, 3]. Raises ConfigError.

    What is transparent becomes white.
    """
    import numpy as np
    from PIL import Image, ImageOps

    try:
        with _open(path) as opened:
            picture = ImageOps.exif_transpose(opened).convert("RGBA")
    except (OSError, SyntaxError, ValueError) as error:
        raise _refusal("image", path, "is damaged: copy it again") from error
    white = Image.new("RGBA", picture.size, "white")
    return np.asarray(_fitted(Image.alpha_composite(white, picture).convert("RGB"), height, width))[None]


def _open(path: Path) -> Image.Image:
    from PIL import Image, UnidentifiedImageError

    try:
        media.check_file(path)
        return Image.open(path, formats=FORMATS)
    except DataError as error:
        raise _refusal("image", path, f"cannot be used: {error}") from error
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError) as error:
        raise _refusal("image", path, "is no picture that can be read: give a PNG, JPEG, WebP or BMP file") from error


def check_video(path: Path, setting: str = "video") -> None:
    """Refuse what is no video that can be read. Raises ConfigError."""
    try:
        media.probe(path)
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error


def first_frames(path: Path, count: int, fps: float, height: int, width: int) -> Pixels:
    """The first frames of a video at a rate, in order: uint8 [count, height, width, 3]. Raises ConfigError.

    A video that is too short goes on with its last frame.
    """
    times = _times(path, "video")
    wanted = [_nearest_to(times, index / fps) for index in range(count)]
    return _frames(path, wanted, height, width, "video")


def last_frames(path: Path, count: int, fps: float, height: int, width: int) -> Pixels:
    """The last frames of a video at a rate, in order: uint8 [count, height, width, 3]. Raises ConfigError.

    A video that is too short at that rate gives frames of its own rate, and its first one again where it has too few.
    """
    times = _times(path, "continue_from")
    return _frames(path, _nearest(times, count, fps), height, width, "continue_from")


def _times(path: Path, setting: str) -> list[float]:
    try:
        return media.presentation_times(path)
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error


def _frames(path: Path, wanted: list[int], height: int, width: int, setting: str) -> Pixels:
    """The frames of those numbers, scaled and cropped."""
    import numpy as np
    from PIL import Image

    try:
        found = {
            number: np.asarray(_fitted(Image.fromarray(picture), height, width))
            for number, (_, picture) in enumerate(itertools.islice(media.decode(path), max(wanted) + 1))
            if number in wanted
        }
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error
    if missing := sorted(set(wanted) - found.keys()):
        raise _refusal(setting, path, f"has no frame {missing[0]}, it is damaged: copy it again")
    return np.stack([found[number] for number in wanted])


def _nearest_to(times: list[float], moment: float) -> int:
    return min(range(len(times)), key=lambda number: abs(times[number] - moment))


def _nearest(times: list[float], count: int, fps: float) -> list[int]:
    """Numbers of the frames shown at the last `count` moments, 1 / fps apart and ending with the last frame."""
    if (count - 1) / fps > times[-1]:
        return [max(0, len(times) - count + index) for index in range(count)]
    moments = [times[-1] - (count - 1 - index) / fps for index in range(count)]
    return [_nearest_to(times, moment) for moment in moments]


def _fitted(picture: Image.Image, height: int, width: int) -> Image.Image:
    from PIL import Image, ImageOps

    return ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)


def _refusal(setting: str, path: Path, reason: str) -> ConfigError:
    sentence = f"{setting} is {path.name}, which {reason}"
    return ConfigError(sentence, {setting: sentence})
