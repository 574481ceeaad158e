"""A summary of a clip: a row of small frames in one JPEG, with the time of each.

Not covered: where the cuts are (scenes), rendering it on a page (ui).
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

from workbench.dataset_builder.cuts.seeking import fingerprint, stills
from workbench.errors import DataError
from workbench.workspace import write_bytes

WIDEST = 65_500  # pixels, what a JPEG can hold


@dataclass(frozen=True)
class Filmstrip:
    """A row of frames. path: the JPEG; times: seconds of each frame, from the left; width: pixels of one frame."""

    path: Path
    times: tuple[float, ...]
    width: int


def filmstrip(path: Path, cache: Path, frames: int = 24, height: int = 64) -> Filmstrip:
    """The clip's strip from the folder `cache`, else made now and kept there; a clip of fewer frames has fewer.

    Raises DataError when the clip cannot be read or the strip would be too wide, CannotWrite.
    """
    from PIL import Image

    target = cache / f"{fingerprint(path)}-{frames}x{height}.jpg"
    if not target.exists():
        write_bytes(target, _rendered(path, frames, height))
    with Image.open(target) as picture:  # the times are in the file itself, so that the two cannot part
        about = json.loads(picture.info["comment"])
    return Filmstrip(target, tuple(about["times"]), about["width"])


def _rendered(path: Path, count: int, height: int) -> bytes:
    from PIL import Image

    times, pictures = [], []
    for seconds, frame in stills(path, count):
        width = max(1, round(frame.width * height / frame.height))
        if width * count > WIDEST:
            raise DataError(f"a strip of {count} frames of {width} pixels is too wide: use {WIDEST // width} or fewer")
        times.append(round(seconds, 6))
        pictures.append(frame.reformat(width=width, height=height, format="rgb24", interpolation="AREA").to_ndarray())
    if not pictures:
        raise DataError(f"{path.name} has no frames: import it again")
    strip = Image.new("RGB", (len(pictures) * width, height))
    for index, picture in enumerate(pictures):
        strip.paste(Image.fromarray(picture), (index * width, 0))
    data = io.BytesIO()
    strip.save(data, "JPEG", quality=80, comment=json.dumps({"times": times, "width": width}))
    return data.getvalue()
