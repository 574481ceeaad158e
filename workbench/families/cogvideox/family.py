"""The CogVideoX family: what `families.base.Family` promises, for 1.0 and 1.5, text-to-video and image-to-video.

Sources: CogVideoX (arXiv 2408.06072); SAT's VideoDiffusionLoss and diffusers' two pipelines, which this equals: latents
[B, F, C, H, W] are scaled by the VAE's factor; the transformer predicts velocity; timesteps are uniform integers; the
schedule is scaled-linear with zero terminal SNR; image-to-video puts the first frame's latents beside the first latent
frame, zeros beside the others. What differs between the sizes (factors, rotary grids, learned positions,
`patch_size_t`, `ofs`, text length) is read from the model's own configs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.families.base import CaptionTokens, Family, ImageScale, Model, OnStep, Report, Tensors
from workbench.families.cogvideox import convert, facts, files, lora_formats, loras, tensors, toys, usage
from workbench.families.cogvideox.models import MODELS, PIPELINES, PRESERVATION_PROMPTS, describe
from workbench.families.cogvideox.sampling import Denoising, call
from workbench.families.facts import ModelFacts
from workbench.families.guidance import Guidance
from workbench.families.lora_files import LoraWeights

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TextEncoder:
    """Tokenizer and T5 encoder, with the number of tokens the transformer expects."""

    tokenizer: Any
    model: Any
    max_length: int

    def to(self, device: torch.device) -> TextEncoder:
        self.model.to(device)
        return self


class CogVideoX(Family):
    """The CogVideoX family; see Family for what each method promises."""

    name = "cogvideox"
    title = "CogVideoX"
    models = MODELS
    lora_targets = {
        "attention": ("to_q", "to_k", "to_v", "to_out.0"),
        "attention+feed-forward": ("to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2"),
    }
    lora_prefix = "transformer"
    lora_formats = lora_formats.FORMATS
    schedulers = ("DDIM", "DPM")
    timesteps = 1000
    toys = toys.TOYS
    preservation_prompts = PRESERVATION_PROMPTS
    image_noise = (-3.0, 0.5)

    # ---- files

    def describe_folder(self, folder: Path) -> Model | None:
        return describe(folder)

    def fetch(self, model: Model, report: Report = print) -> Path:
        return files.fetch(model, report)

    def on_disk(self, model: Model) -> Path | None:
        return files.on_disk(model)

    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        if not captions:
            return []
        limit = files.config(folder, "transformer")["max_text_seq_length"]
        found = files.load_tokenizer(folder)(list(captions), return_offsets_mapping=True, verbose=False)
        counted = []
        for caption, ids, offsets in zip(captions, found.input_ids, found.offset_mapping, strict=True):
            # Truncation keeps the closing token, so the last offset is not the caption's.
            cut = caption[offsets[limit - 2][1] :].strip() if len(ids) > limit else ""
            counted.append(CaptionTokens(len(ids), limit, cut))
        return counted

    def stored_dtype(self, folder: Path) -> str:
        return files.stored_dtype(folder)

    def facts(self, model: Model) -> ModelFacts:
        return facts.facts(model, files.on_disk(model), self.lora_targets)

    # ---- loading

    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> TextEncoder:
        from transformers import T5EncoderModel

        model = T5EncoderModel.from_pretrained(folder / "text_encoder", dtype=dtype, use_safetensors=True)
        return TextEncoder(
            files.load_tokenizer(folder),
            model.to(device).eval().requires_grad_(False),
            files.config(folder, "transformer")["max_text_seq_length"],
        )

    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        from diffusers.models.autoencoders.autoencoder_kl_cogvideox import AutoencoderKLCogVideoX

        vae = AutoencoderKLCogVideoX.from_pretrained(folder / "vae", dtype=dtype, use_safetensors=True)
        return vae.to(device).eval().requires_grad_(False)

    def load_transformer(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        from diffusers.models.transformers.cogvideox_transformer_3d import CogVideoXTransformer3DModel

        transformer = CogVideoXTransformer3DModel.from_pretrained(
            folder / "transformer", dtype=dtype, use_safetensors=True
        )
        tensors.keep_learned_positions(transformer)
        return transformer.to(device).eval().requires_grad_(False)

    # ---- what makes a transformer cheaper

    def blocks(self, transformer: Any) -> Sequence[Any]:
        return list(transformer.transformer_blocks)

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        from workbench.families.cogvideox import attention

        attention.use_attention(transformer, kernel, device)

    def join_projections(self, transformer: Any) -> None:
        from workbench.families.cogvideox import attention

        attention.join_projections(transformer)

    def load_pipeline(self, folder: Path, transformer: Any) -> Any:
        import diffusers

        name = files.index(folder)["_class_name"]
        assert name in PIPELINES, f"{folder} holds a {name}"
        return getattr(diffusers, name)(
            tokenizer=None, text_encoder=None, vae=None, transformer=transformer, scheduler=files.load_scheduler(folder)
        )

    # ---- encoding

    def encode_text(self, text_encoder: TextEncoder, captions: Sequence[str]) -> Tensors:
        """{"prompt_embeds": [B, tokens, D]}. Padding tokens are embedded too: the model was trained without a mask."""
        import torch

        tokens = text_encoder.tokenizer(
            list(captions),
            padding="max_length",
            max_length=text_encoder.max_length,
            truncation=True,
            add_special_tokens=True,
            return_tensors="pt",
        )
        with torch.no_grad():
            return {"prompt_embeds": text_encoder.model(tokens.input_ids.to(text_encoder.model.device))[0]}

    def encode_video(self, vae: Any, video: torch.Tensor) -> Tensors:
        """{"mean", "std"}: [B, f, C, h, w] float32, times the scaling factor: latents are mean + std * noise."""
        return tensors.moments(_encode(vae, video), vae.config.scaling_factor)

    def sample_latents(self, moments: Tensors, noise: torch.Tensor) -> torch.Tensor:
        frames = moments["mean"].shape[1]
        latents = moments["mean"] + moments["std"] * noise[:, noise.shape[1] - frames :]
        return tensors.pad_front(latents, noise.shape[1])

    def posterior_noise(self, moments: Tensors, noise: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
        """Stock pipelines sample it channels first."""
        import torch

        count, frames, channels, height, width = moments["mean"].shape
        sampled = torch.randn(count, channels, frames, height, width, generator=noise, dtype=dtype)
        return sampled.permute(0, 2, 1, 3, 4).to(moments["mean"].device)

    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> tuple[int, ...]:
        vae, transformer = files.config(folder, "vae"), files.config(folder, "transformer")
        spatial = 2 ** (len(vae["block_out_channels"]) - 1)
        latent_frames = (frames - 1) // int(vae["temporal_compression_ratio"]) + 1
        return (
            tensors.padded_frames(latent_frames, transformer.get("patch_size_t")),
            transformer["out_channels"],
            height // spatial,
            width // spatial,
        )

    def decode(self, vae: Any, latents: torch.Tensor) -> torch.Tensor:
        import torch

        clip = tensors.without_padding(latents).permute(0, 2, 1, 3, 4)
        with torch.no_grad():
            unscaled = 1 / vae.config.scaling_factor * clip.to(*_device_and_dtype(vae))
            return vae.decode(unscaled).sample.float().clamp(-1, 1)

    # ---- image-to-video

    def encode_image(self, vae: Any, images: torch.Tensor, scale: ImageScale) -> Tensors:
        """{"mean", "std"}: [B, 1, C, h, w] float32. The scale is that of the stock pipeline, or none at all."""
        return tensors.moments(_encode(vae, images.unsqueeze(2)), tensors.image_factor(vae.config, scale))

    def image_condition(
        self, image: Tensors, noise: torch.Tensor, latents_shape: tuple[int, ...], every_frame: bool = False
    ) -> torch.Tensor:
        return tensors.image_condition_of(image["mean"] + image["std"] * noise, latents_shape, every_frame)

    # ---- training

    def noise_schedule(self, folder: Path, device: torch.device) -> torch.Tensor:
        """alphas_cumprod [1000], float32: in bfloat16 the first timesteps would hold no noise at all."""
        return files.load_scheduler(folder).alphas_cumprod.float().to(device)

    def predict(
        self,
        transformer: Any,
        schedule: torch.Tensor,
        latents: torch.Tensor,
        text: Tensors,
        noise: torch.Tensor,
        timesteps: torch.Tensor,
        condition: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The predicted velocity, shaped as the latents."""
        import torch

        config, (frames, _, height, width) = transformer.config, latents.shape[1:]
        tensors.check_positions(config, frames, height, width)
        signal, sigma = tensors.signal_and_sigma(schedule, timesteps)
        noisy = signal * latents.to(schedule.dtype) + sigma * noise.to(schedule.dtype)
        if condition is not None:
            noisy = torch.cat([noisy, condition.to(schedule.dtype)], dim=2)
        dtype = transformer.dtype
        return call(transformer, noisy.to(dtype), text["prompt_embeds"].to(dtype), timesteps)

    def loss(
        self,
        transformer: Any,
        schedule: torch.Tensor,
        latents: torch.Tensor,
        text: Tensors,
        noise: torch.Tensor,
        timesteps: torch.Tensor,
        condition: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Velocity MSE. Equals the published 1/(1-a) * (x0_hat - x0)^2 exactly, since the two differ by that factor."""
        predicted = self.predict(transformer, schedule, latents, text, noise, timesteps, condition)
        signal, sigma = tensors.signal_and_sigma(schedule, timesteps)
        velocity = signal * noise.to(schedule.dtype) - sigma * latents.to(schedule.dtype)
        return (predicted.to(schedule.dtype) - velocity).square().flatten(1).mean(1)

    def min_snr_weights(self, schedule: torch.Tensor, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
        """min(snr, gamma) / (snr + 1): the form for predicted velocity; snr = a / (1 - a)."""
        alpha = schedule[timesteps]
        # Multiplied out by (1 - a), so that nothing divides by zero where there is no noise or no signal.
        return alpha.minimum(gamma * (1 - alpha))

    # ---- sampling

    def denoise(
        self,
        transformer: Any,
        folder: Path,
        *,
        text: Tensors,
        negative_text: Tensors | None,
        latents_shape: tuple[int, ...],
        steps: int,
        scheduler: str,
        guidance: Guidance,
        noise: torch.Generator,
        on_step: OnStep,
        condition: torch.Tensor | None = None,
        prefix: torch.Tensor | None = None,
        source: torch.Tensor | None = None,
        strength: float = 1.0,
        sequential_guidance: bool = False,
        skip_steps: bool = False,
    ) -> torch.Tensor:
        denoising = Denoising(
            transformer,
            files.load_scheduler(folder, scheduler),
            text["prompt_embeds"],
            negative_text["prompt_embeds"] if negative_text is not None else None,
            latents_shape,
            guidance,
            noise,
            condition,
            prefix,
            source,
            sequential_guidance,
            skip_steps,
        )
        denoising.check()
        return denoising.run(steps, strength, on_step)

    def usage(
        self,
        model: Model,
        folder: Path,
        lora: str,
        prompt: str,
        shape: tuple[int, int, int],
        image_scale: ImageScale = "pipeline",
    ) -> str:
        return usage.code(model, folder, lora, prompt, shape, image_scale)

    # ---- other trainers' files

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        return loras.read(tensors, metadata)

    def export_lora(self, lora: LoraWeights, format: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        return lora_formats.export(lora, format)

    def lora_tensors(self, path: Path) -> tuple[Tensors, Mapping[str, str]]:
        return convert.lora_tensors(path)

    def convert(self, source: Path, target: Path, folder: Path, report: Report = print) -> str:
        return convert.convert(source, target, folder, report)

    def toy(self, folder: Path, variant: str) -> Model:
        toys.write(folder, variant)
        model = describe(folder)
        assert model is not None
        return model


def _encode(vae: Any, video: torch.Tensor) -> Any:
    """What the VAE says of [B, 3, F, H, W]."""
    import torch

    with torch.no_grad():
        return vae.encode(video.to(*_device_and_dtype(vae))).latent_dist


def _device_and_dtype(vae: Any) -> tuple[torch.device, torch.dtype]:
    """Where the VAE computes, and in what: a pipeline that moves its parts keeps it elsewhere in between."""
    weight = next(vae.parameters())  # the VAE's own `device` and `dtype` walk through all its modules: 1 ms each
    hook = getattr(vae, "_hf_hook", None)
    return getattr(hook, "execution_device", None) or weight.device, weight.dtype


FAMILY = CogVideoX()
