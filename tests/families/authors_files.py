"""Write a model's parts as single files with the names of its authors or of ComfyUI, whole or in fp8 with scales.

The tables lead from diffusers' names to the others; those in `workbench/` and in diffusers lead back.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from workbench.families import model_files
from workbench.families.base import Family
from workbench.families.cogvideox import sat

Tensors = dict[str, torch.Tensor]
DENOISER = "model.diffusion_model."  # ComfyUI's prefix in files with several parts

WAN = (
    (r"condition_embedder\.(time|text)_embedder\.linear_1", r"\1_embedding.0"),
    (r"condition_embedder\.(time|text)_embedder\.linear_2", r"\1_embedding.2"),
    (r"condition_embedder\.time_proj", "time_projection.1"),
    (r"condition_embedder\.image_embedder\.norm1", "img_emb.proj.0"),
    (r"condition_embedder\.image_embedder\.ff\.net\.0\.proj", "img_emb.proj.1"),
    (r"condition_embedder\.image_embedder\.ff\.net\.2", "img_emb.proj.3"),
    (r"condition_embedder\.image_embedder\.norm2", "img_emb.proj.4"),
    (r"condition_embedder\.image_embedder\.pos_embed", "img_emb.emb_pos"),
    (r"(vace_blocks\.\d+)\.proj_in", r"\1.before_proj"),
    (r"(vace_blocks\.\d+)\.proj_out", r"\1.after_proj"),
    (r"^scale_shift_table", "head.modulation"),
    (r"^proj_out", "head.head"),
    (r"\.scale_shift_table", ".modulation"),
    (r"attn1\.", "self_attn."),
    (r"attn2\.", "cross_attn."),
    (r"\.to_([qkv])\.", r".\1."),
    (r"\.to_out\.0\.", ".o."),
    (r"\.add_([kv])_proj\.", r".\1_img."),
    (r"\.norm_added_k\.", ".norm_k_img."),
    (r"(blocks\.\d+)\.norm2\.", r"\1.norm3."),
    (r"ffn\.net\.0\.proj", "ffn.0"),
    (r"ffn\.net\.2", "ffn.2"),
)
WAN_VAE = (
    (r"^quant_conv", "conv1"),
    (r"^post_quant_conv", "conv2"),
    (r"coder\.conv_in", "coder.conv1"),
    (r"coder\.norm_out", "coder.head.0"),
    (r"coder\.conv_out", "coder.head.2"),
    (r"mid_block\.resnets\.0", "middle.0"),
    (r"mid_block\.attentions\.0", "middle.1"),
    (r"mid_block\.resnets\.1", "middle.2"),
    (r"\.norm1\.", ".residual.0."),
    (r"\.conv1\.(?=weight|bias)(?<=\d\.conv1\.)", ".residual.2."),
    (r"\.norm2\.", ".residual.3."),
    (r"\.conv2\.", ".residual.6."),
    (r"\.conv_shortcut\.", ".shortcut."),
)
WAN_21_VAE = (
    *WAN_VAE,
    (r"encoder\.down_blocks", "encoder.downsamples"),
    # Three residual blocks and an upsampler a level.
    *(
        (rf"decoder\.up_blocks\.{level}\.resnets\.{block}\.", f"decoder.upsamples.{4 * level + block}.")
        for level in range(4)
        for block in range(3)
    ),
    *((rf"decoder\.up_blocks\.{level}\.upsamplers\.0", f"decoder.upsamples.{4 * level + 3}") for level in range(4)),
)
WAN_22_VAE = (
    *WAN_VAE,
    (r"encoder\.down_blocks\.(\d)\.resnets", r"encoder.downsamples.\1.downsamples"),
    (r"encoder\.down_blocks\.(\d)\.downsampler", r"encoder.downsamples.\1.downsamples.2"),
    (r"decoder\.up_blocks\.(\d)\.resnets", r"decoder.upsamples.\1.upsamples"),
    (r"decoder\.up_blocks\.(\d)\.upsampler", r"decoder.upsamples.\1.upsamples.3"),
)
UMT5 = (
    (r"^shared\.", "token_embedding."),
    (r"^encoder\.final_layer_norm", "norm"),
    (r"^encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.relative_attention_bias", r"blocks.\1.pos_embedding.embedding"),
    (r"^encoder\.block\.(\d+)\.layer\.0\.SelfAttention", r"blocks.\1.attn"),
    (r"^encoder\.block\.(\d+)\.layer\.0\.layer_norm", r"blocks.\1.norm1"),
    (r"^encoder\.block\.(\d+)\.layer\.1\.layer_norm", r"blocks.\1.norm2"),
    (r"^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_0", r"blocks.\1.ffn.gate.0"),
    (r"^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_1", r"blocks.\1.ffn.fc1"),
    (r"^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wo", r"blocks.\1.ffn.fc2"),
)
LTX = (
    (r"^proj_in", "patchify_proj"),
    (r"^time_embed", "adaln_single"),
    (r"\.norm_([qk])\.", r".\1_norm."),
)
LTX_2 = (
    (r"^(audio_)?proj_in", r"\1patchify_proj"),
    (
        r"^(audio_)?(prompt_adaln|time_embed)\.",
        lambda m: f"{m[1] or ''}{'prompt_' * (m[2] != 'time_embed')}adaln_single.",
    ),
    (r"^av_cross_attn_(video|audio)_scale_shift", r"av_ca_\1_scale_shift_adaln_single"),
    (r"^av_cross_attn_(?:video|audio)_(a2v|v2a)_gate", r"av_ca_\1_gate_adaln_single"),
    (r"\.(video|audio)_a2v_cross_attn_scale_shift_table", r".scale_shift_table_a2v_ca_\1"),
    (r"\.norm_([qk])\.", r".\1_norm."),
)
STATISTICS = (
    (r"^latents_mean", "per_channel_statistics.mean-of-means"),
    (r"^latents_std", "per_channel_statistics.std-of-means"),
)


def levels(coder: str, theirs: str, ours: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Rename levels that are one list in the authors' autoencoder; the most specific names come first."""
    table = {f"{coder}.{one}.": f"{coder}.{theirs}.{number}." for number, one in enumerate(ours)}
    alternatives = "|".join(re.escape(one) for one in sorted(table, key=len, reverse=True))
    return ((f"^(?:{alternatives})", lambda match: table[match[0]]),)  # type: ignore[return-value]


