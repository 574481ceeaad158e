"""A ComfyUI workflow that samples a Wan LoRA as its previews were sampled: core nodes only, in the API's format.

    load models ── LoRA ── shift of the noise levels ── sampler(s) ── decode ── video

Two experts take two samplers, which share the noise levels: the first stops where the second takes over. File names
of the base models are those under which Comfy-Org packages them; people choose their own in the loaders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.families.model import HIGH_NOISE, LOW_NOISE, Model

Node = dict[str, Any]
# Model -> Comfy-Org's file of its transformer, or those of its experts.
FILES = {
    "wan2.1-t2v-1.3b": "wan2.1_t2v_1.3B_fp16",
    "wan2.1-t2v-14b": "wan2.1_t2v_14B_fp16",
    "wan2.1-i2v-14b-480p": "wan2.1_i2v_480p_14B_fp16",
    "wan2.1-i2v-14b-720p": "wan2.1_i2v_720p_14B_fp16",
    "wan2.2-t2v-a14b": "wan2.2_t2v_{}_14B_fp16",
    "wan2.2-i2v-a14b": "wan2.2_i2v_{}_14B_fp16",
}
TEXT_ENCODER, VAE, CLIP_VISION = "umt5_xxl_fp16", "wan_2.1_vae", "clip_vision_h"
IN_NAMES = {HIGH_NOISE: "high_noise", LOW_NOISE: "low_noise"}


def switch_step(steps: int, shift: float, boundary: float) -> int:
    """Return the first step below the boundary, for ComfyUI's scheduler "simple".

    It takes every (1000 / steps)-th of the levels s * t / (1 + (s - 1) * t), t = 1, 0.999 ... 0.001.
    """
    for step in range(steps):
        share = (1000 - int(step * 1000 / steps)) / 1000
        if shift * share / (1 + (shift - 1) * share) < boundary:
            return step
    return steps


def workflow(
    model: Model,
    lora: str,
    prompt: str,
    shape: tuple[int, int, int],
    seed: int,
    experts: Sequence[str] = (),
    picture: str = "",
) -> dict[str, Node] | None:
    """Return the workflow; None for models whose conditioning core nodes give in another way.

    Args:
        lora: Its file in ComfyUI's folder of LoRAs, in the format comfyui.
        shape: (frames, height, width).
        experts: For which of two experts the LoRA is; () for all.
        picture: The first frame's file in ComfyUI's input folder.
    """
    file = FILES.get(model.id, "tiny-wan" if model.id == "tiny-wan" else "")
    shift = model.flow_shift_at(*shape[1:])
    if not file or shift is None:
        return None
    nodes: dict[str, Node] = {}

    def add(kind: str, title: str = "", **inputs: Any) -> str:
        name = str(len(nodes) + 1)
        nodes[name] = {"class_type": kind, "inputs": inputs, "_meta": {"title": title or kind}}
        return name

    of_image = model.task == "image-to-video"
    frames, height, width = shape
    size = {"width": width, "height": height, "length": frames, "batch_size": 1}
    clip = add("CLIPLoader", "Text encoder", clip_name=f"{TEXT_ENCODER}.safetensors", type="wan", device="default")
    vae = add("VAELoader", "VAE", vae_name=f"{VAE}.safetensors")
    positive = [add("CLIPTextEncode", "Prompt", text=prompt, clip=[clip, 0]), 0]
    negative = [add("CLIPTextEncode", "Negative prompt", text=model.negative_prompt, clip=[clip, 0]), 0]
    if of_image:
        image = [add("LoadImage", "First frame", image=picture), 0]
        seen: Node = {}
        if not model.boundary:  # 2.1 also sees the picture with CLIP
            vision = [add("CLIPVisionLoader", "CLIP", clip_name=f"{CLIP_VISION}.safetensors"), 0]
            looked = add("CLIPVisionEncode", "First frame seen", clip_vision=vision, image=image, crop="none")
            seen = {"clip_vision_output": [looked, 0]}
        given = {"positive": positive, "negative": negative, "vae": [vae, 0], "start_image": image}
        start = add("WanImageToVideo", "Size", **given, **size, **seen)
        positive, negative, latent = [start, 0], [start, 1], [start, 2]
    else:
        latent = [add("EmptyHunyuanLatentVideo", "Size", **size), 0]

    def transformer(expert: str) -> list[Any]:
        name = f"{file.format(IN_NAMES.get(expert, ''))}.safetensors"
        loaded = [add("UNETLoader", f"Model {expert}".strip(), unet_name=name, weight_dtype="default"), 0]
        if not expert or expert in experts or not experts:
            loaded = [add("LoraLoaderModelOnly", "LoRA", model=loaded, lora_name=lora, strength_model=1.0), 0]
        return [add("ModelSamplingSD3", "Shift", model=loaded, shift=shift), 0]

    sampler = {"sampler_name": "uni_pc", "scheduler": "simple", "positive": positive, "negative": negative}
    if model.boundary:
        switch = switch_step(model.steps, shift, model.boundary)
        low = model.guidance_scale_2 or model.guidance_scale
        for expert, cfg, first, last in (
            (HIGH_NOISE, model.guidance_scale, 0, switch),
            (LOW_NOISE, low, switch, model.steps),
        ):
            begins, ends = first == 0, last == model.steps
            sampled = add(
                "KSamplerAdvanced",
                f"Sampler, {expert}",
                model=transformer(expert),
                add_noise="enable" if begins else "disable",
                noise_seed=seed,
                steps=model.steps,
                cfg=cfg,
                **sampler,
                latent_image=latent,
                start_at_step=first,
                end_at_step=last,
                return_with_leftover_noise="disable" if ends else "enable",
            )
            latent = [sampled, 0]
    else:
        made = {"model": transformer(""), "seed": seed, "steps": model.steps, "cfg": model.guidance_scale}
        latent = [add("KSampler", "Sampler", **made, **sampler, latent_image=latent, denoise=1.0), 0]
    decoded = [add("VAEDecode", "Decode", samples=latent, vae=[vae, 0]), 0]
    video = [add("CreateVideo", "Video", images=decoded, fps=float(model.fps)), 0]
    add("SaveVideo", "Save", video=video, filename_prefix="video/lora", format="auto", codec="auto")
    return nodes
