"""The published and built-in CogVideoX models, and the LoRA formats of other trainers. No torch.

Sources: the models' Hub pages and the README of THUDM/CogVideo. The organization is now zai-org, and the Hub knows both
names.

Programs that read or write CogVideoX LoRAs name the transformer's layers as follows:

    diffusers   transformer_blocks.0.attn1.to_q          and every trainer built on it
    ComfyUI     blocks.0.q                               its own CogVideoX model, after "diffusion_model."
    flat        transformer_blocks_0_attn1_to_q          in kohya's style
    SAT         layers.0.attention.query_key_value, 0    three layers in one
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from workbench.families import lora_writing
from workbench.families.cogvideox import sat
from workbench.families.lora_names import LayerNames
from workbench.families.lora_writing import LoraFormat, passed_over_by_comfyui
from workbench.families.model import TINY_PROMPTS, Frames, Model
from workbench.paths import ASSETS

# ---- the models

LARGEST = (768, 1360)  # of 1.5, although its positions go further

# The other models copy what they do not override from this one.
FIRST = Model(
    id="cogvideox-2b",
    title="CogVideoX 2B",
    family="cogvideox",
    source="THUDM/CogVideoX-2b",
    revision="1137dacfc2c9c012bed6a0793f4ecf2ca8e7ba01",
    task="text-to-video",
    frames=49,
    fps=8,
    height=480,
    width=720,
    frame_rule=Frames(8, 49),
    size_multiple=16,
    steps=50,
    guidance_scale=6.0,
    scheduler="DDIM",
    license="Apache-2.0",
    download_gb=13.5,
)
FIVE = replace(
    FIRST,
    id="cogvideox-5b",
    title="CogVideoX 5B",
    source="THUDM/CogVideoX-5b",
    revision="8d6ea3f817438460b25595a120f109b88d5fdfad",
    scheduler="DPM",
    license="CogVideoX license (research; commercial use needs registration)",
    download_gb=21.0,
)
FIVE_I2V = replace(
    FIVE,
    id="cogvideox-5b-i2v",
    title="CogVideoX 5B, image to video",
    source="THUDM/CogVideoX-5b-I2V",
    revision="a6f0f4858a8395e7429d82493864ce92bf73af11",
    task="image-to-video",
    fixed_size=True,
)
NEWER = replace(
    FIVE,
    id="cogvideox1.5-5b",
    title="CogVideoX 1.5 5B",
    source="THUDM/CogVideoX1.5-5B",
    revision="fdc5267c90b5c06492985b966e43aae984e189e0",
    frames=81,
    fps=16,
    height=768,
    width=1360,
    frame_rule=Frames(16, 161),
    largest=LARGEST,
)
NEWER_I2V = replace(
    NEWER,
    id="cogvideox1.5-5b-i2v",
    title="CogVideoX 1.5 5B, image to video",
    source="THUDM/CogVideoX1.5-5B-I2V",
    revision="46c90528707aebbe69066390b4fe7e7d24c9c2a4",
    task="image-to-video",
)
PUBLISHED = tuple(
    replace(model, aliases=(model.source.replace("THUDM/", "zai-org/"),))
    for model in (FIRST, FIVE, FIVE_I2V, NEWER, NEWER_I2V)
)
TINY = replace(
    FIRST,
    id="tiny-cogvideox",
    title="Tiny CogVideoX (built in)",
    source=str(ASSETS / "tiny-cogvideox"),
    revision=None,
    frames=9,
    height=40,
    width=40,
    frame_rule=Frames(8, 17),
    size_multiple=8,
    steps=25,
    guidance_scale=3.0,
    download_gb=0.0,
    local=True,
    embedded=True,
    preservation_prompts=TINY_PROMPTS,
    recipes="tiny-cogvideox",
)
TINY_I2V = replace(
    TINY,
    id="tiny-cogvideox-i2v",
    title="Tiny CogVideoX, image to video (built in)",
    source=str(ASSETS / "tiny-cogvideox-i2v"),
    task="image-to-video",
)
BUILT_IN = tuple(model for model in (TINY, TINY_I2V) if (Path(model.source) / "model_index.json").is_file())
MODELS = (*BUILT_IN, *PUBLISHED)


# ---- layers' names, and formats of LoRA files

KNOWN = "this workbench, diffusers, cogvideox-factory, finetrainers, ComfyUI, kohya or SAT"
# Within a block: diffusers' name -> ComfyUI's.
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
FORMATS = (
    *passed_over_by_comfyui(
        "CogVideoX",
        lora_writing.DIFFUSERS,
        replace(lora_writing.PORTABLE, title="portable (cogvideox-factory, ComfyUI-CogVideoXWrapper)"),
        lora_writing.FINETRAINERS,
        LoraFormat(
            "kohya",
            "kohya",
            "Flat names (lora_unet_transformer_blocks_0_attn1_to_q), alpha per layer.",
            lambda lora, _: lora_writing.kohya(lora, None),
            ("VideoX-Fun",),
        ),
        lora_writing.LYCORIS,
    ),
    replace(lora_writing.COMFYUI, help="For ComfyUI's own CogVideoX model (diffusion_model.blocks.0.q ...)."),
    LoraFormat(
        "sat",
        "SAT",
        "A torch file for the authors' own code (SwissArmyTransformer), lora_alpha 1.",
        lambda lora, _: (sat.lora_to_sat(lora), {}),
        ("SAT",),
        suffix=".pt",
    ),
)
