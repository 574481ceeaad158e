"""What a model is told of a clip beforehand: given frames in their kinds, a control or reference video, a mask.

    first, last, first+last         one frame at an end, or both
    prefix N, suffix N              the first or the last N frames, which an extension goes on from
    keyframes N                     N frames, the first and the last among them, evenly apart
    mask outside, mask inside       what lies outside of the clip's mask (inpainting) or inside of it (outpainting)

The same words are used in training (the setting `given`), in sampling and on model cards. A family says which kinds a
model can be told (`Family.given_kinds`), makes tensors of them (`encode_told`, `told`), and refuses the others with the
reason. A control and a reference go beside any of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

NOTHING = "nothing"
NAMES = ("first", "last", "first+last", "prefix", "suffix", "keyframes", "mask")
BESIDE = ("control", "reference")
COUNTED = ("prefix", "suffix", "keyframes")  # the kinds that go on with a number of frames
SIDES = ("outside", "inside")
LINE = re.compile(r"(?P<name>[a-z+]+)(\s+(?P<more>\d{1,6}|[a-z]+))?\s+(?P<share>\d*\.?\d+)")
EXAMPLES = "as in first 0.3, prefix 9 0.1 or mask outside 0.2"


@dataclass(frozen=True)
class GivenKind:
    """One way of telling a model of a clip. name: one of NAMES

    count: frames of a prefix or suffix, or how many keyframes;  side: of a mask, which of it is known
    """

    name: str
    count: int = 0
    side: str = ""

    def __str__(self) -> str:
        return " ".join(str(part) for part in (self.name, self.count, self.side) if part)

    def frames(self, count: int) -> tuple[int, ...]:
        """The frames that are known of a clip of so many, in order; none of a mask, whose pixels are."""
        last = count - 1
        if self.name in ("prefix", "suffix"):
            return tuple(range(self.count) if self.name == "prefix" else range(count - self.count, count))
        if self.name == "keyframes":
            return tuple(round(number * last / (self.count - 1)) for number in range(self.count))
        return {"first": (0,), "last": (last,), "first+last": (0, last), "mask": ()}[self.name]

    def leaves_something(self, count: int) -> bool:
        """Whether a clip of so many frames has any that are not told."""
        return count > max(len(set(self.frames(count))), self.count, 1)


@dataclass(frozen=True)
class GivenShare:
    """How often, 0 to 1, a clip is told in one way."""

    kind: GivenKind
    share: float


def parse_given(lines: Sequence[str]) -> tuple[GivenShare, ...]:
    """Parse lines such as "first 0.3" or "prefix 9 0.1". Raises ValueError with a sentence of the setting `given`."""
    found: dict[GivenKind, float] = {}
    for line in lines:
        match = LINE.fullmatch(line.strip())
        kind = match and parse_kind(match["name"], match["more"] or "")
        if match is None or kind is None:
            raise ValueError(f"given has {line[:80]!r}: write KIND SHARE, {EXAMPLES}; kinds are {', '.join(NAMES)}")
        if not 0 < float(match["share"]) <= 1:
            raise ValueError(f"given has {line[:80]!r}, whose share must be above 0 and at most 1: change the number")
        if kind in found:
            raise ValueError(f"given has {kind} twice: write it once, with the sum of its shares")
        found[kind] = float(match["share"])
    if (total := sum(found.values())) > 1 + 1e-9:
        raise ValueError(f"given adds up to {total:g}, must be at most 1, what is left being told nothing: lower one")
    return tuple(GivenShare(kind, share) for kind, share in found.items())


def parse_kind(name: str, more: str) -> GivenKind | None:
    """A kind from its words; None for what is none. more: a number of frames or a mask's side, "" without"""
    if name in COUNTED:
        least = 3 if name == "keyframes" else 1  # two keyframes are first+last
        return GivenKind(name, int(more)) if more.isdecimal() and int(more) >= least else None
    if name == "mask":
        return GivenKind(name, side=more or SIDES[0]) if more in ("", *SIDES) else None
    return GivenKind(name) if name in NAMES and not more else None


