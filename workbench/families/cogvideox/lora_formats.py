"""LoRAs of CogVideoX written for other programs, each so that its reader gets the same change of every weight.

    diffusers         diffusers' names, rank and alpha in the metadata; DoRA and biases too
    portable          diffusers' names, the scale worked in: readers that know nothing of alpha
    finetrainers      diffusers' names, rank and alpha in finetrainers' own metadata key
    comfyui           the layers of ComfyUI's own CogVideoX model, alpha in a tensor of each
    kohya             diffusers' layers in kohya's flat spelling, alpha in a tensor of each
    sat               a torch file with SAT's matrices, for its alpha of 1

Not covered: reading (loras), names (lora_names).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.families.cogvideox.lora_names import comfy_name, flat_name
from workbench.families.cogvideox.loras import FINETRAINERS_KEY, SAT_ALPHA, SAT_MODULES
from workbench.families.lora_files import (
    DOWN,
    UP,
    LoraFormat,
    LoraWeights,
    diffusers_notes,
    even,
    refuse_more_than_matrices,
    without_alpha,
)

if TYPE_CHECKING:
    import torch

    Tensors = dict[str, torch.Tensor]
    Written = tuple[Tensors, dict[str, str]]

PREFIX = "transformer"
# Its LoRA loader looks for its own layers' names, passes over all others with a line in its log, and goes on.
UNKNOWN_TO_COMFYUI = (
    "ComfyUI's own CogVideoX model does not know these names: there the file loads without an error and changes "
    "nothing. For ComfyUI, convert it to comfyui"
)
FORMATS = (
    LoraFormat(
        "diffusers",
        "diffusers",
        "As in the library: rank and alpha in the file's metadata. For diffusers from 0.34 on, and this workbench.",
        warning=UNKNOWN_TO_COMFYUI,
    ),
    LoraFormat(
        "portable",
        "portable (cogvideox-factory, ComfyUI-CogVideoXWrapper)",
        "diffusers' names with the strength worked into the weights, for programs that know nothing of alpha: "
        "cogvideox-factory, kijai's ComfyUI-CogVideoXWrapper, older diffusers.",
        warning=UNKNOWN_TO_COMFYUI,
    ),
    LoraFormat(
        "finetrainers",
        "finetrainers",
        "diffusers' names with rank and alpha where finetrainers writes and reads them.",
    ),
    LoraFormat(
        "comfyui",
        "ComfyUI",
        "For the LoRA loader of ComfyUI's own CogVideoX model (diffusion_model.blocks.0.q and so on).",
    ),
    LoraFormat(
        "kohya",
        "kohya",
        "kohya's flat names with an alpha for each layer (lora_unet_transformer_blocks_0_attn1_to_q), as VideoX-Fun "
        "reads them. In ComfyUI's own CogVideoX model they do nothing: choose comfyui for it.",
        warning=UNKNOWN_TO_COMFYUI,
    ),
    LoraFormat(
        "sat",
        "SAT",
        "A torch file for the authors' own code (SwissArmyTransformer), lora_alpha 1.",
        ".pt",
    ),
)


def export(lora: LoraWeights, format: str) -> Written:
    """(tensors, metadata) of the LoRA in a format of FORMATS. Raises ConfigError where the format cannot hold it."""
    writers: dict[str, Callable[[LoraWeights], Written]] = {
        "diffusers": _diffusers,
        "portable": _portable,
        "finetrainers": _finetrainers,
        "comfyui": _comfyui,
        "kohya": _kohya,
        "sat": lambda given: (to_sat(given), {}),
    }
    if format not in writers:
        raise ConfigError(f"format is {format!r}: use {', '.join(list(writers)[:-1])} or {list(writers)[-1]}")
    tensors, metadata = writers[format](lora)
    return {name: tensor.contiguous() for name, tensor in tensors.items()}, metadata


def _named(lora: LoraWeights) -> Tensors:
    return {f"{PREFIX}.{name}": tensor for name, tensor in lora.tensors.items()}


def _diffusers(lora: LoraWeights) -> Written:
    return _named(lora), diffusers_notes(lora, PREFIX)


def _portable(lora: LoraWeights) -> Written:
    if lora.biased:  # an older loader does not look for them
        refuse_more_than_matrices(lora, "an older loader")
    return _named(even(without_alpha(lora))), {"format": "pt"}


def _finetrainers(lora: LoraWeights) -> Written:
    refuse_more_than_matrices(lora, "finetrainers")
    one = even(lora)
    alpha = one.rank if one.alpha is None else one.alpha
    targets = sorted({layer.split(".", 2)[-1] if "blocks" in layer else layer for layer in one.layers})
    config = {"r": one.rank, "lora_alpha": alpha, "init_lora_weights": True, "target_modules": targets}
    return _named(one), {"format": "pt", FINETRAINERS_KEY: json.dumps(config, indent=4)}


def _comfyui(lora: LoraWeights) -> Written:
    refuse_more_than_matrices(lora, "ComfyUI")
    names = {layer: comfy_name(layer) for layer in lora.layers}
    if missing := [layer for layer, name in names.items() if name is None]:
        raise ConfigError(f"the LoRA sits on {missing[0][:80]}, a layer that ComfyUI's model has not: choose portable")
    return _down_and_up(lora, {layer: f"diffusion_model.{name}" for layer, name in names.items()}), {"format": "pt"}


def _kohya(lora: LoraWeights) -> Written:
    refuse_more_than_matrices(lora, "kohya's format")
    metadata = {"format": "pt", "ss_network_module": "networks.lora", "ss_network_dim": str(lora.rank)}
    return _down_and_up(lora, {layer: f"lora_unet_{flat_name(layer)}" for layer in lora.layers}), metadata


def _down_and_up(lora: LoraWeights, names: dict[str, str]) -> Tensors:
    """Pairs of matrices by the names given, with each layer's alpha as a tensor."""
    import torch

    found = dict[str, torch.Tensor]()
    for layer, name in names.items():
        found[f"{name}.lora_down.weight"] = lora.tensors[f"{layer}.{DOWN}"]
        found[f"{name}.lora_up.weight"] = lora.tensors[f"{layer}.{UP}"]
        found[f"{name}.alpha"] = torch.tensor(lora.alpha_of(layer), dtype=torch.float32)
    return found


