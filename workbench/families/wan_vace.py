"""Wan VACE: a side branch next to Wan's own blocks that reads all conditioning (Apache-2.0).

Sources: diffusers' WanVACEPipeline, which this matches; the authors' Wan2.1 (vace.py; generate.py: shift 16, 50 steps,
guidance 5); for training, VideoX-Fun (scripts/wan2.1_vace/train.py) and DiffSynth-Studio (wan_video.py,
WanVideoUnit_VACE). All conditioning is one clip with a mask, white wherever the model should generate:

    known frames or pixels   stay in the clip, black in the mask
    a control video          replaces everything that is not known
    the rest                 is gray

The clip is encoded twice: with what to generate set to gray (inactive), and with what is known set to gray (reactive).
Of the mask, each latent gets its 8 x 8 pixels from one frame in four. Together they are the side branch's 96 channels:
16 inactive, 16 reactive, 64 for the mask. Without conditioning, the model reads a gray clip with a white mask.

A reference is a whole picture on white. Its latents are one more frame in front of the side branch's input, and of the
clip's latents, where they are noised and denoised like any other, count in the loss as in both trainers, and are cut
off before decoding. Known frames are noised and count, too.

A LoRA can train Wan's blocks, the side branch, or both. Both published trainers train only the side branch (DiffSynth:
lora_base_model "vace"; VideoX-Fun: trainable_modules "vace"), which leaves Wan unchanged. LoRAs for Wan 2.1 of the same
size fit Wan's blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.families.conditioning import BESIDE, NAMES, NOTHING, Conditioning
from workbench.families.denoising import DenoiseInputs
from workbench.families.model_inputs import CallInputs, Given, ModelInputs, Tensors
from workbench.families.usage import UsageExtras

if TYPE_CHECKING:
    import torch

    from workbench.families.base import Family

PIPELINE = "WanVACEPipeline"
SIDE = "vace_blocks"  # the authors' and diffusers' name for the side branch
# Layers that only its blocks have: diffusers' name -> the authors'.
SIDE_LAYERS = {"proj_in": "before_proj", "proj_out": "after_proj"}
OUTSIDE = {"vace_patch_embedding": "vace_patch_embedding"}
FLOW_SHIFT = 16.0  # from generate.py, for both sizes
KINDS = dict.fromkeys((*NAMES, *BESIDE, NOTHING), "")

INACTIVE, REACTIVE, MASK, REFERENCE = "inactive", "reactive", "vace mask", "vace reference"  # keys from `encode`
CONTEXT, REFERENCE_NOISE = "vace context", "vace reference noise"  # keys in a `Given`, with REFERENCE


def is_vace(transformer: Mapping[str, Any]) -> bool:
    """Return whether a transformer's config is VACE's."""
    return bool(transformer.get("vace_layers"))


class Vace:
    """Takes the image encoder's place, to encode conditioning."""

    def encode(self, family: Family, vae: Any, pixels: Conditioning) -> Tensors:
        """Return, of these, what there is conditioning for.

        A clip's "inactive" and "reactive" latents [B, C, f, h, w], only the first if both are gray; its "vace mask"
        [B, 64, f, h, w] uint8; and the "vace reference" [B, C, n, h, w] of n pictures.
        """
        import torch

        found: dict[str, torch.Tensor] = {}
        if pixels.reference is not None:
            pictures = pixels.reference.split(1, dim=2)
            found[REFERENCE] = torch.cat([family.encode_video(vae, one)["mean"] for one in pictures], dim=2)
        like = pixels.control if pixels.video is None else pixels.video
        if like is None:
            return found
        known = pixels.mask
        if known is None:
            known = like.new_zeros(len(like), 1, *like.shape[2:])
            known[:, :, list(pixels.known)] = 1
        shown = torch.zeros_like(like) if pixels.shown is None else pixels.shown
        rest = torch.zeros_like(like) if pixels.control is None else pixels.control * (1 - known)
        found[INACTIVE] = family.encode_video(vae, shown)["mean"]
        if pixels.control is not None or pixels.mask is not None or pixels.known:  # else both are gray
            found[REACTIVE] = family.encode_video(vae, rest)["mean"]
        found[MASK] = folded(1 - known[:, 0], found[INACTIVE].shape[2:]).byte()
        return found


