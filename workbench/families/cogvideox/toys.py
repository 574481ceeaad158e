"""Random miniatures of each architecture of the family, about 100,000 parameters, in diffusers' layout, for tests."""

from __future__ import annotations

from typing import Any

from workbench.families.cogvideox.sampling import scheduler_class
from workbench.families.toy_text import t5_parts

# "sincos" as 2B, "rotary" as 5B, "rotary-1.5" as 1.5-5B, "image" as 5B-I2V, "image-1.5" as 1.5-5B-I2V
TOYS = ("sincos", "rotary", "rotary-1.5", "image", "image-1.5")
CHANNELS = 4


def miniature(variant: str) -> Any:
    """The pipeline of one of TOYS."""
    import diffusers
    import torch

    tokenizer, text_encoder = t5_parts()
    vae = diffusers.AutoencoderKLCogVideoX(
        down_block_types=("CogVideoXDownBlock3D",) * 3,
        up_block_types=("CogVideoXUpBlock3D",) * 3,
        block_out_channels=(8, 8, 8),
        latent_channels=CHANNELS,
        layers_per_block=1,
        norm_num_groups=2,
        temporal_compression_ratio=4,
        sample_height=16,
        sample_width=16,
        scaling_factor=0.7,
        invert_scale_latents=variant.endswith("1.5"),
    )
    transformer = diffusers.CogVideoXTransformer3DModel(**_transformer(variant))
    if variant == "image":  # as it would be after training: unlike what could be computed
        torch.nn.init.normal_(transformer.patch_embed.pos_embedding)
    from_image = variant.startswith("image")
    pipeline = diffusers.CogVideoXImageToVideoPipeline if from_image else diffusers.CogVideoXPipeline
    return pipeline(tokenizer, text_encoder, vae, transformer, _scheduler(variant))


def _transformer(variant: str) -> dict[str, Any]:
    from_image, newer = variant.startswith("image"), variant.endswith("1.5")
    config = {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "in_channels": CHANNELS * (2 if from_image else 1),
        "out_channels": CHANNELS,
        "time_embed_dim": 8,
        "text_embed_dim": 32,
        "num_layers": 2,
        "sample_width": 4,
        "sample_height": 4,
        "sample_frames": 17 if newer or from_image else 9,
        "patch_size": 2,
        "max_text_seq_length": 16,
        "use_rotary_positional_embeddings": variant != "sincos",
        "use_learned_positional_embeddings": variant == "image",
        "spatial_interpolation_scale": 1.0,
    }
    if newer:
        config |= {"patch_size_t": 2, "patch_bias": False}
    return config | ({"ofs_embed_dim": 8} if variant == "image-1.5" else {})


def _scheduler(variant: str) -> Any:
    return scheduler_class("DDIM" if variant == "sincos" else "DPM")(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        snr_shift_scale=3.0 if variant == "sincos" else 1.0,
        timestep_spacing="trailing",
        set_alpha_to_one=True,
        clip_sample=False,
    )
