"""The CogVideoX family: what `families.base.Family` promises, for 1.0 and 1.5, text-to-video and image-to-video.

Sources: CogVideoX (arXiv 2408.06072); SAT's VideoDiffusionLoss and diffusers' two pipelines, which this equals: latents
[B, F, C, H, W] are scaled by the VAE's factor; the transformer predicts velocity; timesteps are uniform integers; the
schedule is scaled-linear with zero terminal SNR; image-to-video puts the first frame's latents beside the first latent
frame, zeros beside the others. What differs between the sizes (factors, rotary grids, learned positions,
`patch_size_t`, `ofs`, text length) is read from the model's own configs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ModelUnavailable
from workbench.families import prompt_encoder
from workbench.families.architectures import Part
from workbench.families.base import ImageScale, OwnSetting, Report
from workbench.families.cogvideox import convert, loras, recipes, sampling, sat, tensors, toys, usage
from workbench.families.cogvideox.models import FIRST, LARGEST, MODELS, NEWER
from workbench.families.denoising import SamplerSteps, StepOptions
from workbench.families.diffusers_family import PRESERVATION_PROMPTS, DiffusersFamily, device_and_dtype
from workbench.families.facts import VaeFacts
from workbench.families.lora_files import LoraWeights
from workbench.families.model import Frames, Model
from workbench.families.model_files import config, index
from workbench.families.model_inputs import Given, Tensors
from workbench.families.noise_schedules import AS_PUBLISHED, NoiseSettings, VelocitySchedule
from workbench.families.prompt_encoder import PromptEncoder
from workbench.families.usage import UsageExtras

if TYPE_CHECKING:
    import torch


# What a first frame may become in training; settings of samples are among them.
OWN_SETTINGS = ("condition", "condition_frames", "low_resolution_scale", "image_latent_scale", "image_scale")


class CogVideoX(DiffusersFamily):
    """The CogVideoX family; see Family for what each method promises."""

    name = "cogvideox"
    title = "CogVideoX"
    models = MODELS
    lora_targets = {
        "attention": ("to_q", "to_k", "to_v", "to_out.0"),
        "attention+feed-forward": ("to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2"),
    }
    pipelines = {
        "CogVideoXPipeline": "text-to-video",
        "CogVideoXImageToVideoPipeline": "image-to-video",
        "CogVideoXVideoToVideoPipeline": "text-to-video",  # the same weights under another pipeline's name
    }
    text_joint = True
    layer_names = loras.NAMES
    lora_writers = loras.WRITERS
    lora_formats = loras.FORMATS
    schedulers = tuple(sampling.CLASSES)
    scheduler_classes = sampling.CLASSES
    channel_axis = 2
    frame_axis = 1
    toys = toys.TOYS
    preservation_prompts = (
        *PRESERVATION_PROMPTS,
        "A drone flies over a green mountain valley with a winding river, morning fog between the hills.",
    )
    recipes = recipes.RECIPES
    image_noise = (-3.0, 0.5)

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
            # Learned positions end with the model's own frames; computed ones can be had for 49 whatever it says.
            frame_rule=Frames(8, own if learned else max(49, own)),
            fixed_size=learned,
        )
        if transformer.get("patch_size_t") is None:
            return described
        # 1.5 may have positions of 2400 x 2400, which is not what it was made for.
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
            # diffusers' autoencoder takes two latent frames at a time, and the odd one with the first.
            frames_at_once=2 * self.compression(vae.config)[1] + 1,
            tile=(vae.config["sample_height"] // 2, vae.config["sample_width"] // 2),
        )

    def load_tokenizer(self, folder: Path) -> Any:
        return load_tokenizer(folder)

    # ---- loading

    def load_transformer(
        self, folder: Path, device: torch.device, dtype: torch.dtype, part: str = "transformer"
    ) -> Any:
        transformer = super().load_transformer(folder, device, dtype, part)
        tensors.keep_learned_positions(transformer)
        return transformer

    # ---- what makes a transformer cheaper

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        from workbench.families.cogvideox import attention

        attention.use_attention(transformer, kernel, device)

    def join_projections(self, transformer: Any) -> None:
        from workbench.families.attention import projections

        projections.join([block.attn1 for block in transformer.transformer_blocks])

    # ---- encoding

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """{"prompt_embeds": [B, tokens, D]}. Padding tokens are embedded too: the model was trained without a mask."""
        import torch

        with torch.no_grad():
            return {"prompt_embeds": text_encoder.model(text_encoder.tokens(captions).input_ids)[0]}

    def encode_video(self, vae: Any, video: torch.Tensor) -> Tensors:
        """{"mean", "std"}: [B, f, C, h, w] float32, times the scaling factor: latents are mean + std * noise."""
        return _moments(vae, video, vae.config.scaling_factor)

    def sample_latents(self, moments: Tensors, noise: torch.Tensor) -> torch.Tensor:
        frames = moments["mean"].shape[1]
        latents = moments["mean"] + moments["std"] * noise[:, noise.shape[1] - frames :]
        return tensors.pad_front(latents, noise.shape[1])

    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> tuple[int, ...]:
        channels, count, tall, wide = super().latents_shape(folder, frames, height, width)
        return tensors.padded_frames(count, config(folder, "transformer").get("patch_size_t")), channels, tall, wide

    def decode(self, vae: Any, latents: torch.Tensor, noise: torch.Generator | None = None) -> torch.Tensor:
        import torch

        clip = tensors.without_padding(latents).permute(0, 2, 1, 3, 4)
        with torch.no_grad():
            unscaled = 1 / vae.config.scaling_factor * clip.to(*device_and_dtype(vae))
            return vae.decode(unscaled).sample.float().clamp(-1, 1)

    def latents_to_file(self, folder: Path, latents: torch.Tensor) -> dict[str, torch.Tensor]:
        return super().latents_to_file(folder, tensors.without_padding(latents))

    # ---- image-to-video

    def encode_image(
        self, vae: Any, image_encoder: Any, images: torch.Tensor, frames: int, scale: ImageScale
    ) -> Tensors:
        """{"mean", "std"}: [B, 1, C, h, w] float32. The scale is that of the stock pipeline, or none at all."""
        # VAEs of 1.5 say that the pipeline divides.
        factor = vae.config.scaling_factor ** (-1 if vae.config.invert_scale_latents else 1)
        return _moments(vae, images.unsqueeze(2), 1.0 if scale == "raw" else float(factor))

    def given(
        self,
        image: Tensors,
        noise: torch.Tensor,
        latents_shape: tuple[int, ...],
        kept: torch.Tensor | None = None,
        every_frame: bool = False,
    ) -> Given:
        """The picture's latents beside the first latent frame or every one; zeros elsewhere and where none is kept."""
        latents = image["mean"] + image["std"] * noise
        if kept is not None:
            latents = latents * kept.view(-1, 1, 1, 1, 1).to(latents)
        if every_frame:
            return Given(beside=latents.expand(-1, latents_shape[0], -1, -1, -1))
        beside = latents.new_zeros(len(latents), *latents_shape)
        beside[:, :1] = latents
        return Given(beside=beside)

    # ---- training

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        shift = OwnSetting(1.0, "all noise levels equally often, as CogVideoX was trained")
        own = {name: OwnSetting() for name in OWN_SETTINGS} | {"timestep_shift": shift}
        return {**super().own_settings(model), **own}

    def noise_schedule(
        self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED
    ) -> VelocitySchedule:
        shift = 1.0 if chosen.shift is None else chosen.shift
        return VelocitySchedule(self.load_scheduler(folder).alphas_cumprod.float().to(device), shift)

    def call(
        self,
        transformer: Any,
        latents: torch.Tensor,
        text: Tensors,
        timesteps: torch.Tensor,
        given: Given | None,
        fps: float,
    ) -> torch.Tensor:
        import torch

        config, (frames, _, height, width) = transformer.config, latents.shape[1:]
        tensors.check_positions(config, frames, height, width)
        if given is not None and given.beside is not None:
            latents = torch.cat([latents, given.beside], dim=self.channel_axis)
        predicted: torch.Tensor = transformer(
            hidden_states=latents,
            encoder_hidden_states=text["prompt_embeds"],
            timestep=timesteps,
            ofs=None if config.ofs_embed_dim is None else latents.new_full((1,), tensors.OFS),
            image_rotary_emb=tensors.rotary_embeddings(config, frames, height, width, latents.device),
            return_dict=False,
        )[0]
        return predicted

    # ---- sampling

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        made = self.load_scheduler(options.folder, options.scheduler)
        return sampling.SchedulerSteps(made, options.steps, options.device)

    def as_prefix(self, latents: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        prefix = tensors.without_padding(latents)
        return tensors.pad_front(prefix, prefix.shape[1] + tensors.padding(latents_shape[0]))

    def usage_extras(
        self, model: Model, folder: Path, shape: tuple[int, int, int], image_scale: ImageScale
    ) -> UsageExtras:
        return usage.extras(model, folder, shape, image_scale)

    # ---- other trainers' files

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        return sat.lora_to_diffusers(tensors) if sat.is_lora(tensors) else super().lora_weights(tensors, metadata)

    def convert(self, source: Path, target: Path, folder: Path, report: Report = print) -> str:
        return convert.convert(source, target, folder, report)

    def miniature(self, variant: str) -> tuple[Any, dict[str, int]]:
        return toys.miniature(variant), {}


def _moments(vae: Any, video: torch.Tensor, factor: float) -> Tensors:
    """{"mean", "std"}: [B, f, C, h, w] float32 of [B, 3, F, H, W], times a factor."""
    import torch

    with torch.no_grad():
        posterior = vae.encode(video.to(*device_and_dtype(vae))).latent_dist
    found = {"mean": posterior.mean, "std": posterior.std}
    return {name: value.float().permute(0, 2, 1, 3, 4).contiguous() * factor for name, value in found.items()}


def load_tokenizer(folder: Path) -> Any:
    """The T5 tokenizer; the published repositories hold it as `spiece.model` alone. Raises ModelUnavailable."""
    source = folder / "tokenizer"
    # transformers answers a missing file with a tokenizer that knows no words, or a misleading error.
    if not any((source / name).is_file() for name in ("tokenizer.json", "spiece.model")):
        raise ModelUnavailable(f"{source} holds neither tokenizer.json nor spiece.model: download the model again")
    return prompt_encoder.load_tokenizer(folder, "T5Tokenizer")


FAMILY = CogVideoX()
