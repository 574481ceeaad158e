#!/usr/bin/env python3
"""Write assets/architectures.json: the sizes of the published models, for estimates before a download.

Each model is built on the meta device from its published config, taken from scripts/convert_*_to_diffusers.py of
diffusers and the config.json files on the Hub. Other values are the class's defaults.

    python scripts/write_architectures.py          write the file
    python scripts/write_architectures.py --check  exit with 1 if it would change
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from workbench.families import facts  # noqa: E402

Config = dict[str, Any]
XXL: Config = {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64}
T5 = ("transformers", "T5EncoderModel", {**XXL, "feed_forward_proj": "gated-gelu", "vocab_size": 32128})
QWEN_VL_7B: Config = {
    "text_config": {
        **{"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
        **{"num_key_value_heads": 4, "vocab_size": 152064},
    },
    "vision_config": {
        **{"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584},
    },
    "tie_word_embeddings": False,
}
QWEN = ("transformers", "Qwen2_5_VLForConditionalGeneration", QWEN_VL_7B)
CLIP_L: Config = {
    **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    **{"projection_dim": 768, "vocab_size": 49408},
}
UMT5 = ("transformers", "UMT5EncoderModel", {**XXL, "feed_forward_proj": "gated-gelu", "vocab_size": 256384})

COGVIDEOX: Config = {"num_attention_heads": 30, "num_layers": 30}
COGVIDEOX_5B: Config = {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True}
COGVIDEOX_1_5: Config = {**COGVIDEOX_5B, "patch_size_t": 2, "patch_bias": False, "sample_frames": 81}
COGVIDEOX_VAE: Config = {"latent_channels": 16, "sample_height": 480, "sample_width": 720}
COGVIDEOX_VAE_5B: Config = {**COGVIDEOX_VAE, "scaling_factor": 0.7}
COGVIDEOX_VAE_1_5: Config = {**COGVIDEOX_VAE_5B, "invert_scale_latents": True}

WAN: Config = {"num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960}
WAN_14B: Config = {"num_attention_heads": 40, "num_layers": 40, "ffn_dim": 13824}
WAN_14B_I2V: Config = {**WAN_14B, "in_channels": 36, "image_dim": 1280, "added_kv_proj_dim": 5120}
WAN_FUN_INP: Config = {**WAN, "in_channels": 36, "image_dim": 1280, "added_kv_proj_dim": 1536}
WAN_A14B_I2V: Config = {**WAN_14B, "in_channels": 36}
WAN_5B: Config = {**WAN, "num_attention_heads": 24, "ffn_dim": 14336, "in_channels": 48, "out_channels": 48}
WAN_VACE: Config = {**WAN, "vace_layers": list(range(0, 30, 2)), "vace_in_channels": 96}
WAN_VACE_14B: Config = {**WAN_14B, "vace_layers": list(range(0, 40, 5)), "vace_in_channels": 96}
WAN_VAE: Config = {"base_dim": 96, "z_dim": 16}
WAN_2_2_VAE: Config = {
    **{"base_dim": 160, "decoder_base_dim": 256, "z_dim": 48, "in_channels": 12, "out_channels": 12},
    **{"is_residual": True, "patch_size": 2, "scale_factor_spatial": 16},
}
CLIP_H: Config = {
    **{"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16},
    **{"image_size": 224, "patch_size": 14, "projection_dim": 1024},
}
CLIP = ("transformers", "CLIPVisionModel", CLIP_H)

LTX_13B: Config = {"attention_head_dim": 128, "num_layers": 48, "cross_attention_dim": 4096}
LTX_VAE_1: Config = {
    "decoder_block_out_channels": (256, 512, 1024),
    "decoder_layers_per_block": (5, 6, 7, 8),
    "decoder_spatio_temporal_scaling": (True, True, True),
    "decoder_inject_noise": (False, True, True, True),
    "upsample_residual": (True, True, True),
    "upsample_factor": (2, 2, 2),
    "timestep_conditioning": True,
}
LTX_VAE_5: Config = {
    **LTX_VAE_1,
    "block_out_channels": (128, 256, 512, 1024, 2048),
    "down_block_types": ("LTXVideo095DownBlock3D",) * 4,
    "layers_per_block": (4, 6, 6, 2, 2),
    "decoder_layers_per_block": (5, 5, 5, 5),
    "spatio_temporal_scaling": (True, True, True, True),
    "decoder_inject_noise": (False, False, False, False),
    "downsample_type": ("spatial", "temporal", "spatiotemporal", "spatiotemporal"),
    "spatial_compression_ratio": 32,
    "temporal_compression_ratio": 8,
}

KANDINSKY_LITE: Config = {
    **{"in_visual_dim": 16, "out_visual_dim": 16, "visual_cond": True, "model_dim": 1792, "ff_dim": 7168},
    **{"num_text_blocks": 2, "num_visual_blocks": 32, "axes_dims": (16, 24, 24)},
}
LTX_2_3: Config = {
    **{"gated_attn": True, "cross_attn_mod": True, "audio_gated_attn": True, "audio_cross_attn_mod": True},
    **{"rope_type": "split", "use_prompt_embeddings": False, "perturbed_attn": True},
}
LTX_2_CONNECTORS: Config = {
    **{"caption_channels": 3840, "text_proj_in_factor": 49, "rope_type": "split"},
    **{"video_connector_num_attention_heads": 30, "video_connector_attention_head_dim": 128},
    **{"audio_connector_num_attention_heads": 30, "audio_connector_attention_head_dim": 128},
    **{"video_connector_num_layers": 2, "audio_connector_num_layers": 2},
}
LTX_2_3_CONNECTORS: Config = {
    **{**LTX_2_CONNECTORS, "video_connector_num_attention_heads": 32, "video_connector_num_layers": 8},
    **{"audio_connector_num_attention_heads": 32, "audio_connector_attention_head_dim": 64},
    **{"audio_connector_num_layers": 8, "video_gated_attn": True, "audio_gated_attn": True},
    **{"per_modality_projections": True, "video_hidden_dim": 4096, "audio_hidden_dim": 2048, "proj_bias": True},
}
LTX_2_VAE: Config = {"decoder_causal": False, "spatial_compression_ratio": 32, "temporal_compression_ratio": 8}
LTX_2_3_VAE: Config = {
    **{**LTX_2_VAE, "block_out_channels": (256, 512, 1024, 1024), "layers_per_block": (4, 6, 4, 2, 2)},
    **{"decoder_block_out_channels": (256, 512, 512, 1024), "decoder_layers_per_block": (4, 6, 4, 2, 2)},
    **{"decoder_spatio_temporal_scaling": (True,) * 4, "decoder_inject_noise": (False,) * 5},
    **{"upsample_type": ("spatiotemporal", "spatiotemporal", "temporal", "spatial")},
    **{"upsample_residual": (False,) * 4, "upsample_factor": (2, 2, 1, 2), "decoder_spatial_padding_mode": "zeros"},
}
VOCODER: Config = {
    **{"in_channels": 128, "resnet_kernel_sizes": [3, 7, 11], "resnet_dilations": [[1, 3, 5]] * 3},
    **{"upsample_kernel_sizes": [16, 15, 8, 4, 4], "upsample_factors": [6, 5, 2, 2, 2]},
}
GEMMA_12B: Config = {
    **{"hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48},
    **{"num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 262208},
}
SIGLIP: Config = {
    **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16},
    **{"image_size": 896, "patch_size": 14, "vision_use_head": False},
}
GEMMA = ("transformers", "Gemma3ForConditionalGeneration", {"text_config": GEMMA_12B, "vision_config": SIGLIP})
# ByT5 small with Glyph-SDXL-v2's tokens for colors and fonts.
GLYPH_BYT5: Config = {
    **{"d_model": 1472, "d_kv": 64, "d_ff": 3584, "num_layers": 12, "num_heads": 6},
    **{"feed_forward_proj": "gated-gelu", "vocab_size": 1510},
}
QWEN_7B: Config = {
    **{"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
    **{"num_key_value_heads": 4, "vocab_size": 152064},
}
SIGLIP_384: Config = {
    **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16},
    **{"image_size": 384, "patch_size": 14},
}


@dataclass(frozen=True)
class Published:
    """A pipeline's repositories, and the (library, class, config) of each part."""

    sources: tuple[str, ...]
    transformer: tuple[str, str, Config]
    vae: tuple[str, str, Config]
    text_encoder: tuple[str, str, Config]
    more: dict[str, tuple[str, str, Config]] = field(default_factory=dict)
    stored: str = "bfloat16"