def drawn(shares: Sequence[GivenShare], chance: float) -> GivenKind | None:
    """The kind that a uniform number of [0, 1) stands for; None: nothing is told."""
    below = 0.0
    for one in shares:
        below += one.share
        if chance < below:
            return one.kind
    return None


def largest(shares: Sequence[GivenShare]) -> GivenKind | None:
    """The kind with the largest share, the first of several: of measurements and previews. None without any."""
    return max(shares, key=lambda one: one.share).kind if shares else None


@dataclass(frozen=True)
class Told:
    """What a model is told of clips, in pixels; each part may be missing.

    frames:    of the clips;  known: which of them are known, in order
    video:     [B, 3, F, H, W] in [-1, 1], of which what is not known does not count
    mask:      [B, 1, F, H, W], 1 where the video is known and 0 elsewhere: in place of whole frames
    control:   [B, 3, F, H, W] in [-1, 1], which the clip follows frame by frame
    reference: [B, 3, F', H', W'] in [-1, 1], which shows what the clip shall look like
    A model that is told one clip in any case (`Family.told_as_one`) has a video even where nothing of it is known.
    """

    frames: int
    known: tuple[int, ...] = ()
    video: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    control: torch.Tensor | None = None
    reference: torch.Tensor | None = None

    @property
    def shown(self) -> torch.Tensor | None:
        """The video with all that is not known gray, which is 0: [B, 3, F, H, W]. None without one."""
        import torch

        if self.video is None:
            return None
        if self.mask is not None:
            return self.video * self.mask
        kept = torch.zeros_like(self.video)
        kept[:, :, list(self.known)] = self.video[:, :, list(self.known)]
        return kept

    @property
    def is_prefix(self) -> bool:
        """Whether whole frames from the beginning on are known, and no others."""
        return self.mask is None and bool(self.known) and self.known == tuple(range(len(self.known)))

    def changed(self, **parts: torch.Tensor | tuple[int, ...] | None) -> Told:
        """A copy with some parts replaced."""
        return replace(self, **parts)  # type: ignore[arg-type]


def told_of(kind: GivenKind, video: torch.Tensor, mask: torch.Tensor | None = None) -> Told:
    """What a kind tells of clips.

    Args:
        video: The clips, [B, 3, F, H, W] in [-1, 1].
        mask: [B, 1, F, H, W] in [0, 1], white inside; for the kind "mask" alone. A pixel that it touches is inside.
    """
    frames = video.shape[2]
    if kind.name != "mask":
        return Told(frames, kind.frames(frames), video)
    assert mask is not None, "this kind needs the clip's mask"
    inside = (mask > 0.5).to(video)
    return Told(frames, video=video, mask=inside if kind.side == "inside" else 1 - inside)


def as_clip(frames: NDArray[np.uint8]) -> torch.Tensor:
    """uint8 [F, H, W, 3] as a family takes clips: [1, 3, F, H, W] in [-1, 1]."""
    import torch

    return (torch.from_numpy(frames.copy()).permute(3, 0, 1, 2).float() / 127.5 - 1.0).unsqueeze(0)


def on_white(picture: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """A picture [1, 3, 1, H, W] in [-1, 1], whole, in the middle of a white one of a size, as VACE is shown references.

    Source: the authors' Wan2.1, vace.py, prepare_source.
    """
    from torch.nn.functional import interpolate

    scale = min(height / picture.shape[-2], width / picture.shape[-1])
    tall, wide = int(picture.shape[-2] * scale), int(picture.shape[-1] * scale)
    found = picture.new_ones(1, 3, 1, height, width)
    top, left = (height - tall) // 2, (width - wide) // 2
    small = interpolate(picture[:, :, 0], size=(tall, wide), mode="bilinear", align_corners=False)
    found[:, :, 0, top : top + tall, left : left + wide] = small
    return found
