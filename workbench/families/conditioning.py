"""Conditioning on given frames, masks, control clips and reference clips, in pixel space.

    first, last, first+last         the frame at one end, or at both
    prefix N, suffix N              the first or last N frames, for extensions
    keyframes N                     N evenly spaced frames, the first and the last among them
    mask outside, mask inside       the pixels outside the clip's mask (inpainting) or inside it (outpainting)

The setting `given`, samples and model cards use the same words. A family states which kinds a model supports and why
not the others (`Family.given_kinds`), and turns them into tensors (`encode_conditioning`, `conditioning`). A control
clip and a reference clip combine with any kind.
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
COUNTED = ("prefix", "suffix", "keyframes")  # kinds with a number of frames
SIDES = ("outside", "inside")
LINE = re.compile(r"(?P<name>[a-z+]+)(\s+(?P<more>\d{1,6}|[a-z]+))?\s+(?P<share>\d*\.?\d+)")
EXAMPLES = "as in first 0.3, prefix 9 0.1 or mask outside 0.2"


@dataclass(frozen=True)
class GivenKind:
    """One way to give a model parts of a clip."""

    name: str  # one of NAMES
    count: int = 0  # number of frames of a prefix, suffix or keyframes
    side: str = ""  # side of a mask that is known

    def __str__(self) -> str:
        return " ".join(str(part) for part in (self.name, self.count, self.side) if part)

    def frames(self, count: int) -> tuple[int, ...]:
        """Return which frames of a clip of `count` frames are known, in order. A mask knows pixels, not frames."""
        last = count - 1
        if self.name in ("prefix", "suffix"):
            return tuple(range(self.count) if self.name == "prefix" else range(count - self.count, count))
        if self.name == "keyframes":
            return tuple(round(number * last / (self.count - 1)) for number in range(self.count))
        return {"first": (0,), "last": (last,), "first+last": (0, last), "mask": ()}[self.name]

    def leaves_something(self, count: int) -> bool:
        """Return whether a clip of `count` frames has any left to generate."""
        return count > max(len(set(self.frames(count))), self.count, 1)


@dataclass(frozen=True)
class GivenShare:
    """A kind, and the share of clips, 0 to 1, that train with it."""

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
        raise ValueError(f"given adds up to {total:g}, must be at most 1: lower a share (the rest trains without it)")
    return tuple(GivenShare(kind, share) for kind, share in found.items())


def parse_kind(name: str, more: str) -> GivenKind | None:
    """Parse a kind; None if it is not one. `more` is a number of frames, a mask's side, or ""."""
    if name in COUNTED:
        least = 3 if name == "keyframes" else 1  # two keyframes are first+last
        return GivenKind(name, int(more)) if more.isdecimal() and int(more) >= least else None
    if name == "mask":
        return GivenKind(name, side=more or SIDES[0]) if more in ("", *SIDES) else None
    return GivenKind(name) if name in NAMES and not more else None


def drawn(shares: Sequence[GivenShare], chance: float) -> GivenKind | None:
    """Return the kind that `chance`, uniform in [0, 1), selects; None for no given frames."""
    below = 0.0
    for one in shares:
        below += one.share
        if chance < below:
            return one.kind
    return None


def largest(shares: Sequence[GivenShare]) -> GivenKind | None:
    """Return the kind with the largest share, the first of several, for measurements and previews; None without any."""
    return max(shares, key=lambda one: one.share).kind if shares else None


@dataclass(frozen=True)
class Conditioning:
    """Conditioning of clips in pixel space. Any part may be missing."""

    frames: int  # number of frames of the clips
    known: tuple[int, ...] = ()  # indices of the known frames, in order
    # [B, 3, F, H, W] in [-1, 1]. Only its known part counts. Models with `Family.joins_conditioning` always get one.
    video: torch.Tensor | None = None
    # [B, 1, F, H, W], 1 where the video is known and 0 elsewhere, instead of whole frames
    mask: torch.Tensor | None = None
    control: torch.Tensor | None = None  # [B, 3, F, H, W] in [-1, 1], which the clip follows frame by frame
    reference: torch.Tensor | None = None  # [B, 3, F', H', W'] in [-1, 1], which shows what the clip should look like

    @property
    def shown(self) -> torch.Tensor | None:
        """The video with everything unknown set to gray, which is 0: [B, 3, F, H, W]. None without a video."""
        import torch

        if self.video is None:
            return None
        if self.mask is not None:
            return self.video * self.mask
        kept = torch.zeros_like(self.video)
        kept[:, :, list(self.known)] = self.video[:, :, list(self.known)]
        return kept

    def changed(self, **parts: torch.Tensor | tuple[int, ...] | None) -> Conditioning:
        """Return a copy with some parts replaced."""
        return replace(self, **parts)  # type: ignore[arg-type]


def conditioning_of(kind: GivenKind, video: torch.Tensor, mask: torch.Tensor | None = None) -> Conditioning:
    """Return the conditioning that a kind takes from clips.

    Args:
        video: The clips, [B, 3, F, H, W] in [-1, 1].
        mask: [B, 1, F, H, W], above 0.5 inside; only for the kind "mask".
    """
    frames = video.shape[2]
    if kind.name != "mask":
        return Conditioning(frames, kind.frames(frames), video)
    assert mask is not None, "this kind needs the clip's mask"
    inside = (mask > 0.5).to(video)
    return Conditioning(frames, video=video, mask=inside if kind.side == "inside" else 1 - inside)


def as_clip(frames: NDArray[np.uint8]) -> torch.Tensor:
    """Convert frames, uint8 [F, H, W, 3], to a clip [1, 3, F, H, W] in [-1, 1]."""
    import torch

    return (torch.from_numpy(frames.copy()).permute(3, 0, 1, 2).float() / 127.5 - 1.0).unsqueeze(0)


def on_white(picture: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Center a whole picture [1, 3, 1, H, W] in [-1, 1] on white of the given size, as VACE takes references.

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