def _cogvideox(source: str, config: Config, vae: Config = COGVIDEOX_VAE_5B, **more: Any) -> Published:
    transformer = ("diffusers", "CogVideoXTransformer3DModel", config)
    return Published((source,), transformer, ("diffusers", "AutoencoderKLCogVideoX", vae), T5, **more)


def _wan(sources: tuple[str, ...], config: Config, vae: Config = WAN_VAE, **more: Any) -> Published:
    """Return a Wan pipeline, which the Hub stores in float32: 57 GB for a 14B model."""
    names = tuple(f"Wan-AI/{source}-Diffusers" for source in sources)
    transformer = ("diffusers", "WanTransformer3DModel", config)
    return Published(names, transformer, ("diffusers", "AutoencoderKLWan", vae), UMT5, stored="float32", **more)


def _vace(source: str, config: Config) -> Published:
    transformer = ("diffusers", "WanVACETransformer3DModel", config)
    return replace(_wan((), {}), sources=(f"Wan-AI/{source}-diffusers",), transformer=transformer)


def _second(config: Config) -> dict[str, tuple[str, str, Config]]:
    return {"transformer_2": ("diffusers", "WanTransformer3DModel", config)}


def _ltx(source: str, config: Config, vae: Config, **more: Any) -> Published:
    transformer = ("diffusers", "LTXVideoTransformer3DModel", config)
    return Published((f"Lightricks/{source}",), transformer, ("diffusers", "AutoencoderKLLTXVideo", vae), T5, **more)


