"""LoRA files of HunyuanVideo 1.5: names of layers, and the files of its authors' trainer, ComfyUI and musubi-tuner.

The authors keep query, key and value as three matrices in the blocks and as one in the caption refiner; ComfyUI keeps
one everywhere. diffusers has the last layer's shift and scale in the opposite order.

Sources: scripts/convert_hunyuan_video1_5_to_diffusers.py of diffusers; the authors' train.py (save_lora_adapter);
musubi-tuner's networks/lora_hv_1_5.py and convert_hunyuan_video_1_5_lora_to_comfy.py; ComfyUI's supported_models.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families import lora_writing
from workbench.families.lora_files import (
    DOWN,
    UP,
    LoraWeights,
    Pair,
    refuse_more_than_matrices,
    stacked,
    unstacked,
    without_alpha,
)
from workbench.families.lora_names import ATTENTION, LayerNames
from workbench.families.lora_writing import LoraFormat, Written, passed_over_by_comfyui
from workbench.families.mochi import CAPTION, halves_swapped
from workbench.families.model_inputs import Tensors

if TYPE_CHECKING:
    import torch

ATTENTION_LAYERS = tuple(f"attn.{name}" for name in (*ATTENTION, *CAPTION))
IN_BLOCK = {  # diffusers' name -> the authors'
    **{f"attn.to_{one}": f"img_attn_{one}" for one in "qkv"},
    **{f"attn.add_{one}_proj": f"txt_attn_{one}" for one in "qkv"},
    "attn.to_out.0": "img_attn_proj",
    "attn.to_add_out": "txt_attn_proj",
    **{f"ff.net.{ours}": f"img_mlp.{theirs}" for ours, theirs in (("0.proj", "fc1"), ("2", "fc2"))},
    **{f"ff_context.net.{ours}": f"txt_mlp.{theirs}" for ours, theirs in (("0.proj", "fc1"), ("2", "fc2"))},
    "norm1.linear": "img_mod.linear",
    "norm1_context.linear": "txt_mod.linear",
}
REFINER = {
    **{f"attn.to_{one}": f"self_attn_{one}" for one in "qkv"},  # the authors have them in one matrix, self_attn_qkv
    "attn.to_out.0": "self_attn_proj",
    "ff.net.0.proj": "mlp.fc1",
    "ff.net.2": "mlp.fc2",
    "norm_out.linear": "adaLN_modulation.1",
}
LAST = "norm_out.linear"  # the authors have shift and scale, diffusers scale and shift
OUTSIDE = {
    "x_embedder.proj": "img_in.proj",
    **{f"time_embed.timestep_embedder.linear_{one + 1}": f"time_in.mlp.{2 * one}" for one in range(2)},
    **{f"time_embed.timestep_embedder_r.linear_{one + 1}": f"time_r_in.mlp.{2 * one}" for one in range(2)},  # MeanFlow
    **{
        f"context_embedder.time_text_embed.timestep_embedder.linear_{one + 1}": f"txt_in.t_embedder.mlp.{2 * one}"
        for one in range(2)
    },
    **{
        f"context_embedder.time_text_embed.text_embedder.linear_{one}": f"txt_in.c_embedder.linear_{one}"
        for one in (1, 2)
    },
    "context_embedder.proj_in": "txt_in.input_embedder",
    **{
        f"context_embedder.token_refiner.refiner_blocks.{number}.{ours}": (
            f"txt_in.individual_token_refiner.blocks.{number}.{theirs}"
        )
        for number in range(2)
        for ours, theirs in REFINER.items()
    },
    **{f"context_embedder_2.linear_{one}": f"byt5_in.fc{one}" for one in (1, 2, 3)},
    "image_embedder.linear_1": "vision_in.proj.1",
    "image_embedder.linear_2": "vision_in.proj.3",
    LAST: "final_layer.adaLN_modulation.1",
    "proj_out": "final_layer.linear",
}
# What ComfyUI renames in the authors' names when it loads their model. It also joins query, key and value.
COMFYUI = {
    "_attn_qkv": "_attn.qkv",
    "_attn_proj": "_attn.proj",
    "_mod.linear": "_mod.lin",
    "mlp.fc1": "mlp.0",
    "mlp.fc2": "mlp.2",
    "_in.mlp.0": "_in.in_layer",
    "_in.mlp.2": "_in.out_layer",
    "t_embedder.mlp.0": "t_embedder.in_layer",
    "t_embedder.mlp.2": "t_embedder.out_layer",
    "c_embedder.linear_1": "c_embedder.in_layer",
    "c_embedder.linear_2": "c_embedder.out_layer",
}
PART = re.compile(r"(.*(?:img|txt|self)_attn)_([qkv])")
JOINED = re.compile(r"(?P<attention>.*(?:img|txt|self)_attn)[._]qkv\.(?:lora_(?P<matrix>A|B|down|up)\b.*|alpha)")
LAST_UP = re.compile(r".*final_layer[._]adaLN_modulation[._]1\.lora_(?:B|up)\b.*")


def in_comfyui(name: str) -> str:
    """Return ComfyUI's name of a layer from the authors'."""
    for theirs, renamed in COMFYUI.items():
        name = name.replace(theirs, renamed)
    return name


NAMES = LayerNames(
    title="HunyuanVideo 1.5",
    blocks="transformer_blocks",
    in_block=IN_BLOCK,
    outside=OUTSIDE,
    readers="this workbench, diffusers, HunyuanVideo 1.5's own trainer, ComfyUI or musubi-tuner",
    authors_blocks="double_blocks",
    also={in_comfyui(theirs): ours for ours, theirs in (*IN_BLOCK.items(), *OUTSIDE.items())},
)


def with_authors_names(lora: LoraWeights, names: LayerNames, join: bool) -> dict[str, Pair]:
    """Return the two matrices of each layer under the authors' names, the strength multiplied in.

    Query, key and value become one pair where the authors have one matrix and, with `join`, everywhere. Raises
    ConfigError for a layer that the authors' model lacks.
    """
    one = without_alpha(lora)
    found: dict[str, Pair] = {}
    joined: dict[str, dict[int, Pair]] = {}  # an attention layer -> place in "qkv" -> pair
    for layer in one.layers:
        if (theirs := names.authors_name(layer)) is None:
            raise ConfigError(f"the LoRA changes {layer[:80]}, which the authors' model lacks: choose portable")
        match, down, up = PART.fullmatch(theirs), one.tensors[f"{layer}.{DOWN}"], one.tensors[f"{layer}.{UP}"]
        if match is not None and (join or match[1].endswith("self_attn")):
            joined.setdefault(match[1], {})["qkv".index(match[2])] = down, up
        else:
            found[theirs] = down, halves_swapped(up) if layer == LAST else up
    return found | {f"{attention}_qkv": stacked(pairs, 3) for attention, pairs in joined.items()}


def for_comfyui(lora: LoraWeights, names: LayerNames) -> Written:
    refuse_more_than_matrices(lora, "ComfyUI")
    found = dict[str, Any]()
    for name, (down, up) in with_authors_names(lora, names, join=True).items():
        found[f"diffusion_model.{in_comfyui(name)}.{DOWN}"] = down
        found[f"diffusion_model.{in_comfyui(name)}.{UP}"] = up
    return found, {"format": "pt"}


def for_authors(lora: LoraWeights, names: LayerNames) -> Written:
    refuse_more_than_matrices(lora, "the authors' trainer")
    pairs = with_authors_names(lora, names, join=False)
    found = {f"{name}.{end}": one for name, pair in pairs.items() for end, one in zip((DOWN, UP), pair, strict=True)}
    return found, {"format": "pt"}


def for_musubi(lora: LoraWeights, names: LayerNames) -> Written:
    import torch

    refuse_more_than_matrices(lora, "kohya's format")
    found = dict[str, Any]()
    for name, (down, up) in with_authors_names(lora, names, join=False).items():
        flat = f"lora_unet_{name.replace('.', '_')}"
        found |= {f"{flat}.lora_down.weight": down, f"{flat}.lora_up.weight": up}
        found[f"{flat}.alpha"] = torch.tensor(float(down.shape[0]))
    metadata = {"format": "pt", "ss_network_module": "networks.lora_hv_1_5", "ss_network_dim": str(lora.rank)}
    return found, metadata


def with_parts_apart(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Split query, key and value that a file has in one pair, and put the last layer's halves in diffusers' order.

    Raises ConfigError.
    """
    import torch

    found, pairs = dict[str, torch.Tensor](), dict[str, dict[str, torch.Tensor]]()
    for name, tensor in tensors.items():
        if (match := JOINED.fullmatch(name)) is None:
            found[name] = halves_swapped(tensor) if LAST_UP.fullmatch(name) else tensor
        else:
            kind = {"A": "down", "B": "up", None: "alpha"}.get(match["matrix"], match["matrix"])
            pairs.setdefault(match["attention"], {})[kind] = tensor
    for attention, pair in pairs.items():
        down, up = pair.get("down"), pair.get("up")
        if down is None or up is None or up.shape[0] % 3 or up.shape[1] != down.shape[0]:
            raise ConfigError(f"the LoRA's matrices of {attention[:80]}_qkv are incomplete: export it again")
        scale = float(pair["alpha"]) / down.shape[0] if "alpha" in pair else 1.0
        for place, (own_down, own_up) in unstacked(down, up, 3).items():
            layer = f"{attention}_{'qkv'[place]}"
            found[f"{layer}.lora_down.weight"], found[f"{layer}.lora_up.weight"] = own_down, own_up * scale
            if "alpha" in pair:
                found[f"{layer}.alpha"] = torch.tensor(float(own_down.shape[0]))
    return found


