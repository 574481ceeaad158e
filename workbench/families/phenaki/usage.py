"""Python code that generates videos with a LoRA, for model cards: no other library has this family."""

from __future__ import annotations

from workbench.families.model import Model

CODE = """import torch
from diffusers.utils import export_to_video
from workbench.families import find_model  # Phenaki is a part of Video LoRA Workbench
from workbench.families.denoising import DenoiseInputs
from workbench.families.guidance import Guidance

# Run this in the folder of this file.
family, model = find_model({model!r})
folder, device, dtype = family.fetch(model), torch.device("cpu"), torch.float32
text_encoder = family.load_text_encoder(folder, device, dtype)
transformer = family.load_transformer(folder, device, dtype)
pipe = family.load_pipeline(folder, transformer)
pipe.load_lora_weights(".", weight_name={lora!r}, adapter_name="lora")
pipe.set_adapters(["lora"], [1.0])
inputs = DenoiseInputs(
    folder,
    text=family.encode_text(text_encoder, [{prompt!r}]),
    negative_text=family.encode_text(text_encoder, [""]),
    latents_shape=family.latents_shape(folder, {frames}, {height}, {width}),
    steps={steps},
    guidance=Guidance({guidance:g}),
    noise=torch.Generator().manual_seed(0),
)
latents = family.denoise(transformer, inputs)
video = family.decode(family.load_vae(folder, device, dtype), latents)[0]
export_to_video(list((video.permute(1, 2, 3, 0).numpy() + 1) / 2), "video.mp4", fps={fps:g})"""


def code(model: Model, lora: str, prompt: str, shape: tuple[int, int, int]) -> str:
    frames, height, width = shape
    return CODE.format(
        model=model.id,
        lora=lora,
        prompt=prompt,
        frames=frames,
        height=height,
        width=width,
        steps=model.steps,
        guidance=model.guidance_scale,
        fps=model.fps,
    )
