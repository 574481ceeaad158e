"""Write LoRAs for other programs, so that each applies the same change to every weight.

    diffusers         diffusers' names, rank and alpha in the metadata; also DoRA and biases
    portable          diffusers' names, the scale multiplied in, for readers that ignore alpha
    finetrainers      portable, with finetrainers' metadata key
    comfyui           the authors' names, as in ComfyUI's models, and a tensor with alpha per layer; also for lightx2v
    ai-toolkit        comfyui's names, the scale multiplied in; also for DiffSynth-Studio and VideoX-Fun
    kohya             flat names, and a tensor with alpha per layer
    lycoris           flat diffusers names, and a tensor with alpha per layer

A LoKr stays one in comfyui, in lycoris, and in kohya for models that musubi-tuner supports. Other formats get the
nearest LoRA, since their programs do not read a LoKr.

docs/loras.md has measurements of which program reads which format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.families.lora_files import (
    DOWN,
    UP,
    UP_BIAS,
    LoraWeights,
    diffusers_notes,
    even,
    refuse_more_than_matrices,
    without_alpha,
)
from workbench.families.lora_names import FINETRAINERS_KEY, LayerNames

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
Written = tuple[Tensors, dict[str, str]]  # a file's tensors and metadata
PREFIX = "transformer"


@dataclass(frozen=True)
class LoraFormat:
    """A file format of LoRAs."""

    id: str  # its name in settings
    # title, help: for people
    title: str
    help: str
    # Returns a file's contents, given the family's layer names. Raises ConfigError for a LoRA that does not fit.
    write: Callable[[LoraWeights, LayerNames], Written]
    readers: tuple[str, ...] = ()  # programs that apply such a file exactly (measured in docs/loras.md)
    outside: str = ""  # the reader that also applies layers outside the blocks; "" if none is known
    suffix: str = ".safetensors"  # of its files
    warning: str = ""  # where such a file loads without an error and has no effect; "" if nothing is known
    lokr: str = ""  # programs that read a LoKr as one from such a file; "" if it becomes a LoRA

    @property
    def read_by(self) -> str:
        """Its readers, as a sentence without its period."""
        *others, last = self.readers
        return f"Read by {', '.join(others)} and {last}" if others else f"Read only by {last}"


def export(lora: LoraWeights, id: str, formats: Sequence[LoraFormat], names: LayerNames) -> Written:
    """Return (tensors, metadata) of a LoRA in one of the formats. Raises ConfigError if it does not fit."""
    # Suggest formats that some program applies completely first.
    known = {format.id: format for format in sorted(formats, key=lambda one: not one.outside)}
    if id not in known:
        *others, last = known
        use = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"format is {id!r}: use {use}")
    tensors, metadata = known[id].write(lora, names)
    return {name: tensor.contiguous() for name, tensor in tensors.items()}, metadata


def _named(lora: LoraWeights) -> Tensors:
    return {f"{PREFIX}.{name}": tensor for name, tensor in lora.tensors.items()}


def diffusers(lora: LoraWeights, names: LayerNames) -> Written:
    return _named(lora), diffusers_notes(lora, PREFIX)


def portable(lora: LoraWeights, names: LayerNames) -> Written:
    if lora.biased:  # older loaders ignore them
        refuse_more_than_matrices(lora, "an older loader")
    return _named(even(without_alpha(lora))), {"format": "pt"}


def finetrainers(lora: LoraWeights, names: LayerNames) -> Written:
    """Multiply the scale into B: finetrainers samples with diffusers, which ignores the metadata key."""
    refuse_more_than_matrices(lora, "finetrainers")
    one = even(without_alpha(lora))
    targets = sorted({layer.split(".", 2)[-1] if "blocks" in layer else layer for layer in one.layers})
    config = {"r": one.rank, "lora_alpha": one.rank, "init_lora_weights": True, "target_modules": targets}
    return _named(one), {"format": "pt", FINETRAINERS_KEY: json.dumps(config, indent=4)}


def comfyui(lora: LoraWeights, names: LayerNames) -> Written:
    if lora.dora:
        refuse_more_than_matrices(lora, "ComfyUI")
    layers = {layer: f"diffusion_model.{name}" for layer, name in _authors(lora, names).items()}
    if lora.lokr:
        return _lokr(lora, layers), {"format": "pt"}
    found = _down_and_up(lora, layers)
    for layer, name in layers.items():
        bias = lora.tensors.get(f"{layer}.{UP_BIAS}")
        if bias is not None and bias.any():
            found[f"{name}.diff_b"] = bias * lora.scale_of(layer)
    return found, {"format": "pt"}


def _lokr(lora: LoraWeights, names: Mapping[str, str], musubi: bool = False) -> Tensors:
    """Return a LoKr's factors under the layer names given, as LyCORIS writes and ComfyUI reads them.

    musubi-tuner needs the first factor whole, and an alpha even if both factors are.
    """
    import torch

    found = dict[str, torch.Tensor]()
    for layer, own in lora.lokr.items():
        factors = dict(own)
        if musubi and "lokr_w1" not in factors:
            factors["lokr_w1"] = factors.pop("lokr_w1_a") @ factors.pop("lokr_w1_b")
        found |= {f"{names[layer]}.{name}": tensor for name, tensor in factors.items()}
        dim = next((one.shape[0] for name, one in factors.items() if name.endswith("_b")), None)
        if dim is None and musubi:
            dim = max(factors["lokr_w2"].shape)
        if dim is not None:  # else LyCORIS and ComfyUI take 1
            found[f"{names[layer]}.alpha"] = torch.tensor(float(dim), dtype=torch.float32)
    return found


def comfyui_without_alpha(program: str) -> Callable[[LoraWeights, LayerNames], Written]:
    """Return a writer for programs that read ComfyUI's names, with or without alpha. ComfyUI also reads a LoKr."""

    def write(lora: LoraWeights, names: LayerNames) -> Written:
        refuse_more_than_matrices(lora, program)
        if lora.lokr and program == "ComfyUI":
            return comfyui(lora, names)
        one = even(without_alpha(lora))
        layers, found = _authors(one, names), {}
        for name, tensor in one.tensors.items():
            layer, _, end = name.rpartition(".lora_")
            found[f"diffusion_model.{layers[layer]}.lora_{end}"] = tensor
        return found, {"format": "pt"}

    return write


