"""Python code that generates videos with a LoRA in plain diffusers, for model cards.

Where plain diffusers would do otherwise than training did, the code says so and does what training did.
"""

from __future__ import annotations

from pathlib import Path

from workbench.families.base import ImageScale, Model
from workbench.families.cogvideox.files import config

CODE = """import torch
from diffusers import {pipeline}
from diffusers.utils import {helpers}{imports}

# Run this in the folder of this file. Older and newer diffusers both take torch_dtype.
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32
pipe = {pipeline}.from_pretrained({source}{revision}, torch_dtype=dtype)
pipe.to(device)  # or, with less memory: pipe.enable_model_cpu_offload()
pipe.load_lora_weights(".", weight_name={lora!r}, adapter_name="lora")
pipe.set_adapters(["lora"], [1.0]){changes}
video = pipe(
    {image}prompt={prompt!r},
    num_frames={frames}, height={height}, width={width}, num_inference_steps={steps},
    guidance_scale={guidance_scale}, max_sequence_length={tokens},
    generator=torch.Generator().manual_seed(0),
).frames[0]
export_to_video(video, "video.mp4", fps={fps:g})"""

EMBEDDED = "\nfrom workbench.families import find_model  # the built-in model is a part of Video LoRA Workbench"

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


def code(
    model: Model, folder: Path, lora: str, prompt: str, shape: tuple[int, int, int], image_scale: ImageScale
) -> str:
    """The code for (frames, height, width)."""
    transformer, vae = config(folder, "transformer"), config(folder, "vae")
    frames, height, width = shape
    with_image = model.task == "image-to-video"
    changes, tokens = "", transformer["max_text_seq_length"]
    if transformer.get("use_learned_positional_embeddings") and frames != transformer["sample_frames"]:
        patch = transformer["patch_size"]
        changes += POSITIONS.format(
            frames=frames,
            own=transformer["sample_frames"],
            tokens=tokens,
            temporal=vae["temporal_compression_ratio"],
            patches=(transformer["sample_height"] // patch) * (transformer["sample_width"] // patch),
        )
    if with_image and image_scale == "raw":
        undo = "*" if vae.get("invert_scale_latents") else "/"
        changes += RAW.format(undo=undo, factor=vae["scaling_factor"])
    return CODE.format(
        pipeline="CogVideoXImageToVideoPipeline" if with_image else "CogVideoXPipeline",
        helpers="export_to_video, load_image" if with_image else "export_to_video",
        image='image=load_image("first_frame.png"), ' if with_image else "",
        imports=EMBEDDED if model.embedded else "",
        source=f"find_model({model.id!r})[1].source" if model.embedded else repr(model.source),
        revision=(f", revision={model.revision!r}" if model.revision else "")
        + (f", variant={model.variant!r}" if model.variant else ""),
        changes=f"{changes}\n" if changes else "",
        lora=lora,
        prompt=prompt,
        frames=frames,
        height=height,
        width=width,
        steps=model.steps,
        guidance_scale=model.guidance_scale,
        tokens=tokens,
        fps=model.fps,
    )
