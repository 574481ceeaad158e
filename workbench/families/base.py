"""The contract between a video model family and the rest of the workbench, with defaults for diffusers models.

A family states facts, which need no torch, and implements methods, which import torch and diffusers when they run. Only
the family knows its tensors. Other code stores and moves three dicts without looking inside: `moments` (what the VAE
makes of a clip), `text` (what the text encoder makes of a caption), and the conditioning (what it makes of pictures,
given frames, masks, control and reference clips). Families never draw random numbers on their own: noise and generators
are arguments.

The defaults load the classes named in a folder's `model_index.json`, read sizes from its configs and weight headers,
and assume a causal video VAE with latents [B, C, f, h, w] and a flow-matching scheduler. A family adds its published
models, its layer names, its noise schedule and the call to its transformer.

Shapes: B clips of F frames, H x W pixels. Latents are [B, C, f, h, w] unless `frame_axis` and `channel_axis` say
otherwise; `latents_shape` is always without B.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from workbench.errors import ConfigError, ModelUnavailable
from workbench.families import facts, lora_names, lora_writing, model_files, own_files, usage
from workbench.families.conditioning import BESIDE, NAMES, Conditioning
from workbench.families.denoising import DenoiseInputs, Denoising, FlowSteps, SamplerSteps, StepOptions
from workbench.families.facts import ModelFacts, Part, VaeFacts
from workbench.families.lora_files import EXPERT_KEY, LoraWeights, experts_of, read_lora
from workbench.families.lora_names import ATTENTION, FEED_FORWARD, LayerNames
from workbench.families.lora_writing import LoraFormat, Written
from workbench.families.model import ClipSize, Model, Shape, Shapes, Task
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
from workbench.families.sound import Sound
from workbench.families.usage import UsageExtras
from workbench.settings import Settings
from workbench.workspace import write_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ImageScale = Literal["pipeline", "raw"]  # scale a first frame's latents as the stock pipeline does, or not at all
Report = Callable[[str], None]
# Parts that may hold weights.
WEIGHTED = ("image_encoder", *facts.TEXT_PARTS, "transformer", "transformer_2", "vae", "audio_vae", "vocoder")
BACKENDS = {  # value of the setting `attention` -> diffusers' attention backend
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
    """A setting that only some models have."""

    default: Any = None  # the value that an empty field stands for; None: the setting's own default applies
    source: str = ""  # where that value comes from, for people: "as the authors generate"

    def __str__(self) -> str:
        """Return the value and its source, as forms show them in an empty field."""
        value = f"{self.default:g}" if isinstance(self.default, int | float) else str(self.default or "")
        return f"{value} ({self.source})" if self.source else value


class Family(ABC):
    """One architecture and its models. Subclasses are stateless; each has one instance, FAMILY in its module."""

    # ---- identity

    name: ClassVar[str]
    title: ClassVar[str]
    models: ClassVar[tuple[Model, ...]]
    pipelines: ClassVar[dict[str, Task]]  # diffusers' pipeline class -> task; model cards use the first of a task
    has_pipeline: ClassVar[bool] = True  # diffusers can generate with these models
    remedy: ClassVar[str] = "download it again"  # advice for a folder with missing files
    file_parts: ClassVar[tuple[str, ...]] = WEIGHTED[:-2]  # parts that a single file may replace: see own_files
    toys: ClassVar[tuple[str, ...]]  # variants of `toy` that a stock pipeline can generate with
    new_model: ClassVar[type[Settings] | None] = None  # sizes that `create` takes; None: no training from scratch
    preservation_prompts: ClassVar[tuple[str, ...]] = PRESERVATION_PROMPTS  # for models without prompts of their own

    # ---- latents: axes count the batch axis

    channel_axis: ClassVar[int] = 1
    frame_axis: ClassVar[int] = 2
    posterior_share: ClassVar[float] = 1.0  # factor on the VAE posterior's std; 0: train on its mean
    float32_latents: ClassVar[bool] = False  # keep latents in float32 between denoising steps, cast only the input
    float32_vae: ClassVar[bool] = False  # run VAE and image encoder in float32 whatever the transformer's dtype
    auto_for_float32: ClassVar[str] = "float32"  # GPU dtype under precision `auto` of a transformer stored in float32

    # ---- captions and layers

    text_tokens: ClassVar[int]  # tokens per caption, with padding, where the transformer's config does not say
    text_mask: ClassVar[bool] = False  # `encode_text` also returns a mask
    second_text_tokens: ClassVar[int] = 0  # tokens per caption of a second text encoder; 0 without one
    more_text: ClassVar[tuple[str, ...]] = ()  # what else `encode_text` returns, as for a second text encoder
    caption_lengths_differ: ClassVar[bool] = False  # blocks get captions without padding, so their shapes differ
    text_joint: ClassVar[bool] = False  # self-attention runs over caption and video tokens together
    timed_number: ClassVar[int] = 2  # bytes per number of a timestep embedding inside a block
    position_bytes: ClassVar[int] = 0  # bytes of position embeddings, per token and unit of width
    saved_bytes: ClassVar[float] = 0.0  # bytes that a block keeps beyond the rates of fit.constants, in the same units
    # Patterns for layers that do not read the video's tokens, and for layers whose input another layer reads first.
    # They match a layer's full name, with "{}" for a block's number.
    text_layers: ClassVar[str] = r".*\.attn2\.to_[kv]|(.*\.)?(caption|text)_\w+\..+"
    picture_layers: ClassVar[str] = r".*\.attn2\.add_[kv]_proj|(.*\.)?image_\w+\..+"
    clip_layers: ClassVar[str] = r"(.*\.)?(time|ofs)_\w+(\..+)?|.*norm\w*\.linear\w*"
    shared_layers: ClassVar[str] = r".*\.attn1\.to_[kv]"
    # Value of the setting `sound` -> pattern for layers that are then not trained, because the loss does not depend on
    # them or the model's authors leave them alone; LAST is the last block's number. The keys are what the model can
    # learn; {}: the picture, with all layers.
    unreached_layers: ClassVar[Mapping[str, str]] = {}

    # ---- image-to-video training

    # Mean and std of log sigma, the noise added to a first frame at each step; None: encode each picture once.
    image_noise: ClassVar[tuple[float, float] | None] = None
    image_dropout: ClassVar[float] = 0.05  # share of clips trained without their picture, as in CogVideoX
    # The setting first_frame_share, for families whose text-to-video runs can see their clips' own first frame.
    own_first_frames: ClassVar[OwnSetting | None] = None

    own_defaults: ClassVar[Mapping[str, OwnSetting]] = {}  # more of `own_settings`, the same for all models

    # ---- sampling

    schedulers: ClassVar[tuple[str, ...]]
    scheduler_classes: ClassVar[Mapping[str, str]] = {}  # name in `schedulers` -> diffusers class, if not the folder's
    stock_kinds: ClassVar[tuple[str, ...]] = ("first",)  # kinds of given frames that the stock pipelines take
    shift_name: ClassVar[str] = "shift"  # the scheduler config's key for the shift of noise levels

    # ---- LoRA files

    lora_targets: ClassVar[dict[str, tuple[str, ...]]] = {  # preset -> endings of layer names
        "attention": ATTENTION,
        "attention+feed-forward": (*ATTENTION, *FEED_FORWARD),
    }
    layer_names: ClassVar[LayerNames]  # how other trainers spell the layers
    tests_output: ClassVar[bool] = False  # a LoRA's file also tests the model's output: see families.self_test
    lora_prefix: ClassVar[str] = lora_writing.PREFIX  # first part of every tensor name in a LoRA file
    lora_formats: ClassVar[tuple[LoraFormat, ...]] = lora_writing.FORMATS  # for `export_lora`, diffusers' own first

    # ---- files

    def describe_folder(self, folder: Path) -> Model | None:
        """Describe a model folder in diffusers' layout from its configs; None for another family's folder.

        Raises ConfigError for a folder of this family with incomplete configs.
        """
        try:
            base = self.base_of(folder)
            if base is not None:  # a full fine-tune keeps everything else from its base model
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
            raise ConfigError(f"{folder} is not a complete {self.title} model ({reason}): {self.remedy}") from error

    def like(self, folder: Path) -> Model:
        """Return the published model closest to a folder. It supplies what the folder's configs do not say."""
        return self.models[0]

    def with_variant(self, model: Model, variant: str) -> Model:
        """Return a Hub model with a variant's weights in place of the default ones."""
        return replace(model, variant=variant)

    def weighted_parts(self, model: Model) -> tuple[str, ...]:
        """Return the names of a model's subfolders that hold weights."""
        if (known := facts.published().get(model.source)) is not None:
            return tuple(known.parts)
        folder = Path(model.source) if model.local else model_files.find_configs(model.source, model.revision)
        if folder is None:
            texts = ("text_encoder", "text_encoder_2") if self.second_text_tokens else ("text_encoder",)
            return *texts, *(expert.part for expert in model.experts), "vae"
        return tuple(part for part in WEIGHTED if model_files.has_part(folder, part))

    def fetch(self, model: Model, report: Report = print) -> Path:
        """Return the folder of a model's files, downloading them at the pinned revision if needed.

        Links a full fine-tune to its base model again if that has moved. Raises ModelUnavailable, CannotWrite.
        """
        base = self.base_of(Path(model.source)) if model.local else None
        if base is not None and not model_files.is_complete(folder := Path(model.source)):
            model_files.link_parts(folder, self.fetch(base, report), model_files.trained_part(folder))
        found = model_files.fetch(model, self.weighted_parts(model), report)
        if model.files:
            own_files.check(self, model, found)
        return found

    def base_of(self, folder: Path) -> Model | None:
        """Return the known model that a folder is a full fine-tune of; None for any other folder."""
        name = model_files.base_model(folder)
        return next((model for model in self.models if model.id == name), None) if name else None

    def on_disk(self, model: Model) -> Path | None:
        """Return the folder of a model's files if all of them are on disk, else None."""
        return model_files.find(model, self.weighted_parts(model))

    def from_file(self, part: str, tensors: dict[str, Tensor], shapes: Shapes) -> dict[str, Tensor]:
        """Rename a single file's tensors, which have the authors' or ComfyUI's names, to those of diffusers.

        Text and image encoders have transformers' names by default. A file in diffusers' names is never passed.

        Args:
            part: "transformer", "vae", ...; see `file_parts`.
            tensors: Names without the prefix of the part. The dict may be changed.
            shapes: Name and shape of each tensor that the part has in diffusers; {} for a part of transformers.
        """
        return own_files.encoder_names(tensors)

    def create(self, folder: Path, new: Settings, text: Path, made_for: Mapping[str, int], seed: int) -> None:
        """Write a model with random weights, to train from scratch. Raises ConfigError.

        Args:
            new: Its sizes, an instance of `new_model`.
            text: Folder of the model whose text encoder is copied.
            made_for: "frames", "height", "width" and "fps" of its clips.
        """
        raise NotImplementedError

    # ---- facts

    def recipes(self, model: Model) -> tuple[Recipe, ...]:
        """Return published LoRA settings for a model, one recipe per subject; () if nothing is known."""
        return recipes_of(model.recipes or self.name)

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        """Return the settings marked `own` that a model has, and what an empty one stands for."""
        kinds = self.given_kinds(model)
        # Setting of runs or samples -> the kinds of conditioning it is for.
        needs = {"given": NAMES, "last_image": ("last", "first+last"), "keyframes": ("keyframes",), "mask": ("mask",)}
        needs |= {"mask_keeps": ("mask",), "tell_frames": ("prefix",), "continue_to": ("suffix",)}
        needs |= {"following_frames": ("suffix",), **{name: (name,) for name in BESIDE}}
        needs |= {"reference_downscale": ("reference",)}
        supported = {setting for setting, names in needs.items() if any(kinds.get(name) == "" for name in names)}
        # By default the base model's prediction can replace the target, and a mask can weight the loss per latent cell.
        own = {"regularization_target": OwnSetting(), "loss_mask": OwnSetting()}
        if len(self.unreached_layers) > 1:
            own |= dict.fromkeys(("sound", "sound_weight", "given_sound", "given_video"), OwnSetting())
        if self.own_first_frames is not None and model.task == "text-to-video":
            own["first_frame_share"] = self.own_first_frames
        return {**own, **{name: OwnSetting() for name in sorted(supported)}, **self.own_defaults}

    def given_kinds(self, model: Model) -> Mapping[str, str]:
        """Return which kinds of conditioning a model supports: see `families.conditioning`.

        Returns:
            A name of its NAMES or BESIDE, or "nothing" -> "" if supported, else the reason, worded to follow the
            model's title ("has no channels for a control video"). Missing kinds are unsupported.
        """
        return {}

    def joins_conditioning(self, model: Model) -> bool:
        """Return whether all conditioning is encoded as one clip, as VACE does.

        The clip shows the control video, or gray, wherever nothing is known, and the model always needs it. A reference
        is a whole picture, padded with white.
        """
        return False

    def refusal(self, model: Model, kind: str) -> str:
        """Return why a model does not support a kind, as a sentence without its period; "" if it does."""
        kinds = self.given_kinds(model)
        able = [name for name in (*NAMES, *BESIDE) if kinds.get(name) == ""]
        reason = kinds.get(kind, f"supports only {', '.join(able)}" if able else "does not support given frames")
        return reason and f"{model.title} {reason}"

    def part_config(self, model: Model, part: str) -> Mapping[str, Any]:
        """Return the published or local config of one part of a model; {} if neither is available."""
        if (known := facts.published().get(model.source)) is not None:
            return known.parts[part].config
        folder = Path(model.source) if model.local else model_files.find_configs(model.source, model.revision)
        if folder is None or not (model_files.part_folder(folder, part) / "config.json").is_file():
            return {}
        return config(folder, part)

    def facts(self, model: Model) -> ModelFacts:
        """Return a model's sizes, read from its files if they are on disk, else as published. Raises ConfigError."""
        return self.facts_of(model, self.on_disk(model))

    def facts_of(self, model: Model, folder: Path | None) -> ModelFacts:
        """Return a model's sizes from the files in a folder; None: as published, or from its configs alone."""
        return facts.model_facts(self, model, folder)

    def sizes(self, transformer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a transformer's config under diffusers' key names."""
        return transformer

    def patch(self, transformer: Mapping[str, Any]) -> tuple[int, int]:
        """Return (latent frames, latent pixels per side) of one token, from a transformer's config."""
        size = transformer["patch_size"]
        return (transformer.get("patch_size_t") or 1, size) if isinstance(size, int) else (size[0], size[1])

    def positions(self, transformer: Mapping[str, Any]) -> int:
        """Return the bytes of position embeddings per token and unit of width, from a transformer's config."""
        return self.position_bytes

    def text_length(self, transformer: Mapping[str, Any]) -> int:
        """Return the tokens per caption, with padding, from a transformer's config."""
        return int(transformer.get("max_text_seq_length") or self.text_tokens)

    def compression(self, vae: Mapping[str, Any]) -> tuple[int, int, int]:
        """Return (latent channels, frames per latent frame, pixels per latent side), from a VAE's config."""
        temporal = vae.get("temporal_compression_ratio") or vae.get("scale_factor_temporal", 4)
        spatial = vae.get("spatial_compression_ratio") or vae.get("scale_factor_spatial", 8)
        return vae.get("latent_channels") or vae["z_dim"], temporal, spatial

    @abstractmethod
    def vae_facts(self, vae: Part) -> VaeFacts:
        """Return the sizes that decide a VAE's memory and time."""

    def codes(self, model: Model) -> int:
        """Return the codebook size of a model with discrete latents; 0 for continuous ones."""
        return 0

    def stored_dtype(self, folder: Path) -> str:
        """Return the transformer's dtype on disk: "float32", "float16" or "bfloat16". Raises ModelUnavailable."""
        return model_files.stored_dtype(folder)

    def auto_dtype(self, stored: str) -> str:
        """Return the GPU dtype under precision `auto` of a transformer stored as `stored`."""
        return self.auto_for_float32 if stored == "float32" else stored

    def vae_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of VAE and image encoder for a transformer that runs in `dtype`."""
        import torch

        return torch.float32 if self.float32_vae else dtype

    # ---- captions

    def cleaned(self, caption: str) -> str:
        """Return a caption cleaned as the stock pipelines do."""
        return caption

    def caption_length(self, folder: Path) -> int:
        """Return the tokens per caption, with padding, that the folder's stock pipeline uses."""
        return self.text_length(config(folder, "transformer"))

    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        """Count each caption's tokens, and find the end that `encode_text` cuts off. Raises ModelUnavailable."""
        if not captions:
            return []
        limit = self.caption_length(folder)
        return counted(self.load_tokenizer(folder), [self.cleaned(caption) for caption in captions], limit)

    def load_tokenizer(self, folder: Path, part: str = "tokenizer") -> Any:
        """Load a tokenizer; "tokenizer_2" is the second text encoder's. Raises ModelUnavailable."""
        return load_tokenizer(model_files.part_folder(folder, part))

    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> PromptEncoder:
        """Load what `encode_text` needs, frozen. Like a module's, its `to(device)` moves it."""
        second = None
        if self.second_text_tokens:
            model = self._part(folder, "text_encoder_2", device, dtype)
            second = PromptEncoder(self.load_tokenizer(folder, "tokenizer_2"), model, self.second_text_tokens)
        model = self._part(folder, "text_encoder", device, dtype)
        return PromptEncoder(self.load_tokenizer(folder), model, self.caption_length(folder), second)

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Encode captions.

        Returns:
            Tensors [B, ...] in the encoder's dtype. By default {"prompt_embeds": [B, tokens, D]}, and with `text_mask`
            also {"mask": [B, tokens]}, 0 for padding. The encoder does not attend to padding. `more_text` names others.
        """
        import torch

        found = text_encoder.tokens([self.cleaned(caption) for caption in captions])
        with torch.no_grad():
            embeds = text_encoder.model(found.input_ids, attention_mask=found.attention_mask)[0]
        return {"prompt_embeds": embeds} | ({"mask": found.attention_mask.to(embeds)} if self.text_mask else {})

    def text_shapes(self, facts: ModelFacts) -> dict[str, tuple[int, ...]]:
        """Return the shape, without the batch axis, of each tensor that `encode_text` returns."""
        shapes: dict[str, tuple[int, ...]] = {"prompt_embeds": (facts.text_tokens, facts.text_width)}
        return shapes | ({"mask": (facts.text_tokens,)} if self.text_mask else {})

    def text_form(self, folder: Path) -> str:
        """Return a cache-key tag for embeddings that an earlier version computed differently; else ""."""
        return ""

    def no_text(self, text: Tensors) -> Tensors:
        """Return embeddings, shaped as `text`, that stand for a dropped caption.

        By default zeros with the caption's own mask: attention over no tokens at all is undefined.
        """
        return {name: tensor if name == "mask" else tensor.new_zeros(tensor.shape) for name, tensor in text.items()}

    # ---- loading: one part at a time, so that two are in memory only when both are needed

    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """Load the video autoencoder, frozen."""
        return self._part(folder, "vae", device, dtype)

    def load_transformer(
        self, folder: Path, device: torch.device, dtype: torch.dtype, part: str = "transformer"
    ) -> Any:
        """Load the denoiser, frozen. `part` names the subfolder, for models with two experts."""
        return self._part(folder, part, device, dtype)

    def part_class(self, folder: Path, name: str) -> Any:
        """Return the class of a part, as model_index.json names it."""
        return model_files.class_named(*index(folder)[name])

    def _part(self, folder: Path, name: str, device: torch.device, dtype: torch.dtype) -> Any:
        """Load a part with weights, frozen."""
        import torch

        kind = self.part_class(folder, name)
        if model_files.own_file(folder, name) is not None:
            model = own_files.load(self, folder, name, dtype)
        elif model_files.is_layered(folder, name):
            with torch.random.fork_rng(devices=[]):  # the initial weights are overwritten and must not shift any seed
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
        """Return the stock diffusers pipeline with only a transformer in it, for its LoRA loader."""
        named = index(folder)
        parts = {name: None for name, value in named.items() if isinstance(value, list)}
        more = {name: value for name, value in named.items() if name[0] != "_" and not isinstance(value, list)}
        return model_files.class_named("diffusers", named["_class_name"])(
            **{**parts, **more, "scheduler": self.load_scheduler(folder), "transformer": transformer}
        )

    def load_scheduler(self, folder: Path, name: str = "model", shift: float | None = None) -> Any:
        """Load a scheduler.

        Args:
            name: One of `schedulers`, or "model" for the folder's own.
            shift: Shift of the noise levels; None for the scheduler's own.
        """
        kind = self.scheduler_classes.get(name) or index(folder)["scheduler"][1]
        more = {} if shift is None else {self.shift_name: shift}
        home = model_files.part_folder(folder, "scheduler")
        return model_files.class_named("diffusers", kind).from_pretrained(home, **more)

    # ---- saving memory and time in the transformer: see workbench.memory

    def blocks(self, transformer: Any) -> Sequence[Any]:
        """Return the transformer's main blocks, first to last. They hold nearly all of its weights and work."""
        found = getattr(transformer, "blocks", None)
        return list(transformer.transformer_blocks if found is None else found)

    def unreached(self, learned: str, blocks: int) -> str:
        """Return the pattern for layers that are not trained with a value of the setting `sound`; "" for none."""
        return self.unreached_layers.get(learned, "").replace("LAST", str(blocks - 1))

    def all_blocks(self, transformer: Any) -> Sequence[Any]:
        """Return all blocks in the order they run, a side branch's included."""
        return self.blocks(transformer)

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        """Switch the transformer's attention to a kernel, a value of the setting `attention`. Raises ConfigError."""
        transformer.set_attention_backend(self._attention_backend(kernel, device))

    def _attention_backend(self, kernel: str, device: torch.device) -> str:
        check_kernel(kernel, device)
        if kernel not in BACKENDS:
            raise ConfigError.about(f"attention is {kernel}, which {self.title} does not support: choose auto")
        return BACKENDS[kernel]

    def join_projections(self, transformer: Any) -> None:  # noqa: B027
        """Fuse frozen layers that share an input, once LoRAs are attached. Optional; only rounding may change."""

    # ---- latents

    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> Shape:
        """Return the shape of one clip's latents, without the batch axis, for a size in frames and pixels."""
        channels, temporal, spatial = self.compression(config(folder, "vae"))
        return channels, (frames - 1) // temporal + 1, height // spatial, width // spatial

    def one_frame(self, latents_shape: Shape) -> Shape:
        """Return a shape cut to one latent frame. Both shapes are without the batch axis."""
        return tuple(1 if axis == self.frame_axis - 1 else size for axis, size in enumerate(latents_shape))

    def channels_first(self, latents: Tensor) -> Tensor:
        """Convert latents from the family's axis order to a VAE's, [B, C, f, h, w], or back."""
        return latents if self.frame_axis == 2 else latents.transpose(1, 2)

    def encode_video(self, vae: Any, video: Tensor) -> Tensors:
        """Encode clips [B, 3, F, H, W] in [-1, 1] to moments, which `sample_latents` turns into latents.

        Returns:
            Float32 tensors, normalized as the transformer expects. By default {"mean", "std"}, [B, C, f, h, w] each.
        """
        with for_inference(vae):
            posterior = vae.encode(video.to(*device_and_dtype(vae))).latent_dist
        center, spread = (tensor.float() for tensor in self.latent_scale(vae))
        std = posterior.std.float() / spread
        return {"mean": (posterior.mean.float() - center) / spread, "std": self.posterior_share * std}

    def latent_scale(self, vae: Any) -> tuple[Tensor, Tensor]:
        """Return the (mean, std) that normalize latents, [1, C, 1, 1, 1] each, on the VAE's device."""
        import torch

        found, (device, _) = (vae.config.latents_mean, vae.config.latents_std), device_and_dtype(vae)
        mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1, 1) for values in found)
        return mean, std

    def sample_latents(self, moments: Tensors, noise: Tensor) -> Tensor:
        """Sample latents [B, *latents_shape] from moments and standard normal noise of that shape."""
        return moments["mean"] + moments["std"] * noise

    def posterior_noise(self, moments: Tensors, noise: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw noise for `sample_latents` or `given` as the stock pipelines do: on the CPU, in the VAE's dtype."""
        import torch

        if "mean" not in moments or not moments["std"].any():  # nothing is sampled
            return torch.zeros_like(next(iter(moments.values())))
        mean = self.channels_first(moments["mean"])
        sampled = torch.randn(mean.shape, generator=noise, dtype=dtype)
        return self.channels_first(sampled).to(mean.device)

    def decode(self, vae: Any, latents: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """Decode latents [B, *latents_shape] to clips [B, 3, F, H, W], float32 in [-1, 1].

        Padding frames that `sample_latents` put in front are dropped, as in the stock pipeline.

        Args:
            noise: CPU generator, for decoders that add noise; None for a fixed seed.
        """
        device, dtype = device_and_dtype(vae)
        mean, std = (tensor.to(device).float() for tensor in self.latent_scale(vae))
        with for_inference(vae):
            scaled = (latents.to(device).float() * std + mean).to(dtype)
            return self.decoded(vae, scaled, noise).float().clamp(-1, 1)

    def decoded(self, vae: Any, latents: Tensor, noise: torch.Generator | None) -> Tensor:
        """Run the VAE's decoder on latents whose normalization has been undone."""
        video: Tensor = vae.decode(latents, return_dict=False)[0]
        return video

    def vae_loss(self, vae: Any, clips: Tensor) -> Tensor:
        """Return the VAE's scalar training loss on clips [B, 3, F, H, W] in [-1, 1].

        Only for families with the setting `tokenizer_steps`.
        """
        raise NotImplementedError

    # ---- sound, of models that make it together with the picture

    def sound_rate(self, folder: Path) -> int:
        """Return the samples per second that `encode_sound` takes; 0 for models without sound."""
        return 0

    def load_sound_encoder(self, folder: Path, device: torch.device) -> Any:
        """Load the autoencoder of sound, frozen. Only for families with a `sound_rate`."""
        raise NotImplementedError

    def encode_sound(self, encoder: Any, samples: Tensor) -> Tensors:
        """Encode a clip's sound, float32 [2, samples], to {"sound": [1, tokens, channels]}, normalized."""
        raise NotImplementedError

    def load_sound_decoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any | None:
        """Load what `decode_sound` needs, as one module, frozen; None for models without sound."""
        return None

    def decode_sound(self, decoder: Any, latents: Tensor) -> Sound:
        """Decode a sound's latents [1, tokens, channels]. Only for families that load a sound decoder."""
        raise NotImplementedError

    # ---- latents in files: docs/file_formats.md, samples

    def latents_to_file(self, folder: Path, latents: Tensor) -> dict[str, Tensor]:
        """Convert one clip's latents [1, ...] to a file's tensors: {"latents": [C, f, h, w]}, normalized as here."""
        return {"latents": self.channels_first(latents)[0].contiguous().cpu()}

    def latents_from_file(self, folder: Path, tensors: Tensors) -> Tensor:
        """Convert a file's tensors to latents [1, ...] for `decode`."""
        return self.channels_first(tensors["latents"][None]).contiguous()

    def moments_from_file(self, folder: Path, tensors: Tensors) -> Tensors:
        """Convert a file's tensors, latents or "mean" and "std", to moments as from `encode_video`."""
        import torch

        if "mean" in tensors:
            sides = {name: {"latents": tensors[name]} for name in ("mean", "std")}
            return {name: self.latents_from_file(folder, side).float() for name, side in sides.items()}
        mean = self.latents_from_file(folder, tensors).float()
        return {"mean": mean, "std": torch.zeros_like(mean)}

    def text_from_file(self, tensors: Tensors, dtype: torch.dtype) -> Tensors:
        """Convert a file's "embeddings" [tokens, D] and "mask" [tokens] to what `encode_text` returns.

        Other tensors, `more_text`, have their own names in the file.
        """
        names = {"prompt_embeds": "embeddings"} | ({"mask": "mask"} if self.text_mask else {})
        names |= {name: name for name in self.more_text}
        return {name: tensors[own][None].to(dtype) for name, own in names.items()}

    # ---- conditioning on a first frame

    def load_image_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any | None:
        """Load what `encode_image` needs beside the VAE, frozen; None if it needs nothing."""
        return None

    def encode_image(self, vae: Any, image_encoder: Any, images: Tensor, frames: int, scale: ImageScale) -> Tensors:
        """Encode first frames for `given`. By default, to the moments of one-frame clips. Raises ConfigError.

        Args:
            image_encoder: From `load_image_encoder`.
            images: [B, 3, H, W] in [-1, 1].
            frames: Length of the clips that they begin.
        """
        if "image-to-video" not in self.pipelines.values():
            raise ConfigError(f"{self.title} takes text only: remove the image, or choose an image-to-video model")
        return self.encode_video(vae, images.unsqueeze(2))

    def given(
        self, image: Tensors, noise: Tensor, latents_shape: Shape, kept: Tensor | None = None, every_frame: bool = False
    ) -> Given:
        """Build the conditioning from encoded first frames. By default, they replace the first latent frame.

        Args:
            image: From `encode_image`.
            noise: Standard normal [B, *one_frame(latents_shape)], to sample the pictures' latents.
            kept: [B] bool, True for clips that see their picture; None for all.
            every_frame: Put the picture beside every frame, not only the first, in models trained that way.
        """
        if latents_shape[self.frame_axis - 1] == 1:  # nothing would be left to learn
            return Given()
        return Given(known=self.sample_latents(image, noise), kept=kept)

    def given_to_sample(
        self, folder: Path, image: Tensors, latents_shape: Shape, noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        """Build the conditioning of `denoise` from one encoded first frame, drawing in the stock pipeline's order.

        Args:
            noise: CPU generator.
            dtype: The VAE's, in which the pipelines draw.
        """
        return self.given(image, self.posterior_noise(image, noise, dtype), latents_shape)

    def own_first_frame(self, latents: Tensor, kept: Tensor) -> Given | None:
        """Build the conditioning of a text-to-video model on its training clips' own first latent frame.

        By default that frame of the clip's latents, which a causal VAE makes of its first picture alone.

        Args:
            latents: Clean, [B, ...].
            kept: [B] bool, True for clips that see theirs.

        Returns:
            None for models not trained that way, and for clips of one latent frame.
        """
        if self.own_first_frames is None or latents.shape[self.frame_axis] == 1:
            return None
        return Given(known=latents.narrow(self.frame_axis, 0, 1), kept=kept)

    # ---- conditioning on given frames, masks, control and reference clips: see workbench.families.conditioning

    def encode_conditioning(self, vae: Any, image_encoder: Any, pixels: Conditioning) -> Tensors:
        """Encode pixels for `conditioning`. Raises ConfigError for conditioning that the model does not support.

        Given frames or masks, control clips and reference clips may be encoded in separate calls: their tensors
        [B, ...] have different names and depend on nothing but the pixels.
        """
        raise ConfigError(f"{self.title} does not support given frames: remove them, or choose another model")

    def conditioning(self, tensors: Tensors, latents_shape: Shape, noise: torch.Generator, dtype: torch.dtype) -> Given:
        """Build the conditioning for training.

        Args:
            tensors: From `encode_conditioning`; {} for clips without conditioning.
            noise: CPU generator, to sample latents.
            dtype: The VAE's, in which the pipelines draw.
        """
        return Given()

    def conditioning_to_sample(
        self, folder: Path, tensors: Tensors, latents_shape: Shape, noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        """Build the conditioning of `denoise` for one clip, drawing in the stock pipeline's order."""
        return self.conditioning(tensors, latents_shape, noise, dtype)

    # ---- training

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> NoiseSchedule:
        """Return how noise is mixed in, predicted and, with the run's choices, drawn."""
        return FlowSchedule(chosen)

    @abstractmethod
    def call(self, transformer: Any, inputs: CallInputs) -> Tensor:
        """Return the transformer's prediction, shaped as the noisy latents [B, ...].

        The one place that knows the transformer's arguments. Raises ConfigError for latents of an unsupported size.
        """

    def predict(self, transformer: Any, schedule: NoiseSchedule, inputs: ModelInputs) -> Tensor:
        """Noise the latents to the inputs' timesteps and return the transformer's prediction, shaped as they are."""
        noisy = self.with_known(schedule.mix(inputs.latents, inputs.noise, inputs.timesteps), inputs.given)
        dtype = transformer.dtype
        text = {name: tensor.to(dtype) for name, tensor in inputs.text.items()}
        given = inputs.given and inputs.given.to(noisy.device, dtype)
        return self.call(transformer, CallInputs(noisy.to(dtype), text, inputs.timesteps, given, inputs.fps))

    def mask_cells(self, folder: Path, mask: Tensor) -> Tensor:
        """Average a mask over the pixels and frames of each latent cell.

        By default, as a causal VAE groups frames: the first alone, then groups of equal length.

        Args:
            mask: [B, 1, F, H, W] in [0, 1], of a legal size.

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
        base: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of each clip, [B]. A pure function.

        Args:
            base: Prediction of the base model, to use as the target; None for the schedule's target.
            weights: Weight of each latent cell, as from `mask_cells`; None for equal weights.
        """
        target = schedule.target(inputs.latents, inputs.noise, inputs.timesteps) if base is None else base.float()
        return self.error(self.predict(transformer, schedule, inputs), target, inputs.given, weights)

    def losses(
        self,
        transformer: Any,
        schedule: NoiseSchedule,
        inputs: ModelInputs,
        base: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the loss of each clip as `loss`, and that of its sound, [B] each. A pure function.

        If the sound alone is learned, its loss is the first. The second is None without a sound beside the picture.
        """
        return self.loss(transformer, schedule, inputs, base, weights), None

    def predictions(self, transformer: Any, schedule: NoiseSchedule, inputs: ModelInputs) -> tuple[Tensor, ...]:
        """Return the prediction of each stream that is learned; of one, as `predict`."""
        return (self.predict(transformer, schedule, inputs),)

    def error(
        self, predicted: Tensor, target: Tensor, given: Given | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return the mean squared error of each clip, [B], in the target's dtype, without known frames.

        Args:
            weights: Weight w of each latent cell, as from `mask_cells`: the error is sum(w e^2) / sum(w), and 0 where
                all weights are 0. None for equal weights.
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

    def with_known(self, noisy: Tensor, given: Given | None) -> Tensor:
        """Put known frames into noisy latents [B, ...], in the clips that keep theirs."""
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

    def _counted(self, error: Tensor, given: Given | None) -> Tensor | None:
        """Return 0 for known latents and 1 elsewhere, broadcastable to `error`; None if nothing is known."""
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
        """Return the steps from noise to latents."""
        made = self.load_scheduler(options.folder, options.scheduler, options.shift)
        return FlowSteps(made, options.steps, options.device)

    def first_noise(self, latents_shape: Shape, noise: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw the noise [1, *latents_shape] that a sample starts from, in the stock pipeline's order."""
        import torch

        return torch.randn(1, *latents_shape, generator=noise, dtype=dtype)

    def check_inputs(self, transformer: Any, inputs: DenoiseInputs) -> None:
        """Refuse what the model cannot generate, before any computation. Raises ConfigError."""
        self.check_given(transformer, inputs.given)
        if inputs.guidance.wanted and inputs.negative_text is None:
            scale = inputs.guidance.scale
            raise ConfigError(f"guidance scale is {scale:g}, which needs a negative prompt: encode an empty one")
        if inputs.prefix is None:
            return
        kept = self.as_prefix(inputs.prefix, inputs.latents_shape).shape[self.frame_axis]
        if kept >= (generated := inputs.latents_shape[self.frame_axis - 1]):
            raise ConfigError(
                f"the clip to continue has {kept} latent frames, but the new clip only {generated}: generate more "
                f"frames, or continue from fewer"
            )

    def check_given(self, transformer: Any, given: Given | None) -> None:
        """Refuse a picture that the model cannot take, or a missing one that it needs. Raises ConfigError."""
        own = transformer.config
        check_picture(own.in_channels != (own.out_channels or own.in_channels), given)

    def as_prefix(self, latents: Tensor, latents_shape: Shape) -> Tensor:
        """Lay out the latents of a clip to continue as they begin the latents of a longer clip."""
        return latents

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> Tensor:
        """Generate one clip's latents [1, *latents_shape] as the stock pipelines do. Raises ConfigError."""
        return Denoising(self, transformer, inputs).run()

    def denoise_with_sound(self, transformer: Any, inputs: DenoiseInputs) -> tuple[Tensor, Tensor | None]:
        """Generate one clip's latents as `denoise`, and those of its sound [1, tokens, channels]; None without one."""
        return self.denoise(transformer, inputs), None

    # ---- model cards

    def usage(
        self,
        model: Model,
        folder: Path,
        lora: str,
        prompt: str,
        shape: ClipSize,
        image_scale: ImageScale = "pipeline",
        experts: Sequence[str] = (),
        repository: str = "",
        seed: int = 0,
        kinds: Sequence[str] = (),
    ) -> str:
        """Return Python code that generates with a LoRA in plain diffusers, for model cards.

        Where plain diffusers differs from training, the code says so and makes up for it.

        Args:
            lora: File name of the LoRA, in the code's folder.
            shape: (frames, height, width).
            experts: The experts that the LoRA is for; () for all.
            repository: Hub repository to load the LoRA from; "" to load the file `lora`.
            kinds: Kinds of `conditioning.NAMES` and `conditioning.BESIDE` that the run trained with.
        """
        pipeline = model.pipeline or next(name for name, task in self.pipelines.items() if task == model.task)
        extras = self.usage_extras(model, folder, shape, image_scale)
        extras = self.usage_conditioning(model, folder, shape, extras, kinds)
        return usage.code(pipeline, model, lora, prompt, shape, extras, experts, repository, seed)

    def comfyui_workflow(
        self,
        model: Model,
        lora: str,
        prompt: str,
        shape: ClipSize,
        seed: int = 0,
        experts: Sequence[str] = (),
        picture: str = "",
    ) -> Mapping[str, Any] | None:
        """Return a ComfyUI workflow in the API's format that samples with a LoRA; None where we know none.

        Args:
            lora: Its file in ComfyUI's folder of LoRAs, in the format comfyui.
            shape: (frames, height, width).
            experts: The experts that the LoRA is for; () for all.
            picture: The first frame's file in ComfyUI's input folder.
        """
        return None

    def usage_extras(self, model: Model, folder: Path, shape: ClipSize, image_scale: ImageScale) -> UsageExtras:
        """Return the lines that make the stock pipeline match training."""
        return UsageExtras()

    def usage_conditioning(
        self, model: Model, folder: Path, shape: ClipSize, extras: UsageExtras, kinds: Sequence[str]
    ) -> UsageExtras:
        """Add to `extras` what a LoRA trained with given frames needs.

        By default a last frame where the stock pipeline takes one, and a remark on kinds that it does not take.
        """
        stock = self.stock_kinds if model.task == "image-to-video" else ()
        if "first+last" in kinds and "first+last" in stock:
            extras = replace(extras, arguments=f", {usage.LAST}{extras.arguments}")
        more = [kind for kind in kinds if kind not in stock]
        options = ", ".join(usage.OPTIONS[kind] for kind in more if kind in usage.OPTIONS)
        remark = usage.ALSO_CONDITIONED.format(kinds=", ".join(more), options=options) if options else ""
        return replace(extras, changes=extras.changes + remark)

    # ---- other trainers' files

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        """Convert a LoRA file of any known trainer of this family to our names. Raises ConfigError."""
        found, experts = lora_names.read(self.layer_names, tensors, metadata), experts_of(tensors, metadata)
        return replace(found, expert=experts[0]) if len(experts) == 1 else found

    def lora_tensors(self, path: Path) -> tuple[Tensors, Mapping[str, str]]:
        """Read (tensors, metadata) of a LoRA file, for `lora_weights`. Raises ConfigError."""
        return read_lora(path)

    def export_lora(self, lora: LoraWeights, format: str) -> Written:
        """Return (tensors, metadata) of a LoRA in one of `lora_formats`. Raises ConfigError if it does not fit."""
        found, metadata = lora_writing.export(lora, format, self.lora_formats, self.layer_names)
        return found, {**metadata, **({EXPERT_KEY: lora.expert} if lora.expert else {})}

    def convert(self, source: Path, target: Path, folder: Path, report: Report = print) -> str:
        """Convert a model or a LoRA from the authors' layout to diffusers', or back.

        Returns a sentence that says what was written. Raises ConfigError, CannotWrite.

        Args:
            source: Its layout decides the direction.
            target: A new file or folder.
            folder: A model of the same architecture in diffusers' layout. It supplies configs and missing parts.
        """
        raise ConfigError(f"{source.name} cannot be converted: {self.title} has no layout but diffusers'")

    # ---- miniatures, for contract tests

    def toy(self, folder: Path, variant: str) -> Model:
        """Write a miniature with random weights, in diffusers' layout. `variant` is usually one of `toys`."""
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
        """Return (pipeline with random weights, frames, height and width that no config says)."""
        raise NotImplementedError


class ResolvedModel(NamedTuple):
    """A model's name, looked up. Made where a name comes in, and passed on."""

    family: Family
    model: Model

    @property
    def facts(self) -> ModelFacts:
        return self.family.facts(self.model)

    @property
    def own_settings(self) -> Mapping[str, OwnSetting]:
        return self.family.own_settings(self.model)

    def fetch(self, report: Report = print) -> Path:
        return self.family.fetch(self.model, report)

    def whole_folder(self, report: Report = print) -> Path:
        """Fetch the model and return a folder that stock diffusers can load: see model_files.whole."""
        folder = self.fetch(report)
        return own_files.written_out(self.family, self.model, folder) if self.model.files else model_files.whole(folder)


def check_picture(needed: bool, given: Given | None) -> None:
    """Refuse a missing picture if the model needs one, and any picture if it does not. Raises ConfigError."""
    there = given is not None and given.beside is not None
    if needed and not there:
        raise ConfigError("this model starts from a first frame: add an image")
    if there and not needed:
        raise ConfigError("this model takes text only: remove the image, or choose an image-to-video model")


def check_kernel(kernel: str, device: torch.device) -> None:
    """Refuse an attention kernel that the device does not have. Raises ConfigError."""
    if device.type != "cuda" and kernel not in ("auto", "stock", "math"):
        raise ConfigError.about(
            f"attention is {kernel}, which needs an NVIDIA GPU, and the device is {device.type}: choose auto"
        )


@contextlib.contextmanager
def for_inference(vae: Any) -> Iterator[None]:
    """Encode or decode without gradients, and with faster convolutions on a CPU."""
    import torch

    from workbench.memory.cpu_convolutions import faster_convolutions

    with torch.no_grad(), faster_convolutions(vae):
        yield


def device_and_dtype(vae: Any) -> tuple[torch.device, torch.dtype]:
    """Return the device and dtype a VAE runs in. An offloading pipeline keeps its weights elsewhere between calls."""
    weight = next(vae.parameters())  # the VAE's own `device` and `dtype` walk through all its modules: 1 ms each
    hook = getattr(vae, "_hf_hook", None)
    return getattr(hook, "execution_device", None) or weight.device, weight.dtype
