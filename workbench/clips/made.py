"""Make what lies beside a clip from the clip itself: edges, gray, blurred, masked, its end frames; depth, poses.

A control clip or a mask made here has exactly the clip's frames, size and rate. Depth and poses need a model (vision),
the others none.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.clips import media
from workbench.clips.media import Pixels
from workbench.errors import ConfigError, DataError
from workbench.vision import depth, local_models, pose
from workbench.vision.local_models import KnownModel, LocalModel
from workbench.workspace import write_bytes

Maker = Literal["edges", "gray", "blur", "downsampled", "depth", "pose", "box", "border", "first_frame", "last_frame"]
MAKERS: tuple[Maker, ...] = get_args(Maker)
Box = tuple[float, float, float, float]
BLANK = 127  # gray of the part of a control clip that a model is to fill in
MIDDLE: Box = (25.0, 25.0, 50.0, 50.0)


@dataclass(frozen=True)
class Amount:
    """The one number of a maker. title: what it is, with its unit; start: without one; low, high: its bounds"""

    title: str
    start: float
    low: float
    high: float


@dataclass(frozen=True)
class About:
    """What a maker makes. kinds: of companions it can be, the usual one first

    models: that are known to make it, the usual one first; () where no model is needed
    helpers: likewise of the second model that it needs, the setting `detector`
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
        "Canny edges, white on black. A LoRA trained on them follows drawn outlines.",
        ("control", "reference"),
        Amount("the step in color that begins an edge", 200, 10, 1000),
    ),
    "gray": About("Gray", "The clip without its colors. A LoRA trained on it colorizes.", ("control", "reference")),
    "blur": About(
        "Blurred",
        "The clip out of focus. A LoRA trained on it keeps places and invents detail.",
        ("control", "reference"),
        Amount("radius in percent of the longer side", 2, 0.1, 20),
    ),
    "downsampled": About(
        "Downsampled",
        "The clip with fewer pixels: as a control clip enlarged again, as a reference small. A LoRA trained on it "
        "sharpens.",
        ("control", "reference"),
        Amount("how many times smaller", 4, 2, 16),
    ),
    "depth": About(
        "Depth",
        "How near each place is, by a model: white is near, black far. A LoRA trained on it follows a scene's layout.",
        ("control", "reference"),
        models=depth.MODELS,
    ),
    "pose": About(
        "Pose",
        "The people as skeletons, by a model, in OpenPose's colors on black. A LoRA trained on it follows movements.",
        ("control", "reference"),
        models=pose.MODELS,
        helpers=pose.DETECTORS,
    ),
    "box": About(
        "Box masked",
        "A mask that is white in a box; as a control clip the clip with that box blanked. For inpainting.",
        ("mask", "control"),
    ),
    "border": About(
        "Border masked",
        "A mask that is white along the border; as a control clip the clip with its border blanked. For outpainting.",
        ("mask", "control"),
        Amount("width of the border in percent of the picture", 20, 1, 49),
    ),
    "first_frame": About("First frame", "The first frame as a picture of its own.", ("reference",)),
    "last_frame": About("Last frame", "The last frame as a picture of its own.", ("last_frame", "reference")),
}


def kind_of(maker: Maker, kind: str = "") -> str:
    """Return which kind of companion a maker makes: the one asked for, or its usual one.

    Raises:
        ConfigError: It cannot make that kind.
    """
    kinds = ABOUT[maker].kinds
    if kind and kind not in kinds:
        raise ConfigError(f"kind is {kind}, which {maker} cannot make: choose {' or '.join(kinds)}")
    return kind or kinds[0]


def amount_of(maker: Maker, amount: float | None) -> float:
    """Return a maker's number, its usual one for None. Raises ConfigError for one out of bounds, or that it lacks."""
    known = ABOUT[maker].amount
    if known is None:
        if amount is not None:
            raise ConfigError(f"amount is {amount:g}, but {maker} has none: leave it out")
        return 0.0
    if amount is not None and not known.low <= amount <= known.high:
        raise ConfigError(
            f"amount is {amount:g}, for {maker} it must be {known.low:g} to {known.high:g} ({known.title}): "
            f"the usual one is {known.start:g}"
        )
    return known.start if amount is None else amount


