"""The tensors of every batch: its random numbers, and the cached tensors of its clips and captions.

Everything is a pure function of the run's seed and the batch's number (step, number within the step): each purpose has
a generator of its own, so no state is carried from batch to batch, and any number of threads may read ahead. Noise is
sampled on the processor, so every device gets the same. Not covered: which clips are in a batch (batches).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from workbench.families.base import Model, Tensors
from workbench.runs.batches import Batches
from workbench.runs.data import RunClip, TrainingData, seed_for
from workbench.runs.settings import TrainSettings
from workbench.trainer.inputs.conditions import FirstFrames
from workbench.trainer.inputs.encoder import FIRST_FRAME, Encoder, View, view_of
from workbench.trainer.monitoring.evaluation import EvaluationInput

# First frames encoded at one visit of the VAE to a GPU, in batches: a visit moves its weights twice.
FRAMES_AHEAD = 16


@dataclass(frozen=True)
class Batch:
    """One batch of one shape, on the device. timesteps, weights: [B]; weights: what each clip's loss counts."""

    items: list[RunClip]
    latents: torch.Tensor
    text: Tensors
    noise: torch.Tensor
    timesteps: torch.Tensor
    weights: torch.Tensor
    condition: torch.Tensor | None = None


@dataclass(frozen=True)
class _Read:
    """A batch as it comes from the disk: still without a device."""

    items: list[RunClip]
    shape: tuple[int, ...]
    moments: Tensors
    text: Tensors
    timesteps: torch.Tensor
    noise: torch.Tensor
    posterior: torch.Tensor
    pictures: torch.Tensor  # [B] bool: with its picture
    low: Tensors | None


