"""LoRAs written for other programs, each so that its reader gets the same change of every weight.

    diffusers         diffusers' names, rank and alpha in the metadata; DoRA and biases too
    portable          diffusers' names, the scale multiplied in: readers that know nothing of alpha
    finetrainers      portable, and finetrainers' own metadata key
    comfyui           the authors' layers, as ComfyUI's own models name them, alpha in a tensor of each; lightx2v too
    ai-toolkit        comfyui's names, the scale multiplied in; DiffSynth-Studio and VideoX-Fun read it, too
    kohya             flat names, alpha in a tensor of each
    lycoris           flat names of diffusers' layers, alpha in a tensor of each

A LoKr stays one in comfyui, lycoris, and kohya of the models that musubi-tuner has; every other format has the nearest
LoRA of it, as its programs read no LoKr.

Which program reads which is measured, not remembered: docs/loras.md.
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
Written = tuple[Tensors, dict[str, str]]  # tensors and metadata of a file
PREFIX = "transformer"


@dataclass(frozen=True)
class LoraFormat:
    """One way of writing a LoRA that some program reads.

    id: its name in settings;  title, help: for people;  suffix: of its files
    write: makes a file's contents, by the family's names of layers. Raises ConfigError for what the file cannot hold
    readers: the programs that apply such a file exactly (docs/loras.md has the measurements)
    outside: the one of them that also applies it to layers outside the blocks; "" where none is known to
    lokr: who reads a LoKr in it as what it is; "" where it becomes a LoRA
    warning: where such a file loads without an error and changes nothing, "" where nothing is known of that
    """

    id: str
    title: str
    help: str
    write: Callable[[LoraWeights, LayerNames], Written]
    readers: tuple[str, ...] = ()
    outside: str = ""
    suffix: str = ".safetensors"
    warning: str = ""
    lokr: str = ""

    @property
    def read_by(self) -> str:
        """Who reads it, as a sentence without its period."""
        *others, last = self.readers
        return f"Read by {', '.join(others)} and {last}" if others else f"Read by {last} alone"


def export(lora: LoraWeights, id: str, formats: Sequence[LoraFormat], names: LayerNames) -> Written:
    """(tensors, metadata) of the LoRA in one of the formats. Raises ConfigError where the format cannot hold it."""
    # Formats that some program applies whole are named first.
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
    if lora.biased:  # an older loader does not look for them
        refuse_more_than_matrices(lora, "an older loader")
    return _named(even(without_alpha(lora))), {"format": "pt"}


def finetrainers(lora: LoraWeights, names: LayerNames) -> Written:
    """finetrainers samples with diffusers, which ignores this key: alpha is the rank, and the scale is in B."""
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
    """A LoKr's factors by the names given, as LyCORIS writes them and ComfyUI reads them.

    musubi: as musubi-tuner reads them, too: the first factor whole, and an alpha even where both are
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
    """For a program that reads ComfyUI's names, whether it looks for alpha or not. ComfyUI itself reads a LoKr, too."""

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
    """names: None where kohya's trainers know the layers by diffusers' names"""
    refuse_more_than_matrices(lora, "kohya's format")
    layers = {layer: layer for layer in lora.layers} if names is None else _authors(lora, names)
    flat = {layer: f"lora_unet_{name.replace('.', '_')}" for layer, name in layers.items()}
    if lora.lokr and names is not None and not any("lokr_t2" in one for one in lora.lokr.values()):
        return _lokr(lora, flat, musubi=True), {"format": "pt", "ss_network_module": "networks.lokr"}
    metadata = {"format": "pt", "ss_network_module": "networks.lora", "ss_network_dim": str(lora.rank)}
    return _down_and_up(lora, flat), metadata


def lycoris(lora: LoraWeights, names: LayerNames) -> Written:
    """As LyCORIS itself names what it wraps: a LoKr as one, a LoRA as what it calls LoCon."""
    refuse_more_than_matrices(lora, "LyCORIS' format")
    flat = {layer: f"lycoris_{layer.replace('.', '_')}" for layer in lora.layers}
    return _lokr(lora, flat) if lora.lokr else _down_and_up(lora, flat), {"format": "pt"}


def _authors(lora: LoraWeights, names: LayerNames) -> dict[str, str]:
    """The authors' name of each layer of a LoRA. Raises ConfigError for one that their model lacks."""
    found = {}
    for layer in lora.layers:
        if (name := names.authors_name(layer)) is None:
            raise ConfigError(f"the LoRA changes {layer[:80]}, a layer that ComfyUI's model lacks: choose portable")
        found[layer] = name
    return found


def _down_and_up(lora: LoraWeights, names: Mapping[str, str]) -> Tensors:
    """Pairs of matrices by the names given, with each layer's alpha as a tensor."""
    import torch

    found = dict[str, torch.Tensor]()
    for layer, name in names.items():
        found[f"{name}.lora_down.weight"] = lora.tensors[f"{layer}.{DOWN}"]
        found[f"{name}.lora_up.weight"] = lora.tensors[f"{layer}.{UP}"]
        found[f"{name}.alpha"] = torch.tensor(lora.alpha_of(layer), dtype=torch.float32)
    return found


# What every family of diffusers' can write.
DIFFUSERS = LoraFormat(
    "diffusers",
    "diffusers",
    "As in the library: rank and alpha in the file's metadata, which diffusers reads from 0.34 on.",
    diffusers,
    ("diffusers",),
    "diffusers",
)
PORTABLE = LoraFormat(
    "portable",
    "portable",
    "diffusers' names with the strength multiplied into the weights, for programs that know nothing of alpha.",
    portable,
    ("diffusers",),
    "diffusers",
)
FINETRAINERS = LoraFormat(
    "finetrainers",
    "finetrainers",
    "As portable, with finetrainers' notes, which say that alpha is the rank.",
    finetrainers,
    ("finetrainers", "diffusers"),
    "diffusers",
)
LYCORIS = LoraFormat(
    "lycoris",
    "LyCORIS",
    "Flat names of diffusers' layers (lycoris_...), alpha for each layer: LyCORIS' own, as SimpleTuner has it.",
    lycoris,
    ("LyCORIS",),
    "LyCORIS",
    lokr="LyCORIS",
)
FORMATS = (DIFFUSERS, PORTABLE, FINETRAINERS)


def passed_over_by_comfyui(title: str, *formats: LoraFormat) -> tuple[LoraFormat, ...]:
    """The formats, with a warning that ComfyUI's loader skips such names with no more than a line in its log.

    Args:
        title: of the family, for whose model ComfyUI knows no names but those of `comfyui`
    """
    warning = (
        f"ComfyUI's own {title} model does not know these names: there the file loads without an error and changes "
        f"nothing. For ComfyUI, convert it to comfyui"
    )
    return tuple(replace(one, warning=warning) for one in formats)
