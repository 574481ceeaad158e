"""LTX-2's names of layers, and the formats of its LoRA files."""

from __future__ import annotations

from workbench.families import lora_writing
from workbench.families.lora_names import ATTENTION, FEED_FORWARD, LayerNames

STREAMS = ("", "audio_")
BETWEEN = ("audio_to_video_attn", "video_to_audio_attn")
ATTENTIONS = (*(f"{stream}attn{number}" for stream in STREAMS for number in (1, 2)), *BETWEEN)
IN_BLOCK = tuple(f"{attention}.{name}" for attention in ATTENTIONS for name in (*ATTENTION, "to_gate_logits"))
IN_BLOCK += tuple(f"{stream}{name}" for stream in STREAMS for name in FEED_FORWARD)
ATTENDING = tuple(f"{attention}.{name}" for attention in ATTENTIONS for name in ATTENTION)
FEEDING_FORWARD = tuple(f"{stream}{name}" for stream in STREAMS for name in FEED_FORWARD)
EMBEDDINGS = {  # diffusers' name -> the authors'
    "time_embed": "adaln_single",
    "audio_time_embed": "audio_adaln_single",
    "av_cross_attn_video_scale_shift": "av_ca_video_scale_shift_adaln_single",
    "av_cross_attn_video_a2v_gate": "av_ca_a2v_gate_adaln_single",
    "av_cross_attn_audio_scale_shift": "av_ca_audio_scale_shift_adaln_single",
    "av_cross_attn_audio_v2a_gate": "av_ca_v2a_gate_adaln_single",
    "prompt_adaln": "prompt_adaln_single",
    "audio_prompt_adaln": "audio_prompt_adaln_single",
}
OUTSIDE = {
    f"{ours}.{name}": f"{theirs}.{name}"
    for ours, theirs in EMBEDDINGS.items()
    for name in ("emb.timestep_embedder.linear_1", "emb.timestep_embedder.linear_2", "linear")
}
SAME = ("proj_out", "caption_projection.linear_1", "caption_projection.linear_2")
for stream in STREAMS:
    OUTSIDE |= {f"{stream}{name}": f"{stream}{name}" for name in SAME}
    OUTSIDE[f"{stream}proj_in"] = f"{stream}patchify_proj"
NAMES = LayerNames(
    title="LTX-2",
    blocks="transformer_blocks",
    in_block={name: name for name in IN_BLOCK},
    outside=OUTSIDE,
    readers="this workbench, diffusers, ComfyUI, LTX-2's trainer, ai-toolkit or musubi-tuner's fork for LTX-2",
    authors_blocks="transformer_blocks",
)
FORMATS = (
    *lora_writing.passed_over_by_comfyui("LTX-2", lora_writing.DIFFUSERS, lora_writing.PORTABLE),
    lora_writing.LoraFormat(
        "comfyui",
        "ComfyUI, LTX-2's trainer",
        "The authors' names (diffusion_model.transformer_blocks.0.attn1.to_q), the strength multiplied into the "
        "weights.",
        lora_writing.comfyui_without_alpha("ComfyUI"),  # diffusers refuses these names with an alpha
        ("ComfyUI", "diffusers"),
        "ComfyUI",
        lokr="ComfyUI",
    ),
    lora_writing.LoraFormat(
        "kohya",
        "musubi-tuner's fork for LTX-2",
        "Flat names (lora_unet_transformer_blocks_0_attn1_to_q), alpha per layer.",
        lora_writing.kohya,
        ("musubi-tuner's fork", "ComfyUI"),
    ),
    *lora_writing.passed_over_by_comfyui("LTX-2", lora_writing.LYCORIS),
)