RESNETS = ((r"\.resnets\.", ".res_blocks."), (r"conv_shortcut\.conv\.", "conv_shortcut."), (r"norm3\.", "norm3.norm."))
LTX_VAE_090 = (
    *levels(
        "encoder",
        "down_blocks",
        [f"down_blocks.{n}{end}" for n in range(2) for end in ("", ".downsamplers.0", ".conv_out")]
        + ["down_blocks.2", "down_blocks.2.downsamplers.0", "down_blocks.3", "mid_block"],
    ),
    *levels(
        "decoder",
        "up_blocks",
        ["mid_block", "up_blocks.0", "up_blocks.1.upsamplers.0", "up_blocks.1"]
        + [f"up_blocks.{n}{end}" for n in (2, 3) for end in (".conv_in", ".upsamplers.0", "")],
    ),
    *RESNETS,
    *STATISTICS,
)
DOWN = [f"down_blocks.{n}{end}" for n in range(4) for end in ("", ".downsamplers.0")] + ["mid_block"]
UP = ["mid_block", *(f"up_blocks.{n}{end}" for n in range(4) for end in (".upsamplers.0", ""))]
NEWER_DECODER = (
    *levels("decoder", "up_blocks", UP),
    (r"^decoder\.time_embedder", "decoder.last_time_embedder"),
    (r"^decoder\.scale_shift_table", "decoder.last_scale_shift_table"),
    *RESNETS,
    *STATISTICS,
)
LTX_VAE_091 = (LTX_VAE_090[0], *NEWER_DECODER)
LTX_VAE_095 = (*levels("encoder", "down_blocks", DOWN), *NEWER_DECODER)
LTX_2_VAE = (*levels("encoder", "down_blocks", DOWN), *levels("decoder", "up_blocks", UP), *RESNETS, *STATISTICS)
HUNYUAN = (
    (r"^x_embedder", "img_in"),
    (r"^time_embed\.timestep_embedder\.linear_1", "time_in.mlp.0"),
    (r"^time_embed\.timestep_embedder\.linear_2", "time_in.mlp.2"),
    (r"^context_embedder\.time_text_embed\.timestep_embedder\.linear_1", "txt_in.t_embedder.mlp.0"),
    (r"^context_embedder\.time_text_embed\.timestep_embedder\.linear_2", "txt_in.t_embedder.mlp.2"),
    (r"^context_embedder\.time_text_embed\.text_embedder", "txt_in.c_embedder"),
    (r"^context_embedder\.proj_in", "txt_in.input_embedder"),
    (r"^context_embedder\.token_refiner\.refiner_blocks", "txt_in.individual_token_refiner.blocks"),
    (r"(refiner\.blocks\.\d+)\.attn\.to_out\.0", r"\1.self_attn_proj"),
    (r"(refiner\.blocks\.\d+)\.ff\.net\.0\.proj", r"\1.mlp.fc1"),
    (r"(refiner\.blocks\.\d+)\.ff\.net\.2", r"\1.mlp.fc2"),
    (r"(refiner\.blocks\.\d+)\.norm_out\.linear", r"\1.adaLN_modulation.1"),
    (r"^context_embedder_2\.norm", "byt5_in.layernorm"),
    (r"^context_embedder_2\.linear_", "byt5_in.fc"),
    (r"^image_embedder\.norm_in", "vision_in.proj.0"),
    (r"^image_embedder\.linear_1", "vision_in.proj.1"),
    (r"^image_embedder\.linear_2", "vision_in.proj.3"),
    (r"^image_embedder\.norm_out", "vision_in.proj.4"),
    (r"^cond_type_embed\.", "cond_type_embedding."),
    (r"^norm_out\.linear", "final_layer.adaLN_modulation.1"),
    (r"^proj_out", "final_layer.linear"),
    (r"^transformer_blocks", "double_blocks"),
    (r"\.norm1\.linear", ".img_mod.linear"),
    (r"\.norm1_context\.linear", ".txt_mod.linear"),
    (r"(double_blocks\.\d+)\.attn\.norm_([qk])", r"\1.img_attn_\2_norm"),
    (r"\.attn\.norm_added_([qk])", r".txt_attn_\1_norm"),
    (r"(double_blocks\.\d+)\.attn\.to_([qkv])\.", r"\1.img_attn_\2."),
    (r"\.attn\.add_([qkv])_proj", r".txt_attn_\1"),
    (r"\.attn\.to_out\.0", ".img_attn_proj"),
    (r"\.attn\.to_add_out", ".txt_attn_proj"),
    (r"\.ff\.net\.0\.proj", ".img_mlp.fc1"),
    (r"\.ff\.net\.2", ".img_mlp.fc2"),
    (r"\.ff_context\.net\.0\.proj", ".txt_mlp.fc1"),
    (r"\.ff_context\.net\.2", ".txt_mlp.fc2"),
)
# What ComfyUI renames of these when it loads the authors' file, and so saves.
HUNYUAN_COMFYUI = (
    (r"_attn_qkv", "_attn.qkv"),
    (r"_attn_proj", "_attn.proj"),
    (r"_attn_q_norm\.weight", "_attn.norm.query_norm.scale"),
    (r"_attn_k_norm\.weight", "_attn.norm.key_norm.scale"),
    (r"_mod\.linear", "_mod.lin"),
    (r"mlp\.fc1", "mlp.0"),
    (r"mlp\.fc2", "mlp.2"),
    (r"_in\.mlp\.0", "_in.in_layer"),
    (r"_in\.mlp\.2", "_in.out_layer"),
    (r"t_embedder\.mlp\.0", "t_embedder.in_layer"),
    (r"t_embedder\.mlp\.2", "t_embedder.out_layer"),
    (r"c_embedder\.linear_1", "c_embedder.in_layer"),
    (r"c_embedder\.linear_2", "c_embedder.out_layer"),
)