class BatchInputs:
    """Reads the batches and samples their random numbers of one run."""

    def __init__(
        self, encoder: Encoder, model: Model, data: TrainingData, settings: TrainSettings, stride: int = 1
    ) -> None:
        """encoder: has put all views of the clips and all captions into its cache

        stride: the batches asked for are so far apart, which is for reading ahead
        """
        self._encoder, self._settings = encoder, settings
        self._family, self._folder = encoder.family, encoder.folder
        self._device = encoder.device
        self._batches, self._stride = Batches(data, settings), stride
        self.view = view_of(model, settings)
        self._frames = FirstFrames(encoder, settings) if self.view == "first frame" else None
        self._ahead: dict[int, Future[_Read]] = {}
        self._threads = ThreadPoolExecutor(settings.loader_threads, "loader") if settings.loader_threads else None
        self._encoded: dict[int, Tensors] = {}
        self._fixed: dict[str, torch.Tensor] = {}

    @property
    def per_pass(self) -> float:
        """Batches in which every new clip comes once."""
        return self._batches.per_pass

    # ---- a batch of training

    def batch(self, step: int, micro: int) -> Batch:
        """The batch of a step (from 1), by its number within the step (from 0)."""
        number = (step - 1) * self._settings.gradient_accumulation + micro
        read = self._next(number)
        latents = self._family.sample_latents(self._on_device(read.moments), read.posterior.to(self._device))
        condition = None
        if read.low is not None:
            noise = self._noise(len(read.items), read.shape, "low resolution", step, micro).to(self._device)
            condition = self._family.sample_latents(self._on_device(read.low), noise)
            condition = condition * read.pictures.view(-1, 1, 1, 1, 1).to(condition)
        elif self._frames is not None:
            moments = self._frame_moments(number)
            condition = self._frames.finish(moments, read.shape, read.pictures, "training", step, micro)
        return Batch(
            items=read.items,
            latents=latents,
            text=self._on_device(read.text),
            noise=read.noise.to(self._device),
            timesteps=read.timesteps.to(self._device),
            weights=torch.tensor([item.weight for item in read.items], device=self._device),
            condition=condition,
        )

    def _next(self, number: int) -> _Read:
        """The batch with this number over the whole run, read ahead where threads may."""
        if self._threads is None:
            return self._read(number)
        for ahead in range(number, number + 1 + self._settings.loader_threads * self._stride, self._stride):
            if ahead not in self._ahead:
                self._ahead[ahead] = self._threads.submit(self._read, ahead)
        for old in [key for key in self._ahead if key < number]:
            del self._ahead[old]
        return self._ahead.pop(number).result()

    def _read(self, number: int) -> _Read:
        settings, items = self._settings, self._batches.batch(number)
        step, micro = divmod(number, settings.gradient_accumulation)
        step += 1
        count, shape = len(items), self.latents_shape(items[0])
        generator = self._generator("timesteps and captions", step, micro)
        timesteps = torch.randint(self._family.timesteps, (count,), generator=generator)
        kept = (torch.rand(count, generator=generator) >= settings.caption_dropout).tolist()
        captions = [item.caption if keep else None for item, keep in zip(items, kept, strict=True)]
        flipped = self._flipped(count, step, micro)
        pictures = torch.ones(count, dtype=torch.bool)
        if self.view != "clip":
            pictures = torch.rand(count, generator=self._generator("pictures", step, micro)) >= settings.image_dropout
        low = self._views(items, flipped, "low resolution") if self.view == "low resolution" else None
        return _Read(
            items=items,
            shape=shape,
            moments=self._views(items, flipped, "clip"),
            text=self._texts(captions),
            timesteps=timesteps,
            noise=self._noise(count, shape, "noise", step, micro),
            posterior=self._noise(count, shape, "posterior", step, micro),
            pictures=pictures,
            low=low,
        )

    def _frame_moments(self, number: int) -> Tensors:
        """First frames of this batch, encoded; on a GPU those of the next batches, too, before the VAE leaves again.

        Each batch is encoded by itself with its own seed, so the visits' length changes no bit.
        """
        assert self._frames is not None
        if number not in self._encoded:
            last = number + self._stride * (FRAMES_AHEAD if self._device.type == "cuda" else 1)
            self._encoded = {}
            for ahead in range(number, last, self._stride):
                step, micro = divmod(ahead, self._settings.gradient_accumulation)
                items = self._batches.batch(ahead)
                pixels = self._pixels(items, self._flipped(len(items), step + 1, micro))
                self._encoded[ahead] = self._frames.moments(pixels, "training", step + 1, micro)
            self._frames.rest()
        return self._encoded.pop(number)

    # ---- fixed inputs, for measuring

    def clips(self, items: Iterable[RunClip]) -> Iterator[EvaluationInput]:
        """A probe a clip: its caption and, where the model takes one, its picture with always the same noise on it."""
        for item in items:
            yield EvaluationInput(
                name=item.sha256,
                shape=self.latents_shape(item),
                text=self._on_device(self._texts([item.caption])),
                moments=self._on_device(self._views([item], [False], "clip")),
                condition=self._fixed_condition(item),
            )

    def captions(self, captions: Sequence[str], item: RunClip) -> Iterator[EvaluationInput]:
        """A probe a caption, without a clip or a picture, in the shape of `item`."""
        shape = self.latents_shape(item)
        condition = None if self.view == "clip" else torch.zeros(1, *shape, device=self._device)
        for caption in captions:
            text = self._on_device(self._texts([caption]))
            yield EvaluationInput(name=caption, shape=shape, text=text, condition=condition)

    def _fixed_condition(self, item: RunClip) -> torch.Tensor | None:
        if self.view == "clip":
            return None
        key = self._encoder.clip_key(item, self.view, False, self._settings.low_resolution_scale)
        if key not in self._fixed:
            shape, indices = self.latents_shape(item), f"held-out {item.sha256}"
            if self._frames is not None:
                pixels = self._pixels([item], [False])
                self._fixed[key] = self._frames.condition(pixels, shape, torch.ones(1, dtype=torch.bool), indices).cpu()
                self._frames.rest()
            else:
                noise = self._noise(1, shape, f"{indices}: low resolution").to(self._device)
                low = self._on_device(self._views([item], [False], "low resolution"))
                self._fixed[key] = self._family.sample_latents(low, noise).cpu()
        return self._fixed[key].to(self._device)

    def picture(self, item: RunClip) -> torch.Tensor:
        """The first frame of a clip: float32 [1, 3, H, W] in [-1, 1]."""
        return self._pixels([item], [False]).float() / 127.5 - 1.0

    # ---- parts

    def latents_shape(self, item: RunClip) -> tuple[int, ...]:
        """Shape of a clip's latents, without the batch axis."""
        bucket = item.bucket
        return self._family.latents_shape(self._folder, bucket.frames, bucket.height, bucket.width)

    def embeddings(self, captions: Sequence[str]) -> Tensors:
        return self._on_device(self._texts(captions))

    def unconditional(self) -> Tensors:
        """The embeddings that guidance compares with: those of a dropped caption."""
        return self._on_device(self._texts([None]))

    def _flipped(self, count: int, step: int, micro: int) -> list[bool]:
        if not self._settings.horizontal_flip:
            return [False] * count
        found: list[bool] = (
            torch.rand(count, generator=self._generator("mirrored", step, micro)) < self._settings.horizontal_flip
        ).tolist()
        return found

    def _views(self, items: Sequence[RunClip], flipped: Sequence[bool], view: View) -> Tensors:
        reduction = self._settings.low_resolution_scale
        read = self._encoder.clip
        return _together([read(item, view, flip, reduction) for item, flip in zip(items, flipped, strict=True)])

    def _texts(self, captions: Sequence[str | None]) -> Tensors:
        return _together([self._text(caption) for caption in captions])

    def _text(self, caption: str | None) -> Tensors:
        """A caption's embeddings; None: of one that was dropped."""
        text = self._encoder.caption(caption or "")
        zeros = caption is None and self._settings.dropped_caption == "zeros"
        return self._family.no_text(text) if zeros else text

    def _pixels(self, items: Sequence[RunClip], flipped: Sequence[bool]) -> torch.Tensor:
        return self._views(items, flipped, "first frame")[FIRST_FRAME]

    def _on_device(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        return {name: tensor.to(self._device) for name, tensor in tensors.items()}

    def _noise(self, count: int, shape: tuple[int, ...], purpose: str, *indices: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=self._generator(purpose, *indices))

    def noise(self, item: RunClip, purpose: str) -> torch.Tensor:
        """Standard normal noise shaped as one clip's latents, always the same for a purpose."""
        return self._noise(1, self.latents_shape(item), purpose).to(self._device)

    def _generator(self, purpose: str, *indices: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(self._settings.seed, purpose, *indices))


def _together(tensors: Sequence[Tensors]) -> Tensors:
    return {name: torch.cat([one[name] for one in tensors]) for name in tensors[0]}
