"""What families have in common whose models are diffusers pipelines: loading by the classes that the folder names,
facts from configs and weights' heads, text through a T5, latents [B, C, f, h, w] from a causal video autoencoder, and
denoising steps as the scheduler says.

A family built on it brings its models, which layers see what, its noise schedule, the transformer's call, and what a
first frame becomes.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.errors import ConfigError
from workbench.families import architectures, lora_names, lora_writing, model_files
from workbench.families import usage as usage_code
from workbench.families.architectures import Part
from workbench.families.base import Family, ImageScale, OwnSetting
from workbench.families.denoising import DenoiseInputs, FlowSteps, SamplerSteps, StepOptions
from workbench.families.facts import Linear, ModelFacts, On, VaeFacts
from workbench.families.lora_files import EXPERT_KEY, LoraFormat, LoraWeights, experts_of
from workbench.families.lora_names import LayerNames
from workbench.families.lora_writing import Writer, Written
from workbench.families.model import Model, Task
from workbench.families.model_files import config, index
from workbench.families.model_inputs import CaptionTokens, Tensors
from workbench.families.prompt_encoder import PromptEncoder, counted, load_tokenizer
from workbench.families.usage import UsageExtras
from workbench.workspace import write_json

if TYPE_CHECKING:
    import torch

WEIGHTED = ("image_encoder", "text_encoder", "transformer", "transformer_2", "vae")
PRESERVATION_PROMPTS = (
    "A golden retriever runs along a beach at sunset, waves rolling in behind it.",
    "A woman in a red coat walks down a rainy city street at night, neon signs mirrored in the puddles.",
    "Steam rises from a cup of coffee on a wooden table beside a window.",
)


class DiffusersFamily(Family):
    """A family over diffusers' own classes; see Family for what each method promises."""

    pipelines: ClassVar[dict[str, Task]]  # the stock pipelines' classes; the first of a task is named on model cards
    text_tokens: ClassVar[int]  # of a caption, padding included, where the transformer's config does not say it
    timed_number: ClassVar[int] = 2  # bytes of a number that a timestep becomes in a block
    position_bytes: ClassVar[int] = 0  # for each token and unit of the width, of what stands for positions
    text_joint: ClassVar[bool] = False  # whether the caption's tokens stand beside the video's
    remedy: ClassVar[str] = "download it again"  # of a folder that lacks something
    scheduler_classes: ClassVar[Mapping[str, str]] = {}  # one of `schedulers` -> diffusers' class, if not the folder's
    shift_name: ClassVar[str] = "shift"  # of the noise levels, in the scheduler's config
    preservation_prompts: ClassVar[tuple[str, ...]] = PRESERVATION_PROMPTS
    # Which layers of the transformer do not see the video's tokens (whole names; a block's number is "{}"), and which
    # are given what another one before them is given.
    text_layers: ClassVar[str] = r".*\.attn2\.to_[kv]|(.*\.)?(caption|text)_\w+\..+"
    picture_layers: ClassVar[str] = r".*\.attn2\.add_[kv]_proj|(.*\.)?image_\w+\..+"
    clip_layers: ClassVar[str] = r"(.*\.)?(time|ofs)_\w+(\..+)?|.*norm\w*\.linear\w*"
    shared_layers: ClassVar[str] = r".*\.attn1\.to_[kv]"

    # ---- facts

    def describe_folder(self, folder: Path) -> Model | None:
        try:
            return self._fine_tuned(folder) or self.described(folder)
        except (AttributeError, KeyError, IndexError, RecursionError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {str(error)[:120]}"
            raise ConfigError(f"{folder} is no whole {self.title} model ({reason}): {self.remedy}") from error

    def _fine_tuned(self, folder: Path) -> Model | None:
        """The model in the folder of a run that trained all weights of a known model, of which all else is kept."""
        base = self.base_of(folder)
        if base is None:
            return None
        found = replace(
            base,
            id=str(folder),
            title=folder.name,
            source=str(folder),
            revision=None,
            variant="",
            aliases=(),
            local=True,
            embedded=False,
            download_gb=0.0,
        )
        return model_files.made_for(found, folder)

    def described(self, folder: Path) -> Model | None:
        """`describe_folder`, where any error means that the configs lack something."""
        task = self.pipelines.get(index(folder).get("_class_name", ""))
        if task is None:
            return None
        patch = self.patch(config(folder, "transformer"))[1]
        described = replace(
            self.like(folder),
            id=str(folder),
            title=folder.name,
            source=str(folder),
            revision=None,
            task=task,
            size_multiple=self.compression(config(folder, "vae"))[2] * patch,
            local=True,
            license="unknown",
            download_gb=0.0,
        )
        return model_files.made_for(described, folder)

    def like(self, folder: Path) -> Model:
        """The published model that a folder of this family is most like: what is not in its configs is as there."""
        return self.models[0]

    def weighted_parts(self, model: Model) -> tuple[str, ...]:
        if (known := architectures.published().get(model.source)) is not None:
            return tuple(known.parts)
        folder = Path(model.source) if model.local else model_files.find_configs(model.source, model.revision)
        if folder is None:
            return super().weighted_parts(model)
        return tuple(part for part in WEIGHTED if index(folder).get(part, [None])[0])

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        # What the model learns is a prediction of the same shape: the base model's can stand in its place.
        return {"regularization_target": OwnSetting()}

    def facts(self, model: Model) -> ModelFacts:
        return self.facts_of(model, self.on_disk(model))

    def facts_of(self, model: Model, folder: Path | None) -> ModelFacts:
        """The model's sizes from the files in a folder; None: as published, or from its configs alone."""
        found = architectures.architecture(model, folder, self.weighted_parts(model))
        transformer, text = found.parts["transformer"], found.parts["text_encoder"]
        channels, temporal, spatial = self.compression(found.parts["vae"].config)
        patch_frames, patch = self.patch(transformer.config)
        heads, in_channels = (transformer.config[name] for name in ("num_attention_heads", "in_channels"))
        picture = found.parts.get("image_encoder")
        return ModelFacts(
            stored=found.stored,
            blocks=transformer.blocks,
            width=heads * transformer.config["attention_head_dim"],
            heads=heads,
            text_tokens=self.text_length(transformer.config),
            text_width=text.config.get("d_model") or text.config["hidden_size"],
            values=transformer.values,
            linears=tuple(self._linear(name, *sizes) for name, sizes in transformer.layers.items()),
            text_encoder_values=text.values,
            vae=self.vae_facts(found.parts["vae"]),
            spatial=spatial,
            temporal=temporal,
            patch=patch,
            patch_frames=patch_frames,
            channels=channels,
            in_channels=in_channels,
            presets=self.lora_targets,
            on_disk=folder is not None,
            text_joint=self.text_joint,
            timed_bytes=self.timed_number * (model.task == "image-to-video" and in_channels == channels),
            position_bytes=self.positions(transformer.config),
            picture_tokens=_picture_tokens(picture.config) if picture else 0,
            image_encoder_values=picture.values if picture else 0,
            auto=self.auto_dtype(found.stored),
            float32_vae=self.float32_vae,
        )

    def _linear(self, name: str, inputs: int, outputs: int) -> Linear:
        patterns: dict[str, On] = {self.text_layers: "text", self.picture_layers: "picture", self.clip_layers: "clip"}
        on: On = next((on for pattern, on in patterns.items() if re.fullmatch(pattern, name)), "video")
        return Linear(name, inputs, outputs, on, re.fullmatch(self.shared_layers, name) is not None)

    def patch(self, transformer: Mapping[str, Any]) -> tuple[int, int]:
        """(frames, pixels in a row) of latents that one token stands for, of a transformer's config."""
        size = transformer["patch_size"]
        return (transformer.get("patch_size_t") or 1, size) if isinstance(size, int) else (size[0], size[1])

    def positions(self, transformer: Mapping[str, Any]) -> int:
        """Bytes for each token and unit of the width, of what stands for positions, of a transformer's config."""
        return self.position_bytes

    def text_length(self, transformer: Mapping[str, Any]) -> int:
        """Tokens of a caption, padding included, of a transformer's config."""
        return int(transformer.get("max_text_seq_length") or self.text_tokens)

    @abstractmethod
    def compression(self, vae: Mapping[str, Any]) -> tuple[int, int, int]:
        """(channels of latents, frames and pixels in a row that one latent stands for) of a VAE's config."""

    @abstractmethod
    def vae_facts(self, vae: Part) -> VaeFacts:
        """What a VAE needs memory for."""

    def cleaned(self, caption: str) -> str:
        """A caption as the stock pipelines clean it."""
        return caption

    # ---- captions

    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        if not captions:
            return []
        limit = self.caption_length(folder)
        return counted(self.load_tokenizer(folder), [self.cleaned(caption) for caption in captions], limit)

    def caption_length(self, folder: Path) -> int:
        """Tokens of a caption, padding included, as the folder's stock pipeline reads them."""
        return self.text_length(config(folder, "transformer"))

    def load_tokenizer(self, folder: Path) -> Any:
        """The tokenizer of the folder. Raises ModelUnavailable."""
        return load_tokenizer(folder)

    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> PromptEncoder:
        model = self._part(folder, "text_encoder", device, dtype)
        return PromptEncoder(self.load_tokenizer(folder), model, self.caption_length(folder))

    def no_text(self, text: Tensors) -> Tensors:
        """Zeros, as many as the caption has tokens: with no token at all there is nothing to look at."""
        return {name: tensor if name == "mask" else tensor.new_zeros(tensor.shape) for name, tensor in text.items()}

    # ---- loading

    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        return self._part(folder, "vae", device, dtype)

    def load_transformer(
        self, folder: Path, device: torch.device, dtype: torch.dtype, part: str = "transformer"
    ) -> Any:
        return self._part(folder, part, device, dtype)

    def _part(self, folder: Path, name: str, device: torch.device, dtype: torch.dtype) -> Any:
        """A part with weights, of the class that model_index.json names, frozen."""
        import torch

        library, kind = index(folder)[name]
        model = model_files.class_named(library, kind).from_pretrained(folder / name, dtype=dtype, use_safetensors=True)
        for buffer in model.buffers():
            if buffer.dtype == torch.float64:  # CogVideoX 2B's positions, which diffusers casts in every step
                buffer.data = buffer.data.to(dtype)
        return model.to(device).eval().requires_grad_(False)

    def load_pipeline(self, folder: Path, transformer: Any) -> Any:
        named = index(folder)
        parts = {name: None for name, value in named.items() if isinstance(value, list)}
        more = {name: value for name, value in named.items() if name[0] != "_" and not isinstance(value, list)}
        return model_files.class_named("diffusers", named["_class_name"])(
            **{**parts, **more, "scheduler": self.load_scheduler(folder), "transformer": transformer}
        )

    def load_scheduler(self, folder: Path, name: str = "model", shift: float | None = None) -> Any:
        """A scheduler by one of `schedulers`; "model": the one that the folder has. shift: None for its own"""
        kind = self.scheduler_classes.get(name) or index(folder)["scheduler"][1]
        more = {} if shift is None else {self.shift_name: shift}
        return model_files.class_named("diffusers", kind).from_pretrained(folder / "scheduler", **more)

    # ---- what makes a transformer cheaper

    def blocks(self, transformer: Any) -> Sequence[Any]:
        found = getattr(transformer, "blocks", None)
        return list(transformer.transformer_blocks if found is None else found)

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        from workbench.families.attention.kernels import check_kernel

        backend = {"auto": "native", "stock": "native", "math": "_native_math", "flash": "_native_flash"}
        backend |= {"efficient": "_native_efficient", "cudnn": "_native_cudnn"}
        check_kernel(kernel, device)
        if kernel not in backend:
            sentence = f"attention is {kernel}, which {self.title} cannot use: choose auto"
            raise ConfigError(sentence, {"attention": sentence})
        transformer.set_attention_backend(backend[kernel])

    def join_projections(self, transformer: Any) -> None:
        """Nothing is joined: the layers stay as diffusers has them."""

    # ---- latents

    def sample_latents(self, moments: Tensors, noise: torch.Tensor) -> torch.Tensor:
        return moments["mean"] + moments["std"] * noise

    def posterior_noise(self, moments: Tensors, noise: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
        import torch

        if "mean" not in moments or not moments["std"].any():  # nothing is sampled
            return torch.zeros_like(next(iter(moments.values())))
        mean = self.channels_first(moments["mean"])
        sampled = torch.randn(mean.shape, generator=noise, dtype=dtype)
        return self.channels_first(sampled).to(mean.device)

    def channels_first(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents [B, ...] in the family's order as a VAE has them, [B, C, f, h, w]; the other way round, too."""
        return latents if self.frame_axis == 2 else latents.transpose(1, 2)

    def encode_video(self, vae: Any, video: torch.Tensor) -> Tensors:
        """{"mean", "std"}: [B, C, f, h, w] float32, normalised per channel."""
        import torch

        with torch.no_grad():
            posterior = vae.encode(video.to(*device_and_dtype(vae))).latent_dist
        center, spread = (tensor.float() for tensor in self.latent_scale(vae))
        std = posterior.std.float() / spread
        return {"mean": (posterior.mean.float() - center) / spread, "std": self.posterior_share * std}

    posterior_share: ClassVar[float] = 1.0  # 0: the authors train on the posterior's mean

    def latent_scale(self, vae: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """(mean, deviation) by which latents are normalised, [1, C, 1, 1, 1], on the VAE's device."""
        import torch

        found, (device, _) = (vae.config.latents_mean, vae.config.latents_std), device_and_dtype(vae)
        mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1, 1) for values in found)
        return mean, std

    def decode(self, vae: Any, latents: torch.Tensor, noise: torch.Generator | None = None) -> torch.Tensor:
        import torch

        device, dtype = device_and_dtype(vae)
        mean, std = (tensor.to(device).float() for tensor in self.latent_scale(vae))
        with torch.no_grad():
            scaled = (latents.to(device).float() * std + mean).to(dtype)
            return self.decoded(vae, scaled, noise).float().clamp(-1, 1)

    def decoded(self, vae: Any, latents: torch.Tensor, noise: torch.Generator | None) -> torch.Tensor:
        """The VAE's own answer to latents that are no longer normalised."""
        video: torch.Tensor = vae.decode(latents, return_dict=False)[0]
        return video

    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> tuple[int, ...]:
        channels, temporal, spatial = self.compression(config(folder, "vae"))
        return channels, (frames - 1) // temporal + 1, height // spatial, width // spatial

    # ---- sampling

    def check_inputs(self, transformer: Any, inputs: DenoiseInputs) -> None:
        own, given = transformer.config, inputs.given
        takes = own.in_channels != (own.out_channels or own.in_channels)
        if takes and given is None:
            raise ConfigError("this model starts from a first frame: give an image")
        if given is not None and given.beside is not None and not takes:
            raise ConfigError("this model takes text alone: leave out the image, or choose one for images")
        super().check_inputs(transformer, inputs)

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        made = self.load_scheduler(options.folder, options.scheduler, options.shift)
        return FlowSteps(made, options.steps, options.device)

    # ---- files of other trainers

    layer_names: ClassVar[LayerNames]  # spellings of the layers' names
    lora_prefix = lora_writing.PREFIX
    lora_formats: ClassVar[tuple[LoraFormat, ...]] = lora_writing.FORMATS
    lora_writers: ClassVar[Mapping[str, Writer]] = lora_writing.WRITERS  # by the ids of `lora_formats`

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        found, experts = lora_names.read(self.layer_names, tensors, metadata), experts_of(tensors, metadata)
        return replace(found, expert=experts[0]) if len(experts) == 1 else found

    def export_lora(self, lora: LoraWeights, format: str) -> Written:
        found, metadata = lora_writing.export(lora, format, self.lora_writers)
        return found, {**metadata, **({EXPERT_KEY: lora.expert} if lora.expert else {})}

    # ---- the rest

    def usage(
        self,
        model: Model,
        folder: Path,
        lora: str,
        prompt: str,
        shape: tuple[int, int, int],
        image_scale: ImageScale = "pipeline",
        experts: Sequence[str] = (),
    ) -> str:
        pipeline = model.pipeline or next(name for name, task in self.pipelines.items() if task == model.task)
        extras = self.usage_extras(model, folder, shape, image_scale)
        return usage_code.code(pipeline, model, lora, prompt, shape, extras, experts)

    def usage_extras(
        self, model: Model, folder: Path, shape: tuple[int, int, int], image_scale: ImageScale
    ) -> UsageExtras:
        """What the stock pipeline needs beside the common lines to do what training did."""
        return UsageExtras()

    def toy(self, folder: Path, variant: str) -> Model:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            pipeline, sizes = self.miniature(variant)
            pipeline.save_pretrained(folder)
        if sizes:
            write_json(folder / model_files.MADE_FOR, sizes)
        model = self.describe_folder(folder)
        assert model is not None
        return model

    def miniature(self, variant: str) -> tuple[Any, dict[str, Any]]:
        """(a random pipeline of one of `toys`, the frames, height and width it is made for where no config says it)

        For `toy`, which a family may write itself instead.
        """
        raise NotImplementedError


def device_and_dtype(vae: Any) -> tuple[torch.device, torch.dtype]:
    """Where a VAE computes, and in what: a pipeline that moves its parts keeps it elsewhere in between."""
    weight = next(vae.parameters())  # the VAE's own `device` and `dtype` walk through all its modules: 1 ms each
    hook = getattr(vae, "_hf_hook", None)
    return getattr(hook, "execution_device", None) or weight.device, weight.dtype


def _picture_tokens(encoder: Mapping[str, Any]) -> int:
    """Of a vision transformer's config: its patches, and one for the whole."""
    return int((encoder["image_size"] // encoder["patch_size"]) ** 2 + 1)
