"""Recognize unsupported models and LoRAs, to say what they are and what works instead.

They are known by the pipeline's class, by the layer names of a checkpoint or LoRA, or, for models, by being a single
file in the authors' layout, as used by ComfyUI.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.families.lora_files import TEXT_ENCODER, TORCH_FILES
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
    "MiniMaxH3": "MiniMax H3",
    "SanaVideo": "SanaVideo",
    "LongCat": "LongCat-Video",
    "MotifVideo": "Motif-Video",
    "Helios": "Helios",
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
# The same for denoisers of supported families, with their authors' names and diffusers' -> the family's name.
OWN = {
    r"^blocks_\d+_(self|cross)_attn_[qkvo]_weight|^condition_embedder_text_embedder_": "wan",
    r"^audio_patchify_proj_weight|^audio_adaln_single_linear_weight|^audio_proj_in_weight": "ltx2",
    r"^patchify_proj_weight|^adaln_single_linear_weight|^time_embed_emb_timestep_embedder_": "ltx",
    r"^transformer_layers_\d+_attention_query_key_value|^layers_\d+_attention_query_key_value|"
    r"^patch_embed_text_proj_weight": "cogvideox",
    r"^blocks_\d+_attn_qkv_[xy]_weight|^time_embed_pooler_to_kv_weight": "mochi",
    r"^visual_transformer_blocks_\d+_(self|cross)_attention": "kandinsky5",
    r"^double_blocks_\d+_img_attn_q_weight|^vision_in_proj_\d|^context_embedder_2_linear_": "hunyuan15",
}
FILES = (".safetensors", ".gguf", ".sft", *TORCH_FILES)


@dataclass(frozen=True)
class Unsupported:
    """A model that people ask for and that cannot be trained here."""

    title: str
    # The authors on the Hub, in lower case. Names of other owners are not refused: a fine-tune may have any name.
    owner: str
    named: str  # pattern of its name, in lower case, without an owner
    why: str  # follows "which is not supported"


# Sources: the models' licenses and cards, and diffusers' pipelines, as of November 2026.
UNSUPPORTED = (
    Unsupported(
        "MiniMax H3",
        "minimaxai",
        r"minimax.?h3|h3(-|$)",
        "because its license grants no rights in the EU, the UK, South Korea and the USA without an authorization from "
        "MiniMax, videos included. Supporting it would take a family that packs video and sound into one sequence, and "
        "training that keeps the guidance distilled into its weights",
    ),
    Unsupported(
        "HunyuanVideo",
        "tencent|hunyuanvideo-community",
        r"hunyuan.?video(?!.?1.?5)",
        "because HunyuanVideo 1.5, which is, replaced it under the same license (no rights in the EU, the UK and South "
        "Korea)",
    ),
    Unsupported(
        "Wan 2.5 and later",
        "wan-ai|alibaba-pai",
        r"wan.?2[._]?[5-9]",
        "because its weights were not published. Wan 2.1 and 2.2 are supported",
    ),
    Unsupported(
        "Wan Animate",
        "wan-ai",
        r"wan.*animate",
        "because it needs a pose and a face video of each clip. Supporting it would take these as companions of clips, "
        "and its motion encoder",
    ),
    Unsupported(
        "Wan S2V",
        "wan-ai",
        r"wan.*s2v",
        "because diffusers has no pipeline for it. Supporting it would take its transformer, and the encoder of the "
        "speech that it follows",
    ),
    Unsupported(
        "Kandinsky 6",
        "kandinskylab|ai-forever",
        r"kandinsky.?6",
        "because nobody has written its family yet. Supporting it would take a second stream for its sound, as LTX-2 "
        "has, and a look at the license of its weights",
    ),
    Unsupported(
        "Cosmos",
        "nvidia",
        r"cosmos",
        "because nobody has written its family yet. Supporting it would take its text encoder, 28 layers of Qwen2.5-VL "
        "side by side",
    ),
    Unsupported(
        "SkyReels-V2",
        "skywork",
        r"skyreels",
        "because nobody has trained its weights here. docs/add_a_family.md has a module for it, ready to be installed",
    ),
    Unsupported(
        "SanaVideo",
        "efficient-large-model|nvidia",
        r"sana.?video",
        "because nobody has written its family yet. Supporting it would take its linear attention",
    ),
    Unsupported(
        "LongCat-Video",
        "meituan-longcat",
        r"longcat",
        "because diffusers has no pipeline for its videos. Supporting it would take its transformer, and a loop for it",
    ),
    Unsupported(
        "Motif-Video",
        "motif-technologies",
        r"motif.?video",
        "because nobody has written its family yet. Supporting it would take its text encoder, T5Gemma 2, and its mask "
        "and first frame beside the latents of Wan's autoencoder",
    ),
    Unsupported(
        "Helios",
        "bestwishysh",
        r"helios",
        "because nobody has written its family yet. Supporting it would take streaming over minutes",
    ),
)


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


def reason(title: str) -> str:
    """Return why a model is not supported and what it would take, to follow "which is not supported"; "" if unknown."""
    return next((f" {one.why}" for one in UNSUPPORTED if one.title == title), "").replace(" because", ", because", 1)


def unsupported(name: str) -> Unsupported | None:
    """Return which unsupported model a name stands for, such as "MiniMaxAI/MiniMax-H3"; None for other names."""
    owner, _, base = name.lower().rpartition("/")
    return next(
        (one for one in UNSUPPORTED if re.match(one.named, base) and (not owner or re.fullmatch(one.owner, owner))),
        None,
    )


def own_family(names: Iterable[str], families: Sequence[Any]) -> str:
    """Return the name of the family whose denoiser has these tensors; "" for none."""
    names = list(names)
    own = "" if family_of_layers(names, [family.title for family in families]) else _first(OWN, [*map(_flat, names)])
    return own if any(family.name == own for family in families) else ""


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
    other = family_of_layers(shapes, [family.title for family in families])
    if other:
        return f"model is {path.name}, of {other}, which is not supported{reason(other)}: {remedy}"
    if path.suffix in TORCH_FILES:
        return (
            f"model is {path.name}, which may run code when it is read: use the same weights as .safetensors, or "
            f"convert a checkpoint of CogVideoX's authors with `workbench convert` first"
        )
    return f"model is {path.name}, which holds no part of a model that is known here: {remedy}"


def _first(table: dict[str, str], names: Sequence[str]) -> str:
    return next((title for part, title in table.items() if any(re.search(part, name) for name in names)), "")


def _flat(name: str) -> str:
    return FLAT_PREFIXES.sub("", PREFIXES.sub("", name).replace(".", "_"))
