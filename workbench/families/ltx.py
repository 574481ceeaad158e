"""The LTX-Video family: 2B (0.9.0, 0.9.1, 0.9.5) and 13B (0.9.7), text-to-video and image-to-video.

Sources: diffusers' LTXPipeline and LTXImageToVideoPipeline (0.9.0, 0.9.1) and LTXConditionPipeline (since 0.9.5), which
this matches; the configs of Lightricks' LTX-Video; Lightricks' LTX-Video-Trainer for the density of noise levels, first
frames in the latents (at timestep 0, without loss), and decoding (timestep 0.05, noise 0.025).

Flow matching: x = (1 - s) clean + s noise; the transformer gets 1000 s and predicts noise - clean. s is drawn
logit-normal around a mean that rises with the number of tokens. Positions depend on the frame rate. Text-to-video runs
see the clip's own first frame in a tenth of the clips, as in the trainer's configs for 2B (first_frame_conditioning_p:
0.1; 0.5 for effects on 13B).

Since 0.9.5, models use LTXConditionPipeline. The Hub's folder of 0.9.5 still names LTXPipeline, so the autoencoder
tells. Captions have 256 tokens, and the text encoder does not attend to padding. The first latent frame is one frame at
time 0, and latent frame k is eight frames at (8 k - 7) / fps, as in the authors' code (causal_temporal_positioning in
the config) and ComfyUI (causal_fix). LTX-Video-Trainer uses 8 k / fps for every model; this does not, so that training
matches inference. Noise levels fall linearly, then quadratically. A first frame gets some noise, less at every step.

`ltx_conditioning` lays conditioning out. Since 0.9.5, frames that start later are as in LTXConditionPipeline: a picture
becomes tokens in front of the latents', at the position of its frame; the first two latent frames of a video become
such tokens, and the rest replace latents. A reference (in-context LoRA) goes in front of everything, as in LTX-Video-
Trainer (ReferenceVideoTrainingStrategy).

On a GPU everything runs in bfloat16, as the authors' configs say (precision), even if a folder holds float32. Latents
stay float32 between denoising steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.families import lora_writing
from workbench.families.base import ImageScale, OwnSetting
from workbench.families.conditioning import NAMES as KINDS
from workbench.families.conditioning import NOTHING
from workbench.families.denoising import FlowSteps, SamplerSteps, StepOptions, steps_shifted_by_tokens
from workbench.families.facts import ModelFacts, Part, VaeFacts
from workbench.families.lora_names import ATTENTION, FEED_FORWARD, LayerNames
from workbench.families.ltx_conditioning import (
    EXTRA,
    LATER_TOKENS,
    NO_CHANNELS,
    PLACES,
    SPATIAL,
    TEMPORAL,
    InContextFamily,
    packed,
)
from workbench.families.model import ClipSize, Frames, Model, Shapes
from workbench.families.model_files import config, index
from workbench.families.model_inputs import CallInputs, Given, PromptEncoder, Tensors, t5_parts
from workbench.families.noise_schedules import AS_PUBLISHED, FlowSchedule, NoiseSettings
from workbench.families.usage import UsageExtras

if TYPE_CHECKING:
    import torch

# ---- LTXConditionPipeline

CONDITION = "LTXConditionPipeline"
NEWER_VAE = "LTXVideo095DownBlock3D"
TEXT_TOKENS = 256
FIRST_FRAME_NOISE = 0.15  # the pipeline's image_cond_noise_scale, times the square of the noise level


def is_condition(folder: Path) -> bool:
    """Return whether a model needs LTXConditionPipeline: its folder names it, or has the autoencoder of 0.9.5."""
    return names_condition(folder) or NEWER_VAE in config(folder, "vae").get("down_block_types", ())


def names_condition(folder: Path) -> bool:
    """Return whether a folder names LTXConditionPipeline."""
    return bool(index(folder).get("_class_name") == CONDITION)


def grid(sizes: Sequence[int], device: torch.device, start: int = 0, scale: float = 1.0) -> torch.Tensor:
    """Return the places of latents of (frames, height, width), int64 [4, tokens].

    The rows are the frame of the clip at which the latents start, the latent frame from there, pixels down, and pixels
    right. `scale` says how many times smaller in space than the clip they are.
    """
    import torch

    frames, height, width = (torch.arange(size, device=device) for size in sizes)
    step = round(SPATIAL * scale)
    found = torch.stack(torch.meshgrid(frames, step * height, step * width, indexing="ij")).flatten(1)
    return torch.cat([torch.full_like(found[:1], start), found])


def coordinates(places: torch.Tensor, fps: float, causal: bool = True) -> torch.Tensor:
    """Convert places [B, 4, tokens] to seconds and pixels, float32 [B, 3, tokens].

    If `causal`, as since 0.9.5, the first latent frame is one frame and the others are eight.
    """
    import torch

    start, frame = places[:, 0], TEMPORAL * places[:, 1]
    frame = start + ((frame + 1 - TEMPORAL).clamp(min=0) if causal else frame)
    return torch.cat([(frame.float() * (1.0 / fps))[:, None], places[:, 2:].float()], dim=1)


class ConditionSteps(FlowSteps):
    """LTXConditionPipeline's noise levels, and the noise that it adds to known frames at every step."""

    def __init__(self, scheduler: Any, options: StepOptions) -> None:
        from diffusers.pipelines.ltx.pipeline_ltx_condition import linear_quadratic_schedule

        shares = linear_quadratic_schedule(options.steps).numpy()
        super().__init__(scheduler, None, options.device, sigmas=shares, timesteps=1000 * shares)
        self._shape = options.latents_shape

    def given_at(self, given: Given, index: int, noise: torch.Generator) -> Given:
        import torch

        extra, known = given.tokens.get(EXTRA), given.known
        if extra is None and known is None:
            return given
        channels, *sizes = self._shape
        count = 0 if extra is None else extra.shape[1]
        drawn = torch.randn(1, count + math.prod(sizes), channels, generator=noise)  # for all tokens, in order
        share = self.timesteps[index].item() / 1000
        if known is not None:
            own = drawn[:, count:].unflatten(1, sizes).movedim(-1, 1)[:, :, : known.shape[2]]
            known = known + FIRST_FRAME_NOISE * own.to(known) * share**2
        if extra is not None:
            extra = extra + FIRST_FRAME_NOISE * drawn[:, :count].to(extra) * share**2
        tokens = given.tokens if extra is None else {**given.tokens, EXTRA: extra}
        return replace(given, known=known, tokens=tokens)


