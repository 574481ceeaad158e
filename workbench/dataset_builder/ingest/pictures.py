"""Still pictures: PNG, JPEG, WebP, AVIF or BMP, known by their content; and clips of one frame made of them.

A picture is turned upright as its EXIF says, its colours are brought to sRGB, transparent parts become white. Not
covered: animations (a GIF or APNG is a video; a WebP is refused), raw camera files, HEIC (clips.media.kinds says so).
"""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.dataset_builder.ingest.conversion import reduced
from workbench.errors import DataError

FORMATS = ("PNG", "JPEG", "WEBP", "AVIF", "BMP")
MAX_SIDE = 8192  # pixels; an H.264 encoder takes twice as many at most
PICTURE_FPS = Fraction(25)  # a picture lasts as long as a frame
PICTURE_MARK = "a still picture"  # in a clip's comment: one that comes back from an export is taken as it is


def write_picture(
    source: Path, target: Path, most_pixels: int, longest_side: int | None
) -> tuple[int, int, tuple[str, ...]]:
    """Write the clip; (width, height, what was changed in words). Raises DataError, CannotWrite."""
    import numpy as np
    from PIL import Image

    upright, name, changes = read_picture(source, most_pixels)
    if (size := reduced(upright.size, longest_side)) != upright.size:
        changes.append(f"scaled down from {upright.width}x{upright.height} as asked")
        upright = upright.resize(size, Image.Resampling.LANCZOS)
    width, height = (side - side % 2 for side in upright.size)
    if (width, height) != upright.size:
        changes.append("cut by one row or column to an even size")
    if min(width, height) < 16:
        raise DataError(f"too small: {upright.width}x{upright.height}, at least 16x16: give a larger picture")
    pixels = np.asarray(upright)[:height, :width]
    with media.VideoWriter(target, width, height, PICTURE_FPS, comment=PICTURE_MARK) as writer:
        writer.write(media.bt709_frame(pixels))
    return width, height, (f"a picture ({name}): made a clip of one frame", *changes)


def read_picture(source: Path, most_pixels: int) -> tuple[Any, str, list[str]]:
    """(the picture as people see it: a PIL image in sRGB, its format, what was changed in words). Raises DataError."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # our own limit comes first
    try:
        with Image.open(source, formats=FORMATS) as picture:
            if picture.width * picture.height > most_pixels:
                raise DataError(f"too large: {picture.width}x{picture.height}: scale it down first")
            if max(picture.size) > MAX_SIDE:
                side = f"at most {MAX_SIDE} a side: crop it or scale it down first"
                raise DataError(f"too large: {picture.width}x{picture.height}, {side}")
            if getattr(picture, "n_frames", 1) > 1:
                raise DataError(f"an animation ({picture.format}), not a still picture: convert it to mp4 or GIF first")
            upright, changes = _upright_rgb(picture)
            return upright, str(picture.format), changes
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError("the picture is damaged: it cannot be read, copy it again") from error


def _upright_rgb(picture: Any) -> tuple[Any, list[str]]:
    """The picture as people see it, in sRGB, and what was changed."""
    from PIL import Image, ImageOps

    changes = []
    if picture.getexif().get(0x0112, 1) != 1:
        changes.append("turned upright")
    profile = picture.info.get("icc_profile")
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith(("I", "F")):  # 16 bits of grey; converting would cut them off at 255
        picture = picture.point(lambda value: value / 257).convert("L")
        changes.append("16-bit colours brought to 8 bits")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        if picture.getextrema()[3][0] < 255:
            changes.append("transparent parts made white")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    if profile and picture.mode in ("RGB", "RGBA", "CMYK"):
        picture = _to_srgb(picture.convert("RGB") if picture.mode == "RGBA" else picture, profile)
    return picture.convert("RGB"), changes


def _to_srgb(picture: Any, profile: bytes) -> Any:
    """The colours that an embedded profile means (phones write Display P3); as they are when it makes no sense."""
    from PIL import ImageCms

    try:
        meant = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        return ImageCms.profileToProfile(picture, meant, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError):
        return picture
