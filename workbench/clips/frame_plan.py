"""Frame plans: which frames of a clip, and which part of the picture, a model sees. Pure arithmetic.

Frames are sampled by timestamp at the model's frame rate: one window from the middle of the clip (`plan`), or by
another rule (`take`). The picture is scaled to cover the target size and center-cropped, so it is never stretched
unless the settings ask for that.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from workbench.clips.records import Clip
from workbench.display.quantities import counted
from workbench.families.model import Frames, Model

ENLARGED = 1.1  # warn from this enlargement on: the model would learn the blur
SAME_RATE = 1e-3  # relative difference allowed between the frame rates of latents and of the run
UNKNOWN = "its length or size is not known: import it again"


ROUNDED = 2  # frames by which planned frames differ from the clip's own pace, since each is the nearest


@dataclass(frozen=True)
class FramePlan:
    """The part of a clip that training uses.

    indices: frame numbers in the clip, in order; empty if the clip is dropped.
    resize: (height, width) to scale the picture to.
    crop: (top, left, height, width) to cut from the scaled picture.
    dropped: why the clip cannot be used, or None.
    """

    clip: Clip
    indices: tuple[int, ...]
    resize: tuple[int, int]
    crop: tuple[int, int, int, int]
    fps: float
    dropped: str | None = None

    @property
    def sentence(self) -> str:
        if self.dropped:
            return f"left out: {self.dropped}"
        _, _, height, width = self.crop
        seconds = len(self.indices) / self.fps
        words = (
            f"frames {self.indices[0]} to {self.indices[-1]}: {len(self.indices)} at {self.fps:g} fps ({seconds:.1f} s)"
        )
        if self.clip.is_image:
            words = "an image"
        cut = "" if self.resize == (height, width) else f", cut from {self.resize[1]}x{self.resize[0]}"
        return f"{words}, {width}x{height}{cut}"

    @property
    def sound_span(self) -> tuple[float, float, float]:
        """Where the sound of the planned frames starts, how long it is, and how long it should be, in seconds.

        The last two differ if frames are not taken at the clip's own pace, as with frame_sampling spread: the sound
        then becomes faster or slower, and higher or lower, like the movement.
        """
        indices, rate = self.indices, self.clip.fps
        wanted, start = len(indices) / self.fps, indices[0] / rate
        moving = indices.index(indices[-1])  # a still at the end has the pace of what moves before it
        expected = moving * rate / self.fps
        taken = indices[-1] - indices[0]
        if not moving or abs(taken - expected) <= ROUNDED:
            return start, wanted, wanted
        return start, wanted * taken / expected, wanted

    @property
    def time_share(self) -> float:
        """The share of the clip's time that is used, 0 to 1."""
        return time_share(self.clip, len(self.indices), self.fps)

    @property
    def picture_share(self) -> float:
        """The share of the picture's area that the crop leaves, 0 to 1."""
        return cover(self.clip, *self.crop[2:])[0]

    @property
    def enlargement(self) -> float:
        """The scale factor of the picture; below 1 it shrinks."""
        return cover(self.clip, *self.crop[2:])[1]

    @property
    def use(self) -> str:
        """How much of the clip the model sees, in words; empty if the clip is left out."""
        if self.dropped:
            return ""
        of_frame = _share_of("frame", self.picture_share)
        return of_frame if self.clip.is_image else f"{_share_of('length', self.time_share)}, {of_frame}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems of a clip that is used nevertheless, one sentence each."""
        if self.dropped:
            return ()
        found, clip = [], self.clip
        _, _, height, width = self.crop
        if self.enlargement >= ENLARGED:
            found.append(
                f"too small: {clip.width}x{clip.height} is enlarged {self.enlargement:.1f} times to {width}x{height}: "
                f"use a larger clip or a smaller size"
            )
        if len(set(self.indices)) < len(self.indices):
            found.append(
                f"frames repeat: the clip has {clip.fps:g} fps, training uses {self.fps:g}: lower the frame rate"
            )
        return tuple(found)


@dataclass(frozen=True)
class Shape:
    """The shape that a run's clips are brought to. `rule`: the model's legal frame counts, for advice, if known."""

    frames: int
    height: int
    width: int
    fps: float
    rule: Frames | None = field(default=None, compare=False, repr=False)


def shape_for(
    model: Model,
    frames: int | None = None,
    height: int | None = None,
    width: int | None = None,
    fps: float | None = None,
) -> Shape:
    """Return a checked shape; None is the model's own value. Raises ConfigError with the nearest legal value."""
    shape = Shape(
        frames or model.frames, height or model.height, width or model.width, fps or model.fps, model.frame_rule
    )
    model.check_shape(shape.frames, shape.height, shape.width)
    return shape


def shape_of(settings: Any, model: Model) -> Shape:
    """Return the shape that the settings of a run, sample or check ask for. Raises as `shape_for`."""
    return shape_for(model, settings.frames, settings.height, settings.width, settings.fps)


