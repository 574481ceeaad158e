"""A model's sizes, known before any weight is read: enough to estimate a run's memory and time. No torch.

Sizes of a model on disk come from the headers of its weight files. Those of published models are in
assets/architectures.json, which scripts/write_architectures.py writes by building the published configs on the meta
device. If only a repository's configs are on disk, a child process builds them, so that this process needs no torch.
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
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.errors import ModelUnavailable
from workbench.families import model_files
from workbench.families.conditioning import NAMES
from workbench.families.model import Model
from workbench.jobs import processes
from workbench.paths import ASSETS, CODE
from workbench.workspace import read_json

if TYPE_CHECKING:
    from workbench.families.base import Family

On = Literal["video", "text", "picture", "clip"]
TEXT_PARTS = ("text_encoder", "text_encoder_2", "connectors")
BLOCK = "{}"  # stands for a block's number in a layer's name
ALL_LINEAR = "all-linear"  # value of `targets`, named as in peft: every linear layer, also outside the blocks


@dataclass(frozen=True)
class Linear:
    """A linear layer of the transformer, or one that every block has."""

    name: str  # its name in the transformer, with BLOCK for a block's number
    inputs: int
    outputs: int
    # What it runs on: the video's tokens (and the caption's in joint attention), the caption's, a picture's, or one
    # vector per clip, such as the timestep
    on: On = "video"
    shared: bool = False  # another layer before it reads the same input

    @property
    def in_blocks(self) -> bool:
        return BLOCK in self.name

    @property
    def block(self) -> int | None:
        """The block's number, for a layer that not every block has; else None."""
        match = IN_BLOCK.fullmatch(self.name)
        return int(match[2]) if match else None

    @property
    def values(self) -> int:
        """The size of its matrix."""
        return self.inputs * self.outputs


@dataclass(frozen=True)
class VaeFacts:
    """Sizes of the video autoencoder."""

    values: int  # number of parameters
    # encoder_width, decoder_width: most channels at full resolution
    encoder_width: int
    decoder_width: int
    frames_at_once: int  # frames processed at a time
    tile: tuple[int, int]  # (height, width) of a tile, with tiling on
    # Measured on CogVideoX: 8.3, and 9.9 if a tensor has more than 2 GB, which diffusers convolves in pieces.
    # encoder_tensors, decoder_tensors: tensors of that width in memory at the peak
    encoder_tensors: float = 9.1
    decoder_tensors: float = 10.0
    # encoder_operations, decoder_operations: operations per pixel, divided by the width squared
    encoder_operations: float = 540.0
    decoder_operations: float = 400.0
    tiled_encoder_tensors: float | None = None  # encoder_tensors while encoding in tiles, if it differs much


