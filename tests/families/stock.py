"""The stock pipeline of a model's folder, which our results are held against."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from workbench.families.base import Family
from workbench.families.conditioning import Conditioning
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model import Model
from workbench.families.model_inputs import Given

# Miniatures that differ from another in sizes, or whose differences the family's own file shows: before a release.
RARE = {
    "cogvideox": ("rotary",),
    "hunyuan15": ("text",),
    "kandinsky5": ("text",),
    "ltx": ("text-13b", "image-13b"),
    "ltx2": ("image", "text-2.3"),
    "phenaki": ("token",),
    "wan": ("a14b-image",),
}
PROMPT, NEGATIVE, STEPS, FPS = "a red circle", "the video", 4, 24.0
CPU = torch.device("cpu")


def variants(*families: Family) -> list[Any]:
    """(family, variant) of each of their miniatures, as parameters of a fixture."""
    return [
        pytest.param(
            (family, variant),
            marks=[pytest.mark.release] if variant in RARE.get(family.name, ()) else [],
            id=f"{family.name}-{variant}",
        )
        for family in families
        for variant in family.toys
    ]


def stock_pipeline(folder: Path, transformer: Any, vae: Any) -> Any:
    """Around these parts, as diffusers itself puts it together; it takes embeddings instead of a prompt."""
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(
        folder, transformer=transformer, vae=vae, text_encoder=None, tokenizer=None
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def whole_pipeline(family: Family, model: Model, dtype: torch.dtype = torch.float32) -> Any:
    """With all of its parts, of the class that `model` is generated with, changed as its model card says."""
    import diffusers

    kind = getattr(diffusers, model.pipeline or "DiffusionPipeline")
    pipeline = kind.from_pretrained(model.source, dtype=dtype)
    for name in ("vae", "image_encoder"):
        if (part := getattr(pipeline, name, None)) is not None:
            part.to(family.vae_dtype(dtype))
    pipeline.set_progress_bar_config(disable=True)
    code = family.usage(model, Path(model.source), "lora.safetensors", PROMPT, shape_of(model))
    if "def squeezed" in code:
        exec(code[code.index("def squeezed") : code.index("video = pipe(")], {"pipe": pipeline, "torch": torch})
    return pipeline


def shape_of(model: Model) -> tuple[int, int, int]:
    return model.frames, model.height, model.width


def picture_of(model: Model) -> Image.Image:
    """A picture of noise in the model's own size, the worst that rounding can meet."""
    size = (3, model.height, model.width)
    pixels = torch.randint(0, 256, size, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def told_nothing(family: Family, model: Model, count: int = 1, frames: int | None = None) -> Given | None:
    """What a model that is told a clip in any case is given where there is nothing to tell; None for the others."""
    if not family.joins_conditioning(model):
        return None
    folder, frames = Path(model.source), frames or model.frames
    encoder = family.load_image_encoder(folder, CPU, torch.float32)
    gray = Conditioning(frames, video=torch.zeros(count, 3, frames, model.height, model.width))
    tensors = family.encode_conditioning(family.load_vae(folder, CPU, torch.float32), encoder, gray)
    shape = family.latents_shape(folder, frames, model.height, model.width)
    return family.conditioning_to_sample(folder, tensors, shape, torch.Generator(), torch.float32)


def their_latents(
    family: Family, model: Model, dtype: torch.dtype, scale: float, float32_steps: bool = False
) -> torch.Tensor:
    """What the stock pipeline denoises in a dtype, shaped as our latents, float32.

    float32_steps: guidance and the scheduler are given float32 predictions, as the authors' code gives them (Wan2.1's
    WanModel returns float32), where some pipelines of diffusers leave them in the transformer's dtype
    """
    frames, height, width = shape_of(model)
    pipeline = whole_pipeline(family, model, dtype)
    for name in ("transformer", "transformer_2") if float32_steps else ():
        if (part := getattr(pipeline, name, None)) is not None:
            part.register_forward_hook(lambda module, inputs, found: (found[0].float(),))
    more: dict[str, Any] = {"image": picture_of(model)} if model.task == "image-to-video" else {}
    if (guider := getattr(pipeline, "guider", None)) is not None:
        guider.guidance_scale = scale
    more |= {"height": height, "width": width, "guidance_scale": scale}
    more["max_sequence_length"] = family.load_text_encoder(Path(model.source), CPU, dtype).max_length
    known = inspect.signature(pipeline.__call__).parameters
    found = pipeline(
        **{name: value for name, value in more.items() if name in known},
        **({"frame_rate": FPS} if family.name == "ltx" else {}),
        **(as_on_a_card(family, model, scale) if family.name == "ltx2" else {}),
        prompt=PROMPT,
        negative_prompt=NEGATIVE,
        num_frames=frames,
        num_inference_steps=STEPS,
        generator=torch.Generator().manual_seed(1),
        output_type="latent",
    ).frames.float()
    shape = family.latents_shape(Path(model.source), frames, height, width)
    if family.name == "kandinsky5":
        return found.movedim(-1, 1)
    if family.name == "ltx2":  # whose pipeline undoes the normalization
        mean, std = family.latent_scale(pipeline.vae.float())
        found = (found - mean) / std
    return found if found.ndim == 5 else found.transpose(1, 2).unflatten(2, shape[1:])


def as_on_a_card(family: Family, model: Model, scale: float) -> dict[str, Any]:
    """The arguments of a model card's call that only this family's pipeline takes, at a guidance scale."""
    guided = replace(model, guidance_scale=scale, fps=FPS)
    extras = family.usage_extras(guided, Path(model.source), shape_of(model), "pipeline")
    found: dict[str, Any] = eval(f"dict({extras.arguments.lstrip(', ')})")
    return found


def our_latents(family: Family, model: Model, dtype: torch.dtype, scale: float) -> torch.Tensor:
    """What `family.denoise` makes of the same, float32."""
    folder, frames, of_vae = Path(model.source), model.frames, family.vae_dtype(dtype)
    parts = {one.lowest: family.load_transformer(folder, CPU, dtype, one.part) for one in model.experts}
    encoder = family.load_text_encoder(folder, CPU, dtype)
    noise, given = torch.Generator().manual_seed(1), told_nothing(family, model)
    shape = family.latents_shape(folder, *shape_of(model))
    if model.task == "image-to-video":
        looks = family.load_image_encoder(folder, CPU, of_vae)
        pixels = torch.frombuffer(bytearray(picture_of(model).tobytes()), dtype=torch.uint8)
        pixels = pixels.view(model.height, model.width, 3).permute(2, 0, 1)[None].float() / 127.5 - 1
        image = family.encode_image(family.load_vae(folder, CPU, of_vae), looks, pixels, frames, "pipeline")
        given = family.given_to_sample(folder, image, shape, noise, of_vae)
    inputs = DenoiseInputs(
        folder,
        text=family.encode_text(encoder, [PROMPT]),
        negative_text=family.encode_text(encoder, [NEGATIVE]),
        latents_shape=shape,
        steps=STEPS,
        guidance=Guidance(scale),
        noise=noise,
        given=given,
        sequential_guidance=family.name == "wan",  # as its pipelines call the model
        fps=FPS,
        at_timestep=lambda timestep: next(one for lowest, one in parts.items() if timestep >= 1000 * lowest),
    )
    return family.denoise(next(iter(parts.values())), inputs).float()


# Layers that get no gradient: what the last block makes of the caption's tokens, which nothing reads, and the embedder
# of pictures in a model for text.
UNREAD = {"hunyuan15": r"transformer_blocks\.1\.(attn\.to_add_out|ff_context\..+)|image_embedder\..+"}


def unread(family: Family, name: str) -> bool:
    """Whether a parameter of a model of two blocks changes no prediction."""
    return re.match(UNREAD.get(family.name, "(?!)"), name) is not None


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The root mean square of what differs, as a share of the other's."""
    return float((one - other).norm() / other.norm())
