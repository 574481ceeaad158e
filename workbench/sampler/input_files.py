"""Input files of a sample: the picture or video that it begins with, read, checked, and kept so that it stays the same.

    samples/inputs/<sha256>.<ext>       copies, made where a sample is requested

The files are a person's own, from anywhere: only plain picture formats are read, videos through `media`. Not covered:
encoding them (the family), whether the model takes them (inputs).
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from workbench import policy
from workbench.clips import media
from workbench.clips.media import Pixels
from workbench.clips.records import file_sha256
from workbench.errors import ConfigError, DataError
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, replacing

if TYPE_CHECKING:
    import torch
    from PIL import Image

FOLDER = "inputs"
Kind = Literal["picture", "video"]
# Which settings name a file.
INPUT_FILES: dict[str, Kind] = {"image": "picture", "video": "video", "continue_from": "video"}
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
    return _frames(path, [_nearest(times, index / fps) for index in range(count)], height, width, "video")


def last_frames(path: Path, count: int, fps: float, height: int, width: int) -> Pixels:
    """The last frames of a video at a rate, in order: uint8 [count, height, width, 3]. Raises ConfigError.

    A video that is too short at that rate gives frames of its own rate, and its first one again where it has too few.
    """
    times = _times(path, "continue_from")
    if (count - 1) / fps > times[-1]:
        wanted = [max(0, len(times) - count + index) for index in range(count)]
    else:
        wanted = [_nearest(times, times[-1] - (count - 1 - index) / fps) for index in range(count)]
    return _frames(path, wanted, height, width, "continue_from")


def as_clip(frames: Pixels) -> torch.Tensor:
    """uint8 [F, H, W, 3] as a family takes clips: [1, 3, F, H, W] in [-1, 1]."""
    import torch

    return (torch.from_numpy(frames.copy()).permute(3, 0, 1, 2).float() / 127.5 - 1.0).unsqueeze(0)


def _times(path: Path, setting: str) -> list[float]:
    try:
        return media.read_times(path).presented
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error


def _frames(path: Path, wanted: list[int], height: int, width: int, setting: str) -> Pixels:
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


def _nearest(times: list[float], moment: float) -> int:
    return min(range(len(times)), key=lambda number: abs(times[number] - moment))


def _fitted(picture: Image.Image, height: int, width: int) -> Image.Image:
    from PIL import Image, ImageOps

    return ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)


def _refusal(setting: str, path: Path, reason: str) -> ConfigError:
    sentence = f"{setting} is {path.name}, which {reason}"
    return ConfigError(sentence, {setting: sentence})


# ---- kept copies ----------------------------------------------------------------------------------------------------


def keep(workspace: Workspace, path: Path, kind: Kind) -> Path:
    """The file's copy in the workspace, made where there is none. Raises ConfigError for what is none, CannotWrite."""
    path = policy.resolve(path, kind)
    folder = workspace.samples / FOLDER
    if path.parent == folder:
        return path
    (check_picture if kind == "picture" else check_video)(path)
    target = folder / f"{file_sha256(path)}{path.suffix.lower()}"
    if not target.exists():
        with replacing(target) as temporary:
            shutil.copyfile(path, temporary)
    return target


def kept(workspace: Workspace, many: Sequence[SampleSettings]) -> list[SampleSettings]:
    """The same settings with every file that they name kept in the workspace. Raises ConfigError, CannotWrite."""
    known: dict[tuple[str, Kind], str] = {}

    def kept_file(file: str, kind: Kind) -> str:
        if (file, kind) not in known:
            known[file, kind] = str(keep(workspace, Path(file), kind))
        return known[file, kind]

    found = []
    for settings in many:
        files = {name: kept_file(file, kind) for name, kind in INPUT_FILES.items() if (file := getattr(settings, name))}
        found.append(settings.changed(**files) if files else settings)
    return found
