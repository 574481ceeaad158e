"""Random miniatures of each architecture of the family, about 100,000 parameters, in diffusers' layout, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.families.cogvideox.files import scheduler_class

# "sincos" as 2B, "rotary" as 5B, "rotary-1.5" as 1.5-5B, "image" as 5B-I2V, "image-1.5" as 1.5-5B-I2V
TOYS = ("sincos", "rotary", "rotary-1.5", "image", "image-1.5")
WORDS = ("a", "the", "video", "red", "blue", "circle", "square", "moves", "left", "right", "on", "background", "sks")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,-"
CHANNELS = 4


def write(folder: Path, variant: str) -> None:
    """Write one of TOYS."""
    import torch
    from diffusers import (
        AutoencoderKLCogVideoX,
        CogVideoXImageToVideoPipeline,
        CogVideoXPipeline,
        CogVideoXTransformer3DModel,
    )
    from transformers import T5EncoderModel

    from_image, newer = variant.startswith("image"), variant.endswith("1.5")
    tokenizer, text = _text_parts()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = {
            "tokenizer": tokenizer,
            "text_encoder": T5EncoderModel(text),
            "vae": AutoencoderKLCogVideoX(
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
                invert_scale_latents=newer,
            ),
            "transformer": CogVideoXTransformer3DModel(**_transformer(variant)),
            "scheduler": _scheduler(variant),
        }
        if variant == "image":  # as it would be after training: unlike what could be computed
            torch.nn.init.normal_(parts["transformer"].patch_embed.pos_embedding)
    (CogVideoXImageToVideoPipeline if from_image else CogVideoXPipeline)(**parts).save_pretrained(folder)


def _text_parts() -> tuple[Any, Any]:
    """A tokenizer of a few words and letters, and the config of an encoder for it."""
    from transformers import T5Config, T5Tokenizer

    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -6.0)]
    vocabulary += [(f"▁{word}", -2.0) for word in WORDS] + [(letter, -8.0) for letter in LETTERS]
    tokenizer = T5Tokenizer(vocab=vocabulary, extra_ids=0)
    text = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=4,
        pad_token_id=0,
        eos_token_id=1,
    )
    return tokenizer, text


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
