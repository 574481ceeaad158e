"""LoRA files of other trainers, read by a family's table of layer names.

Known for every family: ours and diffusers' (alpha in the metadata, or nowhere), finetrainers (alpha in a metadata key
of its own), ComfyUI, kohya and what diffusers converts for it, LyCORIS' plain LoRA (alpha in a tensor of each layer),
peft (alpha in adapter_config.json, or nowhere), DiffSynth, VideoX-Fun, lightx2v (whole differences of weights and
biases beside the matrices). Ranks and alphas may differ from layer to layer, and any layer may be missing. LoHa, LoKr
and their kin are refused by name, and so is a file with a LoRA for each of two experts (`lora_files.by_expert` takes it
apart). Not covered: writing (lora_writing), files that only one family has (its own module).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.lora_files import (
    DIFFUSERS_KEY,
    DOWN,
    LENGTHS,
    PEFT_KEY,
    UP,
    UP_BIAS,
    LoraWeights,
    by_expert,
    refuse_other_kinds,
    weights,
)

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]

TENSOR = re.compile(
    r"(?P<layer>.+?)[._](?P<matrix>lora_A|lora_B|lora_down|lora_up|lora\.down|lora\.up|lora_linear_layer\.down|"
    r"lora_linear_layer\.up|lora_magnitude_vector)(?:\.(?!weight|bias)\w+)?(?:\.(?P<kind>weight|bias))?"
)
PER_LAYER = re.compile(r"(?P<layer>.+)\.(?P<what>alpha|dora_scale)(?:\.weight)?")
WHOLE = re.compile(r"(?P<layer>.+)\.(?P<what>diff|diff_b)")
FINETRAINERS_KEY = "lora_config"
KNOWN_SHARE = 0.95  # of a file's layers must have names that are known; the others are left out
DAMAGED = "the LoRA's notes on rank and alpha are damaged: export it again"
PREFIXES = (
    *("base_model.model.", "model.diffusion_model.", "diffusion_model.", "module.", "transformer.", "unet."),
    *("transformer_1.", "transformer_2.", "pipe.dit."),
)
FLAT_PREFIXES = ("lycoris_", "lora_unet_", "lora_transformer_", "transformer_")
# What a file's first name begins with -> who wrote it, where the metadata does not say.
ORIGINS = {
    "diffusion_model.": "ComfyUI",
    "model.diffusion_model.": "ComfyUI",
    "base_model.": "peft",
    "lora_unet__": "VideoX-Fun",
    "lora_unet_": "a trainer with kohya's names",
    "lora_transformer_": "a trainer with kohya's names",
    "transformer_transformer_": "diffusers' conversion for kohya",
    "lycoris_": "LyCORIS",
}
BLOCK = re.compile(r"(?:transformer_)?blocks[._](\d+)[._](.+)")


@dataclass(frozen=True)
class LayerNames:
    """What a family's layers are called.

    title:    of the family;  blocks: what diffusers calls the list of its blocks
    in_block: diffusers' name within a block -> the authors', which ComfyUI keeps;  outside: the same of other layers
    readers:  whose files are known, for messages;  authors_blocks: what the authors call the list of blocks
    more_parts: other parts of the model that have layers, which are called the same everywhere
    """

    title: str
    blocks: str
    in_block: Mapping[str, str]
    outside: Mapping[str, str]
    readers: str
    authors_blocks: str = "blocks"
    more_parts: tuple[str, ...] = ()

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Every spelling of a layer without its block's number -> diffusers' name."""
        found = {
            spelling: name
            for table in (self.in_block, self.outside)
            for name, authors in table.items()
            for spelling in (name, authors, name.replace(".", "_"), authors.replace(".", "_"))
        }
        # An old diffusers left the 0 of to_out out.
        ended = [name for name in self.in_block if name.endswith("to_out.0")]
        short = {name.removesuffix(".0"): name for name in ended}
        return found | short | {spelling.replace(".", "_"): name for spelling, name in short.items()}

    def layer_of(self, text: str) -> str | None:
        """diffusers' name of a layer that any known program calls `text`; None for what is no layer's name."""
        name = text.replace(".processor.", ".")
        while (prefix := next((one for one in PREFIXES if name.startswith(one)), None)) is not None:
            name = name.removeprefix(prefix)
        if "." not in name and not BLOCK.match(name):
            prefix = next((one for one in FLAT_PREFIXES if name.startswith(one)), "")
            name = name.removeprefix(prefix).lstrip("_")  # VideoX-Fun writes lora_unet__transformer_blocks_0
        if (match := BLOCK.fullmatch(name)) is not None:
            inside = self._spellings.get(match[2])
            if inside is not None:
                return f"{self.blocks}.{match[1]}.{inside}"
        elif name in self._spellings:
            return self._spellings[name]
        parts = {self.blocks, *self.more_parts, *(layer.partition(".")[0] for layer in self.outside)}
        return name if "." in name and name.partition(".")[0] in parts else None

    def authors_name(self, layer: str) -> str | None:
        """The authors' name of a layer, which ComfyUI uses; None for one that their model lacks."""
        if (match := BLOCK.fullmatch(layer)) is not None:
            inside = self.in_block.get(match[2])
            return None if inside is None else f"{self.authors_blocks}.{match[1]}.{inside}"
        return self.outside.get(layer)


