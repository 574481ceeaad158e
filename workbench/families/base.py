"""The contract between a video model family and everything else. Nothing outside `families/` knows a family's tensors.

A family states facts (usable without torch) and offers methods (torch and diffusers are imported inside them). Tensors
cross the border in three dicts whose keys only the family knows: `moments` (the VAE's output for a clip), `text` (the
text encoder's output for a caption) and the batch made of both. Randomness is an argument everywhere: the caller
samples.

Shapes: B clips, F frames, H x W pixels; latents are the family's own affair, `latents_shape` tells their shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from workbench.errors import ConfigError
from workbench.families import model_files
from workbench.families.facts import ModelFacts
from workbench.families.lora_files import LoraFormat, LoraWeights, read_lora
from workbench.families.model import Model
from workbench.families.model_inputs import CaptionTokens, Given, ModelInputs, Tensors
from workbench.families.noise_schedules import AS_PUBLISHED, NoiseSchedule, NoiseSettings
from workbench.families.recipes import Recipe
from workbench.settings import Settings

if TYPE_CHECKING:
    import torch

    from workbench.families.denoising import DenoiseInputs, SamplerSteps, StepOptions

ImageScale = Literal["pipeline", "raw"]  # how a first frame's latents are scaled: as the stock pipeline does, or not
Report = Callable[[str], None]


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
    lora_targets: ClassVar[dict[str, tuple[str, ...]]]  # preset -> module names
    lora_prefix: ClassVar[str]  # first part of every tensor's name in a LoRA file
    lora_formats: ClassVar[tuple[LoraFormat, ...]]  # what `export_lora` can write, diffusers' own first
    schedulers: ClassVar[tuple[str, ...]]
    channel_axis: ClassVar[int] = 1  # of latents [B, ...], where a condition's channels are joined
    frame_axis: ClassVar[int] = 2  # of latents [B, ...]
    has_pipeline: ClassVar[bool] = True  # diffusers has a pipeline that generates with its models
    toys: ClassVar[tuple[str, ...]]  # the variants `toy` can write
    preservation_prompts: ClassVar[tuple[str, ...]]  # what a LoRA should leave alone, where a model has none of its own
    recipes: ClassVar[tuple[Recipe, ...]] = ()  # what published LoRAs were trained with
    # Mean and deviation of log sigma, the noise put on a first frame at each step; None: a picture is encoded once.
    image_noise: ClassVar[tuple[float, float] | None] = None
    new_model: ClassVar[type[Settings] | None] = None  # the sizes that `create` takes; None: nothing is trained anew
    # How often an image-to-video model is trained without its picture: as CogVideoX was.
    image_dropout: ClassVar[float] = 0.05
    text_mask: ClassVar[bool] = False  # whether `encode_text` also returns a mask
    # Whether latents stay float32 between denoising steps and only the transformer's input is cast, as in the family's
    # stock pipelines.
    float32_latents: ClassVar[bool] = False
    # Whether the VAE and the image encoder compute in float32 whatever the transformer does.
    float32_vae: ClassVar[bool] = False
    # What a transformer stored in float32 computes in on a GPU where precision is `auto`.
    auto_for_float32: ClassVar[str] = "float32"

    # ---- facts that need files, not torch

    @abstractmethod
    def describe_folder(self, folder: Path) -> Model | None:
        """A model from a folder in diffusers' layout, facts read from its own configs; None if it is not ours.

        Raises ConfigError for configs that lack what is needed.
        """

    def weighted_parts(self, model: Model) -> tuple[str, ...]:
        """The folders of a model that hold weights."""
        return "text_encoder", *(expert.part for expert in model.experts), "vae"

    def fetch(self, model: Model, report: Report = print) -> Path:
        """The folder with the model's files, downloaded at the pinned revision if need be.

        A full fine-tune whose base model has moved is linked to it again. Raises ModelUnavailable, CannotWrite.
        """
        base = self.base_of(Path(model.source)) if model.local else None
        if base is not None and not model_files.is_complete(folder := Path(model.source)):
            model_files.repair(folder, self.fetch(base, report))
        return model_files.fetch(model, self.weighted_parts(model), report)

    def base_of(self, folder: Path) -> Model | None:
        """The known model that the folder holds a full fine-tune of, None for any other folder."""
        name = model_files.base_model(folder)
        return next((model for model in self.models if model.id == name), None) if name else None

    def on_disk(self, model: Model) -> Path | None:
        """The folder with the model's files where nothing needs to be downloaded, else None."""
        return model_files.find(model, self.weighted_parts(model))

    @abstractmethod
    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        """What `encode_text` reads of each caption, counted by the model's own tokenizer. Raises ModelUnavailable."""

    def stored_dtype(self, folder: Path) -> str:
        """The transformer's dtype on disk: "float32", "float16" or "bfloat16". Raises ModelUnavailable."""
        return model_files.stored_dtype(folder)

    def create(self, folder: Path, new: Settings, text: Path, made_for: Mapping[str, int], seed: int) -> None:
        """Write a model of random weights, with sizes of the class `new_model`. Raises ConfigError.

        text: the folder of a model whose text encoder is copied;  made_for: frames, height, width and fps
        """
        raise NotImplementedError

    def auto_dtype(self, stored: str) -> str:
        """Return the dtype that a transformer stored as `stored` computes in on a GPU with precision `auto`."""
        return self.auto_for_float32 if stored == "float32" else stored

    def vae_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of the VAE and the image encoder beside a transformer that computes in `dtype`."""
        import torch

        return torch.float32 if self.float32_vae else dtype

    @abstractmethod
    def facts(self, model: Model) -> ModelFacts:
        """The model's sizes: from its configs where it is on the disk, else as published. Raises ConfigError."""

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        """The settings marked `own` that the model has, and what an empty one stands for."""
        return {}

    # ---- loading: one part at a time, so that two never share memory without need

    @abstractmethod
    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """What `encode_text` needs: tokenizer and encoder; `to(device)` moves it, as it does a module."""

    @abstractmethod
    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """The video autoencoder, frozen."""

    @abstractmethod
    def load_transformer(
        self, folder: Path, device: torch.device, dtype: torch.dtype, part: str = "transformer"
    ) -> Any:
        """The denoiser, frozen. part: of the expert, for models that have two"""

    # ---- what makes a transformer cheaper: see workbench.memory

    @abstractmethod
    def blocks(self, transformer: Any) -> Sequence[Any]:
        """The equal blocks that hold nearly all of its weights and do nearly all of its work, first to last."""

    @abstractmethod
    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        """Compute its attention with a kernel (a value of the setting `attention`) on this device.

        Raises ConfigError for one that the device or this machine does not have.
        """

    @abstractmethod
    def join_projections(self, transformer: Any) -> None:
        """Join frozen layers that read the same input, after a LoRA was attached beside them; equal within rounding."""

    @abstractmethod
    def load_pipeline(self, folder: Path, transformer: Any) -> Any:
        """The stock diffusers pipeline around a transformer alone, for what it makes of LoRA files."""

    # ---- encoding

    @abstractmethod
    def encode_text(self, text_encoder: Any, captions: Sequence[str]) -> Tensors:
        """Embeddings, batch first, in the encoder's dtype."""

    def text_form(self, folder: Path) -> str:
        """Identify these embeddings in cache keys if an earlier version encoded the same files differently; else ""."""
        return ""

    def no_text(self, text: Tensors) -> Tensors:
        """What stands for no caption where a trainer leaves out the embedding, in the shape of `text`: zeros."""
        return {name: tensor.new_zeros(tensor.shape) for name, tensor in text.items()}

    @abstractmethod
    def encode_video(self, vae: Any, video: torch.Tensor) -> Tensors:
        """Moments of clips [B, 3, F, H, W] in [-1, 1]: enough to sample latents from, scaled as the denoiser wants."""

    @abstractmethod
    def sample_latents(self, moments: Tensors, noise: torch.Tensor) -> torch.Tensor:
        """Latents from moments and standard normal noise of `latents_shape`."""

    @abstractmethod
    def posterior_noise(self, moments: Tensors, noise: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
        """The noise for `sample_latents` or `given`, sampled as the stock pipelines do, in their order."""

    @abstractmethod
    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> tuple[int, ...]:
        """Shape of one clip's latents, without the batch axis, as `sample_latents` returns it and `loss` takes it."""

    @abstractmethod
    def decode(self, vae: Any, latents: torch.Tensor, noise: torch.Generator | None = None) -> torch.Tensor:
        """Latents (with or without what `sample_latents` put in front) to clips [B, 3, F, H, W] in [-1, 1].

        noise: of the processor, for decoders that need some; None: always the same
        F is what was encoded: what stands in front of the latents is not decoded, as in the stock pipeline.
        """

    # ---- latents in files of their own: docs/file_formats.md, samples

    def latents_to_file(self, folder: Path, latents: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one clip's latents [1, ...] as the tensors of a file: {"latents": [C, f, h, w]}, scaled as here."""
        channels_first = latents if self.frame_axis == 2 else latents.transpose(1, 2)
        return {"latents": channels_first[0].contiguous().cpu()}

    def latents_from_file(self, folder: Path, tensors: Tensors) -> torch.Tensor:
        """Return what `decode` takes of such a file: latents [1, ...]."""
        latents = tensors["latents"][None]
        return latents if self.frame_axis == 2 else latents.transpose(1, 2).contiguous()

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

    def codes(self, model: Model) -> int:
        """Return how many codes the model's latents are numbers of; 0 for latents of real numbers."""
        return 0

    def vae_loss(self, vae: Any, clips: torch.Tensor) -> torch.Tensor:
        """What a VAE learns from clips [B, 3, F, H, W] in [-1, 1], of a family with the setting `tokenizer_steps`."""
        raise NotImplementedError

    # ---- image-to-video: what a model is given beside the caption

    def load_image_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any | None:
        """What `encode_image` needs beside the VAE, frozen; None for models that need nothing more."""
        return None

    def encode_image(
        self, vae: Any, image_encoder: Any, images: torch.Tensor, frames: int, scale: ImageScale
    ) -> Tensors:
        """What `given` needs of pictures [B, 3, H, W] in [-1, 1] that clips of so many frames begin with."""
        raise ConfigError(f"{self.title} takes text alone: leave out the image, or choose a model for images")

    def given(
        self,
        image: Tensors,
        noise: torch.Tensor,
        latents_shape: tuple[int, ...],
        kept: torch.Tensor | None = None,
        every_frame: bool = False,
    ) -> Given:
        """What the model is shown of encoded pictures.

        noise:       standard normal, [B, *one_frame(latents_shape)], where the pictures' latents are sampled
        kept:        [B] bool, the clips that are shown their picture; None: all
        every_frame: the picture beside every frame instead of the first, where the model can be trained so
        """
        raise ConfigError(f"{self.title} takes text alone: leave out the image, or choose a model for images")

    def given_to_sample(
        self,
        folder: Path,
        image: Tensors,
        latents_shape: tuple[int, ...],
        noise: torch.Generator,
        dtype: torch.dtype,
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

    def one_frame(self, latents_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one latent frame of latents of a shape, both without the batch axis."""
        return tuple(1 if axis == self.frame_axis - 1 else size for axis, size in enumerate(latents_shape))

    # ---- training

    @abstractmethod
    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> NoiseSchedule:
        """How the model's noise is mixed, in float32, and drawn in training. chosen: by a person"""

    @abstractmethod
    def call(
        self,
        transformer: Any,
        latents: torch.Tensor,
        text: Tensors,
        timesteps: torch.Tensor,
        given: Given | None,
        fps: float,
    ) -> torch.Tensor:
        """The transformer's prediction, shaped as the noisy latents [B, ...]; all tensors in its dtype, but timesteps.

        Known frames are in the latents' place already. Raises ConfigError for latents that the model cannot take.
        """

    def predict(self, transformer: Any, schedule: NoiseSchedule, inputs: ModelInputs) -> torch.Tensor:
        """What the transformer makes of the latents noised to the inputs' timesteps, shaped as they are."""
        noisy = self.with_known(schedule.mix(inputs.latents, inputs.noise, inputs.timesteps), inputs.given)
        dtype = transformer.dtype
        text = {name: tensor.to(dtype) for name, tensor in inputs.text.items()}
        given = inputs.given and inputs.given.to(noisy.device, dtype)
        return self.call(transformer, noisy.to(dtype), text, inputs.timesteps, given, inputs.fps)

    def loss(
        self, transformer: Any, schedule: NoiseSchedule, inputs: ModelInputs, base: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Pure: the squared error per sample [B], float32, of the target, or of `base`, the base model's prediction."""
        target = schedule.target(inputs.latents, inputs.noise, inputs.timesteps) if base is None else base.float()
        error = (self.predict(transformer, schedule, inputs).to(target.dtype) - target).square()
        if (counted := self._counted(error, inputs.given)) is None:
            return error.flatten(1).mean(1)
        return (error * counted).flatten(1).sum(1) / counted.expand_as(error).flatten(1).sum(1)

    def with_known(self, noisy: torch.Tensor, given: Given | None) -> torch.Tensor:
        """Noisy latents with the known frames in their place, where they are shown."""
        import torch

        if given is None or given.known is None:
            return noisy
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
        shape = [error.shape[axis] if axis in (0, self.frame_axis) else 1 for axis in range(error.ndim)]
        counted = error.new_ones(shape)
        kept = 1.0 if given.kept is None else given.kept.to(error).view(-1, *[1] * (error.ndim - 1))
        counted.narrow(self.frame_axis, 0, given.known.shape[self.frame_axis]).sub_(kept)
        return counted

    # ---- sampling

    @abstractmethod
    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        """The way from noise to latents in so many steps."""

    def check_inputs(self, transformer: Any, inputs: DenoiseInputs) -> None:
        """Refuse what the model cannot generate, before anything is computed. Raises ConfigError."""
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

    def as_prefix(self, latents: torch.Tensor, latents_shape: tuple[int, ...]) -> torch.Tensor:
        """Latents of a clip to be continued as they stand at the beginning of latents of a shape."""
        return latents

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> torch.Tensor:
        """Generate the latents of one clip [1, *latents_shape], as the stock pipelines do, on the text's device.

        Raises ConfigError.
        """
        from workbench.families.denoising import Denoising

        return Denoising(self, transformer, inputs).run()

    @abstractmethod
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
        """Python code that generates (frames, height, width) with a LoRA file in plain diffusers, for model cards.

        experts: those that the LoRA is for, where the model has two; (): both
        Where plain diffusers would not do what training did, the code says so and does it.
        """

    # ---- other trainers' files

    @abstractmethod
    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        """A LoRA file of ours, of diffusers or of another trainer of this family. Raises ConfigError."""

    @abstractmethod
    def export_lora(self, lora: LoraWeights, format: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """(tensors, metadata) of a file in one of `lora_formats`. Raises ConfigError where it cannot hold the LoRA."""

    def lora_tensors(self, path: Path) -> tuple[Tensors, Mapping[str, str]]:
        """(tensors, metadata) of a LoRA file, for `lora_weights`. Raises ConfigError."""
        return read_lora(path)

    def convert(self, source: Path, target: Path, folder: Path, report: Report = print) -> str:
        """Write weights or a LoRA in the other layout: from the authors' own code to diffusers', or back.

        source: which way to go is read from it;  target: a new file or folder, never an old one
        folder: a model of the same architecture in diffusers' layout, which gives configs and the parts that source
                lacks

        Returns a sentence that says what was written. Raises ConfigError, CannotWrite.
        """
        raise ConfigError(f"{source.name} cannot be converted: {self.title} has no layout but diffusers'")

    @abstractmethod
    def toy(self, folder: Path, variant: str) -> Model:
        """Write a random miniature of the architecture (one of `toys`), in diffusers' layout, for contract tests."""


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
