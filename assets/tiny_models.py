"""The parts of the tiny CogVideoX: the original architecture at a small size, randomly initialized."""

from __future__ import annotations

import copy
import json
import shutil
import string
import sys
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKLCogVideoX,
    CogVideoXDDIMScheduler,
    CogVideoXImageToVideoPipeline,
    CogVideoXPipeline,
    CogVideoXTransformer3DModel,
    DiffusionPipeline,
)
from tiny_world import FRAMES, SIZE
from torch import Tensor, nn
from transformers import T5Config, T5EncoderModel, T5Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from workbench.families import model_files

Pipeline = CogVideoXPipeline | CogVideoXImageToVideoPipeline

SHARED = ("vae", "text_encoder", "tokenizer", "scheduler")
LATENT_CHANNELS = 16
TEXT_LENGTH = 16
SAMPLING_STEPS = 25
GUIDANCE = 3.0
IMAGE_GUIDANCE = 1.5  # for image-to-video; more would move away from the first frame

# Training captions use only the first words. The others are untrained, but have ids and random embeddings, so that a
# LoRA can tell them apart.
WORD_LIST = """
a an the on in of and with to at is moves moving move left right up down background circle square triangle frame red
green blue yellow purple orange white black
ring cross star diamond heart hexagon pentagon oval rectangle line dot spiral moon sun cloud flower tree arrow
striped stripes stripe dotted dots checkered checks gradient plain textured noisy smooth glowing shiny dark light bright
spins spinning spin rotates rotating grows growing shrinks shrinking bounces bouncing jumps jumping falls falling rises
rising fades fading blinks blinking shakes shaking zooms zooming flies flying swims swimming runs running walks walking
sits sitting stands standing dances dancing plays playing turns turning pours pouring burns burning floats floating
diagonal diagonally zigzag wave waves waving slowly quickly fast slow still stays small big large tiny huge thin thick
pale grey gray brown pink cyan magenta gold silver beige navy teal violet lime two three four one five many several
over under behind above below near far from into through around across between along cat dog bird fish car boat ball
box house person people man woman child hand face eye sky sea water fire grass sand snow rain night day city street
road forest mountain river beach table wall window door book cup coffee smoke steam food fruit apple horse rabbit bear
style cartoon pixel pixelart sketch paint painting drawing video clip animation camera scene shape object pattern
texture colour color top bottom center middle corner edge side clockwise counterclockwise horizontal vertical close
closeup view shot cinematic realistic detailed high quality sks ohwx tok xyz new old its it this that while then
towards away back forth who which has having outline filled empty hollow border not no low blurry by for as are be
"""

SCHEDULE = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
    "set_alpha_to_one": True,
    "prediction_type": "v_prediction",
    "timestep_spacing": "trailing",
    "rescale_betas_zero_snr": True,
    "snr_shift_scale": 3.0,
}


def build_vae() -> AutoencoderKLCogVideoX:
    """Build a VAE with space / 4, time / 4 and 16 channels. It is narrow at full resolution, which costs most time."""
    vae = AutoencoderKLCogVideoX(
        block_out_channels=(8, 32, 64),
        layers_per_block=1,
        norm_num_groups=4,
        latent_channels=LATENT_CHANNELS,
        down_block_types=("CogVideoXDownBlock3D",) * 3,
        up_block_types=("CogVideoXUpBlock3D",) * 3,
        sample_height=SIZE,
        sample_width=SIZE,
        temporal_compression_ratio=4,
        scaling_factor=1.0,
        force_upcast=False,
    )
    # Start with a narrow posterior. A wide one drowns the mean in noise and stalls learning.
    with torch.no_grad():
        last = vae.encoder.conv_out.conv
        last.weight[LATENT_CHANNELS:].mul_(0.1)
        last.bias[LATENT_CHANNELS:].fill_(-5.0)
    return vae


def build_tokenizer() -> T5Tokenizer:
    """Build a tokenizer of whole words, and characters for everything else, so that no ASCII text becomes <unk>."""
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -6.0)]
    vocabulary += [("▁" + word, -2.0) for word in dict.fromkeys(WORD_LIST.split())]
    vocabulary += [(character, -8.0) for character in string.ascii_letters + string.digits + string.punctuation]
    return T5Tokenizer(vocab=vocabulary, extra_ids=0, model_max_length=TEXT_LENGTH)