# ---- the published models

NEGATIVE_PROMPT = "worst quality, inconsistent motion, blurry, jittery, distorted"
LONGEST = 257  # frames
FIRST = Model(
    id="ltx-video-2b-0.9.5",
    title="LTX-Video 2B 0.9.5",
    family="ltx",
    source="Lightricks/LTX-Video-0.9.5",
    revision=None,
    task="text-to-video",
    frames=121,
    fps=25,
    height=512,
    width=704,
    frame_rule=Frames(8, LONGEST),
    size_multiple=32,
    steps=40,
    guidance_scale=3.0,
    scheduler="Euler",
    pipeline=CONDITION,
    license="LTX-Video Open Weights (OpenRAIL-M)",
    license_file="",
    download_gb=26.0,
    negative_prompt=NEGATIVE_PROMPT,
)
OLDER = replace(
    FIRST,
    id="ltx-video-2b-0.9.1",
    title="LTX-Video 2B 0.9.1",
    source="Lightricks/LTX-Video-0.9.1",
    pipeline="",
    license="LTX-Video 2B license",
)
OLDEST = replace(OLDER, id="ltx-video-2b-0.9.0", title="LTX-Video 2B 0.9.0", source="Lightricks/LTX-Video")
LARGE = replace(
    FIRST,
    id="ltx-video-13b-0.9.7",
    title="LTX-Video 13B 0.9.7",
    source="Lightricks/LTX-Video-0.9.7-dev",
    steps=30,  # diffusers' documentation of 0.9.7
    download_gb=48.0,
)
TEXT = (FIRST, LARGE, OLDER, OLDEST)
MODELS = tuple(
    one
    for model in TEXT
    for one in (
        model,
        replace(model, id=f"{model.id}-image", title=f"{model.title}, image to video", task="image-to-video"),
    )
)