def read(names: LayerNames, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
    """A LoRA file's tensors and metadata, of any known trainer. Raises ConfigError."""
    if len(by_expert(tensors)) > 1:
        raise ConfigError(
            "the file holds two LoRAs, one for each expert (high noise, low noise): import it, which makes two of it"
        )
    paired = any(TENSOR.fullmatch(name) for name in tensors)
    refuse_other_kinds(name for name in tensors if not (paired and WHOLE.fullmatch(name)))
    named: dict[str, torch.Tensor] = {}
    alphas: dict[str, float] = {}
    unknown: dict[str, str] = {}
    for name, tensor in tensors.items():
        if (match := PER_LAYER.fullmatch(name)) is not None and (layer := names.layer_of(match["layer"])) is not None:
            if match["what"] == "alpha":
                alphas[layer] = float(tensor)
            else:
                named[f"{layer}.{LENGTHS}"] = tensor
            continue
        match = TENSOR.fullmatch(name)
        layer = None if match is None else names.layer_of(match["layer"])
        if match is not None and layer is not None:
            named[f"{layer}.{_part(match)}"] = tensor
        elif not WHOLE.fullmatch(name):
            unknown.setdefault(match["layer"] if match else name, "a name of no trainer known here")
    if unknown and len(unknown) > (1 - KNOWN_SHARE) * (len(unknown) + len(ranks(named))):
        raise ConfigError(
            f"the LoRA holds {next(iter(unknown))[:80]!r}, a name of no trainer known here: give a file of "
            f"{names.readers}, of {names.title}"
        )
    _check_lengths(named)
    left_out = unknown | _whole_differences(names, tensors, named, alphas)
    origin = _origin(tensors, metadata)
    lora = weights(named, alphas, origin) if alphas else _with_notes(named, metadata, origin)
    return replace(lora, left_out=left_out)


def _whole_differences(
    names: LayerNames, tensors: Tensors, named: dict[str, torch.Tensor], alphas: Mapping[str, float]
) -> dict[str, str]:
    """Add what a file holds as whole differences of weights and biases (lightx2v) to the pairs in `named`.

    A difference of a weight is a pair with the identity; one of a bias is its layer's. Returns what is left out and
    why: differences of norms and tables, of biases whose layer has no pair. What changes nothing is passed over.
    """
    import torch

    left_out: dict[str, str] = {}
    found = sorted((match for name in tensors if (match := WHOLE.fullmatch(name))), key=lambda match: match["what"])
    for match in found:  # weights before biases
        text, tensor, layer = match["layer"], tensors[match[0]], names.layer_of(match["layer"])
        if not tensor.any():
            continue
        if layer is None or names.authors_name(layer) is None or (match["what"] == "diff" and tensor.ndim < 2):
            left_out[text] = "a norm or a table, for which a LoRA has no place"
        elif match["what"] == "diff" and f"{layer}.{DOWN}" in named:
            left_out[text] = "a whole difference of a layer that also has matrices"
        elif match["what"] == "diff":
            tall = tensor.ndim == 2 and tensor.shape[0] > tensor.shape[1]
            one = torch.eye(tensor.shape[1 if tall else 0], dtype=tensor.dtype)
            if not tall:
                one = one.reshape(*one.shape, *[1] * (tensor.ndim - 2))
            named[f"{layer}.{DOWN}"], named[f"{layer}.{UP}"] = (one, tensor) if tall else (tensor, one)
        elif (down := named.get(f"{layer}.{DOWN}")) is None:
            left_out[text] = "the bias of a layer that has no matrices"
        else:
            named[f"{layer}.{UP_BIAS}"] = tensor / (alphas.get(layer, down.shape[0]) / down.shape[0])
    if any(name.endswith(UP_BIAS) for name in named):  # peft gives every layer one, or none
        for layer in ranks(named):
            up = named.get(f"{layer}.{UP}")
            if up is not None:
                named.setdefault(f"{layer}.{UP_BIAS}", up.new_zeros(up.shape[0]))
    return left_out


def _part(match: re.Match[str]) -> str:
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


def _origin(tensors: Tensors, metadata: Mapping[str, str]) -> str:
    """Which program wrote a file, by its metadata and names."""
    name = next(iter(tensors), "")
    if PEFT_KEY in metadata:  # diffusion-pipe saves with peft, by ComfyUI's names
        return "diffusion-pipe" if name.startswith("diffusion_model.") else "peft"
    if DIFFUSERS_KEY in metadata:
        return "this workbench" if "base_model" in metadata else "diffusers"
    if FINETRAINERS_KEY in metadata:
        return "finetrainers"
    if '"ai-toolkit"' in metadata.get("software", ""):
        return "ai-toolkit"
    if metadata.get("ss_network_module", "").startswith("networks.lora_"):  # networks.lora_wan, say
        return "musubi-tuner"
    if any(WHOLE.fullmatch(one) for one in tensors):
        return "lightx2v"
    if ".default." in name:
        return "DiffSynth"
    found = next((origin for start, origin in ORIGINS.items() if name.startswith(start)), "")
    return found or "a trainer that writes no alpha, as diffusers' examples and cogvideox-factory"


def _with_notes(named: Tensors, metadata: Mapping[str, str], origin: str) -> LoraWeights:
    """Tensors with the alpha that the file's metadata says, for all layers or for some."""
    if (text := metadata.get(PEFT_KEY, metadata.get(DIFFUSERS_KEY))) is not None:
        found = {name.removeprefix("transformer."): value for name, value in _json(text).items()}
        if "lora_alpha" not in found:
            return weights(named, {}, origin, alpha_known=False)
        alphas = {}
        for layer, rank in ranks(named).items():
            patterns = found.get("alpha_pattern") or {}
            alpha = _of_layer(layer, patterns if isinstance(patterns, dict) else {}, found["lora_alpha"])
            alphas[layer] = alpha * math.sqrt(rank) if found.get("use_rslora") else alpha
        return weights(named, alphas, origin)
    if (text := metadata.get(FINETRAINERS_KEY)) is not None and "lora_alpha" in (found := _json(text)):
        return weights(named, dict.fromkeys(ranks(named), _number(found["lora_alpha"])), origin)
    return weights(named, {}, origin, alpha_known=False)


def ranks(named: Tensors) -> dict[str, int]:
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