@dataclass(frozen=True)
class Taking:
    """The rule for sampling frames and cropping pictures.

    sampling: middle or start: one window at the shape's rate. windows: as many as fit side by side. spread: evenly
        over the whole clip, whatever its rate. sat: as SAT's SFTDataset, see `_sat_indices`.
    skip_start, skip_end: frames at the clip's ends that are never used.
    crop: center, random (a position for each clip, drawn from `seed` and its content) or stretch.
    """

    sampling: Literal["middle", "start", "windows", "spread", "sat"] = "middle"
    skip_start: int = 0
    skip_end: int = 0
    crop: Literal["center", "random", "stretch"] = "center"
    seed: int = 0

    def usable(self, clip: Clip) -> Clip:
        """Return the clip shortened by the skipped frames. Images and latents keep their length."""
        skipped = 0 if clip.is_image or clip.is_latents else self.skip_start + self.skip_end
        return clip.changed(frames=max(0, clip.frames - skipped)) if skipped else clip


def take(clip: Clip, shape: Shape, taking: Taking) -> list[FramePlan]:
    """Apply a sampling rule to a clip: one plan per window, in order, or one dropped plan that says why."""
    if clip.is_latents:  # used whole or not at all
        return [plan(clip, shape)]
    usable = taking.usable(clip)
    if clip.frames and not usable.frames:
        reason = f"too short: all of its {clip.frames} frames are skipped: skip fewer at the start and end"
        found = [replace(plan(clip, shape), indices=(), dropped=reason)]
    elif clip.is_image or taking.sampling == "middle":
        found = [plan(usable, shape)]
    elif taking.sampling == "windows":
        found = windows(usable, shape)
    else:
        if taking.sampling == "sat":
            indices = _sat_indices(clip, shape, taking.skip_start, taking.skip_end)
        elif taking.sampling == "start":
            indices = () if why_dropped(usable, shape) else _indices(usable, shape, 0)
        elif usable.frames < shape.frames:  # frames would repeat
            indices = ()
        else:
            last = usable.frames - 1
            indices = tuple(round(index * last / max(1, shape.frames - 1)) for index in range(shape.frames))
        middle = plan(usable, shape)
        # These rules can use clips that are too short for a window at the shape's rate.
        found = [replace(middle, indices=indices, dropped=None)] if indices else [middle]
    skip = 0 if clip.is_image else taking.skip_start
    return [
        _cropped(replace(one, clip=clip, indices=tuple(index + skip for index in one.indices)), shape, taking)
        for one in found
    ]