def to_sat(lora: LoraWeights) -> Tensors:
    """The LoRA's matrices by SAT's names, for its default alpha of 1: the scale is multiplied into B. Raises
    ConfigError.

    What the LoRA has for one or two of query, key and value gets matrices of zeros for the rest, which SAT cannot omit.
    """
    import torch

    refuse_more_than_matrices(lora, "SAT")
    one = even(lora)
    scale = (one.rank if one.alpha is None else one.alpha) / SAT_ALPHA
    parts = {
        f"attn1.{name}": (module, part) for module, names in SAT_MODULES.items() for part, name in enumerate(names)
    }
    found: dict[str, torch.Tensor] = {}
    for name, tensor in one.tensors.items():
        match = re.fullmatch(r"transformer_blocks\.(\d+)\.(.+)\.lora_([AB])\.weight", name)
        if match is None or match[2] not in parts:
            raise ConfigError(
                f"the LoRA holds {name[:80]!r}, SAT's sits on the attention's projections alone: train one on attention"
            )
        module, part = parts[match[2]]
        sat = f"model.diffusion_model.transformer.layers.{match[1]}.attention.{module}.matrix_{match[3]}.{part}"
        found[sat] = tensor * scale if match[3] == "B" else tensor
    for name, tensor in list(found.items()):
        stem, part_name = name.rsplit(".", 1)
        for part in range(len(SAT_MODULES["query_key_value"]) if "query_key_value" in name else 0):
            if part != int(part_name):
                found.setdefault(f"{stem}.{part}", torch.zeros_like(tensor))
    return dict(sorted(found.items()))
