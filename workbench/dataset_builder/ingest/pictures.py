"""Convert pictures to clips: still pictures, animations, and numbered frames of one video.

A still picture (PNG, JPEG, WebP, AVIF, GIF or BMP, detected by content) is rotated upright by its EXIF, converted to
sRGB, and composited on white. FFmpeg reads animated GIF and APNG like any video; Pillow reads animated WebP and AVIF.

For image-to-video training, pictures may also come with clips as their first frames (images.txt):

    first_frames/ID.png    RGB, the size of its clip, named by its content; the record's column `first_frame` names it

Most such pictures are the clip's own first frame, extracted by another tool. They add nothing and are dropped, with a
note in the result. A picture that differs (a cleaned-up frame, a drawing) is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import Clip
from workbench.clips.video_files import VideoFacts
from workbench.errors import DataError
from workbench.workspace import write_bytes

Size = tuple[int, int]
Timed = tuple[float, Any]  # seconds, PyAV frame
FORMATS = ("PNG", "JPEG", "WEBP", "AVIF", "BMP", "GIF")
MAX_PIXELS = 4096 * 2304
MAX_SIDE = 8192  # pixels; H.264 encoders take at most twice that
PICTURE_FPS = Fraction(25)  # a picture lasts one frame
PICTURE_MARK = "a still picture"  # comment in our one-frame clips, so that exported ones can be imported again
FIRST_FRAMES = "first_frames"
MADE_WHITE = "transparency filled with white"
DAMAGED = "the picture is damaged and cannot be read: copy it again"
ALIKE_DB = 30.0  # PSNR that a JPEG of the same frame reaches; such pictures look the same
NEAR_SHAPE = 0.02  # relative difference of equal aspect ratios; allows for odd sizes rounded to even
KEPT = "its separate first frame is kept"
OWN = "its separate first frame equals the clip's own: not stored twice"


def write_picture(source: Path, target: Path, longest_side: int | None) -> tuple[int, int, tuple[str, ...]]:
    """Write a one-frame clip; return width, height and the changes in words. Raises DataError, CannotWrite."""
    upright, name, changes = read_picture(source)
    changes += _size_changes(upright.size, longest_side)
    width, height = reduced(upright.size, longest_side)
    if min(width, height) < 16:
        raise DataError(f"too small: {width}x{height}, at least 16x16: use a larger picture")
    frame = _frame_of(upright, longest_side)
    with media.VideoWriter(target, frame.width, frame.height, PICTURE_FPS, comment=PICTURE_MARK) as writer:
        writer.write(frame)
    return frame.width, frame.height, (f"a picture ({name}) made into a one-frame clip", *changes)


def reduced(size: Size, longest_side: int | None) -> Size:
    """Scale a size down, never up, to the requested longest side."""
    if longest_side is None or max(size) <= longest_side:
        return size
    width, height = (max(2, round(side * longest_side / max(size))) for side in size)
    return width, height


def same_aspect(one: Size, other: Size) -> bool:
    """Whether two sizes have the same aspect ratio, apart from rounding to whole pixels."""
    return abs(one[0] * other[1] / (one[1] * other[0]) - 1) < NEAR_SHAPE


def _size_changes(size: tuple[int, int], longest_side: int | None) -> list[str]:
    width, height = reduced(size, longest_side)
    changes = [f"scaled down from {size[0]}x{size[1]}"] if (width, height) != size else []
    return [*changes, "cropped by one row or column to an even size"] if width % 2 or height % 2 else changes


def _frame_of(picture: Any, longest_side: int | None) -> Any:
    """Convert an RGB PIL image to a PyAV frame for `media.VideoWriter`, scaled down and of even size."""
    import numpy as np
    from PIL import Image

    size = reduced(picture.size, longest_side)
    scaled = picture if size == picture.size else picture.resize(size, Image.Resampling.LANCZOS)
    width, height = (side - side % 2 for side in size)
    return media.bt709_frame(np.asarray(scaled)[:height, :width])


def read_picture(source: Path) -> tuple[Any, str, list[str]]:
    """Return a picture as viewers show it (PIL, sRGB), its format, and the changes in words. Raises DataError."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # our own limit is stricter
    try:
        with Image.open(source, formats=FORMATS) as picture:
            check_size(picture.width, picture.height)
            # An MPO is a JPEG followed by variants of the same shot, such as a stereo or HDR version.
            if getattr(picture, "n_frames", 1) > 1 and picture.format != "MPO":
                raise DataError(f"an animation ({picture.format}), not a still picture: convert it to mp4 or GIF")
            upright, changes = _upright_rgb(picture)
            return upright, str(picture.format), changes
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(DAMAGED) from error