@dataclass(frozen=True)
class ModelFacts:
    """Sizes of one model.

    values, text_encoder_values, image_encoder_values: number of parameters, of all TEXT_PARTS; 0 without an image
        encoder.
    """

    stored: str  # the transformer's dtype on disk: "float32", "float16" or "bfloat16"
    # blocks, width, heads: of the transformer
    blocks: int
    width: int
    heads: int
    # text_tokens, text_width: shape of a caption's embeddings
    text_tokens: int
    text_width: int
    values: int
    linears: tuple[Linear, ...]
    text_encoder_values: int
    vae: VaeFacts
    # spatial, temporal: pixels per latent side, frames per latent frame
    spatial: int
    temporal: int
    # patch, patch_frames: latent pixels per side and latent frames of one token
    patch: int
    patch_frames: int
    # channels, in_channels: channels of the latents, and of the transformer's input with its conditioning
    channels: int
    in_channels: int
    # Value of the setting `targets` -> endings of layer names, without ALL_LINEAR
    presets: Mapping[str, tuple[str, ...]]
    on_disk: bool  # the sizes were read from the model's files
    # Value of the setting `sound` -> pattern for layers that are not trained
    unreached: Mapping[str, str] = field(default_factory=dict)
    # Value of the setting `sound` -> the sizes of a run that learns it, where they differ
    learning: Mapping[str, ModelFacts] = field(default_factory=dict)
    sound_tokens: float = 0.0  # tokens per second, in sizes where a sound takes the video's place
    # Self-attention runs over caption and video tokens together; else cross-attention reads the caption
    text_joint: bool = True
    # Bytes per number of the timestep embeddings if each token has one, as with a known first frame; 0 for one timestep
    # per clip
    timed_bytes: int = 0
    position_bytes: int = 0  # bytes of position embeddings, per token and unit of width
    # Bytes that a block keeps for its backward pass beyond the rates of fit.constants, in the same units
    saved_bytes: float = 0.0
    picture_tokens: int = 0  # tokens of a picture from the image encoder
    image_encoder_values: int = 0
    shown_bytes: int = 0  # timed_bytes of text-to-video runs that see their own first frame (first_frame_share)
    given_bytes: int = 0  # timed_bytes of runs with given frames that replace latents (given)
    reference_bytes: int = 0  # timed_bytes of runs with references, whose tokens are at timestep 0
    reference_frames: int = 0  # latent frames of a reference; 0: as many as its clip
    second_text_width: int = 0  # text_width of a second text encoder; 0 without one
    guided_passes: int = 2  # passes of the transformer in a guided step of a sample
    auto: str = ""  # GPU dtype of the transformer under precision `auto`; "": the stored one
    float32_vae: bool = False  # VAE and image encoder run in float32

    def vae_bytes(self, number: int) -> int:
        """Return the VAE's bytes per number, given the transformer's."""
        return 4 if self.float32_vae else number

    def latents(self, frames: int, height: int, width: int) -> tuple[int, int, int, int]:
        """Return (frames, channels, height, width) of one clip's latents, with padding frames."""
        count = (frames - 1) // self.temporal + 1
        padded = math.ceil(count / self.patch_frames) * self.patch_frames
        return padded, self.channels, height // self.spatial, width // self.spatial

    def tokens(self, frames: int, height: int, width: int) -> int:
        """Return the number of tokens of one clip, with its caption's in joint attention."""
        count, _, tall, wide = self.latents(frames, height, width)
        video = count // self.patch_frames * (tall // self.patch) * (wide // self.patch)
        return video + (self.text_tokens if self.text_joint else 0)

    def computed(self, linear: Linear, video: int) -> int:
        """Return how many vectors a linear layer computes for a clip of `video` tokens."""
        return {"video": video, "text": self.text_tokens, "picture": self.picture_tokens, "clip": 1}[linear.on]

    @property
    def block_values(self) -> int:
        """Size of one block's linear layers, with an equal share of those that not every block has."""
        some = sum(linear.values for linear in self.linears if linear.block is not None)
        return sum(linear.values for linear in self.linears if linear.in_blocks) + some // self.blocks

    @property
    def two_streams(self) -> bool:
        """Whether the caption's tokens have layers of their own in joint-attention blocks."""
        return self.text_joint and any(one.in_blocks and one.on == "text" for one in self.linears)

    @property
    def gated(self) -> bool:
        """Whether the blocks' feed-forward has a gate: its first layer is twice as wide as the second one's input."""
        block = [one for one in self.linears if one.in_blocks and one.on == "video"]
        inside = max((one.inputs for one in block), default=0)
        return any(one.outputs == 2 * inside for one in block)

    @property
    def side(self) -> tuple[Linear, ...]:
        """Linear layers of a side branch's blocks, each under its own name. Blocks for the caption do not count."""
        lists = {one.name.partition(".")[0] for one in self.linears if one.in_blocks}
        beside = [one for one in self.linears if IN_BLOCK.fullmatch(one.name) and not one.in_blocks]
        of_video = {one.name.partition(".")[0] for one in beside if one.on == "video"}
        return tuple(one for one in beside if one.name.partition(".")[0] in of_video - lists)

    @property
    def all_blocks(self) -> int:
        """Number of blocks, a side branch's included."""
        return self.blocks + len({tuple(one.name.split(".")[:2]) for one in self.side})

    @property
    def all_block_values(self) -> int:
        """Size of all blocks' linear layers."""
        return self.blocks * self.block_values + sum(one.values for one in self.side)

    def named(self) -> Iterator[tuple[str, Linear]]:
        """Yield every linear layer with its full name."""
        for linear in self.linears:
            for number in range(self.blocks) if linear.in_blocks else range(1):
                yield linear.name.format(number), linear


