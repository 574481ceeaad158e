"""Read other trainers' LoRA files with a family's table of layer names, and report how they fit a model.

Known for every family: our files and diffusers' (alpha in the metadata, or nowhere), finetrainers (alpha under its own
metadata key), ComfyUI, kohya and diffusers' conversions for it, LyCORIS (alpha in a tensor per layer; LoKr, LoHa and
full weight differences become the nearest LoRA), peft (alpha in adapter_config.json, or nowhere), DiffSynth,
VideoX-Fun, lightx2v (full differences of weights and biases beside the matrices), and alpha in any metadata under its
usual names. Ranks and alphas may differ between layers, and layers may be missing. Adapters that cannot become a LoRA
are refused by name. Files with a LoRA for each of two experts are refused, too: `lora_files.by_expert` splits them.

The report on how a file fits is stored with an imported LoRA, in a conversion's result and in a sample's record.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.display.quantities import percent
from workbench.errors import ConfigError
from workbench.families import low_rank
from workbench.families.lora_files import (
    DIFFUSERS_KEY,
    DOWN,
    LENGTHS,
    PEFT_KEY,
    TEXT_ENCODER,
    UP,
    UP_BIAS,
    WHOLE_MODEL,
    Factors,
    LoraWeights,
    by_expert,
    refuse_other_kinds,
    weights,
)
from workbench.families.low_rank import LowRankProduct, RankLimit, low_rank_of_matrix

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]

TENSOR = re.compile(
    r"(?P<layer>.+?)[._](?P<matrix>lora_A|lora_B|lora_down|lora_up|lora_mid|lora\.down|lora\.up|lora_linear_layer\.down|"
    r"lora_linear_layer\.up|lora_magnitude_vector)(?:\.(?!weight|bias)\w+)?(?:\.(?P<kind>weight|bias))?"
)
PER_LAYER = re.compile(r"(?P<layer>.+)\.(?P<what>alpha|dora_scale)(?:\.weight)?")
WHOLE = re.compile(r"(?P<layer>.+)\.(?P<what>diff|diff_b|diff_m|w_norm|b_norm)")
REPLACED = re.compile(r"(?P<layer>.+)\.(?P<what>weight|bias|set_weight|reshape_weight|modulation|scale_shift_table)")
PATTERNS = (PER_LAYER, TENSOR, low_rank.FACTOR, WHOLE, REPLACED)  # the first match says what a tensor is
LOW_RANK = re.compile(r"[._](lora|lokr|hada)[._]")  # in names of a LoRA's tensors
KOHYA = re.compile(r"[._]lora_(down|up)\b")
FINETRAINERS_KEY = "lora_config"
# Metadata keys for an alpha of all layers, the most reliable first. KOHYAS needs a look at the layers' names, too.
SAID, KOHYAS = ("lora_alpha", "network_alpha", "alpha"), "ss_network_alpha"
NOT_SAID = ("", "None", "none", "null", "Dynamic", "auto")  # values that mean no alpha
MODULATION = "a modulation table, which a LoRA cannot change"
TABLE = "a norm or a table, which a LoRA cannot change"
OF_TEXT_ENCODER = "a layer of a text encoder, which is not trained here"
COLUMNS = "this DoRA stores the lengths of columns, diffusers those of rows: it cannot be converted"
DAMAGED = "the LoRA's notes on rank and alpha are damaged: export it again"
PREFIXES = (
    *("base_model.model.", "module.", "diffusion_model.", "transformer.", "unet.", "model.", "pipe.", "dit.", "net."),
    *("transformer_1.", "transformer_2.", "vace."),
)
FLAT_PREFIXES = ("lycoris_", "lora_unet_", "lora_transformer_", "transformer_")
# Prefix of a file's first tensor -> the program that wrote it, if the metadata does not say.
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
# diffusers' names for the usual layers of a block.
ATTENTION, FEED_FORWARD = ("to_q", "to_k", "to_v", "to_out.0"), ("ff.net.0.proj", "ff.net.2")
BLOCK = re.compile(r"(?:(?:visual_)?transformer_|double_)?blocks[._](\d+)[._](.+)")


def block_number(layer: str) -> int | None:
    """Return the main block that a layer belongs to by diffusers' name of it; None for layers outside the blocks."""
    match = BLOCK.match(layer)
    return int(match[1]) if match else None