def _ltx2(source: str, config: Config, vae: Config, connectors: Config, vocoder: str) -> Published:
    more = {
        "connectors": ("ltx2", "LTX2TextConnectors", connectors),
        "audio_vae": ("diffusers", "AutoencoderKLLTX2Audio", {}),
        "vocoder": ("ltx2", vocoder, VOCODER if vocoder == "LTX2Vocoder" else {}),
    }
    transformer = ("diffusers", "LTX2VideoTransformer3DModel", config)
    return Published((source,), transformer, ("diffusers", "AutoencoderKLLTX2Video", vae), GEMMA, more=more)


def _hunyuan(task: str, *sizes: str) -> Published:
    """Return a HunyuanVideo 1.5 pipeline, whose transformer the Hub stores in float32."""
    more = {"text_encoder_2": ("transformers", "T5EncoderModel", GLYPH_BYT5)}
    if task == "i2v":
        more["image_encoder"] = ("transformers", "SiglipVisionModel", SIGLIP_384)
    return Published(
        tuple(f"hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-{size}" for size in sizes),
        ("diffusers", "HunyuanVideo15Transformer3DModel", {}),
        ("diffusers", "AutoencoderKLHunyuanVideo15", {}),
        ("transformers", "Qwen2_5_VLTextModel", QWEN_7B),
        more,
        stored="float32",
    )


