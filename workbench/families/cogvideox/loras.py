"""LoRA files of CogVideoX trainers: the names of its layers, and SAT's checkpoints, which only this family has.

The transformer's layers are called, by programs that read or write LoRAs of CogVideoX:

    diffusers   transformer_blocks.0.attn1.to_q          and every trainer built on it
    ComfyUI     blocks.0.q                               its own CogVideoX nodes, below "diffusion_model."
    flat        transformer_blocks_0_attn1_to_q          kohya's way
    SAT         layers.0.attention.query_key_value, 0    three layers in one

Not covered: writing (lora_formats), what files of all families have in common (families.lora_names).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.errors import ConfigError
from workbench.families import lora_names
from workbench.families.lora_files import LoraWeights, weights
from workbench.families.lora_names import LayerNames, ranks
from workbench.families.model_inputs import Tensors

SAT_LAYER = re.compile(r"(?:.*\.)?transformer\.layers\.(\d+)\.attention\.(query_key_value|dense)\.matrix_([AB])\.(\d)")
SAT_MODULES = {"query_key_value": ("to_q", "to_k", "to_v"), "dense": ("to_out.0",)}
SAT_ALPHA = 1.0  # SAT's own default, which none of its configs changes
KNOWN = "this workbench, diffusers, cogvideox-factory, finetrainers, ComfyUI, kohya or SAT"
# In a block: diffusers' name -> ComfyUI's
IN_BLOCK = {
    "attn1.to_q": "q",
    "attn1.to_k": "k",
    "attn1.to_v": "v",
    "attn1.to_out.0": "attn_out",
    "attn1.norm_q": "norm_q",
    "attn1.norm_k": "norm_k",
    "norm1.linear": "norm1.linear",
    "norm1.norm": "norm1.norm",
    "norm2.linear": "norm2.linear",
    "norm2.norm": "norm2.norm",
    "ff.net.0.proj": "ff_proj",
    "ff.net.2": "ff_out",
}
OUTSIDE = {
    "patch_embed.proj": "patch_embed.proj",
    "patch_embed.text_proj": "patch_embed.text_proj",
    "time_embedding.linear_1": "time_embedding_linear_1",
    "time_embedding.linear_2": "time_embedding_linear_2",
    "ofs_embedding.linear_1": "ofs_embedding_linear_1",
    "ofs_embedding.linear_2": "ofs_embedding_linear_2",
    "norm_final": "norm_final",
    "norm_out.linear": "norm_out.linear",
    "norm_out.norm": "norm_out.norm",
    "proj_out": "proj_out",
}
NAMES = LayerNames("CogVideoX", "transformer_blocks", IN_BLOCK, OUTSIDE, KNOWN)


def is_sat(tensors: Tensors) -> bool:
    """Whether these are tensors of a SAT checkpoint with a LoRA in it."""
    return any(".matrix_A." in name for name in tensors)


def read(tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
    """A LoRA file's tensors and metadata, of any known trainer. Raises ConfigError."""
    return _read_sat(tensors) if is_sat(tensors) else lora_names.read(NAMES, tensors, metadata)


def _read_sat(tensors: Tensors) -> LoraWeights:
    """A layer of SAT has q, k and v in one module, with one pair of matrices for each."""
    named = {}
    for name, tensor in tensors.items():
        if ".matrix_" not in name:
            continue  # a checkpoint of SAT's also holds the weights of the model
        if (match := SAT_LAYER.fullmatch(name)) is None:
            raise ConfigError(f"the LoRA holds {name[:80]!r}, a layer that SAT's CogVideoX lacks: give another file")
        layer, module, matrix, part = match.groups()
        named[f"transformer_blocks.{layer}.attn1.{SAT_MODULES[module][int(part)]}.lora_{matrix}.weight"] = tensor
    return weights(named, dict.fromkeys(ranks(named), SAT_ALPHA), "SAT")