def _sat_indices(clip: Clip, shape: Shape, start: int, skip_end: int) -> tuple[int, ...]:
    """Sample frames as SAT does (data_video.py, SFTDataset; its skip_frms_num is both `start` and `skip_end`).

    - A clip that lasts longer than the shape gives every n-th frame from its start, where n is its rate over the
      shape's, rounded down: 30 fps become 10 for a shape of 8.
    - A clip with more frames than the shape gives every n-th frame of the whole.
    - A shorter clip gives every frame, cut to 4k+1.

    The last frame repeats to fill up the shape. Where SAT itself fails (a clip slower than the shape's rate, frames
    beyond the clip's end), take consecutive frames and repeat the last.
    """
    if not clip.frames or not clip.fps:
        return ()
    count, left = shape.frames, clip.frames - start - skip_end
    if clip.frames / clip.fps * shape.fps > count:
        span = int(start + count / shape.fps * clip.fps) - start
        indices = range(0, min(span, clip.frames - start), max(1, span // count))
    elif clip.frames > count:
        indices = range(0, left, max(1, left // count))
    else:
        indices = range((left - 1) // 4 * 4 + 1)
    found = tuple(indices)[:count]
    return found + found[-1:] * (count - len(found))


def _cropped(planned: FramePlan, shape: Shape, taking: Taking) -> FramePlan:
    if taking.crop == "stretch":
        size = (shape.height, shape.width)
        return replace(planned, resize=size, crop=(0, 0, *size))
    if taking.crop == "random":
        chance = random.Random(f"crop:{taking.seed}:{planned.clip.sha256}")
        top, left = (chance.randint(0, planned.resize[axis] - planned.crop[2 + axis]) for axis in (0, 1))
        return replace(planned, crop=(top, left, *planned.crop[2:]))
    return planned


def plan(clip: Clip, shape: Shape) -> FramePlan:
    """Plan the window in the middle of a clip, center-cropped."""
    _, scale = cover(clip, shape.height, shape.width)
    resize = (max(shape.height, round(clip.height * scale)), max(shape.width, round(clip.width * scale)))
    crop = ((resize[0] - shape.height) // 2, (resize[1] - shape.width) // 2, shape.height, shape.width)
    reason = why_dropped(clip, shape)
    if reason:
        return FramePlan(clip, (), resize, crop, shape.fps, reason)
    if clip.is_image:
        return FramePlan(clip, (0,), resize, crop, shape.fps)
    # A clip slower than the model's rate repeats frames, so that motion keeps its speed.
    needed = (shape.frames - 1) * clip.fps / shape.fps
    # The first frame is an integer and halves round up, so that an integer stride gives evenly spaced frames.
    return FramePlan(clip, _indices(clip, shape, max(0, int((clip.frames - 1 - needed) / 2))), resize, crop, shape.fps)


def windows(clip: Clip, shape: Shape) -> list[FramePlan]:
    """Plan as many non-overlapping windows as fit, in order, with equal gaps between them and at the ends.

    A single window is that of `plan`, and so is the plan of a dropped clip.
    """
    middle = plan(clip, shape)
    if middle.dropped:
        return [middle]
    length = middle.indices[-1] - middle.indices[0] + 1
    count = clip.frames // length
    if count <= 1:
        return [middle]
    free = clip.frames - count * length
    firsts = [free * (number + 1) // (count + 1) + number * length for number in range(count)]
    return [replace(middle, indices=_indices(clip, shape, first)) for first in firsts]


def _indices(clip: Clip, shape: Shape, first: int) -> tuple[int, ...]:
    stride = clip.fps / shape.fps
    return tuple(min(clip.frames - 1, int(first + i * stride + 0.5)) for i in range(shape.frames))


# ---- what fits -------------------------------------------------------------------------------------------------------


def available_frames(clip: Clip, fps: float) -> int:
    """Count the frames that a clip gives at a frame rate; its last frame can cover half a frame interval more."""
    if clip.is_image:
        return 1
    return int((clip.frames - 1 + 1e-6) * fps / clip.fps + 0.5) + 1 if clip.frames and clip.fps else 0


def why_dropped(clip: Clip, shape: Shape) -> str | None:
    """Explain why a clip cannot be brought to the shape, with the remedy; None if it can."""
    if not clip.frames or not clip.height or not clip.width or not (clip.fps or clip.is_image):
        return UNKNOWN
    if clip.is_latents:
        same_size = (clip.frames, clip.height, clip.width) == (shape.frames, shape.height, shape.width)
        if same_size and (clip.is_image or abs(clip.fps / shape.fps - 1) < SAME_RATE):
            return None
        own = f"{counted(clip.frames, 'frame')} of {clip.width}x{clip.height} at {clip.fps:g} fps"
        wanted = f"{shape.frames} of {shape.width}x{shape.height} at {shape.fps:g} fps"
        remedy = f"set fps to {clip.fps:g} and add the bucket {clip.frames}x{clip.height}x{clip.width}"
        return f"latents of {own}, but {wanted} are needed, and latents cannot be cut or scaled: {remedy}"
    available = available_frames(clip, shape.fps)
    if available >= shape.frames:
        return None
    if clip.is_image:
        return f"an image: it has 1 frame, but {shape.frames} are needed: train it in a bucket of 1 frame"
    remedies = []
    shorter = [frames for frames in shape.rule.legal() if frames <= available] if shape.rule else [available]
    if shorter and shorter[-1] > 1:
        remedies.append(f"lower frames to {shorter[-1]}" + ("" if shape.rule else " or less"))
    faster = math.ceil((shape.frames - 1.5) * clip.fps / (clip.frames - 1))
    if faster <= clip.fps:  # above its own rate, frames only repeat
        remedies.append(f"raise the frame rate to {faster}")
    return (
        f"too short: {clip.seconds:.2f} s give {available} frames at {shape.fps:g} fps, but {shape.frames} are needed: "
        + (" or ".join(remedies) or "use a longer clip")
    )


def time_share(clip: Clip, frames: int, fps: float) -> float:
    """Return the share of a clip's time that so many frames at that rate cover, 0 to 1; 1 for an image."""
    if clip.is_image:
        return 1.0
    return min(1.0, frames / fps / clip.seconds) if clip.seconds else 0.0


def cover(clip: Clip, height: int, width: int) -> tuple[float, float]:
    """Return (share, enlargement) for a picture scaled to cover height x width and cropped to it.

    share: how much of the picture the crop leaves, 0 to 1. enlargement: the scale factor; below 1 it shrinks.
    """
    tall, wide = height / (clip.height or 1), width / (clip.width or 1)
    scale = max(tall, wide)
    return tall * wide / (scale * scale), scale


def _share_of(what: str, share: float) -> str:
    return f"full {what}" if share > 0.995 else f"{share:.0%} of the {what}"


# ---- images among clips ----------------------------------------------------------------------------------------------

# Measured with benchmarks/pictures.py on the built-in model; benchmarks/results/NOTES.md has the table.
MUCH = 0.5  # share of images from which to warn


def effect_on_motion(share: float) -> str:
    """Describe what training on this share of images (0 to 1) does to motion; "" if the share is small."""
    if share >= 1:
        return (
            "All training data is still pictures, so the LoRA learns no motion and may lose some. On the built-in "
            "model, the grid's motion score was 5.4 with pictures alone and 8.7 with clips alone. Add clips."
        )
    if share >= MUCH:
        return (
            f"{share:.0%} of the training data is still pictures, which weakens motion. On the built-in model, the "
            "grid's motion score was 5.8 with 86% pictures, 7.2 with 20% and 8.7 with clips alone, with the same "
            "looks. Set picture_share to 0.2, or add clips."
        )
    return ""