PUBLISHED = (
    _cogvideox("THUDM/CogVideoX-2b", COGVIDEOX, COGVIDEOX_VAE, stored="float16"),
    _cogvideox("THUDM/CogVideoX-5b", COGVIDEOX_5B),
    _cogvideox(
        "THUDM/CogVideoX-5b-I2V", {**COGVIDEOX_5B, "in_channels": 32, "use_learned_positional_embeddings": True}
    ),
    _cogvideox("THUDM/CogVideoX1.5-5B", COGVIDEOX_1_5, COGVIDEOX_VAE_1_5),
    _cogvideox(
        "THUDM/CogVideoX1.5-5B-I2V", {**COGVIDEOX_1_5, "in_channels": 32, "ofs_embed_dim": 512}, COGVIDEOX_VAE_1_5
    ),
    _wan(("Wan2.1-T2V-1.3B",), WAN),
    _wan(("Wan2.1-T2V-14B",), WAN_14B),
    _wan(("Wan2.1-I2V-14B-480P", "Wan2.1-I2V-14B-720P"), WAN_14B_I2V, more={"image_encoder": CLIP}),
    replace(
        _wan((), {**WAN_14B_I2V, "pos_embed_seq_len": 514}, more={"image_encoder": CLIP}),
        sources=("Wan-AI/Wan2.1-FLF2V-14B-720P-diffusers",),
    ),
    replace(_wan((), WAN_FUN_INP, more={"image_encoder": CLIP}), sources=("weizhou03/Wan2.1-Fun-1.3B-InP-Diffusers",)),
    _wan(("Wan2.2-TI2V-5B",), WAN_5B, WAN_2_2_VAE),
    _wan(("Wan2.2-T2V-A14B",), WAN_14B, more=_second(WAN_14B)),
    _wan(("Wan2.2-I2V-A14B",), WAN_A14B_I2V, more=_second(WAN_A14B_I2V)),
    _vace("Wan2.1-VACE-1.3B", WAN_VACE),
    _vace("Wan2.1-VACE-14B", WAN_VACE_14B),
    _ltx("LTX-Video", {}, {}, stored="float32"),
    _ltx("LTX-Video-0.9.1", {}, LTX_VAE_1),
    _ltx("LTX-Video-0.9.5", {}, LTX_VAE_5),
    _ltx("LTX-Video-0.9.7-dev", LTX_13B, LTX_VAE_5),
    _ltx2("Lightricks/LTX-2", {"rope_type": "split"}, LTX_2_VAE, LTX_2_CONNECTORS, "LTX2Vocoder"),
    _ltx2("diffusers/LTX-2.3-Diffusers", LTX_2_3, LTX_2_3_VAE, LTX_2_3_CONNECTORS, "LTX2VocoderWithBWE"),
    Published(
        ("genmo/mochi-1-preview",),
        ("diffusers", "MochiTransformer3DModel", {}),
        ("diffusers", "AutoencoderKLMochi", {}),
        T5,
        stored="float32",
    ),
    Published(
        (
            "kandinskylab/Kandinsky-5.0-T2V-Lite-pretrain-5s-Diffusers",
            "kandinskylab/Kandinsky-5.0-I2V-Lite-5s-Diffusers",
        ),
        ("diffusers", "Kandinsky5Transformer3DModel", KANDINSKY_LITE),
        ("diffusers", "AutoencoderKLHunyuanVideo", {}),
        QWEN,
        more={"text_encoder_2": ("transformers", "CLIPTextModel", CLIP_L)},
    ),
    _hunyuan("t2v", "480p_t2v", "480p_t2v_distilled", "720p_t2v"),
    _hunyuan("i2v", "480p_i2v", "480p_i2v_distilled", "720p_i2v", "720p_i2v_distilled"),
)


def entry(published: Published) -> dict[str, Any]:
    """Return the file's entry of a pipeline."""
    kinds = {"transformer": published.transformer, "vae": published.vae, "text_encoder": published.text_encoder}
    parts = {}
    for name, kind in {**kinds, **published.more}.items():
        parts[name] = asdict(facts.built(*kind))
        if name != "transformer":  # their layers are not used
            parts[name]["layers"] = {}
        if kind[1] == "AutoencoderKLWan":  # long lists of numbers other than sizes
            parts[name]["config"] = {k: v for k, v in parts[name]["config"].items() if not k.startswith("latents_")}
    return {"sources": list(published.sources), "stored": published.stored, "parts": parts}


def text() -> str:
    """Return the content of the file."""
    found = {"pipelines": [entry(published) for published in PUBLISHED]}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file would change")
    check = parser.parse_args().check
    current, wanted = facts.FILE.read_text(encoding="utf-8") if facts.FILE.is_file() else "", text()
    if check:
        print("up to date" if current == wanted else "assets/architectures.json would change")
        return int(current != wanted)
    facts.FILE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
