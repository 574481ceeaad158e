"""Painted masks of a clip, and how each of its masks was made.

    .masks/ID/painted/13.png     the mask painted on frame 13 (from 0): gray, at the clip's size, white is inside
    .masks/ID/tracked-N.mp4      the mask of every frame as tracked, before softening and inverting
    .masks/ID/masks.json         mask file -> how it was made: painted frames, confidence of each frame, soften, invert

ID is the clip's. A part of a clip has its own ID, and gets its own painted frames when it is cut (cutting). Those of
the clip stay, so undoing a cut restores them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from workbench.clips.records import Clip
from workbench.errors import DataError
from workbench.workspace import read_json, write_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MASKS, PAINTED, INFO = ".masks", "painted", "masks.json"
Mask: TypeAlias = "NDArray[np.uint8]"


class MaskInfo(BaseModel):
    """How a mask was made: from which frames, softened by how many pixels, inverted or not.

    confidence: of each frame, 0 to 1.
    tracked: the mask file before softening and inverting.
    by: title of the model that tracked it; "" for optical flow.
    """

    painted: list[int] = []
    confidence: list[float] = Field(default=[])
    tracked: str = ""
    by: str = ""
    soften: float = 0.0
    invert: bool = False

    @property
    def doubtful(self) -> list[int]:
        """The frames that are worth correcting, the least certain first."""
        from workbench.clips.mask_tracking import SURE

        low = [index for index, one in enumerate(self.confidence) if one < SURE]
        return sorted(low, key=lambda index: self.confidence[index])


def folder_of(dataset: Path, clip: Clip) -> Path:
    """Return the folder for a clip's masks."""
    return dataset / MASKS / clip.id


def infos(dataset: Path, clip: Clip) -> dict[str, MaskInfo]:
    """Return how each mask that a clip ever had was made, by its file name relative to the dataset folder."""
    path = folder_of(dataset, clip) / INFO
    if not path.exists():
        return {}
    try:
        return {name: MaskInfo.model_validate(info) for name, info in read_json(path).items()}
    except ValidationError:
        return {}  # edited by hand; the masks themselves stay


def info_of(dataset: Path, clip: Clip) -> MaskInfo:
    """Return how the clip's current mask was made; the defaults for a mask from elsewhere."""
    return infos(dataset, clip).get(clip.mask, MaskInfo())


def painted_frames(dataset: Path, clip: Clip) -> dict[int, Path]:
    """Return the painted frames in order: frame number (from 0) -> picture file."""
    files = (folder_of(dataset, clip) / PAINTED).glob("*.png")
    return dict(sorted((int(path.stem), path) for path in files if path.stem.isdecimal()))


def next_tracked(dataset: Path, clip: Clip) -> Path:
    """Return the path for the clip's next tracked mask."""
    folder = folder_of(dataset, clip)
    numbers = [int(one.stem.rpartition("-")[2]) for one in folder.glob("tracked-*[0-9].mp4")]
    return folder / f"tracked-{max(numbers, default=0) + 1}.mp4"


def read_painted(path: Path) -> Mask:
    """Read a painted frame. Raises DataError if it is damaged."""
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as picture:
            return np.array(picture.convert("L"), np.uint8)
    except OSError as error:
        raise DataError(f"{path} is damaged: paint frame {path.stem} again") from error


def keep_info(dataset: Path, clip: Clip, info: MaskInfo) -> None:
    """Store how the clip's current mask was made. Raises CannotWrite."""
    kept = {**infos(dataset, clip), clip.mask: info}
    write_json(folder_of(dataset, clip) / INFO, {name: one.model_dump(mode="json") for name, one in kept.items()})
