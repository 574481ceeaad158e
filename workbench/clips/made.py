"""Derive control clips, references, masks and end frames from a clip: edges, gray, blur, boxes, depth, poses.

A control clip or mask made here has exactly the clip's frame count, size and frame rate. Only depth and poses need a
model (vision).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.clips import media
from workbench.clips.media import Pixels
from workbench.errors import ConfigError, DataError
from workbench.vision import local_models
from workbench.vision.depth_and_pose import DEPTH_MODELS, DETECTORS, POSE_MODELS, Depth, Pose
from workbench.vision.local_models import KnownModel
from workbench.workspace import write_bytes

Maker = Literal["edges", "gray", "blur", "downsampled", "depth", "pose", "box", "border", "first_frame", "last_frame"]
MAKERS: tuple[Maker, ...] = get_args(Maker)
Box = tuple[float, float, float, float]
BLANK = 127  # gray level of the area in a control clip that the model fills in
MIDDLE: Box = (25.0, 25.0, 50.0, 50.0)


@dataclass(frozen=True)
class Amount:
    """A maker's one parameter: its label with the unit, its default and its bounds."""

    title: str
    start: float
    low: float
    high: float


@dataclass(frozen=True)
class About:
    """Describe a maker.

    kinds: the kinds of companion that it can make, the default first.
    models: known models for it, the default first; () if it needs none.
    helpers: the same for the second model that it needs (the setting `detector`).
    """

    title: str
    does: str
    kinds: tuple[str, ...]
    amount: Amount | None = None
    models: tuple[KnownModel, ...] = ()
    helpers: tuple[KnownModel, ...] = ()


ABOUT: dict[Maker, About] = {
    "edges": About(
        "Edges",
        "Canny edges, white on black. Trains a LoRA to follow drawn outlines.",
        ("control", "reference"),
        Amount("edge threshold", 200, 10, 1000),
    ),
    "gray": About("Gray", "The clip in grayscale. Trains a LoRA to colorize.", ("control", "reference")),
    "blur": About(
        "Blur",
        "The clip out of focus. Trains a LoRA to keep the layout and invent detail.",
        ("control", "reference"),
        Amount("blur radius in percent of the longer side", 2, 0.1, 20),
    ),
    "downsampled": About(
        "Downsampled",
        "The clip at a lower resolution: scaled back up as a control clip, small as a reference. Trains a LoRA to "
        "sharpen.",
        ("control", "reference"),
        Amount("downsampling factor", 4, 2, 16),
    ),
    "depth": About(
        "Depth",
        "A depth map from a model: white is near, black is far. Trains a LoRA to follow a scene's layout.",
        ("control", "reference"),
        models=DEPTH_MODELS,
    ),
    "pose": About(
        "Pose",
        "Skeletons of the people from a model, in OpenPose's colors on black. Trains a LoRA to follow movements.",
        ("control", "reference"),
        models=POSE_MODELS,
        helpers=DETECTORS,
    ),
    "box": About(
        "Box mask",
        "A mask that is white inside a box, or a control clip with that box grayed out. For inpainting.",
        ("mask", "control"),
    ),
    "border": About(
        "Border mask",
        "A mask that is white along the border, or a control clip with its border grayed out. For outpainting.",
        ("mask", "control"),
        Amount("border width in percent of the picture", 20, 1, 49),
    ),
    "first_frame": About("First frame", "The first frame as a picture file.", ("reference",)),
    "last_frame": About("Last frame", "The last frame as a picture file.", ("last_frame", "reference")),
}


def kind_of(maker: Maker, kind: str = "") -> str:
    """Return the kind of companion to make: `kind`, or the maker's default. Raises ConfigError if it cannot make it."""
    kinds = ABOUT[maker].kinds
    if kind and kind not in kinds:
        raise ConfigError(f"kind is {kind}, which {maker} cannot make: choose {' or '.join(kinds)}")
    return kind or kinds[0]


def amount_of(maker: Maker, amount: float | None) -> float:
    """Return the amount to use, by default the maker's. Raises ConfigError if it is out of bounds or there is none."""
    known = ABOUT[maker].amount
    if known is None:
        if amount is not None:
            raise ConfigError(f"amount is {amount:g}, but {maker} takes none: leave it out")
        return 0.0
    if amount is None:
        return known.start
    if not known.low <= amount <= known.high:
        raise ConfigError(
            f"amount ({known.title}) is {amount:g}, but for {maker} it must be {known.low:g} to {known.high:g}: "
            f"the default is {known.start:g}"
        )
    return amount


def check_model(maker: Maker, model: str, detector: str = "") -> None:
    """Raise ConfigError for a model that the maker cannot use. Loads and downloads nothing; "" is the default model."""
    about = ABOUT[maker]
    for setting, named, known in (("model", model, about.models), ("detector", detector, about.helpers)):
        if named and not known:
            raise ConfigError(f"{setting} is {named}, but {maker} needs none: leave it out")
        if named:
            local_models.check(named, known, setting, any_of_hub=True)