def check_size(width: int, height: int) -> None:
    """Refuse, from the header alone, pictures that would take too much memory. Raises DataError."""
    if width * height > MAX_PIXELS:
        raise DataError(f"too large: {width}x{height}: scale it down first")
    if max(width, height) > MAX_SIDE:
        raise DataError(f"too large: {width}x{height}, at most {MAX_SIDE} per side: crop it or scale it down first")


def _upright_rgb(picture: Any) -> tuple[Any, list[str]]:
    """Return a picture as viewers show it, in sRGB, and the changes in words."""
    from PIL import Image, ImageCms, ImageOps

    changes = []
    if picture.getexif().get(0x0112, 1) != 1:
        changes.append("turned upright")
    profile = picture.info.get("icc_profile")
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith(("I", "F")):  # 16-bit gray; convert("L") alone would clip at 255
        picture = picture.point(lambda value: value / 257).convert("L")
        changes.append("16-bit colors reduced to 8 bits")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        if picture.getextrema()[3][0] < 255:
            changes.append(MADE_WHITE)
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    if profile and picture.mode in ("RGB", "RGBA", "CMYK"):  # phones write Display P3
        picture = picture.convert("RGB") if picture.mode == "RGBA" else picture
        with contextlib.suppress(ImageCms.PyCMSError, OSError):  # an invalid profile
            embedded = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            picture = ImageCms.profileToProfile(picture, embedded, ImageCms.createProfile("sRGB"), outputMode="RGB")
    return picture.convert("RGB"), changes


# ---- first frames ----------------------------------------------------------------------------------------------------


def keep_first_frame(dataset: Path, picture: Path, clip: Clip) -> tuple[str, str]:
    """Store the first frame that came with a clip, unless it equals the clip's own; return its name or "", and a note.

    Raises DataError if the picture cannot be read, CannotWrite.
    """
    import numpy as np

    given, _, changes = read_picture(picture)
    fitted, cut = fitted_picture(given, clip.width, clip.height)
    if not clip.is_latents:  # which have no frame to compare with
        own = media.read_frames(dataset / clip.file_name, [0])[0]
        if media.psnr(np.asarray(fitted), own) >= ALIKE_DB:
            return "", OWN
    data = media.png(np.asarray(fitted))  # without metadata, so that equal pictures become equal files
    name = f"{FIRST_FRAMES}/{hashlib.sha256(data).hexdigest()[:16]}.png"
    if not (dataset / name).exists():
        write_bytes(dataset / name, data)
    return name, "; ".join([KEPT, *changes, *cut])


def fitted_picture(picture: Any, width: int, height: int) -> tuple[Any, list[str]]:
    """Resize a picture to its clip's size; return it and any visible changes in words."""
    from PIL import Image, ImageOps

    if picture.size == (width, height):
        return picture, []
    if same_aspect(picture.size, (width, height)):
        return picture.resize((width, height), Image.Resampling.LANCZOS), []
    fitted = ImageOps.fit(picture, (width, height), Image.Resampling.LANCZOS)
    return fitted, [f"cropped to the clip's aspect ratio (it was {picture.width}x{picture.height})"]


# ---- animations and numbered pictures --------------------------------------------------------------------------------

CODECS = ("gif", "apng")
ANIMATED_FORMATS = ("WEBP", "AVIF")
SHORTEST_TIME, USUAL_TIME = 0.01, 0.1  # seconds; like browsers, show frames with too short a duration for 0.1 s


