"""LoRA files of CogVideoX trainers, read by the names of ours.

Known: ours and diffusers' (alpha in the metadata, or nowhere), cogvideox-factory (alpha nowhere), finetrainers (alpha
in a metadata key of its own), ComfyUI, kohya and what diffusers converts for it, LyCORIS' plain LoRA (alpha in a tensor
of each layer), peft (alpha in adapter_config.json, or nowhere), SAT (matrices of the fused query_key_value and of
dense, alpha 1). Ranks and alphas may differ from layer to layer. LoHa, LoKr and their kin are refused by name. Not
covered: writing (lora_formats).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.base import Tensors
from workbench.families.cogvideox.lora_names import layer_of
from workbench.families.lora_files import (
    DIFFUSERS_KEY,
    DOWN,
    LENGTHS,
    PEFT_KEY,
    UP,
    UP_BIAS,
    LoraWeights,
    refuse_other_kinds,
    weights,
)

if TYPE_CHECKING:
    import torch

TENSOR = re.compile(
    r"(?P<layer>.+?)[._](?P<matrix>lora_A|lora_B|lora_down|lora_up|lora\.down|lora\.up|lora_linear_layer\.down|"
    r"lora_linear_layer\.up|lora_magnitude_vector)(?:\.(?!weight|bias)\w+)?(?:\.(?P<kind>weight|bias))?"
)
PER_LAYER = re.compile(r"(?P<layer>.+)\.(?P<what>alpha|dora_scale)(?:\.weight)?")
SAT_LAYER = re.compile(r"(?:.*\.)?transformer\.layers\.(\d+)\.attention\.(query_key_value|dense)\.matrix_([AB])\.(\d)")
SAT_MODULES = {"query_key_value": ("to_q", "to_k", "to_v"), "dense": ("to_out.0",)}
SAT_ALPHA = 1.0  # SAT's own default, which none of its configs changes
FINETRAINERS_KEY = "lora_config"
DAMAGED = "the LoRA's notes on rank and alpha are damaged: export it again"
KNOWN = "this workbench, diffusers, cogvideox-factory, finetrainers, ComfyUI, kohya or SAT"


def is_sat(tensors: Tensors) -> bool:
    """Whether these are tensors of a SAT checkpoint with a LoRA in it."""
    return any(".matrix_A." in name for name in tensors)


def read(tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
    """A LoRA file's tensors and metadata, whoever wrote it. Raises ConfigError."""
    if is_sat(tensors):
        return _read_sat(tensors)
    refuse_other_kinds(tensors)
    named: dict[str, torch.Tensor] = {}
    alphas: dict[str, float] = {}
    for name, tensor in tensors.items():
        if (match := PER_LAYER.fullmatch(name)) is not None and (layer := layer_of(match["layer"])) is not None:
            if match["what"] == "alpha":
                alphas[layer] = float(tensor)
            else:
                named[f"{layer}.{LENGTHS}"] = tensor
            continue
        match = TENSOR.fullmatch(name)
        layer = None if match is None else layer_of(match["layer"])
        if match is None or layer is None:
            raise ConfigError(
                f"the LoRA holds {name[:80]!r}, a name of no trainer known here: give a file of {KNOWN}, of CogVideoX"
            )
        named[f"{layer}.{_part(match)}"] = tensor
    _check_lengths(named)
    origin = _origin(next(iter(tensors), ""), metadata)
    if alphas:
        return weights(named, alphas, origin)
    return _with_notes(named, metadata, origin)


def _part(match: re.Match[str]) -> str:
    """The tensor's name within its layer, as ours has it."""
    matrix = match["matrix"]
    if matrix == LENGTHS:
        return LENGTHS
    up = matrix.endswith(("_B", "up"))
    return (UP_BIAS if up else "lora_A.bias") if match["kind"] == "bias" else (UP if up else DOWN)