def without_prefixes(name: str) -> str:
    """Strip the prefixes that programs add to a layer's name."""
    while (prefix := next((one for one in PREFIXES if name.startswith(one)), None)) is not None:
        name = name.removeprefix(prefix)
    return name


@dataclass(frozen=True)
class LayerNames:
    """The names of a family's layers."""

    title: str  # the family's
    blocks: str  # diffusers' name for the list of blocks
    in_block: Mapping[str, str]  # diffusers' name within a block -> the authors', which ComfyUI keeps
    outside: Mapping[str, str]  # in_block's for layers outside the blocks
    readers: str  # programs whose files are known, for messages
    authors_blocks: str = "blocks"  # the authors' name for the list of blocks
    more_parts: tuple[str, ...] = ()  # other parts with layers that have the same names everywhere
    # Everyone's name for the blocks of a side branch, which have the other blocks' layers and more; "" for none
    side: str = ""
    # The side branch's additional layers, diffusers' name -> the authors'
    in_side: Mapping[str, str] = field(default_factory=dict)
    # Another program's name of a layer -> diffusers' name, for reading
    also: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Every spelling of a layer, without its block's number -> diffusers' name."""
        found = {
            spelling: name
            for table in (self.in_block, self.outside)
            for name, authors in table.items()
            for spelling in (name, authors, name.replace(".", "_"), authors.replace(".", "_"))
        }
        found |= {spelling: name for other, name in self.also.items() for spelling in (other, other.replace(".", "_"))}
        # Old versions of diffusers wrote to_out for to_out.0.
        short = {name.removesuffix(".0"): name for name in self.in_block if name.endswith("to_out.0")}
        return found | short | {spelling.replace(".", "_"): name for spelling, name in short.items()}

    def layer_of(self, text: str) -> str | None:
        """Return diffusers' name for any known program's name of a layer; None if it is not a layer's name."""
        name = without_prefixes(text.replace(".processor.", "."))
        if "." not in name and not BLOCK.match(name):
            prefix = next((one for one in FLAT_PREFIXES if name.startswith(one)), "")
            name = name.removeprefix(prefix).lstrip("_")  # VideoX-Fun writes lora_unet__transformer_blocks_0
        if (match := self._in_side_branch(name)) is not None:
            of_side = {each.replace(".", "_"): name for name, own in self.in_side.items() for each in (name, own)}
            inside = self._spellings.get(match[2]) or of_side.get(match[2].replace(".", "_"))
            return None if inside is None else f"{self.side}.{match[1]}.{inside}"
        if (match := BLOCK.fullmatch(name)) is not None:
            inside = self._spellings.get(match[2])
            if inside is not None:
                return f"{self.blocks}.{match[1]}.{inside}"
        elif name in self._spellings:
            return self._spellings[name]
        parts = {self.blocks, *self.more_parts, *(layer.partition(".")[0] for layer in self.outside)}
        return name if "." in name and name.partition(".")[0] in parts else None

    def authors_name(self, layer: str) -> str | None:
        """Return the authors' name of a layer, which ComfyUI uses; None if their model lacks it."""
        if (match := self._in_side_branch(layer)) is not None:
            inside = {**self.in_block, **self.in_side}.get(match[2])
            return None if inside is None else f"{self.side}.{match[1]}.{inside}"
        if (match := BLOCK.fullmatch(layer)) is not None:
            inside = self.in_block.get(match[2])
            return None if inside is None else f"{self.authors_blocks}.{match[1]}.{inside}"
        return self.outside.get(layer)

    def _in_side_branch(self, name: str) -> re.Match[str] | None:
        """Split the name of a side branch's layer into the block's number and the rest."""
        return re.fullmatch(rf"{self.side}[._](\d+)[._](.+)", name) if self.side else None


