"""What a model's sizes say before a weight is read: enough to estimate the memory and the time of a run. No torch.

A family fills `ModelFacts` in from a model's configs, or states it for a model that is not on the disk. Not covered:
what follows from the sizes (fit).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

BLOCK = "{}"  # stands for a block's number in a name


@dataclass(frozen=True)
class Linear:
    """A linear layer of the transformer, or the same one of every block.

    name:      as in the transformer's parameters; a block's number is written as BLOCK
    per_token: whether it sees every token; else one vector a clip (the timestep's)
    shared:    whether it is given what the layer before it is given
    """

    name: str
    inputs: int
    outputs: int
    per_token: bool = True
    shared: bool = False

    @property
    def in_blocks(self) -> bool:
        return BLOCK in self.name

    @property
    def values(self) -> int:
        """Numbers in its matrix."""
        return self.inputs * self.outputs


@dataclass(frozen=True)
class VaeFacts:
    """The video autoencoder.

    encoder_width, decoder_width: channels at full resolution, the most on each side
    frames_at_once: it works on so many at a time;  tile: (height, width) of one where it works in tiles
    """

    values: int
    encoder_width: int
    decoder_width: int
    frames_at_once: int
    tile: tuple[int, int]


@dataclass(frozen=True)
class ModelFacts:
    """Sizes of one model. `values` are counts of numbers, whatever their format.

    stored:   the format on disk: "float32", "float16" or "bfloat16"
    spatial, temporal: pixels and frames that one latent stands for, in a row
    patch, patch_frames: latents in a row that one token stands for
    channels: of the latents;  in_channels: what the transformer is shown, the condition included
    presets:  names of layers by the presets of the setting `targets`
    on_disk:  whether the model was looked at, rather than known
    """

    stored: str
    blocks: int
    width: int
    heads: int
    text_tokens: int
    text_width: int
    values: int
    linears: tuple[Linear, ...]
    text_encoder_values: int
    vae: VaeFacts
    spatial: int
    temporal: int
    patch: int
    patch_frames: int
    channels: int
    in_channels: int
    presets: Mapping[str, tuple[str, ...]]
    on_disk: bool

    def latents(self, frames: int, height: int, width: int) -> tuple[int, int, int, int]:
        """(frames, channels, height, width) of one clip's latents as the transformer is given them."""
        count = (frames - 1) // self.temporal + 1
        padded = math.ceil(count / self.patch_frames) * self.patch_frames
        return padded, self.channels, height // self.spatial, width // self.spatial

    def tokens(self, frames: int, height: int, width: int) -> int:
        """Tokens of one clip with its caption."""
        count, _, tall, wide = self.latents(frames, height, width)
        return count // self.patch_frames * (tall // self.patch) * (wide // self.patch) + self.text_tokens

    @property
    def block_values(self) -> int:
        """Numbers in the linear layers of one block."""
        return sum(linear.values for linear in self.linears if linear.in_blocks)

    def named(self) -> Iterator[tuple[str, Linear]]:
        """Every linear layer under its full name."""
        for linear in self.linears:
            for number in range(self.blocks) if linear.in_blocks else range(1):
                yield linear.name.format(number), linear