def build_text_encoder(tokenizer: T5Tokenizer) -> T5EncoderModel:
    """Build a text encoder with two layers of width 64."""
    return T5EncoderModel(
        T5Config(
            vocab_size=-(-len(tokenizer) // 64) * 64,
            d_model=64,
            d_kv=16,
            num_heads=4,
            d_ff=128,
            num_layers=2,
            feed_forward_proj="gated-gelu",
            dropout_rate=0.0,
            tie_word_embeddings=False,
            relative_attention_num_buckets=16,
            relative_attention_max_distance=32,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
        )
    )


def build_transformer() -> CogVideoXTransformer3DModel:
    """Build six layers of width 128 on 3 x 5 x 5 patches with sine-cosine positions. Blocks start as the identity."""
    model = CogVideoXTransformer3DModel(
        num_attention_heads=4,
        attention_head_dim=32,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        time_embed_dim=128,
        text_embed_dim=64,
        num_layers=6,
        sample_width=SIZE // 4,
        sample_height=SIZE // 4,
        sample_frames=FRAMES,
        patch_size=2,
        max_text_seq_length=TEXT_LENGTH,
        spatial_interpolation_scale=1.0,
        temporal_interpolation_scale=1.0,
        use_rotary_positional_embeddings=False,
    )
    zero: list[nn.Linear] = [model.proj_out]
    for block in model.transformer_blocks:
        zero += [block.norm1.linear, block.norm2.linear]
    for linear in zero:
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    return model


def widen(transformer: CogVideoXTransformer3DModel) -> CogVideoXTransformer3DModel:
    """Double a transformer's input channels for the image. It ignores the new ones until it is trained."""
    config = {name: value for name, value in transformer.config.items() if not name.startswith("_")}
    wide = CogVideoXTransformer3DModel.from_config(config | {"in_channels": 2 * LATENT_CHANNELS})
    weights = dict(transformer.state_dict())
    kernel = weights["patch_embed.proj.weight"]
    weights["patch_embed.proj.weight"] = torch.cat([kernel, torch.zeros_like(kernel)], dim=1)
    wide.load_state_dict(weights)
    return wide


def assemble(
    tokenizer: T5Tokenizer,
    text_encoder: T5EncoderModel,
    vae: AutoencoderKLCogVideoX,
    transformer: CogVideoXTransformer3DModel,
) -> CogVideoXPipeline:
    """Return the stock pipeline of these parts."""
    pipeline = CogVideoXPipeline(
        tokenizer=tokenizer,
        text_encoder=text_encoder,
        vae=vae,
        transformer=transformer,
        scheduler=CogVideoXDDIMScheduler(**SCHEDULE),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def image_to_video(sibling: CogVideoXPipeline, transformer: CogVideoXTransformer3DModel) -> Pipeline:
    """Return the stock image-to-video pipeline: this transformer, and other parts from the text-to-video pipeline."""
    pipeline = CogVideoXImageToVideoPipeline(**{**sibling.components, "transformer": transformer})
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def tokenise(tokenizer: T5Tokenizer, captions: list[str]) -> Tensor:
    """Return token ids [N, TEXT_LENGTH], padded and truncated like in the pipeline."""
    batch = tokenizer(captions, padding="max_length", max_length=TEXT_LENGTH, truncation=True, return_tensors="pt")
    return batch.input_ids


def save(pipeline: Pipeline, folder: Path, sibling: Path | None = None) -> None:
    """Write the pipeline with fp16 weights and world-readable files.

    The text encoder stays in fp32, because transformers loads it in the stored precision; diffusers loads the others in
    fp32.

    sibling: folder of a pipeline that shares all parts but the transformer. They are not written again;
    shared_parts.json refers to them.
    """
    parts = dict(pipeline.components)
    parts |= {name: copy.deepcopy(parts[name]).half() for name in ("vae", "transformer")}
    type(pipeline)(**parts).save_pretrained(folder)
    if sibling:
        for name in SHARED:
            shutil.rmtree(folder / name)
        (folder / model_files.SHARED).write_text(json.dumps(dict.fromkeys(SHARED, sibling.name), indent=2) + "\n")
    make_readable(folder)


def make_readable(folder: Path) -> None:
    """Make a folder world-readable. safetensors writes files that only their owner can read."""
    for file in folder.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


def load(folder: Path) -> Pipeline:
    """Load the stock pipeline of a folder, text-to-video or image-to-video, in fp32 and without progress bars."""
    pipeline = DiffusionPipeline.from_pretrained(model_files.whole(folder))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@torch.no_grad()
def encode(vae: AutoencoderKLCogVideoX, clips: Tensor, batch: int = 16) -> Tensor:
    """Encode clips [N, 3, F, H, W] to unscaled latents [N, C, f, h, w] (the mode of the posterior)."""
    return torch.cat([vae.encode(part.to(vae.device)).latent_dist.mode().cpu() for part in clips.split(batch)])


@torch.no_grad()
def reconstruct(vae: AutoencoderKLCogVideoX, clips: Tensor, batch: int = 16) -> Tensor:
    """Encode and decode clips [N, 3, F, H, W]."""
    latents = encode(vae, clips, batch)
    parts = [vae.decode(part.to(vae.device)).sample.cpu() for part in latents.split(batch)]
    return torch.cat(parts).clamp(-1, 1)


def sample(
    pipeline: Pipeline,
    captions: list[str],
    steps: int = SAMPLING_STEPS,
    guidance: float = GUIDANCE,
    seed: int = 0,
    batch: int = 16,
    images: Tensor | None = None,
) -> Tensor:
    """Sample clips [N, 3, F, H, W] in [-1, 1] with the stock pipeline. Noise i has the seed `seed` + i.

    images: first frames [N, 3, H, W] in [-1, 1] for the image-to-video pipeline.
    """
    clips = []
    for first in range(0, len(captions), batch):
        part = captions[first : first + batch]
        image = {} if images is None else {"image": (images[first : first + batch].clamp(-1, 1) + 1) / 2}
        frames = pipeline(
            prompt=part,
            num_frames=FRAMES,
            num_inference_steps=steps,
            guidance_scale=guidance,
            max_sequence_length=pipeline.transformer.config.max_text_seq_length,
            generator=[torch.Generator().manual_seed(seed + first + i) for i in range(len(part))],
            output_type="pt",
            **image,
        ).frames
        clips.append(frames.permute(0, 2, 1, 3, 4).float().cpu() * 2 - 1)
    return torch.cat(clips)