@dataclass
class _Contents:
    """A file's tensors by kind. Layers have our names unless stated otherwise."""

    # Pairs of matrices and lengths of rows, under peft's names
    named: dict[str, torch.Tensor] = field(default_factory=dict)
    cores: dict[str, torch.Tensor] = field(default_factory=dict)  # layer -> the matrix between the two (LoCon)
    factors: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)  # layer -> its LoKr or LoHa factors
    alphas: dict[str, float] = field(default_factory=dict)  # layer -> alpha, from the layer's tensor
    whole: list[re.Match[str]] = field(default_factory=list)  # full weight differences, as matches of WHOLE
    called: dict[str, str] = field(default_factory=dict)  # layer -> its name in the file
    # left_out, unknown: a layer's name in the file -> why it is not used
    left_out: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    wide: dict[str, int] = field(default_factory=dict)  # input layer -> number of inputs of its whole weights
    # Layer -> factors with the strength multiplied in, for files with only LoKr layers
    kept: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)

    def take(self, layer: str, match: re.Match[str], tensor: torch.Tensor) -> None:
        """Add a LoRA tensor of a layer. Raises ConfigError for an unusable alpha or lengths of columns."""
        self.called[layer] = match["layer"]
        if match.re is PER_LAYER and match["what"] == "alpha":
            self.alphas[layer] = _alpha(tensor, match["layer"])
        elif match.re is PER_LAYER:
            if tensor.ndim > 1 and tensor.shape[0] == 1 and tensor.shape[1] > 1:  # early LyCORIS
                raise ConfigError(COLUMNS)
            self.named[f"{layer}.{LENGTHS}"] = tensor
        elif match.re is low_rank.FACTOR:
            self.factors.setdefault(layer, {})[match["factor"]] = tensor
        elif match["matrix"] == "lora_mid":
            self.cores[layer] = tensor
        elif (part := _part(match)) is not None:
            self.named[f"{layer}.{part}"] = tensor
        elif tensor.any():
            self.left_out[match["layer"]] = "a bias of the first matrix, which a LoRA cannot have"

    def note_whole_weights(self, layer: str, match: re.Match[str], tensor: torch.Tensor) -> None:
        """Note whole weights of a layer, or a new shape for them."""
        resized = match["what"] == "reshape_weight"
        shape = tuple(int(one) for one in tensor) if resized else tuple(tensor.shape)
        if layer in INPUT_LAYERS and len(shape) > 1:
            self.wide[layer] = math.prod(shape[1:])
        if not resized:
            self.left_out[match["layer"]] = "whole weights, which a LoRA cannot hold"


