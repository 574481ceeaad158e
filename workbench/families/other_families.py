"""Recognize unsupported models and LoRAs, to say what they are and what works instead.

They are known by the pipeline's class, by the layer names of a checkpoint or LoRA, or, for models, by being a single
file in the authors' layout, as used by ComfyUI.
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
# Prefix of a pipeline's class -> its family; the first match counts.
PIPELINES = {
    "HunyuanVideo": "HunyuanVideo",
    "Cosmos": "Cosmos",
    "AnimateDiff": "AnimateDiff",
    "WanAnimate": "Wan Animate",
    "SkyReelsV2": "SkyReels-V2",
    "EasyAnimate": "EasyAnimate",
    "Allegro": "Allegro",
    "Latte": "Latte",
    "Kandinsky5": "Kandinsky 5 Image",
    "Kandinsky6": "Kandinsky 6",
    "Kandinsky": "Kandinsky",
    "Flux": "FLUX",
    "QwenImage": "Qwen-Image",
    "ZImage": "Z-Image",
    "StableVideoDiffusion": "Stable Video Diffusion",
    "StableDiffusionXL": "SDXL",
    "StableDiffusion3": "Stable Diffusion 3",
    "StableDiffusion": "Stable Diffusion",
}
# Pattern in a layer's name, without its prefix and with underscores for dots -> its family; the first match counts.
LAYERS = {
    r"motion_modules_\d": "AnimateDiff",
    r"individual_token_refiner|context_embedder_token_refiner|(img|txt)_mlp_fc\d|(img|txt)_mod_linear": (
        "HunyuanVideo or HunyuanVideo 1.5"
    ),
    r"single_blocks_\d+_modulation_linear": "HunyuanVideo",
    r"^blocks_block\d+_|^blocks_\d+_(self|cross)_attn_[qkv]_proj|^x_embedder_proj_1": "Cosmos",
    r"^(img|txt)_in|double_blocks_\d+_(img|txt)_(mod_lin|mlp_\d)": "FLUX or HunyuanVideo 1.5",
    r"^single_(transformer_)?blocks_\d": "FLUX or HunyuanVideo",
    r"^double_blocks_\d": "FLUX, HunyuanVideo or HunyuanVideo 1.5",
    r"^joint_blocks_\d": "Stable Diffusion 3",
    r"^transformer_blocks_\d+_(img|txt)_m(od|lp)_": "Qwen-Image",
    r"^transformer_blocks_\d+_attn_(to|add)_[qkv]": (
        "FLUX, Qwen-Image, Stable Diffusion 3, HunyuanVideo or HunyuanVideo 1.5"
    ),
    r"^layers_\d+_attention_(to_q|to_k|to_v|qkv)|^noise_refiner": "Z-Image",
    r"^conditioner_embedders|^lora_te2_|^add_embedding_linear": "SDXL",
    r"^(down|up)_blocks_\d|^(input|output)_blocks_\d|^mid(dle)?_block_|^lora_te_|^cond_stage_model": "Stable Diffusion",
}
ONE_STREAM = re.compile(r"^single_(transformer_)?blocks_\d")  # blocks that FLUX and HunyuanVideo have, but not its 1.5
# The same for checkpoints of supported families in their authors' layout -> the family's name.
OWN = {
    r"^blocks_\d+_(self|cross)_attn_[qkvo]_weight": "wan",
    r"^audio_patchify_proj_weight|^audio_adaln_single_linear_weight": "ltx2",
    r"^patchify_proj_weight|^adaln_single_linear_weight": "ltx",
    r"^transformer_layers_\d+_attention_query_key_value": "cogvideox",
    r"^blocks_\d+_attn_qkv_[xy]_weight": "mochi",
    r"^visual_transformer_blocks_\d+_(self|cross)_attention": "kandinsky5",
    r"^double_blocks_\d+_img_attn_q_weight|^vision_in_proj_\d": "hunyuan15",
}
FILES = (".safetensors", ".gguf", ".ckpt", ".pt", ".pth", ".bin", ".sft")
NEAR = 0.02  # models whose parameter counts differ by less, relatively, count as equal in size


def family_of_pipeline(name: str) -> str:
    """Return the family of a pipeline's class, or the class itself."""
    return next((title for start, title in PIPELINES.items() if name.startswith(start)), name or "an unknown kind")


def family_of_layers(names: Iterable[str], ours: Sequence[str] = ()) -> str:
    """Return the title of the family that tensor names belong to; "" if unknown, or if it may be one of `ours`.

    Other packages may have added families, so `ours` has the titles of all that are installed.
    """
    flat = [_flat(name) for name in names]
    title = _first(LAYERS, flat)
    if any(ONE_STREAM.search(name) for name in flat):
        title = title.removesuffix(" or HunyuanVideo 1.5")
    return "" if set(re.split(", | or ", title)) & set(ours) else title


def refuse_other_lora(names: Sequence[str], titles: Sequence[str]) -> None:
    """Refuse a LoRA for an unsupported family. `titles` are the supported ones. Raises ConfigError."""
    # Text encoder layers do not tell which video model a LoRA is for.
    video = [name for name in names if not TEXT_ENCODER.match(name)]
    if family_of_layers(video, titles) and (title := family_of_layers(names, titles)):
        ours = f"{', '.join(titles[:-1])} or {titles[-1]}"
        raise ConfigError(f"this is a LoRA for {title}, which is not supported: use one for {ours}")


def single_file(path: Path, families: Sequence[Any]) -> str:
    """Say why a single file cannot be the model, and what can."""
    remedy = "choose a known model, or a folder with a model_index.json"
    if path.suffix == ".gguf":
        return f"model is {path.name}, quantized for sampling (GGUF), which cannot be trained: {remedy}"
    shapes: dict[str, tuple[int, ...]] = {}
    if path.suffix in (".safetensors", ".sft"):
        with contextlib.suppress(OSError, ValueError):
            shapes = read_header(path).shapes
    if any(".lora_" in name or ".lokr_" in name or name.startswith("lora_") for name in shapes):
        return f"model is {path.name}, a LoRA and not a model: {remedy}, and list the LoRA under LoRAs"
    names = [_flat(name) for name in shapes]
    other, own = family_of_layers(shapes, [family.title for family in families]), _first(OWN, names)
    if own and not other:
        family = next(family for family in families if family.name == own)
        # Suggest models whose transformer is as large as the file's, without text encoder and VAE.
        beside: tuple[str, ...] = ("vae.", "first_stage_model.", "text_encoder", "cond_stage_model.", "conditioner.")
        beside += ("audio_vae.", "vocoder.", "text_embedding_projection.")
        own_parts = {name: shape for name, shape in shapes.items() if "embeddings_connector" not in name}
        values = sum(prod(shape) for name, shape in own_parts.items() if not name.startswith(beside))
        found = [one.id for one in family.models if abs(family.facts(one).values - values) < NEAR * values]
        instead = f"choose {' or '.join(found)}, or a folder" if found else "choose a folder"
        return (
            f"model is {path.name}, one file of {family.title} in its authors' layout, as used by ComfyUI; training "
            f"needs the whole model in diffusers' layout: {instead} with a model_index.json"
        )
    if other:
        return f"model is {path.name}, of {other}, which is not supported: {remedy}"
    return f"model is {path.name}, one file; a model is a folder in diffusers' layout: {remedy}"


def _first(table: dict[str, str], names: Sequence[str]) -> str:
    return next((title for part, title in table.items() if any(re.search(part, name) for name in names)), "")


def _flat(name: str) -> str:
    return FLAT_PREFIXES.sub("", PREFIXES.sub("", name).replace(".", "_"))