def kohya(lora: LoraWeights, names: LayerNames | None) -> Written:
    """Write kohya's flat names, from the authors' layer names or, if `names` is None, from diffusers'."""
    refuse_more_than_matrices(lora, "kohya's format")
    layers = {layer: layer for layer in lora.layers} if names is None else _authors(lora, names)
    flat = {layer: f"lora_unet_{name.replace('.', '_')}" for layer, name in layers.items()}
    if lora.lokr and names is not None and not any("lokr_t2" in one for one in lora.lokr.values()):
        return _lokr(lora, flat, musubi=True), {"format": "pt", "ss_network_module": "networks.lokr"}
    metadata = {"format": "pt", "ss_network_module": "networks.lora", "ss_network_dim": str(lora.rank)}
    return _down_and_up(lora, flat), metadata


def lycoris(lora: LoraWeights, names: LayerNames) -> Written:
    """Write a LoKr, or a LoRA as LyCORIS' LoCon, under LyCORIS' own names."""
    refuse_more_than_matrices(lora, "LyCORIS' format")
    flat = {layer: f"lycoris_{layer.replace('.', '_')}" for layer in lora.layers}
    return _lokr(lora, flat) if lora.lokr else _down_and_up(lora, flat), {"format": "pt"}


def _authors(lora: LoraWeights, names: LayerNames) -> dict[str, str]:
    """Return the authors' name of each layer of a LoRA. Raises ConfigError for one that their model lacks."""
    found = {}
    for layer in lora.layers:
        if (name := names.authors_name(layer)) is None:
            raise ConfigError(f"the LoRA changes {layer[:80]}, a layer that ComfyUI's model lacks: choose portable")
        found[layer] = name
    return found


def _down_and_up(lora: LoraWeights, names: Mapping[str, str]) -> Tensors:
    """Return pairs of matrices under the layer names given, with each layer's alpha as a tensor."""
    import torch

    found = dict[str, torch.Tensor]()
    for layer, name in names.items():
        found[f"{name}.lora_down.weight"] = lora.tensors[f"{layer}.{DOWN}"]
        found[f"{name}.lora_up.weight"] = lora.tensors[f"{layer}.{UP}"]
        found[f"{name}.alpha"] = torch.tensor(lora.alpha_of(layer), dtype=torch.float32)
    return found


# Formats for every diffusers family.
DIFFUSERS = LoraFormat(
    "diffusers",
    "diffusers",
    "As in the library: rank and alpha in the file's metadata, which diffusers reads since 0.34.",
    diffusers,
    ("diffusers",),
    "diffusers",
)
PORTABLE = LoraFormat(
    "portable",
    "portable",
    "diffusers' names with the strength multiplied into the weights, for programs that ignore alpha.",
    portable,
    ("diffusers",),
    "diffusers",
)
FINETRAINERS = LoraFormat(
    "finetrainers",
    "finetrainers",
    "As portable, with finetrainers' metadata, in which alpha equals the rank.",
    finetrainers,
    ("finetrainers", "diffusers"),
    "diffusers",
)
LYCORIS = LoraFormat(
    "lycoris",
    "LyCORIS",
    "Flat diffusers names (lycoris_...), alpha per layer: LyCORIS' own format, which SimpleTuner uses.",
    lycoris,
    ("LyCORIS",),
    "LyCORIS",
    lokr="LyCORIS",
)
FORMATS = (DIFFUSERS, PORTABLE, FINETRAINERS)
# Formats that families with names of their own adapt; they also write the help.
COMFYUI = LoraFormat("comfyui", "ComfyUI", "", comfyui, ("ComfyUI",), "ComfyUI", lokr="ComfyUI")
KOHYA = replace(COMFYUI, id="kohya", title="kohya, musubi-tuner", write=kohya, lokr="musubi-tuner and ComfyUI")


def passed_over_by_comfyui(title: str, *formats: LoraFormat) -> tuple[LoraFormat, ...]:
    """Add a warning that ComfyUI, which only logs unknown names, knows those of the format comfyui alone."""
    warning = (
        f"ComfyUI's own {title} model does not know these names: the file loads without an error but has no effect. "
        f"For ComfyUI, convert it to comfyui"
    )
    return tuple(replace(one, warning=warning) for one in formats)