def folded(mask: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Fold a mask [B, F, H, W] to latents of (frames, height, width), with pixels as channels: [B, 64, f, h, w]."""
    from torch.nn.functional import interpolate

    (count, frames, height, width), (_, tall, wide) = mask.shape, sizes
    cells = mask.view(count, frames, tall, height // tall, wide, width // wide)
    channels = cells.permute(0, 3, 5, 1, 2, 4).flatten(1, 2)
    return interpolate(channels.float(), size=tuple(sizes), mode="nearest-exact")


def given(tensors: Tensors, noise: torch.Generator | None) -> Given:
    """Build the conditioning from what `encode` returned.

    Args:
        noise: CPU generator for the reference's latents in training; None for sampling.
    """
    import torch

    inactive = tensors[INACTIVE]
    context = torch.cat([inactive, tensors.get(REACTIVE, inactive), tensors[MASK].to(inactive)], dim=1)
    if REFERENCE not in tensors:
        return Given(tokens={CONTEXT: context})
    reference = tensors[REFERENCE]
    count, channels, frames, *size = reference.shape
    rest = reference.new_zeros(count, context.shape[1] - channels, frames, *size)
    context = torch.cat([torch.cat([reference, rest], dim=1), context], dim=2)
    tokens = {CONTEXT: context, REFERENCE: reference}
    if noise is not None:
        tokens[REFERENCE_NOISE] = torch.randn(reference.shape, generator=noise).to(reference)
    return Given(tokens=tokens)


def predicted(transformer: Any, inputs: CallInputs) -> torch.Tensor:
    """Return the transformer's prediction for latents with those of the reference, if any, in front."""
    assert inputs.given is not None, "VACE always needs conditioning"
    scale = inputs.latents.new_full((len(transformer.config.vace_layers),), inputs.conditioning_scale)
    found: torch.Tensor = transformer(
        hidden_states=inputs.latents,
        timestep=inputs.timesteps,
        encoder_hidden_states=inputs.text["prompt_embeds"],
        control_hidden_states=inputs.given.tokens[CONTEXT],
        control_hidden_states_scale=scale,
        return_dict=False,
    )[0]
    return found


def reference_of(given: Given | None) -> torch.Tensor | None:
    """Return the latents of a reference, [B, C, n, h, w]; None without one."""
    return None if given is None else given.tokens.get(REFERENCE)


def with_reference(inputs: ModelInputs, reference: torch.Tensor) -> ModelInputs:
    """Put the reference's latents and noise in front of the clip's."""
    import torch

    assert inputs.given is not None
    noise = inputs.given.tokens[REFERENCE_NOISE]
    return replace(
        inputs,
        latents=torch.cat([reference.to(inputs.latents), inputs.latents], dim=2),
        noise=torch.cat([noise.to(inputs.noise), inputs.noise], dim=2),
        given=Given(tokens={CONTEXT: inputs.given.tokens[CONTEXT]}),
    )


def to_denoise(inputs: DenoiseInputs, reference: torch.Tensor) -> DenoiseInputs:
    """Make room for the reference in front of all latents, and hide it from `on_step`."""
    import torch

    front, (channels, frames, *size) = reference.shape[2], inputs.latents_shape
    before, source = inputs.prefix, inputs.source
    return replace(
        inputs,
        latents_shape=(channels, frames + front, *size),
        on_step=lambda done, steps, clean: inputs.on_step(done, steps, clean[:, :, front:]),
        prefix=None if before is None else torch.cat([reference.to(before), before], dim=2),
        source=None if source is None else torch.cat([reference.to(source), source], dim=2),
    )


# ---- model cards

CONDITIONING = """

# The conditioning: `shown` is 0.5 (gray) where nothing is known, `made` is 1 where the model generates.
import numpy as np
from PIL import ImageOps

def fitted(image):
    return np.asarray(ImageOps.fit(image.convert("RGB"), ({width}, {height}), method=3)) / 255

def frames_of(path):
    return np.stack([fitted(image) for image in load_video(path)[:{frames}]])

shown, made = np.full((1, {frames}, {height}, {width}, 3), 0.5), np.ones((1, {frames}, {height}, {width}, 3))
"""
FIRST = 'shown[0, 0], made[0, 0] = fitted(load_image("first_frame.png")), 0'
LAST = 'shown[0, -1], made[0, -1] = fitted(load_image("last_frame.png")), 0'
LINES = {
    "first": FIRST,
    "last": LAST,
    "first+last": f"{FIRST}\n{LAST}",
    "prefix": 'known = frames_of("before.mp4")  # the video starts with these frames\n'
    "shown[0, : len(known)], made[0, : len(known)] = known, 0",
    "suffix": 'known = frames_of("after.mp4")\nshown[0, -len(known) :], made[0, -len(known) :] = known, 0',
    "keyframes": 'for frame, path in {0: "first_frame.png", -1: "last_frame.png"}.items():\n'
    "    shown[0, frame], made[0, frame] = fitted(load_image(path)), 0",
    "mask": 'made[0] = frames_of("mask.mp4") > 0.5  # white is generated\n'
    'shown[0] = np.where(made[0] > 0, 0.5, frames_of("video.mp4"))',
    "control": 'shown = np.where(made > 0, frames_of("control.mp4"), shown)',
}
ALSO = "# The LoRA was also trained with {kinds}: put what is known into `shown`, and 0 into `made` there.\n"


def usage_conditioning(extras: UsageExtras, shape: tuple[int, int, int], kinds: Sequence[str]) -> UsageExtras:
    """Add the card's code for the first kind of given frames in `kinds`, and for a control and a reference in it."""
    if not kinds:
        return extras
    frames, height, width = shape
    given = [kind for kind in kinds if kind in NAMES]
    lines = [LINES[kind] for kind in (*given[:1], *(["control"] if "control" in kinds else []))]
    arguments, changes = "", ""
    if lines:
        more = ALSO.format(kinds=", ".join(given[1:])) if given[1:] else ""
        changes = CONDITIONING.format(frames=frames, height=height, width=width) + more + "\n".join(lines)
        arguments = ", video=shown, mask=made"
    if "reference" in kinds:
        arguments += ', reference_images=load_image("reference.png")'
    helpers = ("load_image", "load_video") if lines else ("load_image",)
    return replace(
        extras,
        changes=extras.changes + changes,
        arguments=arguments + extras.arguments,
        helpers=(*extras.helpers, *helpers),
    )
