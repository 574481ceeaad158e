"""Models and LoRAs that a person may bring and this version cannot take: what they are, and what can be taken instead.

Recognized by the pipeline's class, by the layers' names of a checkpoint or a LoRA, and a model by being one file in its
authors' layout, as ComfyUI has them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.families.lora_files import TEXT_ENCODER
from workbench.workspace.safetensors_header import read_header

PREFIXES = re.compile(r"^(base_model\.model\.|model\.diffusion_model\.|diffusion_model\.|transformer\.|unet\.|net\.)+")
FLAT_PREFIXES = re.compile(r"^(lora_unet_|lora_transformer_|lycoris_)_?")
# What a pipeline's class begins with -> its family; the first that fits.
PIPELINES = {
    "HunyuanVideo": "HunyuanVideo",
    "LTX2": "LTX-2",
    "Cosmos": "Cosmos",
    "AnimateDiff": "AnimateDiff",
    "WanAnimate": "Wan Animate",
    "SkyReelsV2": "SkyReels-V2",
    "EasyAnimate": "EasyAnimate",
    "Allegro": "Allegro",
    "Latte": "Latte",
    "Kandinsky": "Kandinsky",
    "Flux": "FLUX",
    "QwenImage": "Qwen-Image",
    "ZImage": "Z-Image",
    "StableVideoDiffusion": "Stable Video Diffusion",
    "StableDiffusionXL": "SDXL",
    "StableDiffusion3": "Stable Diffusion 3",
    "StableDiffusion": "Stable Diffusion",
}
# A part of a layer's name, dots as underscores and without its prefix -> its family; the first that fits.
LAYERS = {
    r"audio_attn|audio_patchify_proj|audio_proj_in|audio_time_embed|audio_to_video|av_ca_": "LTX-2",
    r"motion_modules_\d": "AnimateDiff",
    r"individual_token_refiner|context_embedder_token_refiner|(img|txt)_mlp_fc\d|(img|txt)_mod_linear": "HunyuanVideo",
    r"single_blocks_\d+_modulation_linear": "HunyuanVideo",
    r"^blocks_block\d+_|^blocks_\d+_(self|cross)_attn_[qkv]_proj|^x_embedder_proj_1": "Cosmos",
    r"^(img|txt)_in|double_blocks_\d+_(img|txt)_(mod_lin|mlp_\d)": "FLUX",
    r"^double_blocks_\d|^single_blocks_\d|^single_transformer_blocks_\d": "FLUX or HunyuanVideo",
    r"^joint_blocks_\d": "Stable Diffusion 3",
    r"^transformer_blocks_\d+_(img|txt)_m(od|lp)_": "Qwen-Image",
    r"^transformer_blocks_\d+_attn_(to|add)_[qkv]": "FLUX, Qwen-Image, Stable Diffusion 3 or HunyuanVideo",
    r"^layers_\d+_attention_(to_q|to_k|to_v|qkv)|^noise_refiner": "Z-Image",
    r"^conditioner_embedders|^lora_te2_|^add_embedding_linear": "SDXL",
    r"^(down|up)_blocks_\d|^(input|output)_blocks_\d|^mid(dle)?_block_|^lora_te_|^cond_stage_model": "Stable Diffusion",
}
# The same of a checkpoint of the families that are here, in their authors' layout.
OWN = {
    r"^blocks_\d+_(self|cross)_attn_[qkvo]_weight": "wan",
    r"^patchify_proj_weight|^adaln_single_linear_weight": "ltx",
    r"^transformer_layers_\d+_attention_query_key_value": "cogvideox",
    r"^blocks_\d+_attn_qkv_[xy]_weight": "mochi",
}
FILES = (".safetensors", ".gguf", ".ckpt", ".pt", ".pth", ".bin", ".sft")
NEAR = 0.02  # two models are the same size when their numbers of weights differ by less


def family_of_pipeline(name: str) -> str:
    """What a pipeline's class belongs to, in words: a family's title, or the class itself."""
    return next((title for start, title in PIPELINES.items() if name.startswith(start)), name or "no known kind")


def family_of_layers(names: Iterable[str], ours: Sequence[str] = ()) -> str:
    """The title of the family that tensors' names belong to; "" when they say nothing, or it may be one of ours.

    ours: titles; a package beside this one may have added a family
    """
    title = _first(LAYERS, [_flat(name) for name in names])
    return "" if set(re.split(", | or ", title)) & set(ours) else title


def refuse_other_lora(names: Sequence[str], titles: Sequence[str]) -> None:
    """Raises ConfigError for a LoRA of a family that is none of ours. titles: of ours"""
    # A text encoder beside the layers of a video model says nothing of that model.
    video = [name for name in names if not TEXT_ENCODER.match(name)]
    if family_of_layers(video, titles) and (title := family_of_layers(names, titles)):
        ours = f"{', '.join(titles[:-1])} or {titles[-1]}"
        raise ConfigError(f"this is a LoRA of {title}, which is not trained here: give one of {ours}")


def single_file(path: Path, families: Sequence[Any]) -> str:
    """Why one file cannot be the model, and what can be, in a sentence. families: ours"""
    remedy = "choose a known model, or a folder with a model_index.json"
    if path.suffix == ".gguf":
        return f"model is {path.name}, quantized for sampling (GGUF), which cannot be trained: {remedy}"
    shapes: dict[str, tuple[int, ...]] = {}
    if path.suffix in (".safetensors", ".sft"):
        with contextlib.suppress(OSError, ValueError):
            shapes = read_header(path).shapes
    if any(".lora_" in name or ".lokr_" in name or name.startswith("lora_") for name in shapes):
        return f"model is {path.name}, a LoRA and no model: {remedy}, and name the LoRA where LoRAs are"
    names = [_flat(name) for name in shapes]
    other, own = family_of_layers(shapes, [family.title for family in families]), _first(OWN, names)
    if own and not other:
        family = next(family for family in families if family.name == own)
        # The models whose transformer has as many weights as the file, text encoder and VAE left out.
        beside = ("vae.", "first_stage_model.", "text_encoder", "cond_stage_model.", "conditioner.")
        values = sum(prod(shape) for name, shape in shapes.items() if not name.startswith(beside))
        found = [one.id for one in family.models if abs(family.facts(one).values - values) < NEAR * values]
        instead = f"choose {' or '.join(found)}, or a folder" if found else "choose a folder"
        return (
            f"model is {path.name}, one file of {family.title} in its authors' layout, as ComfyUI has it; training "
            f"needs the whole model as diffusers has it: {instead} with a model_index.json"
        )
    if other:
        return f"model is {path.name}, of {other}, which is not trained here: {remedy}"
    return f"model is {path.name}, one file; a model is a folder as diffusers has it: {remedy}"


def _first(table: dict[str, str], names: Sequence[str]) -> str:
    return next((title for part, title in table.items() if any(re.search(part, name) for name in names)), "")


def _flat(name: str) -> str:
    return FLAT_PREFIXES.sub("", PREFIXES.sub("", name).replace(".", "_"))
