"""The CogVideoX family: 1.0 and 1.5, text-to-video and image-to-video.

Sources: CogVideoX (arXiv 2408.06072); SAT's VideoDiffusionLoss and diffusers' pipelines, which this matches. Latents
[B, f, C, h, w] are scaled by the VAE's factor. The transformer predicts velocity. Timesteps are uniform integers, and
the schedule is scaled-linear with zero terminal SNR. Image-to-video concatenates the first frame's latents to the
channels of the first latent frame, and zeros to the others. What differs between models (factors, rotary grids, learned
positions, `patch_size_t`, `ofs`, text length) comes from their configs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, ModelUnavailable
from workbench.families.base import (
    PRESERVATION_PROMPTS,
    Family,
    ImageScale,
    OwnSetting,
    Report,
    device_and_dtype,
    for_inference,
)
from workbench.families.cogvideox import sat
from workbench.families.cogvideox.models import FIRST, FORMATS, LARGEST, MODELS, NAMES, NEWER
from workbench.families.conditioning import NAMES as KINDS
from workbench.families.conditioning import NOTHING, Conditioning
from workbench.families.denoising import DenoiseInputs, SamplerSteps, StepOptions
from workbench.families.facts import Part, VaeFacts
from workbench.families.lora_files import LoraWeights
from workbench.families.model import ClipSize, Frames, Model, Shape, Shapes
from workbench.families.model_files import config, index, part_folder
from workbench.families.model_inputs import CallInputs, Given, PromptEncoder, Tensors, load_tokenizer, t5_parts
from workbench.families.noise_schedules import AS_PUBLISHED, NoiseSettings, VelocitySchedule
from workbench.families.usage import DYNAMIC, UsageExtras

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# ---- schedulers

SCHEDULERS = {"DDIM": "CogVideoXDDIMScheduler", "DPM": "CogVideoXDPMScheduler"}


class SchedulerSteps(SamplerSteps):
    """Steps of a scheduler. DPM's also need the previous step's prediction."""

    def __init__(self, scheduler: Any, steps: int, device: torch.device) -> None:
        scheduler.set_timesteps(steps, device=device)
        self.timesteps, self._scheduler = scheduler.timesteps, scheduler
        self._is_dpm = hasattr(scheduler, "get_variables")
        self.begin(0)

    def begin(self, index: int) -> None:
        self._before: tuple[Any, Any] = (None, None)  # timestep and clean latents of the previous step

    def step(self, index: int, predicted: Tensor, latents: Tensor, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        timestep, (back, old) = self.timesteps[index], self._before
        if self._is_dpm:
            after, clean = self._scheduler.step(
                predicted, old, timestep, back, latents, generator=noise, return_dict=False
            )
        else:
            after, clean = self._scheduler.step(predicted, timestep, latents, return_dict=False)
        self._before = timestep, clean
        return after, clean


# ---- model cards

# For a number of frames other than the model's own, diffusers silently uses positions it was not trained with.
POSITIONS = """