# ---- the transformer in a single file

NORMS = {  # the authors' and ComfyUI's names of what no LoRA changes -> diffusers'
    "byt5_in.layernorm": "context_embedder_2.norm",
    "vision_in.proj.0": "image_embedder.norm_in",
    "vision_in.proj.4": "image_embedder.norm_out",
    "cond_type_embedding": "cond_type_embed",
}
NORM_IN_BLOCK = {
    f"{theirs}{spelled}": f"attn.{ours}{letter}"
    for theirs, ours in (("img_attn", "norm_"), ("txt_attn", "norm_added_"))
    for letter, word in (("q", "query"), ("k", "key"))
    for spelled in (f"_{letter}_norm", f".norm.{word}_norm")
}
WHOLE_QKV = re.compile(r"(.*(?:img|txt|self)_attn)[._]qkv\.(weight|bias)")


def transformer_to_diffusers(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Rename a transformer's tensors from the authors' or ComfyUI's names. Unknown names stay."""
    apart = dict[str, Any]()
    for name, tensor in tensors.items():
        if (match := WHOLE_QKV.fullmatch(name)) is None:
            apart[name] = tensor
        else:
            parts = zip("qkv", tensor.chunk(3), strict=True)
            apart |= {f"{match[1]}_{letter}.{match[2]}": part for letter, part in parts}
    found = dict[str, Any]()
    for name, tensor in apart.items():
        layer, _, kind = name.rpartition(".")
        ours = NORMS.get(layer) or NAMES.layer_of(layer)
        if (match := re.fullmatch(r"double_blocks\.(\d+)\.(.+)", layer)) and match[2] in NORM_IN_BLOCK:
            ours, kind = f"transformer_blocks.{match[1]}.{NORM_IN_BLOCK[match[2]]}", "weight"  # ComfyUI's is "scale"
        if match := re.fullmatch(r"txt_in\.individual_token_refiner\.blocks\.(\d+)\.(norm\d)", layer):
            ours = f"context_embedder.token_refiner.refiner_blocks.{match[1]}.{match[2]}"
        found[f"{ours or layer}.{kind}"] = halves_swapped(tensor) if ours == LAST else tensor
    return found


FORMATS = (
    *passed_over_by_comfyui("HunyuanVideo 1.5", lora_writing.DIFFUSERS, lora_writing.PORTABLE),
    LoraFormat(
        "comfyui",
        "ComfyUI",
        "ComfyUI's names (diffusion_model.double_blocks.0.img_attn.qkv), with query, key and value in one pair of "
        "matrices and the strength multiplied into the weights.",
        for_comfyui,
        ("ComfyUI",),
        "ComfyUI",
    ),
    LoraFormat(
        "hunyuan",
        "HunyuanVideo 1.5's own trainer",
        "The authors' names (double_blocks.0.img_attn_q) as their train.py saves them, the strength multiplied into "
        "the weights.",
        for_authors,
        ("HunyuanVideo 1.5's own code",),
        "HunyuanVideo 1.5's own code",
    ),
    LoraFormat(
        "kohya",
        "kohya, musubi-tuner",
        "Flat names (lora_unet_double_blocks_0_img_attn_q), the strength multiplied into the weights. musubi-tuner "
        "reads the layers in blocks alone.",
        for_musubi,
        ("musubi-tuner",),
    ),
    *passed_over_by_comfyui("HunyuanVideo 1.5", lora_writing.LYCORIS),
)