def check_model(maker: Maker, model: str, detector: str = "") -> None:
    """Raise ConfigError for models that a maker cannot use, without loading or asking anything. "": the usual one."""
    about = ABOUT[maker]
    for setting, named, known in (("model", model, about.models), ("detector", detector, about.helpers)):
        if named and not known:
            raise ConfigError(f"{setting} is {named}, but {maker} needs none: leave it out")
        if named:
            local_models.check(named, known, setting, any_of_hub=True)


def opening(maker: Maker, model: str = "", detector: str = "") -> str:
    """Say which models a maker opens, and how much of them is downloaded before."""
    both = [(model, ABOUT[maker].models), (detector, ABOUT[maker].helpers)]
    return "; ".join(local_models.opening(named or known[0].id, known) for named, known in both if known)


def opened(
    maker: Maker, model: str = "", detector: str = "", device: str = "auto"
) -> contextlib.AbstractContextManager[LocalModel | None]:
    """Load what a maker needs, to be given back at the end; None for one that needs no model.

    Args:
        model, detector: As `local_models.fetch` takes them; "" for the usual one.
        device: "auto", "cuda", "cuda:1", "mps" or "cpu".

    Raises:
        ConfigError: There is no such model, or it cannot do that.
        ModelUnavailable: It cannot be downloaded.
        OutOfMemory: It does not fit into the GPU's memory.
    """
    check_model(maker, model, detector)
    if maker == "depth":
        return depth.Depth(model, device)
    if maker == "pose":
        return pose.Pose(model, device, detector)
    return contextlib.nullcontext()


def make(  # noqa: PLR0913 - what a maker can be given, each part named
    maker: Maker,
    kind: str,
    source: Path,
    target: Path,
    *,
    fps: float,
    amount: float | None = None,
    box: Box = MIDDLE,
    model: LocalModel | None = None,
    tick: Callable[[], object] = lambda: None,
) -> Path:
    """Make a companion of one of our own clips.

    Args:
        kind: "control", "reference", "mask" or "last_frame"; "" for the maker's usual one.
        source: The clip's file.
        target: Where to, without an ending.
        fps: Of the clip.
        amount: The maker's number (`ABOUT`); None for the usual one.
        box: Left, top, width and height of the box in percent of the picture.
        model: What `opened` gave.
        tick: Called before each frame is looked at; may raise to stop.

    Returns:
        The file: TARGET.mp4, or .png for a single frame.

    Raises:
        ConfigError: The maker cannot make that kind, or its number is out of bounds.
        DataError: The clip cannot be read.
        CannotWrite: The disk is full.
        OutOfMemory: The GPU's memory is too small for the model.
    """
    kind, number = kind_of(maker, kind), amount_of(maker, amount)
    if maker in ("first_frame", "last_frame"):
        made = target.with_name(f"{target.name}.png")
        write_bytes(made, _png(source, last=maker == "last_frame"))
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
    """Return one frame of what a maker makes, uint8 [H, W, 3], from one of the clip.

    A reference that is downsampled is smaller; all others are as large as the clip.
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
    made: Any  # OpenCV's own types name no shapes
    if maker == "downsampled":
        size = (max(2, round(width / number)), max(2, round(height / number)))
        if kind == "reference":  # videos have even sides
            size = (size[0] + size[0] % 2, size[1] + size[1] % 2)
        made = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
        if kind != "reference":
            made = cv2.resize(made, (width, height), interpolation=cv2.INTER_CUBIC)
    elif maker == "blur":
        made = cv2.GaussianBlur(picture, (0, 0), max(0.3, number / 100 * max(height, width)))
    else:  # edges of the colors: red before gray of the same brightness has one
        edges = maker == "edges"
        made = cv2.Canny(picture, number / 2, number) if edges else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
        made = np.repeat(made[..., None], 3, axis=2)
    found: Pixels = made
    return found


def _part(start: float, length: float, whole: int) -> slice:
    """The pixels of a side that percent of it mean, one at least."""
    first = min(whole - 1, max(0, round(start / 100 * whole)))
    return slice(first, min(whole, max(first + 1, round((start + length) / 100 * whole))))


def _pictures(source: Path, tick: Callable[[], object] = lambda: None) -> Iterator[Pixels]:
    for _, picture in media.decode(source):
        tick()
        yield picture


def _png(source: Path, last: bool) -> bytes:
    from PIL import Image

    picture = None
    for found in _pictures(source):
        picture = found
        if not last:
            break
    if picture is None:
        raise DataError(f"{source.name} has no frame: import it again")
    data = io.BytesIO()
    Image.fromarray(picture).save(data, "PNG")
    return data.getvalue()
