"""The frame plan: which frames of a clip, and which part of the picture, a model will see. Pure arithmetic.

Frames are taken at the model's frame rate by timestamp: one window from the middle of the clip (`plan`), or by another
rule (`take`). The picture is scaled to cover the wanted size and cropped from the center, so nothing is stretched,
unless that is asked for.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from workbench.clips.records import Clip
from workbench.display.quantities import counted
from workbench.families.model import Frames, Model

ENLARGED = 1.1  # from here on an enlarged picture is worth a warning: the model would learn its blur
SAME_RATE = 1e-3  # by which the frame rates of latents and of a run may differ
UNKNOWN = "its length or size is not known: import it again"


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
    def time_share(self) -> float:
        """How much of the clip's time is taken, 0 to 1."""
        return time_share(self.clip, len(self.indices), self.fps)

    @property
    def picture_share(self) -> float:
        """How much of the picture's area is left after the crop, 0 to 1."""
        return cover(self.clip, *self.crop[2:])[0]

    @property
    def enlargement(self) -> float:
        """How many times larger the picture becomes; below 1 it is reduced."""
        return cover(self.clip, *self.crop[2:])[1]

    @property
    def use(self) -> str:
        """How much of the clip the model sees, in words; empty when it is left out."""
        if self.dropped:
            return ""
        of_picture = f"{_percent(self.picture_share)} of its picture"
        return of_picture if self.clip.is_image else f"{_percent(self.time_share)} of its time, {of_picture}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know of a clip that is used all the same; a sentence each."""
        if self.dropped:
            return ()
        found, clip = [], self.clip
        _, _, height, width = self.crop
        if self.enlargement >= ENLARGED:
            found.append(
                f"too small: {clip.width}x{clip.height} is enlarged {self.enlargement:.1f} times to {width}x{height}: "
                f"give a larger clip or lower the size"
            )
        if len(set(self.indices)) < len(self.indices):
            found.append(
                f"frames are shown twice: it has {clip.fps:g} fps, training takes {self.fps:g}: lower the frame rate"
            )
        return tuple(found)


@dataclass(frozen=True)
class Shape:
    """What every clip of a run is brought to. `rule`: the model's legal frame counts, for advice; None when unknown."""

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
    """The model's own shape where nothing else is wanted, checked. Raises ConfigError with the nearest legal value."""
    shape = Shape(
        frames or model.frames, height or model.height, width or model.width, fps or model.fps, model.frame_rule
    )
    model.check_shape(shape.frames, shape.height, shape.width)
    return shape


class ShapeSettings(Protocol):
    """What of a run's or a sample's settings says its shape; None for the model's own."""

    @property
    def frames(self) -> int | None: ...
    @property
    def height(self) -> int | None: ...
    @property
    def width(self) -> int | None: ...
    @property
    def fps(self) -> float | None: ...


def shape_of(settings: ShapeSettings, model: Model) -> Shape:
    """The shape that settings say. Raises ConfigError as `shape_for` does."""
    return shape_for(model, settings.frames, settings.height, settings.width, settings.fps)


@dataclass(frozen=True)
class Taking:
    """The rule by which frames and picture are taken from clips.

    sampling: middle, start: one window at the shape's rate; windows: as many as lie side by side; spread: evenly over
              the whole clip, whatever its rate; sat: the frames that SAT's SFTDataset takes, see `_sat_indices`
    skip_start, skip_end: frames at the clip's ends that are never taken
    crop:     center, random (a position sampled for each clip from `seed` and its content) or stretch
    """

    sampling: Literal["middle", "start", "windows", "spread", "sat"] = "middle"
    skip_start: int = 0
    skip_end: int = 0
    crop: Literal["center", "random", "stretch"] = "center"
    seed: int = 0

    def usable(self, clip: Clip) -> Clip:
        """The clip as long as it is without the frames that are skipped; images and latents are never shortened."""
        skipped = 0 if clip.is_image or clip.is_latents else self.skip_start + self.skip_end
        return clip.changed(frames=max(0, clip.frames - skipped)) if skipped else clip


def take(clip: Clip, shape: Shape, taking: Taking) -> list[FramePlan]:
    """What a rule takes from a clip: a plan a window, in order; one plan that says why when the clip is left out."""
    if clip.is_latents:  # all of them or nothing
        return [plan(clip, shape)]
    usable = taking.usable(clip)
    if clip.frames and not usable.frames:
        reason = f"too short: all of its {clip.frames} frames are skipped: skip fewer at start and end"
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
        elif usable.frames < shape.frames:  # frames would come twice
            indices = ()
        else:
            last = usable.frames - 1
            indices = tuple(round(index * last / max(1, shape.frames - 1)) for index in range(shape.frames))
        middle = plan(usable, shape)
        # A rule of its own may take what a window at the shape's rate cannot be taken from.
        found = [replace(middle, indices=indices, dropped=None)] if indices else [middle]
    skip = 0 if clip.is_image else taking.skip_start
    return [
        _cropped(replace(one, clip=clip, indices=tuple(index + skip for index in one.indices)), shape, taking)
        for one in found
    ]