def model_facts(family: Family, model: Model, folder: Path | None) -> ModelFacts:
    """Return a model's sizes: see `Family.facts_of`, which a family overrides."""
    found = architecture(model, folder, family.weighted_parts(model))
    transformer, text = found.parts["transformer"], found.parts["text_encoder"]
    sizes = family.sizes(transformer.config)
    channels, temporal, spatial = family.compression(found.parts["vae"].config)
    patch_frames, patch = family.patch(sizes)
    heads, in_channels = sizes["num_attention_heads"], sizes["in_channels"]
    picture, second = found.parts.get("image_encoder"), found.parts.get("text_encoder_2")
    kinds = family.given_kinds(model)

    def input_of(layer: str) -> On:
        if re.fullmatch(family.text_layers, layer):
            return "text"
        if re.fullmatch(family.picture_layers, layer):
            return "picture"
        return "clip" if re.fullmatch(family.clip_layers, layer) else "video"

    return ModelFacts(
        stored=found.stored,
        blocks=transformer.blocks,
        width=heads * sizes["attention_head_dim"],
        heads=heads,
        text_tokens=family.text_length(sizes),
        text_width=_text_width(text),
        second_text_width=_text_width(second) if second else 0,
        values=transformer.values,
        linears=tuple(
            Linear(name, *shape, input_of(name), shared=bool(re.fullmatch(family.shared_layers, name)))
            for name, shape in transformer.layers.items()
            if not name.endswith("embed")  # a lookup table
        ),
        text_encoder_values=sum(found.parts[name].values for name in TEXT_PARTS if name in found.parts),
        vae=family.vae_facts(found.parts["vae"]),
        spatial=spatial,
        temporal=temporal,
        patch=patch,
        patch_frames=patch_frames,
        channels=channels,
        in_channels=in_channels,
        presets=family.lora_targets,
        unreached={one: family.unreached(one, transformer.blocks) for one in family.unreached_layers},
        on_disk=folder is not None,
        text_joint=family.text_joint,
        timed_bytes=family.timed_number * (model.task == "image-to-video" and in_channels == channels),
        position_bytes=family.positions(sizes),
        saved_bytes=family.saved_bytes,
        # A vision transformer's patches and its class token.
        picture_tokens=(picture.config["image_size"] // picture.config["patch_size"]) ** 2 + 1 if picture else 0,
        image_encoder_values=picture.values if picture else 0,
        auto=family.auto_dtype(found.stored),
        float32_vae=family.float32_vae,
        given_bytes=family.timed_number * (in_channels == channels and any(kinds.get(name) == "" for name in NAMES)),
        reference_bytes=family.timed_number * (kinds.get("reference") == ""),
        reference_frames=int(family.joins_conditioning(model)),
        shown_bytes=family.timed_number * (family.own_first_frames is not None and model.task == "text-to-video"),
    )


def _text_width(encoder: Part) -> int:
    """Return the width of a text encoder's output, of a vision language model that of its language model."""
    config = encoder.config.get("text_config") or encoder.config
    return int(config.get("d_model") or config["hidden_size"])


# ---- the parts of a pipeline

FILE = ASSETS / "architectures.json"
IN_BLOCK = re.compile(r"((?:\w+_)?blocks)\.(\d+)\.(.+)")
PATIENCE = 300.0  # seconds


@dataclass(frozen=True)
class Part:
    """One part of a pipeline, such as the transformer."""

    config: Mapping[str, Any]  # as diffusers or transformers writes it
    values: int  # number of parameters
    blocks: int  # number of equal blocks
    # Name of a linear layer or convolution, with BLOCK for a block's number -> (inputs, outputs)
    layers: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Architecture:
    """The parts of a pipeline that hold weights, and the transformer's dtype on disk."""

    parts: Mapping[str, Part]
    stored: str


def architecture(model: Model, folder: Path | None, parts: Iterable[str]) -> Architecture:
    """Return a model's architecture from its files, or as published if `folder` is None. Raises ModelUnavailable."""
    if folder is not None:
        in_files = [name for name in parts if model_files.own_file(folder, name) is not None]
        found = {
            name: part(model_files.config(folder, name), model_files.shapes(folder, name))
            for name in parts
            if name not in in_files
        }
        if in_files and (known := published().get(model.source)) is not None:
            found |= {name: known.parts[name] for name in in_files}
        elif in_files:  # a file's names are not diffusers'
            found |= _built_by_a_child(folder, tuple(in_files))
        return Architecture(found, model_files.stored_dtype(folder))
    stored = {"fp16": "float16", "bf16": "bfloat16"}.get(model.variant)
    if (known := published().get(model.source)) is not None:
        return Architecture(known.parts, stored or known.stored)
    configs = model_files.find_configs(model.source, model.revision)
    if configs is None:
        raise ModelUnavailable(f"the configs of {model.id} are no longer on disk: choose the model again")
    return Architecture(_built_by_a_child(configs, tuple(parts)), stored or "bfloat16")


def download_parts(model: Model) -> dict[str, float]:
    """Estimate the GB of each part of a published model that has to be downloaded; {} for other models.

    The transformers' bytes are known; the other parts share the rest by their number of values.
    """
    known = published().get(model.source)
    if known is None or model.local:
        return {}
    number = 4 if known.stored == "float32" else 2
    first = {name: one.values * number / 1e9 for name, one in known.parts.items() if name.startswith("transformer")}
    first |= {expert.part: first["transformer"] for expert in model.experts}
    whole = model.whole_gb or model.download_gb
    others = {name: one.values for name, one in known.parts.items() if name not in first}
    rest = max(0.0, whole - sum(first.values())) / max(sum(others.values()), 1)
    every = first | {name: values * rest for name, values in others.items()}
    return {name: size for name, size in every.items() if name not in dict(model.files)}


def part(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Part:
    """Return a part from its config and the shapes of its weights."""
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
        else:  # blocks differ, as in a VAE
            found |= {layer.replace(BLOCK, number): sizes for number, sizes in numbers.items()}
    return Part(dict(config), sum(math.prod(shape) for shape in shapes.values()), blocks, found)


@cache
def published() -> dict[str, Architecture]:
    """Return the published architectures by Hub repository."""
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
    """Build a class of diffusers or transformers on the meta device from a config. Raises ModelUnavailable."""
    import torch

    made = model_files.class_named(library, kind)
    if library != "transformers":
        module = model_files.empty(made, config)
        config = {name: value for name, value in module.config.items() if not name.startswith("_")}
    else:
        with torch.device("meta"):
            module = made(made.config_class(**config))
    # A tensor with two names is stored once.
    tensors = {id(tensor): (name, tuple(tensor.shape)) for name, tensor in module.state_dict(keep_vars=True).items()}
    return part(config, dict(tensors.values()))


@lru_cache(maxsize=32)
def _built_by_a_child(configs: Path, parts: tuple[str, ...]) -> dict[str, Part]:
    """Build the configs in a child process. Raises ModelUnavailable."""
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
