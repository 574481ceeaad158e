"""LoRAs written for other programs, each so that its reader gets the same change of every weight.

    diffusers         diffusers' names, rank and alpha in the metadata; DoRA and biases too
    portable          diffusers' names, the scale multiplied in: readers that know nothing of alpha
    finetrainers      portable, and finetrainers' own metadata key
    comfyui           the authors' layers, as ComfyUI's own models name them, alpha in a tensor of each; lightx2v too
    ai-toolkit        comfyui's names, the scale multiplied in; DiffSynth-Studio and VideoX-Fun read it, too
    kohya             flat names, alpha in a tensor of each

Which program reads which is measured, not remembered: docs/loras.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.families.lora_files import (
    DOWN,
    UP,
    UP_BIAS,
    LoraFormat,
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
Written = tuple[Tensors, dict[str, str]]
Writer = Callable[[LoraWeights], Written]
PREFIX = "transformer"


def export(lora: LoraWeights, format: str, writers: Mapping[str, Writer]) -> Written:
    """(tensors, metadata) of the LoRA by one of the writers. Raises ConfigError where the format cannot hold it."""
    if format not in writers:
        *others, last = writers
        known = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"format is {format!r}: use {known}")
    tensors, metadata = writers[format](lora)
    return {name: tensor.contiguous() for name, tensor in tensors.items()}, metadata


def _named(lora: LoraWeights) -> Tensors:
    return {f"{PREFIX}.{name}": tensor for name, tensor in lora.tensors.items()}


def diffusers(lora: LoraWeights) -> Written:
    return _named(lora), diffusers_notes(lora, PREFIX)


def portable(lora: LoraWeights) -> Written:
    if lora.biased:  # an older loader does not look for them
        refuse_more_than_matrices(lora, "an older loader")
    return _named(even(without_alpha(lora))), {"format": "pt"}


def finetrainers(lora: LoraWeights) -> Written:
    """finetrainers samples with diffusers, which ignores this key: alpha is the rank, and the scale is in B."""
    refuse_more_than_matrices(lora, "finetrainers")
    one = even(without_alpha(lora))
    targets = sorted({layer.split(".", 2)[-1] if "blocks" in layer else layer for layer in one.layers})
    config = {"r": one.rank, "lora_alpha": one.rank, "init_lora_weights": True, "target_modules": targets}
    return _named(one), {"format": "pt", FINETRAINERS_KEY: json.dumps(config, indent=4)}


def comfyui(names: LayerNames) -> Writer:
    """The writer for ComfyUI's model of a family."""

    def write(lora: LoraWeights) -> Written:
        if lora.dora:
            refuse_more_than_matrices(lora, "ComfyUI")
        layers = {layer: f"diffusion_model.{name}" for layer, name in authors(lora, names).items()}
        found = down_and_up(lora, layers)
        for layer, name in layers.items():
            bias = lora.tensors.get(f"{layer}.{UP_BIAS}")
            if bias is not None and bias.any():
                found[f"{name}.diff_b"] = bias * lora.scale_of(layer)
        return found, {"format": "pt"}

    return write


def comfyui_without_alpha(names: LayerNames, program: str) -> Writer:
    """The writer for programs that read ComfyUI's names, whether they look for alpha or not."""

    def write(lora: LoraWeights) -> Written:
        refuse_more_than_matrices(lora, program)
        one = even(without_alpha(lora))
        layers, found = authors(one, names), {}
        for name, tensor in one.tensors.items():
            layer, _, end = name.rpartition(".lora_")
            found[f"diffusion_model.{layers[layer]}.lora_{end}"] = tensor
        return found, {"format": "pt"}

    return write


def kohya(lora: LoraWeights, layers: Mapping[str, str]) -> Written:
    """layers: what each of the LoRA's layers is called before its dots become underscores"""
    refuse_more_than_matrices(lora, "kohya's format")
    metadata = {"format": "pt", "ss_network_module": "networks.lora", "ss_network_dim": str(lora.rank)}
    return down_and_up(lora, {k: f"lora_unet_{v.replace('.', '_')}" for k, v in layers.items()}), metadata


def authors(lora: LoraWeights, names: LayerNames) -> dict[str, str]:
    """The authors' name of each layer of a LoRA. Raises ConfigError for one that their model lacks."""
    found = {layer: names.authors_name(layer) for layer in lora.layers}
    if missing := [layer for layer, name in found.items() if name is None]:
        raise ConfigError(f"the LoRA changes {missing[0][:80]}, a layer that ComfyUI's model lacks: choose portable")
    return {layer: name for layer, name in found.items() if name is not None}


def down_and_up(lora: LoraWeights, names: Mapping[str, str]) -> Tensors:
    """Pairs of matrices by the names given, with each layer's alpha as a tensor."""
    import torch

    found = dict[str, torch.Tensor]()
    for layer, name in names.items():
        found[f"{name}.lora_down.weight"] = lora.tensors[f"{layer}.{DOWN}"]
        found[f"{name}.lora_up.weight"] = lora.tensors[f"{layer}.{UP}"]
        found[f"{name}.alpha"] = torch.tensor(lora.alpha_of(layer), dtype=torch.float32)
    return found


# What every family of diffusers' can write.
FORMATS = (
    LoraFormat(
        "diffusers",
        "diffusers",
        "As in the library: rank and alpha in the file's metadata, which diffusers reads from 0.34 on.",
        readers=("diffusers",),
        outside="diffusers",
    ),
    LoraFormat(
        "portable",
        "portable",
        "diffusers' names with the strength multiplied into the weights, for programs that know nothing of alpha.",
        readers=("diffusers",),
        outside="diffusers",
    ),
    LoraFormat(
        "finetrainers",
        "finetrainers",
        "As portable, with finetrainers' notes, which say that alpha is the rank.",
        readers=("finetrainers", "diffusers"),
        outside="diffusers",
    ),
)
WRITERS: dict[str, Writer] = {"diffusers": diffusers, "portable": portable, "finetrainers": finetrainers}


def passed_over_by_comfyui(formats: Iterable[LoraFormat], title: str) -> tuple[LoraFormat, ...]:
    """The formats, with a warning that ComfyUI's loader skips such names with no more than a line in its log.

    Args:
        title: of the family, for whose model ComfyUI knows no names but those of `comfyui`
    """
    warning = (
        f"ComfyUI's own {title} model does not know these names: there the file loads without an error and changes "
        f"nothing. For ComfyUI, convert it to comfyui"
    )
    return tuple(replace(one, warning=warning) for one in formats)