def read(names: LayerNames, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
    """Convert any known trainer's tensors and metadata to our names. Raises ConfigError.

    Unknown names end up in `left_out`; `check_fit` decides whether there are too many.
    """
    if len(by_expert(tensors)) > 1:
        raise ConfigError(
            "the file holds two LoRAs, one for each expert (high noise, low noise): import it to split it"
        )
    refuse_other_kinds(tensors)
    musubi = low_rank.MUSUBI in tensors
    found = _sorted(names, {name: one for name, one in tensors.items() if name != low_rank.MUSUBI})
    left_out = found.left_out | found.unknown
    if not (found.named or found.factors or found.whole):
        _refuse_not_a_lora(names, tensors, found)
    for name, lengths in [pair for pair in found.named.items() if pair[0].endswith(LENGTHS)]:
        up = found.named.get(name.replace(LENGTHS, UP))
        if up is not None and lengths.numel() != up.shape[0]:
            raise ConfigError(COLUMNS)
        found.named[name] = lengths.flatten()
    for layer, core in found.cores.items():
        if (down := found.named.get(f"{layer}.{DOWN}")) is not None and f"{layer}.{UP}" in found.named:
            found.named[f"{layer}.{DOWN}"] = low_rank.without_core(core, down)
    notes = _notes(metadata, kohya=any(KOHYA.search(name) for name in tensors))
    alphas, alpha_from = _alphas(found, notes)
    converted, lost = _from_factors(found, notes, alphas, musubi)
    if found.whole:
        full = not found.named
        more, share = _whole_differences(names, tensors, found, alphas, full)
        left_out, lost = left_out | more, share if full else lost
        converted = "a file of whole weights' differences (LyCORIS full)" if full else converted
        if not ranks(found.named):
            raise ConfigError("the LoRA changes only norms, biases and tables: use one that changes linear layers")
        if full:
            alphas = {layer: float(rank) for layer, rank in ranks(found.named).items()}
    lora = weights(found.named, alphas, _origin(tensors, metadata, bool(alpha_from)), alpha_known=bool(alphas))
    factors = Factors(found.kept, lora.tensors) if found.kept and set(found.kept) == set(lora.layers) else None
    return replace(
        lora,
        left_out=left_out,
        alpha_from=alpha_from,
        converted=converted,
        lost=lost,
        wide=dict(found.wide),
        factors=factors,
    )


def _sorted(names: LayerNames, tensors: Tensors) -> _Contents:
    """Sort a file's tensors by kind. Raises ConfigError for an alpha that is not a number."""
    found = _Contents()
    for name, tensor in tensors.items():
        match = next((match for one in PATTERNS if (match := one.fullmatch(name))), None)
        if TEXT_ENCODER.match(name):
            found.left_out[match["layer"] if match else name] = OF_TEXT_ENCODER
            continue
        layer = None if match is None else names.layer_of(match["layer"])
        if match is not None and match.re is WHOLE:
            found.whole.append(match)
        elif match is None or layer is None:
            found.unknown.setdefault(match["layer"] if match else name, UNKNOWN)
        elif match.re is REPLACED:
            found.note_whole_weights(layer, match, tensor)
        else:
            found.take(layer, match, tensor)
    return found


def _refuse_not_a_lora(names: LayerNames, tensors: Tensors, found: _Contents) -> None:
    """Raise ConfigError for a file without LoRA layers, saying what it is instead."""
    weights = [name for name in tensors if REPLACED.fullmatch(name) and not LOW_RANK.search(name)]
    if len(weights) > len(tensors) / 2:
        raise ConfigError(
            f"the file holds a model's whole weights ({weights[0][:80]!r} and {len(tensors) - 1:,} more), not a LoRA: "
            f"{WHOLE_MODEL}"
        )
    if not found.unknown:
        first = next(iter(found.left_out), next(iter(tensors)))
        raise ConfigError(
            f"the LoRA changes only the text encoder ({first[:80]!r}), which is not trained here: use one that changes "
            f"the video model"
        )
    raise unknown_names(list(found.unknown), f"{names.readers}, of {names.title}")


def _whole_differences(
    names: LayerNames, tensors: Tensors, found: _Contents, alphas: Mapping[str, float], approximate: bool
) -> tuple[dict[str, str], float]:
    """Add full differences of weights and biases (lightx2v) to the pairs in `found`, except zeros.

    A weight's difference becomes a pair with the identity or, if `approximate`, the best pair of a limited rank.
    Differences of norms and tables, and of biases whose layer has no pair, are left out.

    Returns:
        (names that are left out -> why, relative error).
    """
    import torch

    named, left_out, lost, total = found.named, dict[str, str](), 0.0, 0.0
    for match in sorted(found.whole, key=lambda match: match["what"]):  # weights before biases
        text, tensor, layer = match["layer"], tensors[match[0]], names.layer_of(match["layer"])
        if not tensor.any():
            continue
        if (
            layer is None
            or names.authors_name(layer) is None
            or match["what"] not in ("diff", "diff_b")
            or (match["what"] == "diff" and tensor.ndim < 2)
        ):
            left_out |= {match[0]: MODULATION} if match["what"] == "diff_m" else {text: TABLE}
        elif match["what"] == "diff" and f"{layer}.{DOWN}" in named:
            left_out[text] = "a full difference of a layer that also has matrices"
        elif match["what"] == "diff" and approximate:
            pair = low_rank_of_matrix(tensor.flatten(1), RankLimit(low_rank.LARGEST))
            lost, total = lost + pair.lost, total + pair.total
            _add_pair(named, layer, pair, tensor.dtype, tuple(tensor.shape[2:]))
        elif match["what"] == "diff":
            tall = tensor.ndim == 2 and tensor.shape[0] > tensor.shape[1]
            one = torch.eye(tensor.shape[1 if tall else 0], dtype=tensor.dtype)
            if not tall:
                one = one.reshape(*one.shape, *[1] * (tensor.ndim - 2))
            named[f"{layer}.{DOWN}"], named[f"{layer}.{UP}"] = (one, tensor) if tall else (tensor, one)
        elif (down := named.get(f"{layer}.{DOWN}")) is None:
            left_out[text] = "the bias of a layer that has no matrices"
        else:
            rank = down.shape[0]
            named[f"{layer}.{UP_BIAS}"] = tensor / (1.0 if approximate else alphas.get(layer, rank) / rank)
    if any(name.endswith(UP_BIAS) for name in named):  # in peft, all layers have one or none has
        for layer in ranks(named):
            up = named.get(f"{layer}.{UP}")
            if up is not None:
                named.setdefault(f"{layer}.{UP_BIAS}", up.new_zeros(up.shape[0]))
    return left_out, math.sqrt(lost / total) if total else 0.0


def _from_factors(found: _Contents, notes: _Notes, alphas: dict[str, float], musubi: bool) -> tuple[str, float]:
    """Convert LoKr and LoHa factors to pairs of matrices, in place in `found` and `alphas`.

    musubi-tuner divides alpha by the longer side of a whole factor. Returns (what the file was, relative error).
    """
    import torch

    lost, total = 0.0, 0.0
    only = not found.named and not found.whole
    for layer, factors in found.factors.items():
        scale, spellings = None, _spellings(found, layer)
        if notes.kron_rank is not None:
            rank = _of_layer(spellings, notes.rank_patterns, notes.kron_rank)
            scale = _of_layer(spellings, notes.patterns, notes.alpha) / max(rank, 1.0)
        elif musubi and "lokr_w2" in factors and layer in alphas:
            scale = alphas[layer] / max(factors["lokr_w2"].shape)
        pair = low_rank.as_pair(found.called[layer], factors, alphas.get(layer), scale)
        if only and low_rank.kind(factors) == "a LoKr":
            own = low_rank.strength(factors, alphas.get(layer)) if scale is None else scale
            found.kept[layer] = low_rank.with_strength(factors, own)
        lost, total = lost + pair.lost, total + pair.total
        dtype = functools.reduce(torch.promote_types, (one.dtype for one in factors.values()))
        kernel = next((tuple(one.shape[2:]) for one in factors.values() if one.ndim > 2), ())  # of a convolution
        _add_pair(found.named, layer, pair, dtype, kernel)
        alphas[layer] = float(pair.down.shape[0])
    if not found.factors:
        return "", 0.0
    return low_rank.kind(next(iter(found.factors.values()))), math.sqrt(lost / total) if total else 0.0


def _add_pair(
    named: dict[str, torch.Tensor], layer: str, pair: LowRankProduct, dtype: torch.dtype, kernel: tuple[int, ...]
) -> None:
    up, down = pair.up.to(dtype), pair.down.to(dtype)
    named[f"{layer}.{UP}"] = up.reshape(*up.shape, *[1] * len(kernel)).contiguous()
    named[f"{layer}.{DOWN}"] = down.reshape(down.shape[0], -1, *kernel).contiguous()


def _alpha(tensor: torch.Tensor, layer: str) -> float:
    """Return a layer's alpha. Raises ConfigError if it is not one finite number."""
    if tensor.numel() != 1:
        raise ConfigError(f"the alpha of {layer[:80]} has {tensor.numel()} numbers, must be one: export the LoRA again")
    if not math.isfinite(alpha := float(tensor)):
        raise ConfigError(f"the alpha of {layer[:80]} is {alpha}, must be finite: use an earlier checkpoint")
    return alpha


def _part(match: re.Match[str]) -> str | None:
    """Return peft's name of a matrix; None for a bias of the first one."""
    matrix = match["matrix"]
    if matrix == LENGTHS:
        return LENGTHS
    up = matrix.endswith(("_B", "up"))
    return (UP_BIAS if up else None) if match["kind"] == "bias" else (UP if up else DOWN)


def _origin(tensors: Tensors, metadata: Mapping[str, str], alpha_known: bool) -> str:
    """Return which program wrote a file, by its metadata and names."""
    name = next(iter(tensors), "")
    if PEFT_KEY in metadata:  # diffusion-pipe saves with peft, by ComfyUI's names
        return "diffusion-pipe" if name.startswith("diffusion_model.") else "peft"
    if DIFFUSERS_KEY in metadata:
        return "this workbench" if "base_model" in metadata else "diffusers"
    if FINETRAINERS_KEY in metadata:
        return "finetrainers"
    if '"ai-toolkit"' in metadata.get("software", ""):
        return "ai-toolkit"
    module = metadata.get("ss_network_module", "")
    if module.startswith("networks.lora_") or low_rank.MUSUBI in tensors:  # networks.lora_wan, say
        return "musubi-tuner"
    if any(WHOLE.fullmatch(one) for one in tensors):
        return "lightx2v"
    if ".default." in name:
        return "DiffSynth"
    if found := next((origin for start, origin in ORIGINS.items() if name.startswith(start)), ""):
        return found
    if alpha_known:
        return "a trainer that does not name itself"
    return "a trainer that writes no alpha, as diffusers' examples and cogvideox-factory"


# ---- alpha in the metadata -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Notes:
    """What a file's metadata, or adapter_config.json next to it, says about alpha."""

    alpha: float | None = None  # alpha of all layers; None if nothing says
    source: str = ""  # where it was found, in words
    patterns: Mapping[str, Any] = field(default_factory=dict)  # pattern in a layer's name -> its alpha (peft)
    rslora: bool = False  # the scale is alpha / sqrt(rank)
    # kron_rank, rank_patterns: ranks of peft's LoKr and LoHa, which the tensors do not always show
    kron_rank: float | None = None
    rank_patterns: Mapping[str, Any] = field(default_factory=dict)
    folded: bool = False  # alpha has already been multiplied into the matrices

    def alpha_of(self, spellings: Sequence[str], rank: int) -> float:
        """Return a layer's scale times its rank. A pattern may match any of its `spellings`."""
        alpha = _of_layer(spellings, self.patterns, self.alpha)
        return alpha * math.sqrt(rank) if self.rslora else alpha


def _notes(metadata: Mapping[str, str], kohya: bool) -> _Notes:
    """Read the notes on alpha. `kohya`: the matrices have kohya's names. Raises ConfigError for damaged notes."""
    for key in (PEFT_KEY, DIFFUSERS_KEY, *(key for key in metadata if key not in (PEFT_KEY, DIFFUSERS_KEY))):
        text = metadata.get(key, "")
        if key in (PEFT_KEY, DIFFUSERS_KEY, FINETRAINERS_KEY) and text:
            found = _json(text)
        elif text.lstrip().startswith("{") and any(word in text for word in SAID):
            found = _json(text, strict=False)
        else:
            continue
        source = "adapter_config.json" if key == PEFT_KEY else f"{key} in the file's metadata"
        if (notes := _of_object(_plain_keys(found), source)) is not None or key in (PEFT_KEY, DIFFUSERS_KEY):
            return notes or _Notes()
    values = _plain_keys(metadata)
    if (notes := _of_object(values, "")) is not None:
        return notes
    if values.get(KOHYAS) not in (None, *NOT_SAID):
        alpha, source = _number(values[KOHYAS]), f"{KOHYAS} in the file's metadata"
        if kohya:
            return _Notes(alpha, source)
        # Only musubi-tuner's conversion keeps this key with other names, and it multiplies alpha into the matrices.
        return _Notes(alpha, f"the rank, since {KOHYAS} ({alpha:g}) was multiplied in by a conversion", folded=True)
    return _Notes()


def _of_object(values: Mapping[str, Any], source: str) -> _Notes | None:
    """Return the notes in a config's values; None if they do not say alpha."""
    name = next((name for name in SAID if values.get(name) not in (None, *NOT_SAID)), None)
    if name is None:
        return None
    patterns, ranks_ = (values.get(key) or {} for key in ("alpha_pattern", "rank_pattern"))
    if isinstance(patterns, str):
        patterns = _json(patterns)
    kron = values.get("peft_type") in ("LOKR", "LOHA")
    return _Notes(
        alpha=_number(values[name]),
        source=source or f"{name} in the file's metadata",
        patterns=patterns if isinstance(patterns, dict) else {},
        rslora=str(values.get("use_rslora", False)).lower() in ("true", "1"),
        kron_rank=_number(values["r"]) if kron and values.get("r") else None,
        rank_patterns=ranks_ if isinstance(ranks_, dict) else {},
    )


def _plain_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Strip the pipeline part from keys, leaving out those of a text encoder."""
    return {key.rpartition(".")[2]: one for key, one in values.items() if "text_encoder" not in key.rpartition(".")[0]}


def _alphas(found: _Contents, notes: _Notes) -> tuple[dict[str, float], str]:
    """Return (layer -> alpha, where it was found, in words), both empty if nothing says."""
    own = ranks(found.named)
    if found.alphas:
        return dict(found.alphas), "a tensor of each layer"
    if notes.alpha is None:
        return {}, ""
    if notes.folded:
        return {layer: float(rank) for layer, rank in own.items()}, notes.source
    source = f"{notes.source}, rank-stabilized (rsLoRA)" if notes.rslora else notes.source
    return {layer: notes.alpha_of(_spellings(found, layer), rank) for layer, rank in own.items()}, source


def _spellings(found: _Contents, layer: str) -> tuple[str, ...]:
    """Return a layer's names: in the file, the same without prefixes, and ours."""
    called = found.called.get(layer, layer)
    return called, without_prefixes(called), layer


def ranks(named: Tensors) -> dict[str, int]:
    return {name.removesuffix(f".{DOWN}"): tensor.shape[0] for name, tensor in named.items() if name.endswith(DOWN)}


def _of_layer(spellings: Sequence[str], patterns: Mapping[str, Any], otherwise: Any) -> float:
    """Return a layer's value by peft's rule: that of the first pattern to match its name or the end of it."""
    for pattern, value in patterns.items():
        try:
            if any(re.match(rf"(.*\.)?({pattern})$", layer) for layer in spellings):
                return _number(value)
        except re.error:
            raise ConfigError(DAMAGED) from None
    return _number(otherwise)


def _json(text: str, strict: bool = True) -> dict[str, Any]:
    """Parse a JSON object. For anything else, return {} or, if `strict`, raise ConfigError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) and strict:
        raise ConfigError(DAMAGED)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float:
    """Return a finite number from a file's notes. Raises ConfigError."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(DAMAGED)
    return number


# ---- fitting a LoRA to a model ---------------------------------------------------------------------------------------

FIT_LIMIT = 0.95  # share of a file's layers that must fit the model; the others are left out
NAMED = 5  # layers to name per reason for leaving them out
UNKNOWN = "a name that no known trainer uses"
FORCE = "--force (in samples --force-loras)"
INPUT_LAYERS = ("patch_embedding", "patch_embed.proj", "proj_in")  # of Wan, CogVideoX, LTX-Video
Sizes = Mapping[str, tuple[int, int]]  # layer -> (outputs, inputs)


def unknown_names(names: Sequence[str], readers: str) -> ConfigError:
    """Return the error for a file of unknown names. `readers` are the programs whose files are known."""
    return ConfigError(f"the LoRA holds {names[0][:80]!r}, {UNKNOWN}: use a file from {readers}")


def misfits(lora: LoraWeights, sizes: Sizes) -> dict[str, str]:
    """Return the layers of a LoRA that do not fit a model -> why."""
    found = {}
    for layer in lora.layers:
        own = (int(lora.tensors[f"{layer}.{UP}"].shape[0]), lora.tensors[f"{layer}.{DOWN}"][0].numel())
        if layer not in sizes:
            found[layer] = "a layer that the model lacks"
        elif sizes[layer] != own:
            found[layer] = f"{own[1]} to {own[0]} values, the model's layer {sizes[layer][1]} to {sizes[layer][0]}"
    return found


def unread(lora: LoraWeights) -> list[str]:
    """Return the unknown names in a file."""
    return [name for name, why in lora.left_out.items() if why == UNKNOWN]


def check_fit(
    title: str, lora: LoraWeights, sizes: Sizes, model: str, force: bool = False, made_for: str = ""
) -> dict[str, str]:
    """Return the layers of a LoRA that do not fit a model -> why.

    Raises ConfigError if fewer layers fit than FIT_LIMIT, or if the LoRA's input layer has more inputs. With `force`,
    one fitting layer is enough. `title`, `model` and `made_for` (the model that the LoRA names) are for messages.
    """
    wrong, strange = misfits(lora, sizes), unread(lora)
    total = len(lora.layers) + len(strange)
    matched = len(lora.layers) - len(wrong)
    if matched == 0 or (not force and total - matched > (1 - FIT_LIMIT) * total):
        first, why = next(iter(sorted(wrong.items())), (strange[0] if strange else "", UNKNOWN))
        remedy = f"it was made for {made_for[:80]}: choose that" if made_for else "choose the model it was made for"
        more = "" if matched == 0 else f", or take what fits with {FORCE}"
        raise ConfigError.of(
            "model",
            f"{title} does not fit {model}: {matched} of its {total} layers match, {FIT_LIMIT:.0%} are needed "
            f"(not {first[:80]}: {why}); {remedy}{more}",
        )
    inputs_of = {layer: lora.tensors[f"{layer}.{DOWN}"][0].numel() for layer in INPUT_LAYERS if layer in lora.layers}
    inputs_of |= lora.wide
    wider = (layer for layer, count in inputs_of.items() if layer in sizes and count > sizes[layer][1])
    if not force and (layer := next(wider, "")):
        raise ConfigError.of(
            "model",
            f"{title} is for a model with more inputs: its {layer} takes {inputs_of[layer]} values, that of {model} "
            f"{sizes[layer][1]}, so this is a control or image-to-video LoRA, which does not work without its input "
            f"layer; choose the model it was made for, or take the other layers with {FORCE}",
        )
    return wrong


def match_report(lora: LoraWeights, sizes: Sizes | None = None) -> dict[str, Any]:
    """Return the report on how a LoRA fits a model, as plain data. Without `sizes`, it covers only the file.

    layers, matched: number of layers, and of those that fit.
    left_out: [{"why", "count", "names"}], with the first few names.
    rank, alpha, alpha_from: in words.
    written_by: the program that wrote the file.
    converted, lost: what it was before its conversion ("a LoKr"), and the relative error; only if converted.
    nothing: why the LoRA changes nothing; only then.
    """
    wrong = misfits(lora, sizes) if sizes is not None else {}
    reasons: dict[str, list[str]] = {}
    for name, why in {**lora.left_out, **wrong}.items():
        reasons.setdefault(why, []).append(name)
    ranks = [lora.rank_of(layer) for layer in lora.layers]
    alphas = [lora.alpha_of(layer) for layer in lora.layers]
    found = {
        "layers": len(lora.layers) + len(unread(lora)),
        "matched": len(lora.layers) - len(wrong),
        "left_out": [{"why": why, "count": len(all_), "names": all_[:NAMED]} for why, all_ in reasons.items()],
        "rank": _span(ranks),
        "alpha": "not in the file: taken as the rank" if lora.alpha is None else _span(alphas),
        "alpha_from": "" if lora.alpha is None else lora.alpha_from,
        "written_by": lora.origin,
    }
    if lora.converted:
        found |= {"converted": lora.converted, "lost": lora.lost}
        found |= {"alpha": "multiplied into the matrices", "alpha_from": ""}
    return found | ({"nothing": lora.nothing} if lora.nothing else {})


def lines(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a report as (label, value) lines; [] for an empty one."""
    if not report:
        return []
    found = [("LoRA", report["lora"])] if "lora" in report else []
    found.append(("layers matched", f"{report['matched']} of {report['layers']}"))
    found += [("left out", left_out(reason)) for reason in report["left_out"]]
    if report.get("nothing"):
        found.append(("changes", f"nothing: {report['nothing']}"))
    if report.get("converted"):
        found.append(("converted", f"from {report['converted']}{loss(report['lost'])}"))
    alpha = f"{report['alpha']} ({report['alpha_from']})" if report.get("alpha_from") else report["alpha"]
    return [*found, ("rank", report["rank"]), ("alpha", alpha), ("written by", report["written_by"])]


def loss(share: float) -> str:
    """Return what a conversion loses of a LoRA's change, as the end of a sentence."""
    return ", exactly" if (words := percent(share)) == "nothing" else f", {words} of the change is lost"


def left_out(reason: Mapping[str, Any]) -> str:
    """Return a line on the layers that were left out for one reason."""
    more = reason["count"] - len(reason["names"])
    return f"{', '.join(reason['names'])}{f' and {more:,} more' if more > 0 else ''}: {reason['why']}"


def _span(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