def opening(maker: Maker, model: str = "", detector: str = "") -> str:
    """Describe the models that a maker loads, and how much it has to download first."""
    both = [(model, ABOUT[maker].models), (detector, ABOUT[maker].helpers)]
    return "; ".join(local_models.opening(named or known[0].id, known) for named, known in both if known)


def opened(
    maker: Maker, model: str = "", detector: str = "", device: str = "auto"
) -> contextlib.AbstractContextManager[Depth | Pose | None]:
    """Load a maker's model and free it when the context ends; the context's value is None if the maker needs none.

    model, detector: as for `local_models.fetch`; "" for the default. device: "auto", "cuda", "cuda:1", "mps" or "cpu".

    Raises ConfigError for a model that does not exist or is of the wrong kind, ModelUnavailable, OutOfMemory.
    """
    check_model(maker, model, detector)
    if maker == "depth":
        return Depth(model, device)
    if maker == "pose":
        return Pose(model, device, detector)
    return contextlib.nullcontext()


def make(  # noqa: PLR0913 - every input of a maker by name
    maker: Maker,
    kind: str,
    source: Path,
    target: Path,
    *,
    fps: float,
    amount: float | None = None,
    box: Box = MIDDLE,
    model: Depth | Pose | None = None,
    tick: Callable[[], object] = lambda: None,
) -> Path:
    """Make a companion of a canonical clip; return the file written: TARGET.mp4, or TARGET.png for a single frame.

    kind: "control", "reference", "mask" or "last_frame"; "" for the maker's default.
    target: the path to write, without its suffix.
    amount: the maker's parameter (`ABOUT`); None for its default.
    box: left, top, width and height of the box, in percent of the picture.
    model: the model from `opened`.
    tick: called before each frame; may raise to stop.

    Raises ConfigError if the maker cannot make that, DataError if the clip cannot be read, CannotWrite, OutOfMemory.
    """
    kind, number = kind_of(maker, kind), amount_of(maker, amount)
    if maker in ("first_frame", "last_frame"):
        made = target.with_name(f"{target.name}.png")
        write_bytes(made, media.last_frame_png(source) if maker == "last_frame" else media.first_frame_png(source))
        return made
    made = target.with_name(f"{target.name}.mp4")
    if model is not None:
        pictures = model.pictures(_pictures(source, tick))
    else:
        pictures = (changed_picture(maker, kind, picture, number, box) for picture in _pictures(source, tick))
    if (first := next(pictures, None)) is None:
        raise DataError(f"{source.name} has no frame: import it again")
    with media.VideoWriter(made, first.shape[1], first.shape[0], fps) as writer:
        for picture in itertools.chain([first], pictures):
            writer.write(media.bt709_frame(picture))
    return made


def changed_picture(maker: Maker, kind: str, picture: Pixels, number: float, box: Box = MIDDLE) -> Pixels:
    """Apply a maker that needs no model to one frame, uint8 [H, W, 3].

    The result has the frame's size, except that a downsampled reference is smaller.
    """
    import cv2
    import numpy as np

    height, width = picture.shape[:2]
    if maker in ("box", "border"):
        inside = np.zeros((height, width), bool)
        if maker == "box":
            left, top, wide, high = box
            inside[_part(top, high, height), _part(left, wide, width)] = True
        else:
            inside[:] = True
            inside[_part(number, 100 - 2 * number, height), _part(number, 100 - 2 * number, width)] = False
        if kind == "mask":
            return np.repeat(np.where(inside, 255, 0).astype(np.uint8)[..., None], 3, axis=2)
        return np.where(inside[..., None], np.uint8(BLANK), picture)
    made: Any  # OpenCV's type stubs have no shapes
    if maker == "downsampled":
        size = (max(2, round(width / number)), max(2, round(height / number)))
        if kind == "reference":  # H.264 needs even sides
            size = (size[0] + size[0] % 2, size[1] + size[1] % 2)
        made = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
        if kind != "reference":
            made = cv2.resize(made, (width, height), interpolation=cv2.INTER_CUBIC)
    elif maker == "blur":
        made = cv2.GaussianBlur(picture, (0, 0), max(0.3, number / 100 * max(height, width)))
    else:  # Canny on color also finds edges between colors of equal brightness
        edges = maker == "edges"
        made = cv2.Canny(picture, number / 2, number) if edges else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
        made = np.repeat(made[..., None], 3, axis=2)
    found: Pixels = made
    return found


def _part(start: float, length: float, whole: int) -> slice:
    """Convert a start and a length in percent of a side to a pixel range of at least one pixel."""
    first = min(whole - 1, max(0, round(start / 100 * whole)))
    return slice(first, min(whole, max(first + 1, round((start + length) / 100 * whole))))


def _pictures(source: Path, tick: Callable[[], object]) -> Iterator[Pixels]:
    for _, picture in media.decode(source):
        tick()
        yield picture