def _check_lengths(named: dict[str, torch.Tensor]) -> None:
    """Lengths of rows as peft has them: one number a row. Raises ConfigError for those of columns."""
    for name, tensor in [pair for pair in named.items() if pair[0].endswith(LENGTHS)]:
        up = named.get(name.replace(LENGTHS, UP))
        if up is not None and tensor.numel() != up.shape[0]:
            raise ConfigError("this DoRA keeps the lengths of columns, diffusers those of rows: it cannot be converted")
        named[name] = tensor.flatten()


def _origin(name: str, metadata: Mapping[str, str]) -> str:
    """Who wrote the file, in words, as far as its names tell."""
    if PEFT_KEY in metadata:
        return "peft"
    if DIFFUSERS_KEY in metadata:
        return "this workbench" if "base_model" in metadata else "diffusers"
    if FINETRAINERS_KEY in metadata:
        return "finetrainers"
    words = {
        "diffusion_model.": "ComfyUI",
        "model.diffusion_model.": "ComfyUI",
        "base_model.": "peft",
        "lora_unet_": "a trainer with kohya's names",
        "lora_transformer_": "a trainer with kohya's names",
        "transformer_transformer_": "diffusers' conversion for kohya",
        "lycoris_": "LyCORIS",
    }
    found = next((origin for start, origin in words.items() if name.startswith(start)), "")
    return found or "a trainer that writes no alpha, as diffusers' examples and cogvideox-factory"


def _with_notes(named: Tensors, metadata: Mapping[str, str], origin: str) -> LoraWeights:
    """Tensors with the alpha that the file's metadata says, for all layers or for some."""
    if (text := metadata.get(PEFT_KEY, metadata.get(DIFFUSERS_KEY))) is not None:
        found = {name.removeprefix("transformer."): value for name, value in _json(text).items()}
        if "lora_alpha" not in found:
            return weights(named, {}, origin, alpha_known=False)
        alphas = {}
        for layer, rank in _ranks(named).items():
            patterns = found.get("alpha_pattern") or {}
            alpha = _of_layer(layer, patterns if isinstance(patterns, dict) else {}, found["lora_alpha"])
            alphas[layer] = alpha * math.sqrt(rank) if found.get("use_rslora") else alpha
        return weights(named, alphas, origin)
    if (text := metadata.get(FINETRAINERS_KEY)) is not None and "lora_alpha" in (found := _json(text)):
        return weights(named, dict.fromkeys(_ranks(named), _number(found["lora_alpha"])), origin)
    return weights(named, {}, origin, alpha_known=False)


def _ranks(named: Tensors) -> dict[str, int]:
    return {name.removesuffix(f".{DOWN}"): tensor.shape[0] for name, tensor in named.items() if name.endswith(DOWN)}


def _of_layer(layer: str, patterns: Mapping[str, Any], otherwise: Any) -> float:
    """peft's rule: the first pattern that matches a layer's name, or its end, decides."""
    for pattern, value in patterns.items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", layer):
                return _number(value)
        except re.error:
            raise ConfigError(DAMAGED) from None
    return _number(otherwise)


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(DAMAGED)
    return found


def _number(value: Any) -> float:
    """A finite number of a file's notes. Raises ConfigError."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(DAMAGED)
    return number


def _read_sat(tensors: Tensors) -> LoraWeights:
    """A layer of SAT has q, k and v in one module, with one pair of matrices for each."""
    named = {}
    for name, tensor in tensors.items():
        if ".matrix_" not in name:
            continue  # a checkpoint of SAT's also holds the weights that the LoRA sits on
        if (match := SAT_LAYER.fullmatch(name)) is None:
            raise ConfigError(f"the LoRA holds {name[:80]!r}, a layer that SAT's CogVideoX has not: give another file")
        layer, module, matrix, part = match.groups()
        named[f"transformer_blocks.{layer}.attn1.{SAT_MODULES[module][int(part)]}.lora_{matrix}.weight"] = tensor
    return weights(named, dict.fromkeys(_ranks(named), SAT_ALPHA), "SAT")
