"""What the transformer's layers are called by programs that read or write LoRAs of CogVideoX.

    diffusers   transformer_blocks.0.attn1.to_q          and every trainer built on it
    ComfyUI     blocks.0.q                               its own CogVideoX nodes, below "diffusion_model."
    flat        transformer_blocks_0_attn1_to_q          kohya's way, below one of FLAT_PREFIXES
    SAT         layers.0.attention.query_key_value, 0    three layers in one

Not covered: how each writes rank, alpha and matrices (loras, lora_formats).
"""

from __future__ import annotations

import re

PARTS = "transformer_blocks|patch_embed|time_embedding|ofs_embedding|norm_final|norm_out|proj_out"
OURS = re.compile(rf"({PARTS})(\..+)?")
BLOCK = re.compile(r"(?:transformer_)?blocks[._](\d+)[._](.+)")
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
PREFIXES = ("base_model.model.", "model.diffusion_model.", "diffusion_model.", "module.", "transformer.", "unet.")
FLAT_PREFIXES = ("lycoris_", "lora_unet_", "lora_transformer_", "transformer_")
# Every spelling of a layer without its block's number -> diffusers' name; an old diffusers left the 0 of to_out out.
_SPELLINGS = {
    spelling: name
    for table in (IN_BLOCK, OUTSIDE)
    for name, comfy in table.items()
    for spelling in (name, comfy, name.replace(".", "_"), comfy.replace(".", "_"))
} | {"attn1.to_out": "attn1.to_out.0", "attn1_to_out": "attn1.to_out.0"}


def layer_of(text: str) -> str | None:
    """diffusers' name of a layer that any known program calls `text`; None for what is no layer's name."""
    name = text.replace(".processor.", ".")
    while (prefix := next((one for one in PREFIXES if name.startswith(one)), None)) is not None:
        name = name.removeprefix(prefix)
    if "." not in name and not BLOCK.match(name):
        prefix = next((one for one in FLAT_PREFIXES if name.startswith(one)), "")
        name = name.removeprefix(prefix).lstrip("_")  # VideoX-Fun writes lora_unet__transformer_blocks_0
    if (match := BLOCK.fullmatch(name)) is not None:
        inside = _SPELLINGS.get(match[2])
        if inside is not None:
            return f"transformer_blocks.{match[1]}.{inside}"
    elif name in _SPELLINGS:
        return _SPELLINGS[name]
    return name if OURS.fullmatch(name) and "." in name else None


def comfy_name(layer: str) -> str | None:
    """ComfyUI's name of a layer; None for one that its model has not."""
    if (match := BLOCK.fullmatch(layer)) is not None:
        inside = IN_BLOCK.get(match[2])
        return None if inside is None else f"blocks.{match[1]}.{inside}"
    return OUTSIDE.get(layer)


def flat_name(layer: str) -> str:
    """The layer's name as kohya's trainers would write it."""
    return layer.replace(".", "_")