# ---- model cards

CONDITIONS = """

# The LoRA was trained with given frames: {kinds}. Pass yours to the call below{instead}, each at its frame_index (a
# multiple of 8 for videos): conditions=[LTXVideoCondition(image=load_image("first.png"), frame_index=0)]
from diffusers.pipelines.ltx.pipeline_ltx_condition import LTXVideoCondition"""


# ---- names of layers, and formats of LoRA files

DECODE_TIMESTEP, DECODE_NOISE = 0.05, 0.025
SMALL_LAYERS = 28  # number of blocks of 2B
IN_BLOCK = {f"{attention}.{name}": f"{attention}.{name}" for attention in ("attn1", "attn2") for name in ATTENTION}
IN_BLOCK |= {name: name for name in FEED_FORWARD}
OUTSIDE = {
    "proj_in": "patchify_proj",
    "time_embed.emb.timestep_embedder.linear_1": "adaln_single.emb.timestep_embedder.linear_1",
    "time_embed.emb.timestep_embedder.linear_2": "adaln_single.emb.timestep_embedder.linear_2",
    "time_embed.linear": "adaln_single.linear",
    "caption_projection.linear_1": "caption_projection.linear_1",
    "caption_projection.linear_2": "caption_projection.linear_2",
    "proj_out": "proj_out",
}
READERS = "this workbench, diffusers, finetrainers, ComfyUI, LTX-Video-Trainer or diffusion-pipe"
NAMES = LayerNames("LTX-Video", "transformer_blocks", IN_BLOCK, OUTSIDE, READERS, "transformer_blocks")
COMFYUI = replace(
    lora_writing.COMFYUI,
    help="The authors' names (diffusion_model.transformer_blocks.0.attn1.to_q), the strength multiplied into the "
    "weights.",
    write=lora_writing.comfyui_without_alpha("ComfyUI"),  # diffusers refuses these names with an alpha
    readers=("ComfyUI", "diffusers"),
)
FORMATS = (
    *lora_writing.passed_over_by_comfyui("LTX-Video", *lora_writing.FORMATS),
    COMFYUI,
    *lora_writing.passed_over_by_comfyui("LTX-Video", lora_writing.LYCORIS),
)


class TokensSchedule(FlowSchedule):
    """Noise levels around a mean that is linear in the number of tokens.

    As in LTX-Video-Trainer's ShiftedLogitNormalTimestepSampler. 121 frames of 704x512 have 5,632 tokens and a mean of
    2.60. In version 1 of the defaults, the line was clamped at 1,024 and 4,096 tokens.
    """

    def __init__(self, chosen: NoiseSettings) -> None:
        super().__init__(chosen)
        self._ends = (0, math.inf) if chosen.defaults > 1 else (1024, 4096)

    def mean(self, latents_shape: tuple[int, ...]) -> float:
        """Return the mean: 0.95 at 1,024 tokens, 2.05 at 4,096."""
        lowest, highest = self._ends
        share = (min(max(math.prod(latents_shape[1:]), lowest), highest) - 1024) / (4096 - 1024)
        return 0.95 + share * (2.05 - 0.95)


