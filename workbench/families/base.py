"""The contract between a video model family and everything else, with the defaults of families over diffusers' models.

A family states facts (usable without torch) and offers methods (torch and diffusers are imported inside them). Nothing
outside `families/` knows a family's tensors: they cross the border in three dicts whose keys only the family knows:
`moments` (the VAE's output for a clip), `text` (the text encoder's output for a caption) and the batch made of both.
Randomness is an argument everywhere: the caller samples.

The defaults load parts by the classes that a folder names, read facts from configs and weights' heads, and know latents
[B, C, f, h, w] of a causal video autoencoder and the steps of a flow-matching scheduler. A family brings its models,
which layers see what, its noise schedule, the transformer's call, and what a first frame becomes.

Shapes: B clips, F frames, H x W pixels; latents are the family's own affair, `latents_shape` tells their shape.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from workbench.errors import ConfigError, ModelUnavailable
from workbench.families import facts, lora_names, lora_writing, model_files, usage
from workbench.families.denoising import DenoiseInputs, Denoising, FlowSteps, SamplerSteps, StepOptions
from workbench.families.facts import Linear, ModelFacts, On, Part, VaeFacts
from workbench.families.lora_files import EXPERT_KEY, LoraWeights, experts_of, read_lora
from workbench.families.lora_names import ATTENTION, FEED_FORWARD, LayerNames
from workbench.families.lora_writing import LoraFormat, Written
from workbench.families.model import Model, Task
from workbench.families.model_files import config, index
from workbench.families.model_inputs import (
    CallInputs,
    CaptionTokens,
    Given,
    ModelInputs,
    PromptEncoder,
    Tensors,
    counted,
    load_tokenizer,
)
from workbench.families.noise_schedules import AS_PUBLISHED, FlowSchedule, NoiseSchedule, NoiseSettings
from workbench.families.recipes import Recipe, recipes_of
from workbench.families.told import BESIDE, NAMES, Told
from workbench.families.usage import UsageExtras
from workbench.settings import Settings
from workbench.workspace import write_json

if TYPE_CHECKING:
    import torch

ImageScale = Literal["pipeline", "raw"]  # how a first frame's latents are scaled: as the stock pipeline does, or not
Report = Callable[[str], None]
WEIGHTED = ("image_encoder", "text_encoder", "transformer", "transformer_2", "vae")
BACKENDS = {  # diffusers' attention backends by the values of the setting `attention`
    "auto": "native",
    "stock": "native",
    "math": "_native_math",
    "flash": "_native_flash",
    "efficient": "_native_efficient",
    "cudnn": "_native_cudnn",
}
PRESERVATION_PROMPTS = (
    "A golden retriever runs along a beach at sunset, waves rolling in behind it.",
    "A woman in a red coat walks down a rainy city street at night, neon signs mirrored in the puddles.",
    "Steam rises from a cup of coffee on a wooden table beside a window.",
)


@dataclass(frozen=True)
class OwnSetting:
    """A setting that only some models have.

    default: what an empty one stands for, None where the setting's own default says it
    source:  where that value comes from, for people: "as the authors generate"
    """

    default: Any = None
    source: str = ""

    def __str__(self) -> str:
        """The value with its source, as forms show it in an empty field."""
        value = f"{self.default:g}" if isinstance(self.default, int | float) else str(self.default or "")
        return f"{value} ({self.source})" if self.source else value


class Family(ABC):
    """One architecture with its models. Subclasses are stateless; one instance each, named FAMILY in its module."""

    name: ClassVar[str]
    title: ClassVar[str]
    models: ClassVar[tuple[Model, ...]]
    pipelines: ClassVar[dict[str, Task]]  # the stock pipelines' classes; the first of a task is named on model cards
    has_pipeline: ClassVar[bool] = True  # diffusers has a pipeline that generates with its models
    remedy: ClassVar[str] = "download it again"  # of a folder that lacks something
    toys: ClassVar[tuple[str, ...]]  # the variants `toy` can write, those aside that no stock pipeline generates with
    new_model: ClassVar[type[Settings] | None] = None  # the sizes that `create` takes; None: nothing is trained anew
    # What a LoRA should leave alone, where a model has no prompts of its own.
    preservation_prompts: ClassVar[tuple[str, ...]] = PRESERVATION_PROMPTS

    # Of latents [B, ...]; a condition's channels are joined on `channel_axis`.
    channel_axis: ClassVar[int] = 1
    frame_axis: ClassVar[int] = 2
    posterior_share: ClassVar[float] = 1.0  # 0: the authors train on the posterior's mean

    text_tokens: ClassVar[int]  # of a caption, padding included, where the transformer's config does not say it
    text_mask: ClassVar[bool] = False  # whether `encode_text` also returns a mask
    text_joint: ClassVar[bool] = False  # whether the caption's tokens stand beside the video's
    timed_number: ClassVar[int] = 2  # bytes of a number that a timestep becomes in a block
    position_bytes: ClassVar[int] = 0  # for each token and unit of the width, of what stands for positions
    # Which layers of the transformer do not see the video's tokens (whole names; a block's number is "{}"), and which
    # are given what another one before them is given.
    text_layers: ClassVar[str] = r".*\.attn2\.to_[kv]|(.*\.)?(caption|text)_\w+\..+"
    picture_layers: ClassVar[str] = r".*\.attn2\.add_[kv]_proj|(.*\.)?image_\w+\..+"
    clip_layers: ClassVar[str] = r"(.*\.)?(time|ofs)_\w+(\..+)?|.*norm\w*\.linear\w*"
    shared_layers: ClassVar[str] = r".*\.attn1\.to_[kv]"

    # Mean and deviation of log sigma, the noise put on a first frame at each step; None: a picture is encoded once.
    image_noise: ClassVar[tuple[float, float] | None] = None
    # How often an image-to-video model is trained without its picture: as CogVideoX was.
    image_dropout: ClassVar[float] = 0.05
    # Whether latents stay float32 between denoising steps and only the transformer's input is cast, as in the family's
    # stock pipelines.
    float32_latents: ClassVar[bool] = False
    # Whether the VAE and the image encoder compute in float32 whatever the transformer does.
    float32_vae: ClassVar[bool] = False
    # What a transformer stored in float32 computes in on a GPU where precision is `auto`.
    auto_for_float32: ClassVar[str] = "float32"

    schedulers: ClassVar[tuple[str, ...]]
    scheduler_classes: ClassVar[Mapping[str, str]] = {}  # one of `schedulers` -> diffusers' class, if not the folder's
    stock_kinds: ClassVar[tuple[str, ...]] = ("first",)  # of `told`, that the stock pipelines take
    shift_name: ClassVar[str] = "shift"  # of the noise levels, in the scheduler's config

    # preset -> ends of layers' names
    lora_targets: ClassVar[dict[str, tuple[str, ...]]] = {
        "attention": ATTENTION,
        "attention+feed-forward": (*ATTENTION, *FEED_FORWARD),
    }
    layer_names: ClassVar[LayerNames]  # spellings of the layers' names
    lora_prefix: ClassVar[str] = lora_writing.PREFIX  # first part of every tensor's name in a LoRA file
    lora_formats: ClassVar[tuple[LoraFormat, ...]] = lora_writing.FORMATS  # for `export_lora`, diffusers' own first

    # ---- files

    def describe_folder(self, folder: Path) -> Model | None:
        """A model from a folder in diffusers' layout, facts read from its own configs; None if it is not ours.

        Raises ConfigError for configs that lack what is needed.
        """
        try:
            base = self.base_of(folder)
            if base is not None:  # a run trained all weights of a known model, of which all else is kept
                return model_files.made_for(base.in_folder(folder), folder)
            if (task := self.pipelines.get(index(folder).get("_class_name", ""))) is None:
                return None
            patch = self.patch(self.sizes(config(folder, "transformer")))[1]
            multiple = self.compression(config(folder, "vae"))[2] * patch
            like = replace(self.like(folder), task=task, size_multiple=multiple, license="unknown")
            return model_files.made_for(like.in_folder(folder), folder)
        except ModelUnavailable as error:
            raise ConfigError(str(error)) from error
        except (AttributeError, KeyError, IndexError, RecursionError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {str(error)[:120]}"
            raise ConfigError(f"{folder} is no whole {self.title} model ({reason}): {self.remedy}") from error

    def like(self, folder: Path) -> Model:
        """The published model that a folder of this family is most like: what is not in its configs is as there."""
        return self.models[0]

    def weighted_parts(self, model: Model) -> tuple[str, ...]:
        """The folders of a model that hold weights."""
        if (known := facts.published().get(model.source)) is not None:
            return tuple(known.parts)
        folder = Path(model.source) if model.local else model_files.find_configs(model.source, model.revision)
        if folder is None:
            return "text_encoder", *(expert.part for expert in model.experts), "vae"
        return tuple(part for part in WEIGHTED if index(folder).get(part, [None])[0])

    def fetch(self, model: Model, report: Report = print) -> Path:
        """The folder with the model's files, downloaded at the pinned revision if need be.

        A full fine-tune whose base model has moved is linked to it again. Raises ModelUnavailable, CannotWrite.
        """
        base = self.base_of(Path(model.source)) if model.local else None
        if base is not None and not model_files.is_complete(folder := Path(model.source)):
            model_files.link_parts(folder, self.fetch(base, report), model_files.trained_part(folder))
        return model_files.fetch(model, self.weighted_parts(model), report)

    def base_of(self, folder: Path) -> Model | None:
        """The known model that the folder holds a full fine-tune of, None for any other folder."""
        name = model_files.base_model(folder)
        return next((model for model in self.models if model.id == name), None) if name else None

    def on_disk(self, model: Model) -> Path | None:
        """The folder with the model's files where nothing needs to be downloaded, else None."""
        return model_files.find(model, self.weighted_parts(model))

    def create(self, folder: Path, new: Settings, text: Path, made_for: Mapping[str, int], seed: int) -> None:
        """Write a model of random weights, with sizes of the class `new_model`. Raises ConfigError.

        text: the folder of a model whose text encoder is copied;  made_for: frames, height, width and fps
        """
        raise NotImplementedError

    # ---- facts

    def recipes(self, model: Model) -> tuple[Recipe, ...]:
        """What LoRAs on the model were trained with, by subject; () where nothing is known."""
        return recipes_of(model.recipes or self.name)

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        """The settings marked `own` that the model has, and what an empty one stands for."""
        kinds = self.given_kinds(model)
        # Settings of runs and samples, by the kinds that they are for.
        of = {"given": NAMES, "last_image": ("last", "first+last"), "keyframes": ("keyframes",), "mask": ("mask",)}
        of |= {"mask_keeps": ("mask",), "tell_frames": ("prefix",), "continue_to": ("suffix",)}
        of |= {"following_frames": ("suffix",), **{name: (name,) for name in BESIDE}}
        of |= {"reference_downscale": ("reference",)}
        told = {setting for setting, names in of.items() if any(kinds.get(name) == "" for name in names)}
        # What the model learns is a prediction of the same shape: the base model's can stand in its place. Its loss is
        # one of cells in place and time, so a mask can weigh them.
        own = {"regularization_target": OwnSetting(), "loss_mask": OwnSetting()}
        return own | {name: OwnSetting() for name in sorted(told)}

    def given_kinds(self, model: Model) -> Mapping[str, str]:
        """What the model can be told of a clip beforehand: see `told`.

        Returns:
            For a kind of `told.NAMES` and `told.BESIDE`, and for "nothing": "" where it can be told so, else the reason
            why not, which goes on after the model's title. A kind that is missing cannot be told.
        """
        return {}

    def refusal(self, model: Model, kind: str) -> str:
        """Why the model cannot be told a kind, a whole sentence without its end; "" where it can."""
        kinds = self.given_kinds(model)
        able = [name for name in (*NAMES, *BESIDE) if kinds.get(name) == ""]
        reason = kinds.get(kind, f"can be told {', '.join(able)} alone" if able else "takes no frames beforehand")
        return reason and f"{model.title} {reason}"

    def part_config(self, model: Model, part: str) -> Mapping[str, Any]:
        """The config of one of a model's parts, of its files or as published; {} where neither is at hand."""
        if (known := facts.published().get(model.source)) is not None:
            return known.parts[part].config
        folder = Path(model.source) if model.local else model_files.find_configs(model.source, model.revision)
        if folder is None or not (model_files.part_folder(folder, part) / "config.json").is_file():
            return {}
        return config(folder, part)

    def facts(self, model: Model) -> ModelFacts:
        """The model's sizes: from its files where they are on the disk, else as published. Raises ConfigError."""
        return self.facts_of(model, self.on_disk(model))

    def facts_of(self, model: Model, folder: Path | None) -> ModelFacts:
        """The model's sizes from the files in a folder; None: as published, or from its configs alone."""
        found = facts.architecture(model, folder, self.weighted_parts(model))
        transformer, text = found.parts["transformer"], found.parts["text_encoder"]
        sizes = self.sizes(transformer.config)
        channels, temporal, spatial = self.compression(found.parts["vae"].config)
        patch_frames, patch = self.patch(sizes)
        heads, in_channels = sizes["num_attention_heads"], sizes["in_channels"]
        picture = found.parts.get("image_encoder")
        return ModelFacts(
            stored=found.stored,
            blocks=transformer.blocks,
            width=heads * sizes["attention_head_dim"],
            heads=heads,
            text_tokens=self.text_length(sizes),
            text_width=text.config.get("d_model") or text.config["hidden_size"],
            values=transformer.values,
            linears=tuple(
                Linear(name, *shape, self._sees(name), re.fullmatch(self.shared_layers, name) is not None)
                for name, shape in transformer.layers.items()
                if not name.endswith("embed")  # a table, looked up
            ),
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
            position_bytes=self.positions(sizes),
            # A vision transformer's patches, and one for the whole.
            picture_tokens=(picture.config["image_size"] // picture.config["patch_size"]) ** 2 + 1 if picture else 0,
            image_encoder_values=picture.values if picture else 0,
            auto=self.auto_dtype(found.stored),
            float32_vae=self.float32_vae,
            told_bytes=self.timed_number * (in_channels == channels and self._can_be_told(model)),
            reference_bytes=self.timed_number * (self.given_kinds(model).get("reference") == ""),
        )

    def _can_be_told(self, model: Model) -> bool:
        kinds = self.given_kinds(model)
        return any(kinds.get(name) == "" for name in NAMES)

    def _sees(self, name: str) -> On:
        patterns: dict[str, On] = {self.text_layers: "text", self.picture_layers: "picture", self.clip_layers: "clip"}
        return next((on for pattern, on in patterns.items() if re.fullmatch(pattern, name)), "video")

    def sizes(self, transformer: Mapping[str, Any]) -> Mapping[str, Any]:
        """A transformer's config by diffusers' names."""
        return transformer

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

    def compression(self, vae: Mapping[str, Any]) -> tuple[int, int, int]:
        """(channels of latents, frames and pixels in a row that one latent stands for) of a VAE's config."""
        temporal = vae.get("temporal_compression_ratio") or vae.get("scale_factor_temporal", 4)
        spatial = vae.get("spatial_compression_ratio") or vae.get("scale_factor_spatial", 8)
        return vae.get("latent_channels") or vae["z_dim"], temporal, spatial

    @abstractmethod
    def vae_facts(self, vae: Part) -> VaeFacts:
        """What a VAE needs memory for."""

    def codes(self, model: Model) -> int:
        """Return how many codes the model's latents are numbers of; 0 for latents of real numbers."""
        return 0

    def stored_dtype(self, folder: Path) -> str:
        """The transformer's dtype on disk: "float32", "float16" or "bfloat16". Raises ModelUnavailable."""
        return model_files.stored_dtype(folder)

    def auto_dtype(self, stored: str) -> str:
        """Return the dtype that a transformer stored as `stored` computes in on a GPU with precision `auto`."""
        return self.auto_for_float32 if stored == "float32" else stored

    def vae_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of the VAE and the image encoder beside a transformer that computes in `dtype`."""
        import torch

        return torch.float32 if self.float32_vae else dtype

    # ---- captions

    def cleaned(self, caption: str) -> str:
        """A caption as the stock pipelines clean it."""
        return caption

    def caption_length(self, folder: Path) -> int:
        """Tokens of a caption, padding included, as the folder's stock pipeline reads them."""
        return self.text_length(config(folder, "transformer"))

    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        """What `encode_text` reads of each caption, counted by the model's own tokenizer. Raises ModelUnavailable."""
        if not captions:
            return []
        limit = self.caption_length(folder)
        return counted(self.load_tokenizer(folder), [self.cleaned(caption) for caption in captions], limit)

    def load_tokenizer(self, folder: Path) -> Any:
        """The tokenizer of the folder. Raises ModelUnavailable."""
        return load_tokenizer(model_files.part_folder(folder, "tokenizer"))

    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> PromptEncoder:
        """What `encode_text` needs; `to(device)` moves it, as it does a module."""
        model = self._part(folder, "text_encoder", device, dtype)
        return PromptEncoder(self.load_tokenizer(folder), model, self.caption_length(folder))

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Embeddings, batch first, in the encoder's dtype.

        By default {"prompt_embeds": [B, tokens, D]}, and with `text_mask` also {"mask": [B, tokens]}, 0 for padding,
        which the encoder does not see.
        """
        import torch

        found = text_encoder.tokens([self.cleaned(caption) for caption in captions])
        with torch.no_grad():
            embeds = text_encoder.model(found.input_ids, attention_mask=found.attention_mask)[0]
        return {"prompt_embeds": embeds} | ({"mask": found.attention_mask.to(embeds)} if self.text_mask else {})

    def text_form(self, folder: Path) -> str:
        """Identify these embeddings in cache keys if an earlier version encoded the same files differently; else ""."""
        return ""

    def no_text(self, text: Tensors) -> Tensors:
        """What stands for no caption where a trainer leaves out the embedding, in the shape of `text`: zeros, as many
        as the caption has tokens: with no token at all there is nothing to look at."""
        return {name: tensor if name == "mask" else tensor.new_zeros(tensor.shape) for name, tensor in text.items()}

    # ---- loading: one part at a time, so that two never share memory without need

    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """The video autoencoder, frozen."""
        return self._part(folder, "vae", device, dtype)

    def load_transformer(
        self, folder: Path, device: torch.device, dtype: torch.dtype, part: str = "transformer"
    ) -> Any:
        """The denoiser, frozen. part: of the expert, for models that have two"""
        return self._part(folder, part, device, dtype)

    def part_class(self, folder: Path, name: str) -> Any:
        """The class of a part: the one that model_index.json names."""
        return model_files.class_named(*index(folder)[name])

    def _part(self, folder: Path, name: str, device: torch.device, dtype: torch.dtype) -> Any:
        """A part with weights, frozen."""
        import torch

        kind = self.part_class(folder, name)
        if model_files.is_layered(folder, name):
            with torch.random.fork_rng(devices=[]):  # what it begins with is replaced, and counts nowhere
                model = kind.from_config(config(folder, name))
            model.load_state_dict(model_files.tensors(folder, name))
            model.to(dtype)
        else:
            home = model_files.part_folder(folder, name)
            model = kind.from_pretrained(home, dtype=dtype, use_safetensors=True)
        for buffer in model.buffers():
            if buffer.dtype == torch.float64:  # CogVideoX 2B's positions, which diffusers casts in every step
                buffer.data = buffer.data.to(dtype)
        return model.to(device).eval().requires_grad_(False)

    def load_pipeline(self, folder: Path, transformer: Any) -> Any:
        """The stock diffusers pipeline around a transformer alone, for what it makes of LoRA files."""
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
        home = model_files.part_folder(folder, "scheduler")
        return model_files.class_named("diffusers", kind).from_pretrained(home, **more)

    # ---- what makes a transformer cheaper: see workbench.memory

    def blocks(self, transformer: Any) -> Sequence[Any]:
        """The equal blocks that hold nearly all of its weights and do nearly all of its work, first to last."""
        found = getattr(transformer, "blocks", None)
        return list(transformer.transformer_blocks if found is None else found)

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        """Compute its attention with a kernel (a value of the setting `attention`) on this device.

        Raises ConfigError for one that the device or this machine does not have.
        """
        check_kernel(kernel, device)
        if kernel not in BACKENDS:
            sentence = f"attention is {kernel}, which {self.title} cannot use: choose auto"
            raise ConfigError(sentence, {"attention": sentence})
        transformer.set_attention_backend(BACKENDS[kernel])

    def join_projections(self, transformer: Any) -> None:  # noqa: B027 - nothing is joined where a family does not
        """Join frozen layers that read the same input, after a LoRA was attached beside them; equal within rounding."""

    # ---- latents

    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> tuple[int, ...]:
        """Shape of one clip's latents, without the batch axis, as `sample_latents` returns it and `loss` takes it."""
        channels, temporal, spatial = self.compression(config(folder, "vae"))
        return channels, (frames - 1) // temporal + 1, height // spatial, width // spatial

    def one_frame(self, latents_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one latent frame of latents of a shape, both without the batch axis."""
        return tuple(1 if axis == self.frame_axis - 1 else size for axis, size in enumerate(latents_shape))

    def channels_first(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents [B, ...] in the family's order as a VAE has them, [B, C, f, h, w]; the other way round, too."""
        return latents if self.frame_axis == 2 else latents.transpose(1, 2)

    def encode_video(self, vae: Any, video: torch.Tensor) -> Tensors:
        """Moments of clips [B, 3, F, H, W] in [-1, 1]: enough to sample latents from, scaled as the denoiser wants.

        By default {"mean", "std"}: [B, C, f, h, w] float32, normalized per channel.
        """
        import torch

        with torch.no_grad():
            posterior = vae.encode(video.to(*device_and_dtype(vae))).latent_dist
        center, spread = (tensor.float() for tensor in self.latent_scale(vae))
        std = posterior.std.float() / spread
        return {"mean": (posterior.mean.float() - center) / spread, "std": self.posterior_share * std}

    def latent_scale(self, vae: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """(mean, deviation) by which latents are normalized, [1, C, 1, 1, 1], on the VAE's device."""
        import torch

        found, (device, _) = (vae.config.latents_mean, vae.config.latents_std), device_and_dtype(vae)
        mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1, 1) for values in found)
        return mean, std

    def sample_latents(self, moments: Tensors, noise: torch.Tensor) -> torch.Tensor:
        """Latents from moments and standard normal noise of `latents_shape`."""
        return moments["mean"] + moments["std"] * noise

    def posterior_noise(self, moments: Tensors, noise: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
        """The noise for `sample_latents` or `given`, sampled as the stock pipelines do, in their order."""
        import torch

        if "mean" not in moments or not moments["std"].any():  # nothing is sampled
            return torch.zeros_like(next(iter(moments.values())))
        mean = self.channels_first(moments["mean"])
        sampled = torch.randn(mean.shape, generator=noise, dtype=dtype)
        return self.channels_first(sampled).to(mean.device)

    def decode(self, vae: Any, latents: torch.Tensor, noise: torch.Generator | None = None) -> torch.Tensor:
        """Latents (with or without what `sample_latents` put in front) to clips [B, 3, F, H, W] in [-1, 1].

        noise: of the processor, for decoders that need some; None: always the same
        F is what was encoded: what stands in front of the latents is not decoded, as in the stock pipeline.
        """
        import torch

        device, dtype = device_and_dtype(vae)
        mean, std = (tensor.to(device).float() for tensor in self.latent_scale(vae))
        with torch.no_grad():
            scaled = (latents.to(device).float() * std + mean).to(dtype)
            return self.decoded(vae, scaled, noise).float().clamp(-1, 1)

    def decoded(self, vae: Any, latents: torch.Tensor, noise: torch.Generator | None) -> torch.Tensor:
        """The VAE's own answer to latents that are no longer normalized."""
        video: torch.Tensor = vae.decode(latents, return_dict=False)[0]
        return video

    def vae_loss(self, vae: Any, clips: torch.Tensor) -> torch.Tensor:
        """What a VAE learns from clips [B, 3, F, H, W] in [-1, 1], of a family with the setting `tokenizer_steps`."""
        raise NotImplementedError

    # ---- latents in files of their own: docs/file_formats.md, samples

    def latents_to_file(self, folder: Path, latents: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one clip's latents [1, ...] as the tensors of a file: {"latents": [C, f, h, w]}, scaled as here."""
        return {"latents": self.channels_first(latents)[0].contiguous().cpu()}

    def latents_from_file(self, folder: Path, tensors: Tensors) -> torch.Tensor:
        """Return what `decode` takes of such a file: latents [1, ...]."""
        return self.channels_first(tensors["latents"][None]).contiguous()

    def moments_from_file(self, folder: Path, tensors: Tensors) -> Tensors:
        """Return such a file's tensors as `encode_video` gives them; "mean" and "std" may stand for "latents"."""
        import torch

        if "mean" in tensors:
            sides = {name: {"latents": tensors[name]} for name in ("mean", "std")}
            return {name: self.latents_from_file(folder, side).float() for name, side in sides.items()}
        mean = self.latents_from_file(folder, tensors).float()
        return {"mean": mean, "std": torch.zeros_like(mean)}

    def text_from_file(self, tensors: Tensors, dtype: torch.dtype) -> Tensors:
        """Return such a file's "embeddings" [tokens, width] and "mask" [tokens] as `encode_text` gives them."""
        names = {"prompt_embeds": "embeddings"} | ({"mask": "mask"} if self.text_mask else {})
        return {name: tensors[own][None].to(dtype) for name, own in names.items()}

    # ---- image-to-video: what a model is given beside the caption

    def load_image_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any | None:
        """What `encode_image` needs beside the VAE, frozen; None for models that need nothing more."""
        return None

    def encode_image(
        self, vae: Any, image_encoder: Any, images: torch.Tensor, frames: int, scale: ImageScale
    ) -> Tensors:
        """What `given` needs of pictures [B, 3, H, W] in [-1, 1] that clips of so many frames begin with.

        By default the moments of clips of one frame.
        """
        if "image-to-video" not in self.pipelines.values():
            raise ConfigError(f"{self.title} takes text alone: leave out the image, or choose a model for images")
        return self.encode_video(vae, images.unsqueeze(2))

    def given(
        self,
        image: Tensors,
        noise: torch.Tensor,
        latents_shape: tuple[int, ...],
        kept: torch.Tensor | None = None,
        every_frame: bool = False,
    ) -> Given:
        """What the model is shown of encoded pictures: by default, their latents in the place of the first frame.

        noise:       standard normal, [B, *one_frame(latents_shape)], where the pictures' latents are sampled
        kept:        [B] bool, the clips that are shown their picture; None: all
        every_frame: the picture beside every frame instead of the first, where the model can be trained so
        """
        if latents_shape[self.frame_axis - 1] == 1:  # nothing would be left to learn
            return Given()
        return Given(known=self.sample_latents(image, noise), kept=kept)

    def given_to_sample(
        self, folder: Path, image: Tensors, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        """What `denoise` is given of one encoded picture.

        noise: of the processor, in the stock pipeline's order;  dtype: of the VAE, in which the pipelines draw it
        """
        return self.given(image, self.posterior_noise(image, noise, dtype), latents_shape)

    def own_first_frame(self, latents: torch.Tensor, kept: torch.Tensor) -> Given | None:
        """What a text-to-video model is shown of the clips it is trained on: their own first latent frame.

        Args:
            latents: clean, [B, ...].
            kept: [B] bool, the clips that are shown it.

        Returns:
            None for a model that is never shown it, and where nothing would be left to learn.
        """
        return None

    # ---- what a model is told of a clip: see workbench.families.told

    def encode_told(self, vae: Any, image_encoder: Any, told: Told) -> Tensors:
        """What `told` needs of what is told: of its frames or mask, its control, its reference; whichever are there.

        Encoded by itself, each gives tensors of its own, batch first, which may stand in one mapping. They depend on
        the pixels alone. Raises ConfigError for what the model cannot be told.
        """
        raise ConfigError(f"{self.title} takes no frames beforehand: leave them out, or choose another model")

    def told(
        self, tensors: Tensors, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        """What the model is shown of what `encode_told` made, in training.

        Args:
            tensors: {} where nothing is told.
            latents_shape: Of the clips, without the batch axis.
            noise: Of the processor, for latents that are sampled.
            dtype: Of the VAE, in which the pipelines sample it.
        """
        return Given()

    def told_to_sample(
        self, folder: Path, tensors: Tensors, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        """The same for `denoise`, of one clip, in the stock pipeline's order."""
        return self.told(tensors, latents_shape, noise, dtype)

    # ---- training

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> NoiseSchedule:
        """How the model's noise is mixed, in float32, and drawn in training. chosen: by a person"""
        return FlowSchedule(chosen)

    @abstractmethod
    def call(self, transformer: Any, inputs: CallInputs) -> torch.Tensor:
        """The transformer's prediction, shaped as the noisy latents [B, ...].

        Raises ConfigError for latents that the model cannot take.
        """

    def predict(self, transformer: Any, schedule: NoiseSchedule, inputs: ModelInputs) -> torch.Tensor:
        """What the transformer makes of the latents noised to the inputs' timesteps, shaped as they are."""
        noisy = self.with_known(schedule.mix(inputs.latents, inputs.noise, inputs.timesteps), inputs.given)
        dtype = transformer.dtype
        text = {name: tensor.to(dtype) for name, tensor in inputs.text.items()}
        given = inputs.given and inputs.given.to(noisy.device, dtype)
        return self.call(transformer, CallInputs(noisy.to(dtype), text, inputs.timesteps, given, inputs.fps))

    def mask_cells(self, folder: Path, mask: torch.Tensor) -> torch.Tensor:
        """Average a mask over the pixels and frames that each cell of the latents stands for.

        By default those of a causal video autoencoder: the first frame alone, then the others in groups.

        Args:
            mask: [B, 1, F, H, W], 0 to 1, of legal frames and size.

        Returns:
            Shaped as the latents [B, ...], with one channel.
        """
        import torch
        from torch.nn.functional import avg_pool3d

        _, temporal, spatial = self.compression(config(folder, "vae"))
        cells = [avg_pool3d(mask[:, :, :1], (1, spatial, spatial))]
        if mask.shape[2] > 1:
            cells.append(avg_pool3d(mask[:, :, 1:], (temporal, spatial, spatial)))
        return self.channels_first(torch.cat(cells, dim=2)).contiguous()

    def loss(
        self,
        transformer: Any,
        schedule: NoiseSchedule,
        inputs: ModelInputs,
        base: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the `error` per sample [B] of what the transformer predicts. Pure.

        Args:
            base: What it is to predict in place of the target: the base model's prediction.
            weights: How much each cell counts; None for all alike.
        """
        target = schedule.target(inputs.latents, inputs.noise, inputs.timesteps) if base is None else base.float()
        return self.error(self.predict(transformer, schedule, inputs), target, inputs.given, weights)

    def error(
        self,
        predicted: torch.Tensor,
        target: torch.Tensor,
        given: Given | None = None,
        weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the mean squared error per sample [B], in the target's dtype; known frames do not count.

        Args:
            weights: How much each cell counts, as `mask_cells` shapes them: a sample's error is sum(w e^2) / sum(w).
                None: all alike. A sample whose weights are all 0 has the error 0.
        """
        error = (predicted.to(target.dtype) - target).square()
        counted = self._counted(error, given)
        if weights is not None:
            weights = weights.to(error)
            counted = weights if counted is None else counted * weights
        if counted is None:
            return error.flatten(1).mean(1)
        total = counted.expand_as(error).flatten(1).sum(1)
        if weights is not None:
            total = total.clamp(min=1e-6)
        return (error * counted).flatten(1).sum(1) / total

    def with_known(self, noisy: torch.Tensor, given: Given | None) -> torch.Tensor:
        """Noisy latents with the known frames in their place, where they are shown."""
        import torch

        if given is None or given.known is None:
            return noisy
        if given.where is not None:
            return torch.where(given.where, given.known.to(noisy), noisy)
        kept = given.known.shape[self.frame_axis]
        rest = noisy.narrow(self.frame_axis, kept, noisy.shape[self.frame_axis] - kept)
        filled = torch.cat([given.known.to(noisy), rest], dim=self.frame_axis)
        if given.kept is None:
            return filled
        return torch.where(given.kept.view(-1, *[1] * (noisy.ndim - 1)), filled, noisy)

    def _counted(self, error: torch.Tensor, given: Given | None) -> torch.Tensor | None:
        """1 where the loss counts, 0 at known frames that are shown, [B, 1, frames, 1, 1] or so; None: everywhere."""
        if given is None or given.known is None:
            return None
        if given.where is not None:
            return (~given.where).to(error)
        shape = [error.shape[axis] if axis in (0, self.frame_axis) else 1 for axis in range(error.ndim)]
        counted = error.new_ones(shape)
        kept = 1.0 if given.kept is None else given.kept.to(error).view(-1, *[1] * (error.ndim - 1))
        counted.narrow(self.frame_axis, 0, given.known.shape[self.frame_axis]).sub_(kept)
        return counted

    # ---- sampling

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        """The way from noise to latents in so many steps."""
        made = self.load_scheduler(options.folder, options.scheduler, options.shift)
        return FlowSteps(made, options.steps, options.device)

    def check_inputs(self, transformer: Any, inputs: DenoiseInputs) -> None:
        """Refuse what the model cannot generate, before anything is computed. Raises ConfigError."""
        self.check_given(transformer, inputs.given)
        if inputs.guidance.wanted and inputs.negative_text is None:
            scale = inputs.guidance.scale
            raise ConfigError(f"guidance scale is {scale:g}, which needs a negative prompt: encode an empty one")
        if inputs.prefix is None:
            return
        kept = self.as_prefix(inputs.prefix, inputs.latents_shape).shape[self.frame_axis]
        if kept >= (generated := inputs.latents_shape[self.frame_axis - 1]):
            raise ConfigError(
                f"the clip to continue has {kept} latent frames and the new one {generated}: generate more frames, or "
                f"continue fewer"
            )

    def check_given(self, transformer: Any, given: Given | None) -> None:
        """Refuse a picture that the model cannot take, and that one is missing. Raises ConfigError."""
        own = transformer.config
        takes = own.in_channels != (own.out_channels or own.in_channels)
        if takes and (given is None or given.beside is None):
            raise ConfigError("this model starts from a first frame: give an image")
        if given is not None and given.beside is not None and not takes:
            raise ConfigError("this model takes text alone: leave out the image, or choose one for images")

    def as_prefix(self, latents: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        """Latents of a clip to be continued as they stand at the beginning of latents of a shape."""
        return latents

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> torch.Tensor:
        """Generate the latents of one clip [1, *latents_shape], as the stock pipelines do, on the text's device.

        Raises ConfigError.
        """
        return Denoising(self, transformer, inputs).run()

    def usage(
        self,
        model: Model,
        folder: Path,
        lora: str,
        prompt: str,
        shape: tuple[int, int, int],
        image_scale: ImageScale = "pipeline",
        experts: Sequence[str] = (),
        repository: str = "",
        seed: int = 0,
        told: Sequence[str] = (),
    ) -> str:
        """Python code that generates (frames, height, width) with a LoRA in plain diffusers, for model cards.

        experts: those that the LoRA is for, where the model has two; (): both
        repository: of the Hub, from which the LoRA is loaded; "": the file `lora` in the folder of the code
        told: the kinds of `told.NAMES` and `told.BESIDE` that it was trained with, where its run says so
        Where plain diffusers would not do what training did, the code says so and does it.
        """
        pipeline = model.pipeline or next(name for name, task in self.pipelines.items() if task == model.task)
        extras = self.usage_extras(model, folder, shape, image_scale)
        extras = self.usage_told(model, folder, shape, extras, told)
        return usage.code(pipeline, model, lora, prompt, shape, extras, experts, repository, seed)

    def usage_extras(
        self, model: Model, folder: Path, shape: tuple[int, int, int], image_scale: ImageScale
    ) -> UsageExtras:
        """What the stock pipeline needs beside the common lines to do what training did."""
        return UsageExtras()

    def usage_told(
        self, model: Model, folder: Path, shape: tuple[int, int, int], extras: UsageExtras, told: Sequence[str]
    ) -> UsageExtras:
        """The same for a LoRA that was trained with kinds of given frames: a last frame where the stock pipeline takes
        one, and a remark on what it does not take."""
        stock = self.stock_kinds if model.task == "image-to-video" else ()
        if "first+last" in told and "first+last" in stock:
            extras = replace(extras, arguments=f", {usage.LAST}{extras.arguments}")
        more = [kind for kind in told if kind not in stock]
        options = ", ".join(usage.OPTIONS[kind] for kind in more if kind in usage.OPTIONS)
        remark = usage.ALSO_TOLD.format(kinds=", ".join(more), options=options) if options else ""
        return replace(extras, changes=extras.changes + remark)

    # ---- other trainers' files

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        """A LoRA file of ours, of diffusers or of another trainer of this family. Raises ConfigError."""
        found, experts = lora_names.read(self.layer_names, tensors, metadata), experts_of(tensors, metadata)
        return replace(found, expert=experts[0]) if len(experts) == 1 else found

    def lora_tensors(self, path: Path) -> tuple[Tensors, Mapping[str, str]]:
        """(tensors, metadata) of a LoRA file, for `lora_weights`. Raises ConfigError."""
        return read_lora(path)

    def export_lora(self, lora: LoraWeights, format: str) -> Written:
        """(tensors, metadata) of a file in one of `lora_formats`. Raises ConfigError where it cannot hold the LoRA."""
        found, metadata = lora_writing.export(lora, format, self.lora_formats, self.layer_names)
        return found, {**metadata, **({EXPERT_KEY: lora.expert} if lora.expert else {})}

    def convert(self, source: Path, target: Path, folder: Path, report: Report = print) -> str:
        """Write weights or a LoRA in the other layout: from the authors' own code to diffusers', or back.

        source: which way to go is read from it;  target: a new file or folder, never an old one
        folder: a model of the same architecture in diffusers' layout, which gives configs and the parts that source
                lacks

        Returns a sentence that says what was written. Raises ConfigError, CannotWrite.
        """
        raise ConfigError(f"{source.name} cannot be converted: {self.title} has no layout but diffusers'")

    # ---- miniatures, for contract tests

    def toy(self, folder: Path, variant: str) -> Model:
        """Write a random miniature of the architecture (a variant such as those in `toys`), in diffusers' layout."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.write_miniature(folder, variant)
        model = self.describe_folder(folder)
        assert model is not None
        return model

    def write_miniature(self, folder: Path, variant: str) -> None:
        """Write the folder of `toy`."""
        pipeline, sizes = self.miniature(variant)
        pipeline.save_pretrained(folder)
        if sizes:
            write_json(folder / model_files.MADE_FOR, sizes)

    def miniature(self, variant: str) -> tuple[Any, dict[str, Any]]:
        """(a random pipeline of one of `toys`, the frames, height and width it is made for where no config says it)"""
        raise NotImplementedError


class ResolvedModel(NamedTuple):
    """What a model's name stands for. Made where a name comes in, and passed on."""

    family: Family
    model: Model

    @property
    def facts(self) -> ModelFacts:
        """See Family.facts."""
        return self.family.facts(self.model)

    @property
    def own_settings(self) -> Mapping[str, OwnSetting]:
        """See Family.own_settings."""
        return self.family.own_settings(self.model)

    def fetch(self, report: Report = print) -> Path:
        """See Family.fetch."""
        return self.family.fetch(self.model, report)

    def whole_folder(self) -> Path:
        """The fetched folder as stock diffusers loads it, with the parts that it shares: see model_files.whole."""
        return model_files.whole(self.fetch())


def check_kernel(kernel: str, device: torch.device) -> None:
    """Raises ConfigError for a kernel of the attention that the device does not have."""
    if device.type != "cuda" and kernel not in ("auto", "stock", "math"):
        sentence = f"attention is {kernel}, which only an NVIDIA GPU has, and this is the {device.type}: choose auto"
        raise ConfigError(sentence, {"attention": sentence})


def device_and_dtype(vae: Any) -> tuple[torch.device, torch.dtype]:
    """Where a VAE computes, and in what: a pipeline that moves its parts keeps it elsewhere in between."""
    weight = next(vae.parameters())  # the VAE's own `device` and `dtype` walk through all its modules: 1 ms each
    hook = getattr(vae, "_hf_hook", None)
    return getattr(hook, "execution_device", None) or weight.device, weight.dtype
