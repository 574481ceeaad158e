"""A model's sizes, known before a weight is read: enough to estimate the memory and the time of a run. No torch.

A family fills `ModelFacts` in from the sizes of a pipeline's parts, by their weights' names. Those come from the
heads of its files, or of a published model from assets/architectures.json, which scripts/write_architectures.py makes
by building the published configs on the meta device. Of another repository whose configs alone are on the disk a
child process does the same, so that this one loads no torch.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from workbench.errors import ModelUnavailable
from workbench.families import model_files
from workbench.families.model import Model
from workbench.jobs import processes
from workbench.paths import ASSETS, CODE
from workbench.workspace import read_json

On = Literal["video", "text", "picture", "clip"]
BLOCK = "{}"  # stands for a block's number in a name
ALL_LINEAR = "all-linear"  # of the setting `targets`, as peft calls it: every linear layer, those around the blocks too


@dataclass(frozen=True)
class Linear:
    """A linear layer of the transformer, or the same one of every block.

    name:   as in the transformer's parameters; a block's number is written as BLOCK
    on:     what it computes: each token of the video (and of the caption where both stand beside each other), each
            of the caption, each of a picture (cross-attention), or one vector a clip (the timestep's)
    shared: whether another layer is given the same, and this one is not the first of them
    """

    name: str
    inputs: int
    outputs: int
    on: On = "video"
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
    encoder_tensors, decoder_tensors: of that width it holds at its worst moment
    encoder_operations, decoder_operations: for a pixel and the width squared
    frames_at_once: it works on so many at a time;  tile: (height, width) of one where it works in tiles
    """

    values: int
    encoder_width: int
    decoder_width: int
    frames_at_once: int
    tile: tuple[int, int]
    # CogVideoX's: 8.3, and 9.9 where a tensor has more than 2 GB, which diffusers convolves in pieces.
    encoder_tensors: float = 9.1
    decoder_tensors: float = 10.0
    encoder_operations: float = 540.0
    decoder_operations: float = 400.0


@dataclass(frozen=True)
class ModelFacts:
    """Sizes of one model. `values` are counts of numbers, whatever their format.

    stored:   the format on disk: "float32", "float16" or "bfloat16"
    spatial, temporal: pixels and frames that one latent stands for, in a row
    patch, patch_frames: latents in a row that one token stands for
    channels: of the latents;  in_channels: of the transformer's input, the condition included
    presets:  names of layers by the presets of the setting `targets`, ALL_LINEAR aside
    on_disk:  whether the sizes were read from the model's files
    text_joint: whether the caption's tokens stand beside the video's, or are only looked at (cross-attention)
    timed_bytes: of each number that a token's own timestep becomes, for known first frames; 0: one timestep a clip
    position_bytes: for each token and unit of the width, of what stands for positions
    picture_tokens, image_encoder_values: of the encoder through which a model looks at a picture; 0: it has none
    shown_bytes: the same where a text-to-video run is shown its own first frame (first_frame_share); 0: it never is
    told_bytes: the same where a run tells it frames that stand in its latents (given); 0: they stand beside, or never
    reference_bytes: the same where a run shows it references, whose tokens are at time 0; 0: it takes none
    auto: the dtype that the transformer computes in on a GPU where precision is `auto`; "": the stored one
    float32_vae: whether the VAE and the image encoder compute in float32 whatever the transformer does
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
    text_joint: bool = True
    timed_bytes: int = 0
    position_bytes: int = 0
    picture_tokens: int = 0
    image_encoder_values: int = 0
    shown_bytes: int = 0
    told_bytes: int = 0
    reference_bytes: int = 0
    auto: str = ""
    float32_vae: bool = False

    def vae_bytes(self, number: int) -> int:
        """Bytes of a number of the VAE beside a transformer whose numbers have so many."""
        return 4 if self.float32_vae else number

    def latents(self, frames: int, height: int, width: int) -> tuple[int, int, int, int]:
        """(frames, channels, height, width) of one clip's latents as the transformer is given them."""
        count = (frames - 1) // self.temporal + 1
        padded = math.ceil(count / self.patch_frames) * self.patch_frames
        return padded, self.channels, height // self.spatial, width // self.spatial

    def tokens(self, frames: int, height: int, width: int) -> int:
        """Tokens of one clip, with its caption's where they stand beside it."""
        count, _, tall, wide = self.latents(frames, height, width)
        video = count // self.patch_frames * (tall // self.patch) * (wide // self.patch)
        return video + (self.text_tokens if self.text_joint else 0)

    def computed(self, linear: Linear, video: int) -> int:
        """Vectors that a linear layer computes for a clip of so many tokens."""
        return {"video": video, "text": self.text_tokens, "picture": self.picture_tokens, "clip": 1}[linear.on]

    @property
    def block_values(self) -> int:
        """Numbers in the linear layers of one block."""
        return sum(linear.values for linear in self.linears if linear.in_blocks)

    def named(self) -> Iterator[tuple[str, Linear]]:
        """Every linear layer under its full name."""
        for linear in self.linears:
            for number in range(self.blocks) if linear.in_blocks else range(1):
                yield linear.name.format(number), linear


# ---- the parts of a pipeline

FILE = ASSETS / "architectures.json"
IN_BLOCK = re.compile(r"((?:\w+_)?blocks)\.(\d+)\.(.+)")
PATIENCE = 300.0


@dataclass(frozen=True)
class Part:
    """One part of a pipeline, such as the transformer.

    config: as diffusers or transformers writes it;  values: numbers in all its weights
    blocks: how many equal blocks it has, 0 where it has none
    layers: linear layers and convolutions, name -> (inputs, outputs); a block's number is written as BLOCK
    """

    config: Mapping[str, Any]
    values: int
    blocks: int
    layers: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Architecture:
    """The parts of a pipeline that hold weights. stored: the transformer's format on disk"""

    parts: Mapping[str, Part]
    stored: str


def architecture(model: Model, folder: Path | None, parts: Iterable[str]) -> Architecture:
    """Of a model's files, or as published where it is not on the disk. Raises ModelUnavailable."""
    if folder is not None:
        found = {name: part(model_files.config(folder, name), model_files.shapes(folder, name)) for name in parts}
        return Architecture(found, model_files.stored_dtype(folder))
    stored = {"fp16": "float16", "bf16": "bfloat16"}.get(model.variant)
    if (known := published().get(model.source)) is not None:
        return Architecture(known.parts, stored or known.stored)
    configs = model_files.find_configs(model.source, model.revision)
    if configs is None:
        raise ModelUnavailable(f"the configs of {model.id} are no longer on the disk: name the model anew")
    return Architecture(_built_by_a_child(configs, tuple(parts)), stored or "bfloat16")


def part(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Part:
    """Of a part's config and the shapes of its weights."""
    found: dict[str, tuple[int, int]] = {}
    in_blocks: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for name, shape in sorted(shapes.items()):
        if len(shape) < 2 or not name.endswith(".weight"):
            continue
        layer, sizes = name.removesuffix(".weight"), (math.prod(shape[1:]), shape[0])
        if match := IN_BLOCK.fullmatch(layer):
            in_blocks[f"{match[1]}.{BLOCK}.{match[3]}"][match[2]] = sizes
        else:
            found[layer] = sizes
    blocks = max((len(numbers) for numbers in in_blocks.values()), default=0)
    for layer, numbers in in_blocks.items():
        if len(numbers) == blocks and len(set(numbers.values())) == 1:
            found[layer] = next(iter(numbers.values()))
        else:  # blocks that differ, as those of a VAE
            found |= {layer.replace(BLOCK, number): sizes for number, sizes in numbers.items()}
    return Part(dict(config), sum(math.prod(shape) for shape in shapes.values()), blocks, found)


@cache
def published() -> dict[str, Architecture]:
    """Hub repository -> its architecture."""
    found: dict[str, Architecture] = {}
    for entry in read_json(FILE)["pipelines"]:
        parts = {name: _read(one) for name, one in entry["parts"].items()}
        found |= {source: Architecture(parts, entry["stored"]) for source in entry["sources"]}
    return found


def _read(part: Mapping[str, Any]) -> Part:
    layers = {name: (inputs, outputs) for name, (inputs, outputs) in part["layers"].items()}
    return Part(part["config"], part["values"], part["blocks"], layers)


# ---- from configs alone


def built(library: str, kind: str, config: Mapping[str, Any]) -> Part:
    """Of a class of diffusers or transformers, built on the meta device from a config. Raises ModelUnavailable."""
    import torch

    made = model_files.class_named(library, kind)
    if library == "diffusers":
        module = model_files.empty(made, config)
        config = {name: value for name, value in module.config.items() if not name.startswith("_")}
    else:
        with torch.device("meta"):
            module = made(made.config_class(**config))
    # A tensor that two names share is stored once.
    tensors = {id(tensor): (name, tuple(tensor.shape)) for name, tensor in module.state_dict(keep_vars=True).items()}
    return part(config, dict(tensors.values()))


@lru_cache(maxsize=32)
def _built_by_a_child(configs: Path, parts: tuple[str, ...]) -> dict[str, Part]:
    """Raises ModelUnavailable for configs that cannot be built."""
    command = processes.command(__name__, configs, *parts)
    path = os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")]))
    environment = {**processes.bare_environment(), "PYTHONPATH": path}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise ModelUnavailable(f"the configs in {configs} cannot be read ({''.join(last)[:200]})") from error
    return {name: _read(one) for name, one in json.loads(done.stdout).items()}


if __name__ == "__main__":
    folder, *parts = sys.argv[1:]
    sizes = {}
    for name in parts:
        library, kind = model_files.index(Path(folder))[name]
        sizes[name] = asdict(built(library, kind, model_files.config(Path(folder), name)))
    sys.stdout.write(json.dumps(sizes))
