"""Still pictures: PNG, JPEG, WebP, AVIF, GIF or BMP, known by their content; and clips of one frame made of them.

A picture is turned upright as its EXIF says, its colours are brought to sRGB, transparent parts become white. Not
covered: several frames in a GIF, APNG or WebP (animations), raw camera files, HEIC (clips.media.kinds says so).

Pictures may also come with clips as their first frames (images.txt), for image-to-video training:

    first_frames/ID.png    RGB, as large as its clip, named by its content; the record's column `first_frame` names it

Most such pictures are the clip's own first frame, extracted by another tool: those say nothing new and are dropped,
with a note in the result. One that differs (a cleaned frame, a drawing) is kept.
"""

from __future__ import annotations

import hashlib
import io
from fractions import Fraction
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.dataset_builder.ingest.conversion import reduced
from workbench.errors import DataError
from workbench.workspace import write_bytes

FORMATS = ("PNG", "JPEG", "WEBP", "AVIF", "BMP", "GIF")
MAX_PIXELS = 4096 * 2304
MAX_SIDE = 8192  # pixels; an H.264 encoder takes twice as many at most
PICTURE_FPS = Fraction(25)  # a picture lasts as long as a frame
PICTURE_MARK = "a still picture"  # in a clip's comment: one that comes back from an export is taken as it is
FIRST_FRAMES = "first_frames"
DAMAGED = "the picture is damaged: it cannot be read, copy it again"
MOST_PICTURE_BYTES = 512 * 1024**2
ALIKE_DB = 30.0  # what a JPEG of the very frame reaches; pictures this near look the same
NEAR_SHAPE = 0.02  # by which proportions may differ before something is cut off
KEPT = "the first frame that came with it is kept beside it"
OWN = "the first frame that came with it is its own: not kept twice"
LEFT_OUT = "the first frame that came with it is left out: {}"
OTHER = "it has another first frame already, which stays"


def write_picture(source: Path, target: Path, longest_side: int | None) -> tuple[int, int, tuple[str, ...]]:
    """Write the clip; (width, height, what was changed in words). Raises DataError, CannotWrite."""
    import numpy as np
    from PIL import Image

    upright, name, changes = read_picture(source)
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


def read_picture(source: Path) -> tuple[Any, str, list[str]]:
    """(the picture as people see it: a PIL image in sRGB, its format, what was changed in words). Raises DataError."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # our own limit comes first
    try:
        with Image.open(source, formats=FORMATS) as picture:
            check_size(picture.width, picture.height)
            # An MPO is a JPEG with more pictures of the moment behind it: for the other eye, for brighter screens.
            if getattr(picture, "n_frames", 1) > 1 and picture.format != "MPO":
                raise DataError(f"an animation ({picture.format}), not a still picture: convert it to mp4 or GIF first")
            upright, changes = _upright_rgb(picture)
            return upright, str(picture.format), changes
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(DAMAGED) from error


def check_size(width: int, height: int) -> None:
    """Refuse from the header what would take too much memory. Raises DataError."""
    if width * height > MAX_PIXELS:
        raise DataError(f"too large: {width}x{height}: scale it down first")
    if max(width, height) > MAX_SIDE:
        raise DataError(f"too large: {width}x{height}, at most {MAX_SIDE} a side: crop it or scale it down first")


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


# ---- first frames ---------------------------------------------------------------------------------------------------


def keep_first_frame(dataset: Path, picture: Path, clip: str, size: tuple[int, int] | None = None) -> tuple[str, str]:
    """(the picture's name in the dataset, "" when it is the clip's own first frame; what became of it in words).

    size: width and height of a clip of latents, which has no frame to compare with
    Raises DataError when it cannot be read, CannotWrite.
    """
    import numpy as np
    from PIL import Image

    given, _, changes = read_picture(picture)
    if size:
        fitted, cut = _fitted(given, *size)
    else:
        own = media.read_frames(dataset / clip, [0])[0]
        fitted, cut = _fitted(given, own.shape[1], own.shape[0])
        error = np.mean((np.asarray(fitted, np.float32) - own) ** 2)
        if 10 * np.log10(255**2 / max(float(error), 1e-9)) >= ALIKE_DB:
            return "", OWN
    data = io.BytesIO()
    Image.fromarray(np.asarray(fitted)).save(data, "PNG")  # the pixels alone, so that the same ones are the same file
    name = f"{FIRST_FRAMES}/{hashlib.sha256(data.getvalue()).hexdigest()[:16]}.png"
    if not (dataset / name).exists():
        write_bytes(dataset / name, data.getvalue())
    return name, "; ".join([KEPT, *changes, *cut])


def _fitted(picture: Any, width: int, height: int) -> tuple[Any, list[str]]:
    """The picture as large as its clip, and what was done to it that shows."""
    from PIL import Image, ImageOps

    if picture.size == (width, height):
        return picture, []
    if abs(picture.width / picture.height * height / width - 1) <= NEAR_SHAPE:
        return picture.resize((width, height), Image.Resampling.LANCZOS), []
    fitted = ImageOps.fit(picture, (width, height), Image.Resampling.LANCZOS)
    return fitted, [f"cut to the clip's proportions (it was {picture.width}x{picture.height})"]
