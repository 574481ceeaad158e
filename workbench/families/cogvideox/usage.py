"""What CogVideoX's model cards say beside the common lines.

Where plain diffusers would do otherwise than training did, the code says so and does what training did.
"""

from __future__ import annotations

from pathlib import Path

from workbench.families.base import ImageScale
from workbench.families.model import Model
from workbench.families.model_files import config
from workbench.families.usage import DYNAMIC, UsageExtras

# At another number of frames than its own, diffusers silently gives this model positions it has never seen.
POSITIONS = """

# With {frames} frames instead of {own}, diffusers would replace the positions that this model has learned by
# computed ones. Training kept the learned ones, and so do these lines.
embed = pipe.transformer.patch_embed
embed._get_positional_embeddings = lambda height, width, frames, device=None: (
    embed.pos_embedding[:, : {tokens} + ((frames - 1) // {temporal} + 1) * {patches}]
)"""

RAW = """

# diffusers scales the latents of the first frame. This LoRA was trained without that, so these lines undo it.
stock = pipe.prepare_latents


def unscaled(*args, **kwargs):
    latents, image_latents = stock(*args, **kwargs)
    return latents, image_latents {undo} {factor}


pipe.prepare_latents = unscaled"""


def extras(model: Model, folder: Path, shape: tuple[int, int, int], image_scale: ImageScale) -> UsageExtras:
    """What the pipeline needs beside the common lines for (frames, height, width)."""
    transformer, vae = config(folder, "transformer"), config(folder, "vae")
    changes, tokens = "", transformer["max_text_seq_length"]
    if transformer.get("use_learned_positional_embeddings") and shape[0] != transformer["sample_frames"]:
        patch = transformer["patch_size"]
        changes += POSITIONS.format(
            frames=shape[0],
            own=transformer["sample_frames"],
            tokens=tokens,
            temporal=vae["temporal_compression_ratio"],
            patches=(transformer["sample_height"] // patch) * (transformer["sample_width"] // patch),
        )
    if model.task == "image-to-video" and image_scale == "raw":
        changes += RAW.format(undo="*" if vae.get("invert_scale_latents") else "/", factor=vae["scaling_factor"])
    dynamic = f", {DYNAMIC}" if model.dynamic_guidance == "stock" else ""
    return UsageExtras(changes=changes, arguments=f", max_sequence_length={tokens}{dynamic}")