# With {frames} frames instead of {own}, diffusers would replace this model's learned positions with computed ones.
# Training kept the learned ones, and so do these lines.
embed = pipe.transformer.patch_embed
embed._get_positional_embeddings = lambda height, width, frames, device=None: (
    embed.pos_embedding[:, : {tokens} + ((frames - 1) // {temporal} + 1) * {patches}]
)"""

RAW = """

# diffusers scales the latents of the first frame. This LoRA was trained without scaling, so undo it.
stock = pipe.prepare_latents


def unscaled(*args, **kwargs):
    latents, image_latents = stock(*args, **kwargs)
    return latents, image_latents {undo} {factor}


pipe.prepare_latents = unscaled"""

PADDED = """

# diffusers has no pipeline for this model. Its channels for given frames, after the noisy latents, get zeros here.
pipe.transformer.register_to_config(in_channels={own})


def padded(module, args, kwargs):
    latents = kwargs["hidden_states"]
    more = latents.new_zeros(*latents.shape[:2], {more}, *latents.shape[3:])
    return args, kwargs | {{"hidden_states": torch.cat([latents, more], dim=2)}}


pipe.transformer.register_forward_pre_hook(padded, with_kwargs=True)"""

FOLLOWED = """

# control.mp4 is the video to follow. diffusers reads it with the packages imageio and imageio-ffmpeg"""

# ---- CogVideoX-Fun

CONTROL = "CogVideoXFunControlPipeline"
INPAINT_NOISE = 0.0563  # VideoX-Fun's noise_aug_strength


@dataclass(frozen=True)
class Inpainting:
    """Takes the image encoder's place in Fun-InP models. `noise` is the std of noise added to known pixels."""

    noise: float


def known_share(known: Tensor, sizes: Sequence[int]) -> Tensor:
    """Resize a mask of known pixels [B, 1, F, H, W] to latents of (frames, height, width), as VideoX-Fun does."""
    import torch
    from torch.nn.functional import interpolate

    frames, height, width = sizes
    parts = [interpolate(known[:, :, :1], (1, height, width), mode="trilinear", align_corners=False)]
    if frames > 1:
        later = known[:, :, 1:]
        parts.append(interpolate(later, (frames - 1, height, width), mode="trilinear", align_corners=False))
    return torch.cat(parts, dim=2)


# ---- the family

OFS = 2.0  # constant input of 1.5 image-to-video
# Settings on how to use a first frame, in training and samples.
FIRST_FRAME_SETTINGS = ("condition", "condition_frames", "low_resolution_scale", "image_latent_scale", "image_scale")


class CogVideoX(Family):
    """The CogVideoX family. See Family for the methods."""

    name = "cogvideox"
    title = "CogVideoX"
    models = MODELS
    pipelines = {
        "CogVideoXPipeline": "text-to-video",
        "CogVideoXImageToVideoPipeline": "image-to-video",
        "CogVideoXVideoToVideoPipeline": "text-to-video",  # the same weights
        CONTROL: "text-to-video",
    }
    text_joint = True
    layer_names = NAMES
    tests_output = True
    lora_formats = FORMATS
    schedulers = tuple(SCHEDULERS)
    scheduler_classes = SCHEDULERS
    channel_axis = 2
    frame_axis = 1
    # Like 2B, 5B, 1.5-5B, 5B-I2V and 1.5-5B-I2V. There are also "fun-inp" and "fun-control", like Fun-V1.1-5b-InP and
    # -Control.
    toys = ("sincos", "rotary", "rotary-1.5", "image", "image-1.5")
    preservation_prompts = (
        *PRESERVATION_PROMPTS,
        "A drone flies over a green mountain valley with a winding river, morning fog between the hills.",
    )
    image_noise = (-3.0, 0.5)
    own_defaults = {
        **dict.fromkeys(FIRST_FRAME_SETTINGS, OwnSetting()),
        "timestep_shift": OwnSetting(1.0, "all noise levels equally often, as CogVideoX was trained"),
    }

    # ---- files

    def like(self, folder: Path) -> Model:
        transformer, (_, _, spatial) = config(folder, "transformer"), self.compression(config(folder, "vae"))
        own, learned = transformer["sample_frames"], bool(transformer.get("use_learned_positional_embeddings"))
        height, width = transformer["sample_height"] * spatial, transformer["sample_width"] * spatial
        described = replace(
            FIRST,
            scheduler="DPM" if "DPM" in index(folder)["scheduler"][1] else "DDIM",
            frames=own,
            height=height,
            width=width,
            # Learned positions end with the model's own frames; computed ones go to 49 or more.
            frame_rule=Frames(8, own if learned else max(49, own)),
            fixed_size=learned,
            pipeline=CONTROL if index(folder)["_class_name"] == CONTROL else "",
        )
        if transformer.get("patch_size_t") is None:
            return described
        # 1.5 may have positions for 2400 x 2400, which it was not trained for.
        made_for = {"height": min(height, LARGEST[0]), "width": min(width, LARGEST[1]), "largest": (height, width)}
        return replace(described, fps=NEWER.fps, frame_rule=NEWER.frame_rule, **made_for)

    def positions(self, transformer: Mapping[str, Any]) -> int:
        return 0 if transformer.get("use_rotary_positional_embeddings") else 8  # diffusers keeps a table in float64

    def compression(self, vae: Mapping[str, Any]) -> tuple[int, int, int]:
        spatial = 2 ** (len(vae["block_out_channels"]) - 1)
        return vae["latent_channels"], int(vae["temporal_compression_ratio"]), spatial

    def vae_facts(self, vae: Part) -> VaeFacts:
        channels = vae.config["block_out_channels"]
        return VaeFacts(
            values=vae.values,
            encoder_width=channels[0],
            decoder_width=channels[min(1, len(channels) - 1)],
            # diffusers' autoencoder processes two latent frames at a time, and three at first if their number is odd.
            frames_at_once=2 * self.compression(vae.config)[1] + 1,
            tile=(vae.config["sample_height"] // 2, vae.config["sample_width"] // 2),
        )

    def load_tokenizer(self, folder: Path, part: str = "tokenizer") -> Any:
        """Load the T5 tokenizer, which the published repositories have only as `spiece.model`."""
        source = part_folder(folder, part)
        # If the file is missing, transformers returns a tokenizer without words, or a misleading error.
        if not any((source / name).is_file() for name in ("tokenizer.json", "spiece.model")):
            raise ModelUnavailable(f"{source} has neither tokenizer.json nor spiece.model: download the model again")
        return load_tokenizer(source, "T5Tokenizer")

    # ---- single files

    def from_file(self, part: str, tensors: dict[str, Tensor], shapes: Shapes) -> dict[str, Tensor]:
        if part == "transformer":
            return sat.transformer_to_diffusers({sat.TRANSFORMER + name: one for name, one in tensors.items()}, shapes)
        if part == "vae":
            return sat.vae_to_diffusers(tensors, shapes)
        return super().from_file(part, tensors, shapes)

    # ---- loading

    def load_transformer(
        self, folder: Path, device: torch.device, dtype: torch.dtype, part: str = "transformer"
    ) -> Any:
        transformer = super().load_transformer(folder, device, dtype, part)
        if transformer.config.use_learned_positional_embeddings:
            # Shorter clips use the first positions, as in SAT. diffusers would silently replace all positions with
            # computed ones, which the model was not trained with.
            embed = transformer.patch_embed
            embed._get_positional_embeddings = MethodType(_first_positions, embed)
        return transformer

    # ---- what makes a transformer cheaper

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        from workbench.families.cogvideox import attention

        attention.use_attention(transformer, kernel, device)

    def join_projections(self, transformer: Any) -> None:
        from workbench.families.cogvideox import attention

        attention.join([block.attn1 for block in transformer.transformer_blocks])

    # ---- encoding

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Return {"prompt_embeds": [B, tokens, D]}, with padding, since the model was trained without a mask."""
        import torch

        with torch.no_grad():
            return {"prompt_embeds": text_encoder.model(text_encoder.tokens(captions).input_ids)[0]}

    def encode_video(self, vae: Any, video: Tensor) -> Tensors:
        """Return {"mean", "std"}, float32 [B, f, C, h, w], times the scaling factor."""
        return _moments(vae, video, vae.config.scaling_factor)

    def sample_latents(self, moments: Tensors, noise: Tensor) -> Tensor:
        frames = moments["mean"].shape[1]
        latents = moments["mean"] + moments["std"] * noise[:, noise.shape[1] - frames :]
        return pad_front(latents, noise.shape[1])

    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> Shape:
        channels, count, tall, wide = super().latents_shape(folder, frames, height, width)
        return padded_frames(count, config(folder, "transformer").get("patch_size_t")), channels, tall, wide

    def decode(self, vae: Any, latents: Tensor, noise: torch.Generator | None = None) -> Tensor:
        clip = without_padding(latents).permute(0, 2, 1, 3, 4)
        with for_inference(vae):
            unscaled = 1 / vae.config.scaling_factor * clip.to(*device_and_dtype(vae))
            return vae.decode(unscaled).sample.float().clamp(-1, 1)

    def latents_to_file(self, folder: Path, latents: Tensor) -> dict[str, Tensor]:
        return super().latents_to_file(folder, without_padding(latents))

    # ---- image-to-video

    def encode_image(self, vae: Any, image_encoder: Any, images: Tensor, frames: int, scale: ImageScale) -> Tensors:
        """Return {"mean", "std"}, float32 [B, 1, C, h, w], scaled as in the stock pipeline or not at all."""
        # With VAEs of 1.5, the pipeline divides.
        factor = vae.config.scaling_factor ** (-1 if vae.config.invert_scale_latents else 1)
        return _moments(vae, images.unsqueeze(2), 1.0 if scale == "raw" else float(factor))

    def given(
        self, image: Tensors, noise: Tensor, latents_shape: Shape, kept: Tensor | None = None, every_frame: bool = False
    ) -> Given:
        """Put the picture's latents beside the first latent frame or every one, and zeros elsewhere."""
        latents = image["mean"] + image["std"] * noise
        if kept is not None:
            latents = latents * kept.view(-1, 1, 1, 1, 1).to(latents)
        if every_frame:
            return Given(beside=latents.expand(-1, latents_shape[0], -1, -1, -1))
        beside = latents.new_zeros(len(latents), *latents_shape)
        beside[:, :1] = latents
        return Given(beside=beside)

    # ---- conditioning of CogVideoX-Fun

    def given_kinds(self, model: Model) -> Mapping[str, str]:
        transformer = self.part_config(model, "transformer")
        more = transformer.get("in_channels", 0) - transformer.get("out_channels", 0)
        if not more:
            return {}
        able, control = {NOTHING: ""}, "has no channels for a control video: choose a Fun-Control model"
        if more > transformer["out_channels"]:
            return dict.fromkeys(KINDS, "") | able | {"control": control}
        if model.task == "text-to-video":
            why = "has channels only for a control video: choose a Fun-InP model"
            return dict.fromkeys(KINDS, why) | able | {"control": ""}
        why = "has channels only for a first frame: choose a Fun-InP model"
        return dict.fromkeys(KINDS, why) | {NOTHING: "starts from a first frame", "first": "", "control": control}

    def load_image_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Inpainting | None:
        transformer = config(folder, "transformer")
        if transformer["in_channels"] <= 2 * transformer["out_channels"]:
            return None
        return Inpainting(INPAINT_NOISE if transformer.get("add_noise_in_inpaint_model") else 0.0)

    def encode_conditioning(self, vae: Any, image_encoder: Inpainting | None, pixels: Conditioning) -> Tensors:
        """Return latents "control"; mask and latents "beside" for Fun-InP; a first frame's moments "mean" and "std"."""
        import torch

        found: dict[str, Tensor] = {}
        if pixels.control is not None:
            found["control"] = _moments(vae, pixels.control, vae.config.scaling_factor)["mean"]
        if pixels.video is None:
            return found
        if image_encoder is None:
            return {**found, **self.encode_image(vae, None, pixels.video[:, :, 0], pixels.frames, "pipeline")}
        known = pixels.mask
        if known is None:
            known = pixels.video.new_zeros(len(pixels.video), 1, *pixels.video.shape[2:])
            known[:, :, list(pixels.known)] = 1
        video = pixels.video
        if image_encoder.noise:
            draw = torch.Generator().manual_seed(0)
            video = video + image_encoder.noise * torch.randn(video.shape, generator=draw).to(video)
        shown = torch.where(known > 0.5, video, -1.0)
        latents = _moments(vae, shown, vae.config.scaling_factor)["mean"]
        share = known_share(known.float().to(latents.device), [latents.shape[1], *latents.shape[3:]])
        mask = share.transpose(1, 2) * vae.config.scaling_factor
        return {**found, "beside": torch.cat([mask, latents], dim=self.channel_axis)}

    def conditioning(self, tensors: Tensors, latents_shape: Shape, noise: torch.Generator, dtype: torch.dtype) -> Given:
        """`call` fills missing parts with zeros."""
        if "mean" in tensors:
            image = {name: tensors[name] for name in ("mean", "std")}
            return self.given(image, self.posterior_noise(image, noise, dtype), latents_shape)
        beside = tensors.get("beside", tensors.get("control"))
        return Given(beside=None if beside is None else pad_front(beside, latents_shape[0]))

    # ---- training

    def noise_schedule(
        self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED
    ) -> VelocitySchedule:
        shift = 1.0 if chosen.shift is None else chosen.shift
        return VelocitySchedule(self.load_scheduler(folder).alphas_cumprod.float().to(device), shift)

    def mask_cells(self, folder: Path, mask: Tensor) -> Tensor:
        cells = super().mask_cells(folder, mask)
        return pad_front(cells, padded_frames(cells.shape[1], config(folder, "transformer").get("patch_size_t")))

    def call(self, transformer: Any, inputs: CallInputs) -> Tensor:
        import torch

        config, latents, given = transformer.config, inputs.latents, inputs.given
        frames, _, height, width = latents.shape[1:]
        check_positions(config, frames, height, width)
        if (more := config.in_channels - latents.shape[self.channel_axis]) > 0:
            beside = None if given is None else given.beside
            if beside is None:
                beside = latents.new_zeros(*latents.shape[:2], more, height, width)
            latents = torch.cat([latents, beside], dim=self.channel_axis)
        predicted: Tensor = transformer(
            hidden_states=latents,
            encoder_hidden_states=inputs.text["prompt_embeds"],
            timestep=inputs.timesteps,
            ofs=None if config.ofs_embed_dim is None else latents.new_full((1,), OFS),
            image_rotary_emb=rotary_embeddings(config, frames, height, width, latents.device),
            return_dict=False,
        )[0]
        return predicted

    # ---- sampling

    def check_inputs(self, transformer: Any, inputs: DenoiseInputs) -> None:
        shown = inputs.given is not None and inputs.given.beside is not None
        own, of_image = transformer.config, self.pipelines[index(inputs.folder)["_class_name"]] == "image-to-video"
        if own.in_channels != own.out_channels and not (shown or of_image):
            # Fun models need no conditioning: `call` fills in zeros. Pass a dummy to satisfy the check.
            inputs = replace(inputs, given=Given(beside=next(iter(inputs.text.values()))))
        super().check_inputs(transformer, inputs)

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        made = self.load_scheduler(options.folder, options.scheduler)
        return SchedulerSteps(made, options.steps, options.device)

    def as_prefix(self, latents: Tensor, latents_shape: Shape) -> Tensor:
        prefix = without_padding(latents)
        return pad_front(prefix, prefix.shape[1] + padding(latents_shape[0]))

    def usage_extras(self, model: Model, folder: Path, shape: ClipSize, image_scale: ImageScale) -> UsageExtras:
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
        arguments = f", max_sequence_length={tokens}{dynamic}"
        if model.pipeline == CONTROL:
            control = f', control_video=load_video("control.mp4")[:{shape[0]}]'  # sets the number of frames
            changes += FOLLOWED
            return UsageExtras(changes=changes, arguments=control + arguments, helpers=("load_video",), counts=False)
        own, total = transformer["out_channels"], transformer["in_channels"]
        if total > 2 * own:
            changes += PADDED.format(own=own, more=total - own)
        return UsageExtras(changes=changes, arguments=arguments)

    # ---- other trainers' files

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        return sat.lora_to_diffusers(tensors) if sat.is_lora(tensors) else super().lora_weights(tensors, metadata)

    def convert(self, source: Path, target: Path, folder: Path, report: Report = print) -> str:
        return sat.convert(source, target, folder, NAMES, report)

    def usage_conditioning(
        self, model: Model, folder: Path, shape: ClipSize, extras: UsageExtras, kinds: Sequence[str]
    ) -> UsageExtras:
        stock = ("control",) if model.pipeline == CONTROL else ()
        return super().usage_conditioning(model, folder, shape, extras, [kind for kind in kinds if kind not in stock])

    def miniature(self, variant: str) -> tuple[Any, dict[str, int]]:
        import diffusers
        import torch

        from_image, newer = variant.startswith("image"), variant.endswith("1.5")
        channels = 4
        tokenizer, text_encoder = t5_parts()
        vae = diffusers.AutoencoderKLCogVideoX(
            down_block_types=("CogVideoXDownBlock3D",) * 3,
            up_block_types=("CogVideoXUpBlock3D",) * 3,
            block_out_channels=(8, 8, 8),
            latent_channels=channels,
            layers_per_block=1,
            norm_num_groups=2,
            temporal_compression_ratio=4,
            sample_height=16,
            sample_width=16,
            scaling_factor=0.7,
            invert_scale_latents=newer,
        )
        config: dict[str, Any] = {"patch_size_t": 2, "patch_bias": False} if newer else {}
        transformer = diffusers.CogVideoXTransformer3DModel(
            num_attention_heads=2,
            attention_head_dim=16,
            in_channels={"fun-inp": 2 * channels + 1, "fun-control": 2 * channels}.get(
                variant, channels * (2 if from_image else 1)
            ),
            out_channels=channels,
            time_embed_dim=8,
            text_embed_dim=32,
            num_layers=2,
            sample_width=4,
            sample_height=4,
            sample_frames=17 if newer or from_image else 9,
            patch_size=2,
            max_text_seq_length=16,
            use_rotary_positional_embeddings=variant != "sincos",
            use_learned_positional_embeddings=variant == "image",
            spatial_interpolation_scale=1.0,
            ofs_embed_dim=8 if variant == "image-1.5" else None,
            **config,
        )
        if variant == "image":  # unlike computed positions, as after training
            torch.nn.init.normal_(transformer.patch_embed.pos_embedding)
        of_fun = variant.startswith("fun")  # its diffusers pipeline takes only DDIM
        scheduler = getattr(diffusers, SCHEDULERS["DDIM" if of_fun or variant == "sincos" else "DPM"])(
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
        pipeline = diffusers.CogVideoXImageToVideoPipeline if from_image else diffusers.CogVideoXPipeline
        if variant == "fun-control":
            pipeline = diffusers.CogVideoXFunControlPipeline
        return pipeline(tokenizer, text_encoder, vae, transformer, scheduler), {}


def _moments(vae: Any, video: Tensor, factor: float) -> Tensors:
    """Encode clips [B, 3, F, H, W] to {"mean", "std"}, float32 [B, f, C, h, w], times a factor."""
    with for_inference(vae):
        posterior = vae.encode(video.to(*device_and_dtype(vae))).latent_dist
    found = {"mean": posterior.mean, "std": posterior.std}
    return {name: value.float().permute(0, 2, 1, 3, 4).contiguous() * factor for name, value in found.items()}


# ---- padding of latents [B, f, C, h, w]


def padded_frames(frames: int, patch_size_t: int | None) -> int:
    """Round up latent frames to groups of patch_size_t, which 1.5 needs."""
    return math.ceil(frames / (patch_size_t or 1)) * (patch_size_t or 1)


def pad_front(latents: Tensor, frames: int) -> Tensor:
    """Pad latents to a number of frames with copies of the first in front, where inference drops them."""
    import torch

    missing = frames - latents.shape[1]
    return torch.cat([latents[:, :1].expand(-1, missing, -1, -1, -1), latents], dim=1) if missing else latents


def padding(frames: int) -> int:
    """Return how many of `frames` latent frames are padding: see without_padding."""
    return 1 - frames % 2


def without_padding(latents: Tensor) -> Tensor:
    """Remove the frame that `pad_front` added.

    Legal clips (8k+1 frames, or a picture) have an odd number of latent frames, and published models group at most two,
    so an even number means one padding frame.
    """
    return latents[:, padding(latents.shape[1]) :]


# ---- positions: `config` is a transformer's


def rotary_embeddings(
    config: Any, latent_frames: int, latent_height: int, latent_width: int, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    """Return (cos, sin) for latents of this size, as in the stock pipelines; None for models without rotary ones."""
    if not config.use_rotary_positional_embeddings:
        return None
    patch = config.patch_size
    grid, own = (
        (latent_height // patch, latent_width // patch),
        (config.sample_height // patch, config.sample_width // patch),
    )
    return _rotary(config.attention_head_dim, config.patch_size_t, latent_frames, grid, own, device)


@lru_cache(maxsize=16)
def _rotary(
    width: int, patch_size_t: int | None, frames: int, grid: tuple[int, int], own: tuple[int, int], device: torch.device
) -> tuple[Tensor, Tensor]:
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    from diffusers.pipelines.cogvideo.pipeline_cogvideox import get_resize_crop_region_for_grid

    crop, how = None, {"grid_type": "slice", "max_size": own}
    if patch_size_t is None:
        crop, how = get_resize_crop_region_for_grid(grid, own[1], own[0]), {}
    groups = padded_frames(frames, patch_size_t) // (patch_size_t or 1)
    cos, sin = get_3d_rotary_pos_embed(width, crop, grid, groups, device=device, **how)
    return cos, sin


def _first_positions(embed: Any, height: int, width: int, frames: int, device: Any = None) -> Tensor:
    """Replace CogVideoXPatchEmbed's method. `frames` counts the clip's, `height` and `width` are the latents'."""
    latent_frames = (frames - 1) // embed.temporal_compression_ratio + 1
    patches = latent_frames * (height // embed.patch_size) * (width // embed.patch_size)
    positions: Tensor = embed.pos_embedding[:, : embed.max_text_seq_length + patches]
    return positions


def check_positions(config: Any, latent_frames: int, latent_height: int, latent_width: int) -> None:
    """Refuse latents without positions in the model. Raises ConfigError."""
    own = (config.sample_height, config.sample_width)
    if config.use_learned_positional_embeddings:
        longest = (config.sample_frames - 1) // config.temporal_compression_ratio + 1
        if (latent_height, latent_width) != own or latent_frames > longest:
            raise ConfigError(
                f"the clip has {latent_frames} latent frames of {latent_width}x{latent_height}, and this model learned "
                f"positions for at most {longest} of {own[1]}x{own[0]}: use its own size, and no more frames than that"
            )
    elif config.patch_size_t is not None and (latent_height > own[0] or latent_width > own[1]):
        raise ConfigError(
            f"the clip has latents of {latent_width}x{latent_height}, and this model's positions end at "
            f"{own[1]}x{own[0]}: use a smaller size, or swap width and height for a portrait video"
        )


FAMILY = CogVideoX()