def renamed(tensors: Mapping[str, torch.Tensor], table: Sequence[tuple[str, object]]) -> Tensors:
    """Rename tensors by each pattern in turn."""
    found = {}
    for name, tensor in tensors.items():
        for pattern, other in table:
            name = re.sub(pattern, other, name)  # type: ignore[call-overload]
        found[name] = tensor
    assert len(found) == len(tensors)
    return found


def swapped(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat(tensor.chunk(2)[::-1])


def joined(tensors: Tensors, names: Sequence[str], whole: str) -> None:
    """Join matrices into one."""
    tensors[whole] = torch.cat([tensors.pop(name) for name in names])


def mochi(tensors: Tensors) -> Tensors:
    found = renamed(
        tensors,
        (
            (r"^patch_embed\.proj", "x_embedder.proj"),
            (r"^time_embed\.timestep_embedder\.linear_1", "t_embedder.mlp.0"),
            (r"^time_embed\.timestep_embedder\.linear_2", "t_embedder.mlp.2"),
            (r"^time_embed\.pooler", "t5_y_embedder"),
            (r"^time_embed\.caption_proj", "t5_yproj"),
            (r"^norm_out\.linear", "final_layer.mod"),
            (r"^proj_out", "final_layer.linear"),
            (r"^transformer_blocks", "blocks"),
            (r"\.norm1\.linear", ".mod_x"),
            (r"\.norm1_context\.linear(_1)?", ".mod_y"),
            (r"\.attn1\.norm_([qk])\.", r".attn.\1_norm_x."),
            (r"\.attn1\.norm_added_([qk])\.", r".attn.\1_norm_y."),
            (r"\.attn1\.to_out\.0", ".attn.proj_x"),
            (r"\.attn1\.to_add_out", ".attn.proj_y"),
            (r"\.ff\.net\.0\.proj", ".mlp_x.w1"),
            (r"\.ff\.net\.2", ".mlp_x.w2"),
            (r"\.ff_context\.net\.0\.proj", ".mlp_y.w1"),
            (r"\.ff_context\.net\.2", ".mlp_y.w2"),
        ),
    )
    for block in sorted({name.split(".")[1] for name in found if name.startswith("blocks.")}):
        attention = f"blocks.{block}.attn"
        joined(found, [f"{attention}1.to_{one}.weight" for one in "qkv"], f"{attention}.qkv_x.weight")
        joined(found, [f"{attention}1.add_{one}_proj.weight" for one in "qkv"], f"{attention}.qkv_y.weight")
    return {
        name: swapped(one) if name.startswith("final_layer.mod") or ".w1." in name else one
        for name, one in found.items()
    }


def hunyuan(tensors: Tensors) -> Tensors:
    found = renamed(tensors, HUNYUAN)
    for name in [one for one in found if one.startswith("final_layer.adaLN")]:
        found[name] = swapped(found[name])
    for start in sorted(
        {name.partition(".attn.")[0] for name in found if "token_refiner" in name and ".attn." in name}
    ):
        for kind in ("weight", "bias"):
            joined(found, [f"{start}.attn.to_{one}.{kind}" for one in "qkv"], f"{start}.self_attn_qkv.{kind}")
    return found


def hunyuan_comfyui(tensors: Tensors) -> Tensors:
    found = hunyuan(tensors)
    for start in sorted({name.removesuffix("_attn_q.weight") for name in found if name.endswith("_attn_q.weight")}):
        for kind in ("weight", "bias"):
            joined(found, [f"{start}_attn_{one}.{kind}" for one in "qkv"], f"{start}_attn_qkv.{kind}")
    return renamed(found, HUNYUAN_COMFYUI)


def by(table: Sequence[tuple[str, object]]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: renamed(tensors, table)


def wan_vae(tensors: Tensors) -> Tensors:
    newer = any(".downsampler." in name for name in tensors)
    return renamed(tensors, WAN_22_VAE if newer else WAN_21_VAE)


def same(tensors: Tensors) -> Tensors:
    return dict(tensors)


def bare_sat(tensors: Tensors) -> Tensors:
    return {name.removeprefix(sat.TRANSFORMER): one for name, one in sat.transformer_to_sat(tensors).items()}


# Family, part -> name of a layout -> how it is written. Prefixes are added by `write`.
LAYOUTS: dict[tuple[str, str], dict[str, Callable[[Tensors], Tensors]]] = {
    ("wan", "transformer"): {"authors": by(WAN), "diffusers": same},
    ("wan", "vae"): {"authors": wan_vae, "diffusers": same},
    ("wan", "text_encoder"): {"ComfyUI": same, "authors": by(UMT5)},
    ("ltx", "transformer"): {"authors": by(LTX), "diffusers": same},
    ("ltx", "vae"): {"authors": by(LTX_VAE_090), "diffusers": same},
    ("ltx", "text_encoder"): {"ComfyUI": same},
    ("ltx2", "transformer"): {"authors": by(LTX_2), "diffusers": same},
    ("ltx2", "vae"): {"authors": by(LTX_2_VAE), "diffusers": same},
    ("ltx2", "audio_vae"): {"authors": by(STATISTICS)},
    ("mochi", "transformer"): {"authors": mochi},
    ("mochi", "text_encoder"): {"ComfyUI": same},
    ("kandinsky5", "transformer"): {"authors": same},
    ("kandinsky5", "text_encoder"): {"ComfyUI": same},
    ("hunyuan15", "transformer"): {"authors": hunyuan, "ComfyUI": hunyuan_comfyui, "diffusers": same},
    ("cogvideox", "transformer"): {"authors": bare_sat, "diffusers": same},
    ("cogvideox", "vae"): {"authors": sat.vae_to_sat, "diffusers": same},
    ("cogvideox", "text_encoder"): {"ComfyUI": same},
}


def toy_as_real(family: Family, folder: Path, variant: str) -> Path:
    """Write a family's miniature, with as many blocks as the library's converters count on."""
    as_real: dict[str, tuple[str, dict[str, Any]]] = {
        "mochi": ("transformer", {"num_layers": 48}),
        "wan": ("vae", {"num_res_blocks": 2, "dim_mult": [1, 2, 4, 4]}),
    }
    family.toy(folder, variant)
    part, more = as_real.get(family.name, ("", {}))
    if part:
        kind = model_files.class_named(*model_files.index(folder)[part])
        config = {**model_files.config(folder, part), **more}
        shutil.rmtree(folder / part)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            kind.from_config(config).save_pretrained(folder / part)
        model_files.config.cache_clear()
        model_files.shapes.cache_clear()
    return folder


def write(path: Path, tensors: Tensors, prefix: str = "") -> Path:
    """Write a file with tensors of one part."""
    save_file({prefix + name: one.contiguous() for name, one in tensors.items()}, path)
    return path


def in_fp8(tensors: Tensors, style: str = "scale_weight") -> Tensors:
    """Quantize matrices as ComfyUI's files have them.

    Args:
        style: "scale_weight" of the older files, with a mark of the whole file; "weight_scale" of the newer, with a
            note at each layer; "rows" for one scale a row.
    """
    found = {} if style == "weight_scale" else {"scaled_fp8": torch.zeros(2, dtype=torch.float8_e4m3fn)}
    note = torch.tensor(list(json.dumps({"format": "float8_e4m3fn"}).encode()), dtype=torch.uint8)
    for name, one in tensors.items():
        if one.dim() != 2 or not name.endswith(".weight"):
            found[name] = one
            continue
        layer, most = name.removesuffix(".weight"), one.float().abs()
        most = most.amax(dim=1) if style == "rows" else most.max()
        scale = (most / 448).clamp(min=1e-12)
        found[name] = (one.float() / (scale[:, None] if style == "rows" else scale)).to(torch.float8_e4m3fn)
        found[f"{layer}.{'weight_scale' if style == 'weight_scale' else 'scale_weight'}"] = scale
        if style == "weight_scale":
            found[f"{layer}.comfy_quant"] = note.clone()
    return found


def from_fp8(tensors: Tensors) -> Tensors:
    """Return the float32 values that a file written by `in_fp8` holds."""
    found = {}
    for name, one in tensors.items():
        if one.dtype == torch.float8_e4m3fn and name != "scaled_fp8":
            layer = name.removesuffix(".weight")
            scale = tensors.get(f"{layer}.scale_weight", tensors.get(f"{layer}.weight_scale"))
            assert scale is not None
            found[name] = one.float() * (scale[:, None] if scale.dim() else scale)
        elif not name.endswith((".scale_weight", ".weight_scale", ".comfy_quant", "scaled_fp8")):
            found[name] = one
    return found
