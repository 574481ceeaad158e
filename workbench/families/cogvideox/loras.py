"""LoRA files of CogVideoX trainers, read by the names of ours; and written as SAT's.

Known: ours and diffusers' (alpha in the metadata, or nowhere), cogvideox-factory (alpha nowhere), finetrainers (alpha
in a metadata key of its own), SAT (matrices of the fused query_key_value and of dense, alpha 1). Not covered: other
names (kohya, ComfyUI), LoHa, LoKr.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.base import LoraWeights, Tensors

if TYPE_CHECKING:
    import torch

PARTS = "transformer_blocks|patch_embed|time_embedding|ofs_embedding|norm_final|norm_out|proj_out"
LAYER = re.compile(rf"({PARTS})(\..+)?\.(lora_[AB]\.(weight|bias)|lora_magnitude_vector)")
SAT_LAYER = re.compile(r"(?:.*\.)?transformer\.layers\.(\d+)\.attention\.(query_key_value|dense)\.matrix_([AB])\.(\d)")
SAT_MODULES = {"query_key_value": ("to_q", "to_k", "to_v"), "dense": ("to_out.0",)}
SAT_ALPHA = 1.0  # SAT's own default, which none of its configs changes
DIFFUSERS_KEY, FINETRAINERS_KEY = "lora_adapter_metadata", "lora_config"


def is_sat(tensors: Tensors) -> bool:
    """Whether these are tensors of a SAT checkpoint with a LoRA in it."""
    return any(".matrix_A." in name for name in tensors)


def read(tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
    """A LoRA file's tensors and metadata, whoever wrote it. Raises ConfigError."""
    if is_sat(tensors):
        return _read_sat(tensors)
    named = {}
    for name, tensor in tensors.items():
        plain = name.removeprefix("transformer.").replace("lora_magnitude_vector.weight", "lora_magnitude_vector")
        if not LAYER.fullmatch(plain):
            raise ConfigError(
                f"the LoRA holds {name[:80]!r}, a name of no trainer known here: give a file of this workbench, of "
                f"diffusers, cogvideox-factory, finetrainers or SAT"
            )
        named[plain] = tensor
    rank, (alpha, origin) = _rank(named), _alpha(metadata)
    return LoraWeights(named, rank, alpha, origin)


def _rank(named: Tensors) -> int:
    ranks = {tensor.shape[0] for name, tensor in named.items() if name.endswith("lora_A.weight")}
    if not ranks:
        raise ConfigError("the LoRA holds no lora_A matrix: it is damaged, or no LoRA")
    if len(ranks) > 1:
        several = ", ".join(str(rank) for rank in sorted(ranks))
        raise ConfigError(f"the LoRA has layers of different rank ({several}): only one rank for all can be read")
    return int(ranks.pop())


def _alpha(metadata: Mapping[str, str]) -> tuple[float | None, str]:
    """(alpha for a plain scale of alpha / rank, who wrote it)."""
    if (text := metadata.get(DIFFUSERS_KEY)) is not None:
        found = {name.removeprefix("transformer."): value for name, value in _json(text).items()}
        if found.get("alpha_pattern") or found.get("rank_pattern"):
            raise ConfigError("the LoRA has an alpha or rank of its own for some layers: only one for all can be read")
        origin = "this workbench" if "base_model" in metadata else "diffusers"
        if "lora_alpha" in found and "r" in found:
            alpha = float(found["lora_alpha"])
            return (alpha * math.sqrt(found["r"]) if found.get("use_rslora") else alpha), origin
        return None, origin
    if (text := metadata.get(FINETRAINERS_KEY)) is not None:
        found = _json(text)
        return (float(found["lora_alpha"]) if "lora_alpha" in found else None), "finetrainers"
    return None, "a trainer that writes no alpha, as diffusers' examples and cogvideox-factory"


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError("the LoRA's notes on rank and alpha are damaged: export it again")
    return found


# ---- SAT: a layer has q, k and v in one module, with one pair of matrices for each


def _read_sat(tensors: Tensors) -> LoraWeights:
    named = {}
    for name, tensor in tensors.items():
        if ".matrix_" not in name:
            continue  # a checkpoint of SAT's also holds the weights that the LoRA sits on
        if (match := SAT_LAYER.fullmatch(name)) is None:
            raise ConfigError(f"the LoRA holds {name[:80]!r}, a layer that SAT's CogVideoX has not: give another file")
        layer, module, matrix, part = match.groups()
        named[f"transformer_blocks.{layer}.attn1.{SAT_MODULES[module][int(part)]}.lora_{matrix}.weight"] = tensor
    return LoraWeights(named, _rank(named), SAT_ALPHA, "SAT")


def to_sat(lora: LoraWeights) -> dict[str, torch.Tensor]:
    """The LoRA's matrices by SAT's names, for its default alpha of 1: the scale is worked into B. Raises ConfigError.

    What the LoRA has for one or two of query, key and value gets matrices of zeros for the rest, which SAT cannot omit.
    """
    import torch

    if lora.dora:
        raise ConfigError("this is a DoRA, SAT has only plain LoRA: train one without DoRA")
    scale = (lora.rank if lora.alpha is None else lora.alpha) / SAT_ALPHA
    places = {
        f"attn1.{name}": (module, part) for module, names in SAT_MODULES.items() for part, name in enumerate(names)
    }
    found: dict[str, torch.Tensor] = {}
    for name, tensor in lora.tensors.items():
        match = re.fullmatch(r"transformer_blocks\.(\d+)\.(.+)\.lora_([AB])\.weight", name)
        if match is None or match[2] not in places:
            raise ConfigError(
                f"the LoRA holds {name[:80]!r}, SAT's sits on the attention's projections alone: train one on attention"
            )
        module, part = places[match[2]]
        sat = f"model.diffusion_model.transformer.layers.{match[1]}.attention.{module}.matrix_{match[3]}.{part}"
        found[sat] = tensor * scale if match[3] == "B" else tensor
    for name, tensor in list(found.items()):
        stem, part_name = name.rsplit(".", 1)
        for part in range(len(SAT_MODULES["query_key_value"]) if "query_key_value" in name else 0):
            if part != int(part_name):
                found.setdefault(f"{stem}.{part}", torch.zeros_like(tensor))
    return dict(sorted(found.items()))
