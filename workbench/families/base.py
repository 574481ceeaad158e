"""The contract between a video model family and everything else. Nothing outside `families/` knows a family's tensors.

A family states facts (usable without torch) and offers methods (torch and diffusers are imported inside them). Tensors
cross the border in three dicts whose keys only the family knows: `moments` (what the VAE says of a clip), `text` (what
the text encoder says of a caption) and the batch made of both. Randomness is an argument everywhere: the caller
samples.

Shapes: B clips, F frames, H x W pixels; latents are the family's own affair, `latents_shape` tells their shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workbench.errors import ConfigError
from workbench.families.facts import ModelFacts
from workbench.families.guidance import Guidance
from workbench.families.lora_files import LoraFormat, LoraWeights, read_lora

if TYPE_CHECKING:
    import torch

Task = Literal["text-to-video", "image-to-video"]
ImageScale = Literal["pipeline", "raw"]  # how a first frame's latents are scaled: as the stock pipeline does, or not
Tensors = Mapping[str, "torch.Tensor"]
Report = Callable[[str], None]
OnStep = Callable[[int, int, "torch.Tensor"], None]
"""Called after each denoising step with (steps done, all steps, the clean latents as predicted); may raise."""


@dataclass(frozen=True)
class Frames:
    """Legal frame counts: step * n + 1, up to `longest`."""

    step: int
    longest: int

    def legal(self) -> list[int]:
        return list(range(1 + self.step, self.longest + 1, self.step))

    def __str__(self) -> str:
        return f"{self.step}k+1, from {self.step + 1} to {self.longest}"


@dataclass(frozen=True)
class Model:
    """One set of weights.

    id:       its name in settings;  title: its name for people
    source:   Hub repository, or a folder when `local`
    revision: commit of the Hub repository: the pinned one, or one that a person named
    variant:  which of the repository's sets of weights, "" for the one without a name
    aliases:  the repository's other names on the Hub
    frames, fps, height, width: what it was made for and what a form starts with
    frame_rule, size_multiple, largest: what is legal; largest is (height, width), None when there is no limit
    fixed_size: whether no height and width but its own are legal
    steps, guidance_scale, scheduler: what samples start with
    preservation_prompts: what a LoRA on it should leave alone; empty: the family's
    """

    id: str
    title: str
    family: str
    source: str
    revision: str | None
    task: Task
    frames: int
    fps: int
    height: int
    width: int
    frame_rule: Frames
    size_multiple: int
    steps: int
    guidance_scale: float
    scheduler: str
    license: str
    largest: tuple[int, int] | None = None
    download_gb: float = 0.0
    local: bool = False
    embedded: bool = False
    fixed_size: bool = False
    preservation_prompts: tuple[str, ...] = ()
    variant: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def pinned(self) -> str:
        """Repository, variant and commit of a Hub model: what decides its weights."""
        return f"{self.source}{':' if self.variant else ''}{self.variant}@{self.revision}"

    def check_shape(self, frames: int, height: int, width: int) -> None:
        """Refuse what the model cannot generate. Raises ConfigError naming the nearest legal values."""
        legal = self.frame_rule.legal()
        if frames not in legal:
            nearest = sorted(sorted(legal, key=lambda n: abs(n - frames))[:2])
            choice = " or ".join(str(n) for n in nearest)
            raise ConfigError(
                f"frames is {frames}, {self.title} needs {self.frame_rule}: use {choice}", {"frames": f"use {choice}"}
            )
        for name, pixels in (("height", height), ("width", width)):
            if pixels < self.size_multiple or pixels % self.size_multiple:
                nearest_size = max(self.size_multiple, round(pixels / self.size_multiple) * self.size_multiple)
                rule = f"use {nearest_size}"
                raise ConfigError(
                    f"{name} is {pixels}, {self.title} needs a multiple of {self.size_multiple}: {rule}", {name: rule}
                )
        if self.fixed_size and (height, width) != (self.height, self.width):
            rule = f"use {self.width}x{self.height}"
            raise ConfigError(
                f"size is {width}x{height}, {self.title} knows positions of {self.width}x{self.height} alone: {rule}",
                {"height": rule, "width": rule},
            )
        if self.largest and (height > self.largest[0] or width > self.largest[1]):
            rule = f"use at most {self.largest[1]}x{self.largest[0]}"
            raise ConfigError(
                f"size is {width}x{height}, {self.title} is made for {self.largest[1]}x{self.largest[0]}: {rule}"
            )


@dataclass(frozen=True)
class CaptionTokens:
    """How much of one caption the text encoder reads.

    count, limit: tokens it has and tokens that are read, the closing one included
    cut:          the end of the caption that is never read, as it is written; "" when all is read
    """

    count: int
    limit: int
    cut: str


class Family(ABC):
    """One architecture with its models. Subclasses are stateless; one instance each, named FAMILY in its module."""

    name: ClassVar[str]
    title: ClassVar[str]
    models: ClassVar[tuple[Model, ...]]
    lora_targets: ClassVar[dict[str, tuple[str, ...]]]  # preset -> module names
    lora_prefix: ClassVar[str]  # first part of every tensor's name in a LoRA file
    lora_formats: ClassVar[tuple[LoraFormat, ...]]  # what `export_lora` can write, diffusers' own first
    schedulers: ClassVar[tuple[str, ...]]
    timesteps: ClassVar[int]  # training timesteps are 0 .. timesteps - 1
    toys: ClassVar[tuple[str, ...]]  # the variants `toy` can write
    preservation_prompts: ClassVar[tuple[str, ...]]  # what a LoRA should leave alone, where a model has none of its own
    image_noise: ClassVar[tuple[float, float]]  # mean and deviation of log sigma, the noise put on a first frame

    # ---- facts that need files, not torch

    @abstractmethod
    def describe_folder(self, folder: Path) -> Model | None:
        """A model from a folder in diffusers' layout, facts read from its own configs; None if it is not ours.

        Raises ConfigError for configs that lack what is needed.
        """

    @abstractmethod
    def fetch(self, model: Model, report: Report = print) -> Path:
        """The folder with the model's files, downloaded at the pinned revision if need be. Raises ModelUnavailable."""

    @abstractmethod
    def on_disk(self, model: Model) -> Path | None:
        """The folder with the model's files where nothing needs to be downloaded, else None."""

    @abstractmethod
    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        """What `encode_text` reads of each caption, counted by the model's own tokenizer. Raises ModelUnavailable."""

    @abstractmethod
    def stored_dtype(self, folder: Path) -> str:
        """The transformer's dtype on disk: "float32", "float16" or "bfloat16"."""

    @abstractmethod
    def facts(self, model: Model) -> ModelFacts:
        """The model's sizes: from its configs where it is on the disk, else as published. Raises ConfigError."""

    # ---- loading: one part at a time, so that two never share memory without need

    @abstractmethod
    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """What `encode_text` needs: tokenizer and encoder; `to(device)` moves it, as it does a module."""

    @abstractmethod
    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """The video autoencoder, frozen."""

    @abstractmethod
    def load_transformer(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """The denoiser, frozen."""

    # ---- what makes a transformer cheaper: see engine

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
        """The noise for `sample_latents` or `image_condition`, sampled as the stock pipelines do, in their order."""

    @abstractmethod
    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> tuple[int, ...]:
        """Shape of one clip's latents, without the batch axis, as `sample_latents` returns it and `loss` takes it."""

    @abstractmethod
    def decode(self, vae: Any, latents: torch.Tensor) -> torch.Tensor:
        """Latents (with or without what `sample_latents` put in front) to clips [B, 3, F, H, W] in [-1, 1].

        F is what was encoded: what stands in front of the latents is not decoded, as in the stock pipeline.
        """

    # ---- image-to-video: a condition beside the latents

    @abstractmethod
    def encode_image(self, vae: Any, images: torch.Tensor, scale: ImageScale) -> Tensors:
        """Moments of pictures [B, 3, H, W] in [-1, 1], scaled as the denoiser takes a first frame."""

    @abstractmethod
    def image_condition(
        self, image: Tensors, noise: torch.Tensor, latents_shape: tuple[int, ...], every_frame: bool = False
    ) -> torch.Tensor:
        """The condition [B, *latents_shape] of moments and noise [B, 1, ...]: the picture beside the first latent frame
        and zeros elsewhere, or the picture beside every frame."""

    def first_frame(
        self,
        vae: Any,
        image: torch.Tensor,
        scale: ImageScale,
        latents_shape: tuple[int, ...],
        noise: torch.Generator,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """The condition that the stock pipelines make of a picture [1, 3, H, W], with noise that they sample first."""
        moments = self.encode_image(vae, image, scale)
        return self.image_condition(moments, self.posterior_noise(moments, noise, dtype), latents_shape)

    # ---- training

    @abstractmethod
    def noise_schedule(self, folder: Path, device: torch.device) -> Any:
        """What `loss` needs of the model's scheduler, in float32."""

    @abstractmethod
    def predict(
        self,
        transformer: Any,
        schedule: Any,
        latents: torch.Tensor,
        text: Tensors,
        noise: torch.Tensor,
        timesteps: torch.Tensor,
        condition: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """What the transformer makes of the latents noised to those timesteps [B]."""

    @abstractmethod
    def loss(
        self,
        transformer: Any,
        schedule: Any,
        latents: torch.Tensor,
        text: Tensors,
        noise: torch.Tensor,
        timesteps: torch.Tensor,
        condition: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The training loss per sample [B], float32. A pure function of its arguments.

        condition: for image-to-video models, shaped as the latents: what `image_condition` makes, or `sample_latents`
                   of a degraded clip; all zero where it is dropped
        """

    @abstractmethod
    def min_snr_weights(self, schedule: Any, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
        """What the loss of each timestep [B] counts under min-SNR weighting (arXiv 2303.09556), float32."""

    # ---- sampling

    @abstractmethod
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
        """Generate the latents of one clip [1, *latents_shape], as the stock pipelines do, on the text's device.

        text, negative_text: of one caption each, on the device where the transformer computes, in its dtype
        scheduler:  one of `schedulers`, or "model"
        noise:      a generator of the processor; the pipelines' order: what `posterior_noise` takes goes first
        condition:  latents-shaped, for image-to-video models (see `loss`)
        prefix:     latents of the clip that this one continues, as `sample_latents` makes them of one frame or a
                    legal number: they are put back at every step, noised to that step, and clean at the end
        source:     latents of the clip to change; `strength` says how far: the part of the steps that is made
        sequential_guidance: compute the two predictions of guidance one after the other, which takes less memory
        skip_steps: skip steps in the middle whose clean latents can be extrapolated from earlier ones

        Raises ConfigError.
        """

    @abstractmethod
    def usage(
        self,
        model: Model,
        folder: Path,
        lora: str,
        prompt: str,
        shape: tuple[int, int, int],
        image_scale: ImageScale = "pipeline",
    ) -> str:
        """Python code that generates (frames, height, width) with a LoRA file in plain diffusers, for model cards.

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
        """(tensors, metadata) of a LoRA file, for `lora_weights`; a family may know other files. Raises ConfigError."""
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
