"""LoRA files of CogVideoX trainers: the names of its layers, and the formats that are written.

The transformer's layers are called, by programs that read or write LoRAs of CogVideoX:

    diffusers   transformer_blocks.0.attn1.to_q          and every trainer built on it
    ComfyUI     blocks.0.q                               its own CogVideoX nodes, below "diffusion_model."
    flat        transformer_blocks_0_attn1_to_q          kohya's way
    SAT         layers.0.attention.query_key_value, 0    three layers in one

Not covered: SAT's LoRAs (sat), what files of all families have in common (families.lora_names, families.lora_writing).
"""

from __future__ import annotations

from dataclasses import replace

from workbench.families import lora_writing
from workbench.families.cogvideox import sat
from workbench.families.lora_files import LoraFormat
from workbench.families.lora_names import LayerNames

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
SAME = ("patch_embed.proj", "patch_embed.text_proj", "norm_final", "norm_out.linear", "norm_out.norm", "proj_out")
OUTSIDE = {
    **{name: name for name in SAME},
    "time_embedding.linear_1": "time_embedding_linear_1",
    "time_embedding.linear_2": "time_embedding_linear_2",
    "ofs_embedding.linear_1": "ofs_embedding_linear_1",
    "ofs_embedding.linear_2": "ofs_embedding_linear_2",
}
NAMES = LayerNames("CogVideoX", "transformer_blocks", IN_BLOCK, OUTSIDE, KNOWN)
DIFFUSERS, PORTABLE, FINETRAINERS = lora_writing.FORMATS
FORMATS = (
    *lora_writing.passed_over_by_comfyui(
        (
            DIFFUSERS,
            replace(
                PORTABLE,
                title="portable (cogvideox-factory, ComfyUI-CogVideoXWrapper)",
            ),
            FINETRAINERS,
            LoraFormat(
                "kohya",
                "kohya",
                "Flat names (lora_unet_transformer_blocks_0_attn1_to_q), alpha for each layer.",
                readers=("VideoX-Fun",),
            ),
        ),
        "CogVideoX",
    ),
    LoraFormat(
        "comfyui",
        "ComfyUI",
        "For ComfyUI's own CogVideoX model (diffusion_model.blocks.0.q and so on).",
        readers=("ComfyUI",),
        outside="ComfyUI",
    ),
    LoraFormat(
        "sat",
        "SAT",
        "A torch file for the authors' own code (SwissArmyTransformer), lora_alpha 1.",
        ".pt",
        readers=("SAT",),
    ),
)
WRITERS: dict[str, lora_writing.Writer] = {
    **lora_writing.WRITERS,
    "comfyui": lora_writing.comfyui(NAMES),
    "kohya": lambda lora: lora_writing.kohya(lora, {layer: layer for layer in lora.layers}),
    "sat": lambda lora: (sat.lora_to_sat(lora), {}),
}
