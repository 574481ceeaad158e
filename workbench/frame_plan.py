"""The frame plan: which frames of a clip, and which part of the picture, a model will see. Pure arithmetic.

Frames are taken at the model's frame rate by timestamp, from the middle of the clip; the picture is scaled to cover the
wanted size and cropped from the centre, so nothing is stretched. Not covered: several windows a clip, buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.clips import Clip
from workbench.families.base import Model


@dataclass(frozen=True)
class FramePlan:
    """What training takes from one clip.

    indices: frame numbers in the clip, in order; empty when the clip is dropped
    resize:  (height, width) the picture is scaled to; crop: (top, left, height, width) cut from that
    dropped: why the clip cannot be used, None when it can
    """

    clip: Clip
    indices: tuple[int, ...]
    resize: tuple[int, int]
    crop: tuple[int, int, int, int]
    fps: float
    dropped: str | None = None

    @property
    def sentence(self) -> str:
        """The plan in words."""
        if self.dropped:
            return f"left out: {self.dropped}"
        _, _, height, width = self.crop
        seconds = len(self.indices) / self.fps
        shown = (
            f"frames {self.indices[0]} to {self.indices[-1]}: {len(self.indices)} at {self.fps:g} fps ({seconds:.1f} s)"
        )
        cut = "" if self.resize == (height, width) else f", cut from {self.resize[1]}x{self.resize[0]}"
        return f"{shown}, {width}x{height}{cut}"


@dataclass(frozen=True)
class Shape:
    """What every clip of a run is brought to."""

    frames: int
    height: int
    width: int
    fps: float


def shape_for(
    model: Model,
    frames: int | None = None,
    height: int | None = None,
    width: int | None = None,
    fps: float | None = None,
) -> Shape:
    """The model's own shape where nothing else is wanted, checked. Raises ConfigError with the nearest legal value."""
    shape = Shape(frames or model.frames, height or model.height, width or model.width, fps or model.fps)
    model.check_shape(shape.frames, shape.height, shape.width)
    return shape


def plan(clip: Clip, shape: Shape) -> FramePlan:
    """Which frames and which part of the picture the model sees of a clip."""
    scale = max(shape.height / max(clip.height, 1), shape.width / max(clip.width, 1))
    resize = (max(shape.height, round(clip.height * scale)), max(shape.width, round(clip.width * scale)))
    crop = ((resize[0] - shape.height) // 2, (resize[1] - shape.width) // 2, shape.height, shape.width)
    if not clip.frames or not clip.fps or not clip.height or not clip.width:
        return FramePlan(clip, (), resize, crop, shape.fps, "its length or size is not known: import it again")
    # A clip slower than the model's rate repeats frames rather than playing faster than life.
    stride = clip.fps / shape.fps
    needed = (shape.frames - 1) * stride
    if needed > clip.frames - 1 + 1e-6 + stride / 2:
        longest = int((clip.frames - 1) / stride + 1 + 1e-6)
        return FramePlan(
            clip, (), resize, crop, shape.fps,
            f"too short: {clip.seconds:.2f} s give {longest} frames at {shape.fps:g} fps, {shape.frames} are needed: "
            f"lower frames or raise the frame rate",
        )  # fmt: skip
    # A whole first frame, and halves always rounded up: a whole stride then gives frames at exactly even distances.
    first = max(0, int((clip.frames - 1 - needed) / 2))
    indices = tuple(min(clip.frames - 1, int(first + i * stride + 0.5)) for i in range(shape.frames))
    return FramePlan(clip, indices, resize, crop, shape.fps)