def _sat_indices(clip: Clip, shape: Shape, start: int, skip_end: int) -> tuple[int, ...]:
    """The frames that SAT takes (data_video.py, SFTDataset; its skip_frms_num is both `start` and `skip_end`).

    A clip longer than the shape: every n-th frame from its start, n being its rate over the shape's, rounded down; so
    30 fps are taken at 10 where 8 are wanted. One with enough frames: every n-th of all. A shorter one: every frame,
    cut to 4k+1. Too few are filled up with the last one. Where SAT's own code ends in an error (a clip slower than the
    shape's rate, frames beyond the clip's end), frames in a row and the last one repeated.
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
    """Which frames and which part of the picture the model sees of a clip: the window in its middle."""
    _, scale = cover(clip, shape.height, shape.width)
    resize = (max(shape.height, round(clip.height * scale)), max(shape.width, round(clip.width * scale)))
    crop = ((resize[0] - shape.height) // 2, (resize[1] - shape.width) // 2, shape.height, shape.width)
    reason = why_dropped(clip, shape)
    if reason:
        return FramePlan(clip, (), resize, crop, shape.fps, reason)
    if clip.is_image:
        return FramePlan(clip, (0,), resize, crop, shape.fps)
    # A clip slower than the model's rate repeats frames rather than playing faster than life.
    needed = (shape.frames - 1) * clip.fps / shape.fps
    # A whole first frame, and halves always rounded up: a whole stride then gives frames at exactly even distances.
    return FramePlan(clip, _indices(clip, shape, max(0, int((clip.frames - 1 - needed) / 2))), resize, crop, shape.fps)


def windows(clip: Clip, shape: Shape) -> list[FramePlan]:
    """Windows of a clip that share no frame, in order, as far from one another as from the clip's ends.

    As many as fit. A single one is the window of `plan`; a dropped clip gives its one dropped plan.
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


# ---- what fits, and how much of it ----------------------------------------------------------------------------------


def available_frames(clip: Clip, fps: float) -> int:
    """How many frames the clip gives at that rate; its last frame may stand for up to half a frame's time more."""
    if clip.is_image:
        return 1
    return int((clip.frames - 1 + 1e-6) * fps / clip.fps + 0.5) + 1 if clip.frames and clip.fps else 0


def why_dropped(clip: Clip, shape: Shape) -> str | None:
    """Why a clip cannot be brought to the shape, with the remedy; None when it can."""
    if not clip.frames or not clip.height or not clip.width or not (clip.fps or clip.is_image):
        return UNKNOWN
    if clip.is_latents:
        same_size = (clip.frames, clip.height, clip.width) == (shape.frames, shape.height, shape.width)
        if same_size and (clip.is_image or abs(clip.fps / shape.fps - 1) < SAME_RATE):
            return None
        own = f"{counted(clip.frames, 'frame')} of {clip.width}x{clip.height} at {clip.fps:g} fps"
        wanted = f"{shape.frames} of {shape.width}x{shape.height} at {shape.fps:g} fps"
        remedy = f"set fps to {clip.fps:g} and add the bucket {clip.frames}x{clip.height}x{clip.width}"
        return f"latents of {own}, {wanted} are needed, and latents are neither cut nor scaled: {remedy}"
    available = available_frames(clip, shape.fps)
    if available >= shape.frames:
        return None
    if clip.is_image:
        return f"an image: it gives 1 frame, {shape.frames} are needed: train it in a bucket of 1 frame"
    remedies = []
    shorter = [frames for frames in shape.rule.legal() if frames <= available] if shape.rule else [available]
    if shorter and shorter[-1] > 1:
        remedies.append(f"lower frames to {shorter[-1]}" + ("" if shape.rule else " or less"))
    faster = math.ceil((shape.frames - 1.5) * clip.fps / (clip.frames - 1))
    if faster <= clip.fps:  # above its own rate frames would only be shown twice
        remedies.append(f"raise the frame rate to {faster}")
    return (
        f"too short: {clip.seconds:.2f} s give {available} frames at {shape.fps:g} fps, {shape.frames} are needed: "
        + (" or ".join(remedies) or "give a longer clip")
    )


def time_share(clip: Clip, frames: int, fps: float) -> float:
    """How much of a clip's time that many frames at that rate take, 0 to 1; all of an image."""
    return 1.0 if clip.is_image else min(1.0, frames / fps / clip.seconds) if clip.seconds else 0.0


def cover(clip: Clip, height: int, width: int) -> tuple[float, float]:
    """(share, enlargement) of a clip's picture that covers height x width and is cropped to it.

    share: how much of the picture is left, 0 to 1; enlargement: how many times larger it becomes, below 1 reduced
    """
    tall, wide = height / (clip.height or 1), width / (clip.width or 1)
    scale = max(tall, wide)
    return tall * wide / (scale * scale), scale


def _percent(share: float) -> str:
    return "all" if share > 0.995 else f"{share:.0%}"


# ---- still pictures among clips --------------------------------------------------------------------------------------

# The numbers are those of benchmarks/pictures.py on the built-in model; docs/guide.md has the table.
MUCH = 0.5  # share of pictures from which on a sentence is due


def effect_on_motion(share: float) -> str:
    """What to expect where this share (0 to 1) of what is trained on is pictures; "" where it is small."""
    if share >= 1:
        return (
            "All that is trained on is still pictures: motion is not taught and may be lost. On the built-in model the "
            "grid's motion number was then 5.4, with clips alone 8.7. Add clips."
        )
    if share >= MUCH:
        return (
            f"{share:.0%} of what is trained on is still pictures, which take from motion: on the built-in model the "
            "grid's motion number was 5.8 with 86%, 7.2 with 20%, 8.7 with clips alone, with the same looks. Set "
            "picture_share to 0.2, or add clips."
        )
    return ""