@dataclass(frozen=True)
class Animation:
    """Pictures that form one video: an animated WebP or AVIF, or numbered files.

    made: what they are and how they change, in words.
    times, last: when each is shown, and how long the last is, in seconds.
    pictures: yields them as RGB PIL images; raises DataError if one is damaged or has another size.
    """

    made: tuple[str, ...]
    size: Size
    times: list[float]
    last: float
    pictures: Callable[[], Iterator[Any]]

    def frames(self, longest_side: int | None) -> Iterator[Timed]:
        """Yield times in seconds and PyAV frames for `media.VideoWriter`. Raises DataError."""
        for time, picture in zip(self.times, self.pictures(), strict=False):
            yield time, _frame_of(picture, longest_side)

    def changes(self, longest_side: int | None) -> list[str]:
        """Describe the changes in words."""
        return [*self.made, *_size_changes(self.size, longest_side)]


def read_numbered(paths: list[Path], fps: float) -> Animation:
    """Read numbered picture files as the frames of a video. Raises DataError if the first cannot be read."""
    size = read_picture(paths[0])[0].size

    def pictures() -> Iterator[Any]:
        for number, path in enumerate(paths, 1):
            try:
                picture = read_picture(path)[0]
            except DataError as error:
                raise DataError(f"its frame {number} cannot be used: {error}") from error
            if picture.size != size:
                raise DataError(
                    f"its frames differ in size ({size[0]}x{size[1]}, frame {number} is {picture.width}x"
                    f"{picture.height}): import them as pictures, without frames_as_video"
                )
            yield picture

    made = f"{len(paths)} numbered pictures made into a clip at {fps:g} fps"
    return Animation((made,), size, [number / fps for number in range(len(paths))], 1 / fps, pictures)


def read_animation(source: Path, on_frame: Callable[[], None]) -> Animation | None:
    """Read an animated WebP or AVIF; return None for other files. Raises DataError."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # our own limit is stricter
    try:
        with Image.open(source, formats=ANIMATED_FORMATS) as picture:
            if getattr(picture, "n_frames", 1) < 2:
                return None
            check_size(picture.width, picture.height)
            size, kind = picture.size, "WebP" if picture.format == "WEBP" else "AVIF"
    except (OSError, SyntaxError, ValueError):
        return None  # another format or damaged, which read_picture reports
    times, time, last, transparent = [], 0.0, 0.0, False
    for frame, last in _animated(source):
        times.append(time)
        time += last
        transparent = transparent or frame.getextrema()[3][0] < 255
        on_frame()

    def pictures() -> Iterator[Any]:
        for picture, _ in _animated(source):
            yield Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")

    made = (f"an animated {kind} made into a clip", *[MADE_WHITE] * transparent)
    return Animation(made, size, times, last, pictures)


def _animated(source: Path) -> Iterator[tuple[Any, float]]:
    """Yield each frame in RGBA and its duration in seconds. Raises DataError."""
    from PIL import Image

    try:
        with Image.open(source, formats=ANIMATED_FORMATS) as animation:
            for number in range(getattr(animation, "n_frames", 1)):
                animation.seek(number)
                picture = animation.convert("RGBA")  # decodes the frame, which also sets info["duration"]
                seconds = float(animation.info.get("duration", 0)) / 1000
                yield picture, seconds if seconds > SHORTEST_TIME else USUAL_TIME
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise DataError(DAMAGED) from error


def on_white(frames: Iterable[Timed], about: VideoFacts) -> Iterator[Timed]:
    """Composite the frames of a GIF or APNG on white; pass other frames through."""
    import av
    import numpy as np

    for time, frame in frames:
        if about.codec not in CODECS or not any(component.is_alpha for component in frame.format.components):
            yield time, frame
            continue
        pixels = frame.to_ndarray(format="rgba").astype(np.uint16)
        alpha = pixels[..., 3:]
        opaque = (pixels[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255
        flattened = av.VideoFrame.from_ndarray(opaque.astype(np.uint8), format="rgb24")
        flattened.pts, flattened.time_base = frame.pts, frame.time_base
        yield time, flattened