class LTXVideo(InContextFamily):
    """The LTX-Video family. See Family for the methods."""

    name = "ltx"
    title = "LTX-Video"
    models = MODELS
    layer_names = NAMES
    lora_formats = FORMATS
    schedulers = ("Euler",)
    toys = ("text", "image", "text-0.9.5", "image-0.9.5", "text-13b", "image-13b")
    pipelines = {
        "LTXPipeline": "text-to-video",
        "LTXImageToVideoPipeline": "image-to-video",
        CONDITION: "text-to-video",  # or image-to-video, if made_for.json says so
    }
    text_tokens = 128
    text_mask = True
    position_bytes = 8
    later_tokens = LATER_TOKENS
    float32_latents = True
    auto_for_float32 = "bfloat16"
    own_first_frames = OwnSetting(0.1, "as LTX-Video-Trainer trains 2B")
    own_defaults = {
        "timestep_density": OwnSetting("logit-normal", "LTX-Video-Trainer: its mean rises with the clip's size"),
        "timestep_shift": OwnSetting(1.0, "none, as in LTX-Video-Trainer"),
    }

    # ---- facts

    def like(self, folder: Path) -> Model:
        if not is_condition(folder):
            return OLDER
        return LARGE if config(folder, "transformer")["num_layers"] > SMALL_LAYERS else FIRST

    def facts_of(self, model: Model, folder: Path | None) -> ModelFacts:
        found = super().facts_of(model, folder)
        return replace(found, text_tokens=TEXT_TOKENS) if model.pipeline == CONDITION else found

    def compression(self, vae: Mapping[str, Any]) -> tuple[int, int, int]:
        halved = 2 ** sum(vae.get("spatio_temporal_scaling", (True, True, True, False)))
        spatial = vae.get("spatial_compression_ratio") or vae.get("patch_size", 4) * halved
        return vae["latent_channels"], vae.get("temporal_compression_ratio") or halved, spatial

    def vae_facts(self, vae: Part) -> VaeFacts:
        width = vae.config["block_out_channels"][0] // vae.config.get("patch_size", 4) ** 2
        return VaeFacts(
            values=vae.values,
            encoder_width=width,
            decoder_width=width,
            frames_at_once=LONGEST,  # clips are never split in time
            tile=(512, 512),
            encoder_tensors=7.0,
            encoder_operations=46e3,
            decoder_operations=24e3,
            decoder_tensors=5.8,
        )

    # ---- single files

    def from_file(self, part: str, tensors: dict[str, torch.Tensor], shapes: Shapes) -> dict[str, torch.Tensor]:
        from diffusers.loaders import single_file_utils as diffusers

        if part == "vae":
            prefixed = {f"vae.{name}": tensor for name, tensor in tensors.items()}
            return dict(diffusers.convert_ltx_vae_checkpoint_to_diffusers(prefixed))
        if part == "transformer":
            return dict(diffusers.convert_ltx_transformer_checkpoint_to_diffusers(tensors))
        return super().from_file(part, tensors, shapes)

    # ---- captions

    def text_form(self, folder: Path) -> str:
        """Tag 0.9.5, which an earlier version encoded for LTXPipeline, as its folder says."""
        return CONDITION if is_condition(folder) and not names_condition(folder) else ""

    def caption_length(self, folder: Path) -> int:
        return TEXT_TOKENS if is_condition(folder) else self.text_tokens

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Return {"prompt_embeds": [B, tokens, D], "mask": [B, tokens]}, with 128 tokens, or 256 since 0.9.5.

        The transformer does not attend to padding; the encoder does before 0.9.5.
        """
        import torch

        found = text_encoder.tokens(captions)
        mask = found.attention_mask.bool() if text_encoder.max_length == TEXT_TOKENS else None
        with torch.no_grad():
            embeds = text_encoder.model(found.input_ids, attention_mask=mask)[0]
        return {"prompt_embeds": embeds, "mask": found.attention_mask.to(embeds)}

    # ---- latents

    def latent_scale(self, vae: Any) -> tuple[torch.Tensor, torch.Tensor]:
        mean, std = vae.latents_mean.view(1, -1, 1, 1, 1), vae.latents_std.view(1, -1, 1, 1, 1)
        return mean, std / vae.config.scaling_factor

    def decoded(self, vae: Any, latents: torch.Tensor, noise: torch.Generator | None) -> torch.Tensor:
        import torch

        timestep = None
        if vae.config.timestep_conditioning:
            source = torch.Generator().manual_seed(0) if noise is None else noise
            sampled = torch.randn(latents.shape, generator=source, dtype=latents.dtype).to(latents.device)
            latents = (1 - DECODE_NOISE) * latents + DECODE_NOISE * sampled
            timestep = latents.new_full((len(latents),), DECODE_TIMESTEP)
        video: torch.Tensor = vae.decode(latents, timestep, return_dict=False)[0]
        return video

    def given_to_sample(
        self, folder: Path, image: Tensors, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        import torch

        if not is_condition(folder):
            return super().given_to_sample(folder, image, latents_shape, noise, dtype)
        first = torch.randn(1, *latents_shape, generator=noise)  # the pipeline draws the video's noise first
        return replace(super().given_to_sample(folder, image, latents_shape, noise, dtype), first=first)

    # ---- conditioning on given frames

    def given_kinds(self, model: Model) -> Mapping[str, str]:
        able = {NOTHING: "", "first": "", "prefix": "", "reference": "", "control": NO_CHANNELS}
        if model.pipeline == CONDITION:
            return dict.fromkeys(KINDS, "") | able
        why = "supports only a first frame or a prefix: its pipeline takes no others, those since 0.9.5 do"
        return dict.fromkeys(KINDS, why) | able

    def places(self, sizes: Sequence[int], device: torch.device, start: int | None, scale: float) -> torch.Tensor:
        return grid(sizes, device, start or 0, scale)

    def conditioning_to_sample(
        self, folder: Path, tensors: Tensors, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        import torch

        if not is_condition(folder):
            return self.laid_out(tensors, latents_shape, noise, dtype)
        first = torch.randn(1, *latents_shape, generator=noise)  # the pipeline draws the video's noise first
        return replace(self.laid_out(tensors, latents_shape, noise, dtype, redrawn=True), first=first)

    # ---- training and sampling

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> FlowSchedule:
        return TokensSchedule(chosen)

    def call(self, transformer: Any, inputs: CallInputs) -> torch.Tensor:
        import torch

        latents, given = inputs.latents, inputs.given
        frames, height, width = latents.shape[2:]
        times = inputs.timesteps[:, None]  # one per clip, or else one per token
        if given is not None and given.known is not None:
            times = given.times_of_tokens(inputs.timesteps, frames, height * width)
        tokens, extra = packed(latents), None if given is None else given.tokens.get(EXTRA)
        causal = inputs.text["mask"].shape[1] == TEXT_TOKENS  # the captions' length tells the pipeline
        positions: dict[str, Any] = {"rope_interpolation_scale": (TEMPORAL / inputs.fps, SPATIAL, SPATIAL)}
        if causal or extra is not None:
            where = grid(latents.shape[2:], latents.device).expand(len(latents), -1, -1)
            if given is not None and extra is not None:
                where = torch.cat([given.tokens[PLACES], where], dim=2)
            positions = {"video_coords": coordinates(where, inputs.fps, causal)}
        if extra is not None:
            times = torch.cat([times.new_zeros(extra.shape[:2]), times.expand(-1, tokens.shape[1])], dim=1)
            tokens = torch.cat([extra, tokens], dim=1)
        predicted = transformer(
            hidden_states=tokens,
            encoder_hidden_states=inputs.text["prompt_embeds"],
            timestep=times,
            encoder_attention_mask=inputs.text["mask"],
            num_frames=frames,
            height=height,
            width=width,
            return_dict=False,
            **positions,
        )[0]
        own = predicted if extra is None else predicted[:, extra.shape[1] :]
        unpacked: torch.Tensor = own.transpose(1, 2).unflatten(2, (frames, height, width))
        return unpacked

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        scheduler = self.load_scheduler(options.folder, options.scheduler)
        if is_condition(options.folder):
            return ConditionSteps(scheduler, options)
        return steps_shifted_by_tokens(scheduler, options, self.title)

    # ---- the rest

    def usage_extras(self, model: Model, folder: Path, shape: ClipSize, image_scale: ImageScale) -> UsageExtras:
        # A VAE without a timestep (0.9.0) ignores these.
        decoding = f"decode_timestep={DECODE_TIMESTEP}, decode_noise_scale={DECODE_NOISE}"
        return UsageExtras(arguments=f", frame_rate={model.fps:g}, {decoding}")

    def usage_conditioning(
        self, model: Model, folder: Path, shape: ClipSize, extras: UsageExtras, kinds: Sequence[str]
    ) -> UsageExtras:
        frames = [kind for kind in kinds if model.pipeline == CONDITION and kind in KINDS and kind != "mask"]
        found = super().usage_conditioning(model, folder, shape, extras, [kind for kind in kinds if kind not in frames])
        if not frames:
            return found
        instead = ", in place of image" if model.task == "image-to-video" else ""
        changes = CONDITIONS.format(kinds=", ".join(frames), instead=instead) + found.changes
        return replace(found, changes=changes, helpers=("load_image",))

    def miniature(self, variant: str) -> tuple[Any, dict[str, Any]]:
        """Return a random pipeline; for "0.9.5" and "13b" with the newer autoencoder, whose decoder adds noise.

        Their folders name different pipelines, as on the Hub: LTXPipeline and LTXConditionPipeline.
        """
        import diffusers

        newer, of_image, condition = "-" in variant, variant.startswith("image"), variant.endswith("13b")
        vae: dict[str, Any] = {
            "latent_channels": 8,
            "block_out_channels": (8,) * 4,
            "decoder_block_out_channels": (8,) * 4,
            "layers_per_block": (1,) * 5,
            "decoder_layers_per_block": (1,) * 5,
        }
        if newer:
            vae |= {
                "block_out_channels": (4, 4, 4, 8, 8),
                "down_block_types": ("LTXVideo095DownBlock3D",) * 4,
                "decoder_block_out_channels": (8, 16, 32),
                "layers_per_block": (1,) * 5,
                "decoder_layers_per_block": (1,) * 4,
                "spatio_temporal_scaling": (True,) * 4,
                "decoder_spatio_temporal_scaling": (True,) * 3,
                "decoder_inject_noise": (False,) * 4,
                "downsample_type": ("spatial", "temporal", "spatiotemporal", "spatiotemporal"),
                "upsample_residual": (True,) * 3,
                "upsample_factor": (2,) * 3,
                "timestep_conditioning": True,
                "encoder_causal": True,
                "decoder_causal": False,
                "spatial_compression_ratio": 32,
                "temporal_compression_ratio": 8,
            }
        scheduler: dict[str, Any] = {} if newer else {"use_dynamic_shifting": True, "shift_terminal": 0.1}
        tokenizer, text_encoder = t5_parts()
        parts: dict[str, Any] = {
            "tokenizer": tokenizer,
            "text_encoder": text_encoder,
            "vae": diffusers.AutoencoderKLLTXVideo(**vae),
            "transformer": diffusers.LTXVideoTransformer3DModel(
                in_channels=8,
                out_channels=8,
                num_attention_heads=2,
                attention_head_dim=12,
                cross_attention_dim=24,
                num_layers=2,
                caption_channels=32,
            ),
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
                base_shift=0.95, max_shift=2.05, base_image_seq_len=1024, max_image_seq_len=4096, **scheduler
            ),
        }
        parts["vae"].latents_mean.fill_(0.1)
        parts["vae"].latents_std.fill_(0.9)
        kind = diffusers.LTXImageToVideoPipeline if of_image else diffusers.LTXPipeline
        made = (diffusers.LTXConditionPipeline if condition else kind)(**parts)
        task = {"task": "image-to-video"} if condition and of_image else {}
        return made, {"frames": 17, "height": 64, "width": 64, **task}


FAMILY = LTXVideo()
