"""The tensors of every batch: its random numbers, and the cached tensors of its clips and captions.

A batch is a pure function of the run's seed and the batch's number (step, number within the step). Each purpose has its
own generator, so no state carries over between batches, and any number of threads can read ahead. Noise is sampled on
the CPU, so every device gets the same.

Besides the caption, image-to-video models get the noised first frame or the clip in low resolution, as in the published
training code (SAT diffusion_video.py): the first frame is noised before it is encoded, with a sigma drawn from
exp(N(mean, deviation)) for every clip and step, and is dropped now and then.

A sound has its own noise and noise level, drawn separately from the picture's. A run that learns only the sound has no
others. A stream that is given to the other has no noise, and timestep 0.

If a run sets the conditioning itself (settings `given`, `control` and `reference`), each batch draws one kind of given
frames for all its clips. Measurements and previews always use the kind with the largest share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.families.conditioning import GivenKind, drawn, largest
from workbench.families.model import Model
from workbench.families.model_inputs import (
    PICTURE_FOR_SOUND,
    SOUND_FOR_PICTURE,
    SOUND_ONLY,
    Given,
    ModelInputs,
    SoundInputs,
    Tensors,
)
from workbench.families.noise_schedules import DEFAULTS, NoiseSettings
from workbench.jobs.torch_devices import free_memory, to_device
from workbench.runs.checks import refuse_empty
from workbench.runs.data import Batches, RunClip, TrainingData, seed_for
from workbench.runs.settings import TrainSettings
from workbench.trainer.encoder import (
    CONDITIONING,
    DRIFT_INPUTS,
    FIRST_FRAME,
    MASK,
    NO_CONDITIONING,
    OPPOSITE,
    SOUND,
    Encoder,
    Piece,
    View,
    drift_captions,
    read_first_frame,
    view_of,
    views_of,
)
from workbench.trainer.evaluation import EvaluationInput, sound_shape

# Batches whose first frames are encoded each time the VAE is on a GPU: moving it there and back costs time.
FRAMES_AHEAD = 16
LEVELS = 1000  # evenly spaced noise quantiles, as many as the published schedules have timesteps


@dataclass(frozen=True)
class Batch:
    """One batch of clips of one shape, on the device.

    quantiles: noise quantiles, [B].
    weights:   the weight of each clip's loss, [B].
    mask:      the loss weight of each latent cell, 0 to 1, with one channel; None if no clip is masked.
    opposite:  clean latents of the other half of each pair, for a slider trained on pairs.
    """

    items: list[RunClip]
    inputs: ModelInputs
    quantiles: torch.Tensor
    weights: torch.Tensor
    mask: torch.Tensor | None = None
    opposite: torch.Tensor | None = None


@dataclass(frozen=True)
class _Read:
    """A batch as read from disk, on the CPU."""

    items: list[RunClip]
    shape: tuple[int, ...]
    moments: Tensors
    text: Tensors
    quantiles: torch.Tensor
    noise: torch.Tensor
    posterior: torch.Tensor
    pictures: torch.Tensor  # [B] bool: whether the clip keeps its picture
    shown: Tensors  # the encoded conditioning; {} if none was drawn or its view is not read ahead
    mask: torch.Tensor | None
    opposite: Tensors | None
    sound: SoundInputs | None  # with noise quantiles in place of timesteps


class BatchInputs:
    """Reads the batches of one run and samples their random numbers."""

    def __init__(
        self,
        encoder: Encoder,
        model: Model,
        data: TrainingData,
        settings: TrainSettings,
        stride: int = 1,
        defaults: int = DEFAULTS,
    ) -> None:
        """Read from the cache of the run's encoder, which has all views of the clips and all captions.

        Args:
            stride: The distance between the numbers of the batches this process asks for, for reading ahead.
            defaults: The version of the families' default values that the run started with (noise_schedules).
        """
        self._encoder, self._settings, self._model, self._data = encoder, settings, model, data
        self._family, self._folder = encoder.family, encoder.folder
        self._device = encoder.device
        expert = model.expert(settings.expert)
        chosen = NoiseSettings(
            density=settings.timestep_density,
            shift=settings.timestep_shift,
            part=settings.train_part,
            between=(expert.lowest, expert.highest),
            defaults=defaults,
        )
        self.schedule = self._family.noise_schedule(self._folder, self._device, chosen)
        self._batches, self._stride = Batches(data, settings), stride
        self.joins_conditioning = self._family.joins_conditioning(model)
        self.view, self._shares = view_of(model, settings), settings.given_shares
        # The share of clips that get no picture.
        self._hidden = self._family.image_dropout if settings.image_dropout is None else settings.image_dropout
        if self.view == "clip":
            share, own = settings.first_frame_share, self._family.own_settings(model).get("first_frame_share")
            if share is None and own is not None and defaults > 1:
                share = own.default
            self._hidden = 1 - (share or 0.0)
        self._frames = FirstFrames(encoder, settings) if self.view == "first frame" else None
        self._ahead: dict[int, Future[_Read]] = {}
        self._threads = ThreadPoolExecutor(settings.loader_threads, "loader") if settings.loader_threads else None
        self._encoded: dict[int, Tensors] = {}
        self._fixed: dict[str, Given] = {}

    # ---- training batches

    def batch(self, step: int, micro: int) -> Batch:
        """Return a batch by its step (from 1) and its number within the step (from 0)."""
        number = (step - 1) * self._settings.gradient_accumulation + micro
        read = self._next(number)
        latents = self._family.sample_latents(self._on_device(read.moments), to_device(read.posterior, self._device))
        given = None
        if self._frames is not None:
            moments = self._frame_moments(number)
            given = self._frames.finish(moments, read.shape, read.pictures, "training", step, micro)
        elif self.view != "clip":
            given = self._given(read.shown, read.shape, read.pictures, "", step, micro)
        elif read.pictures.any():
            given = self._family.own_first_frame(latents, to_device(read.pictures, self._device))
        timesteps = self.schedule.timesteps(to_device(read.quantiles, self._device), read.shape)
        inputs = ModelInputs(
            latents=latents,
            text=self._on_device(read.text),
            noise=to_device(read.noise, self._device),
            timesteps=timesteps * 0 if self._settings.sound == SOUND_FOR_PICTURE else timesteps,
            given=given,
            fps=read.items[0].plan.fps,
            sound=None if read.sound is None else self._sound_inputs(read.sound),
        )
        weights = to_device(torch.tensor([item.weight for item in read.items]), self._device)
        mask = None if read.mask is None else to_device(read.mask, self._device)
        opposite = None
        if read.opposite is not None:
            posterior = to_device(read.posterior, self._device)
            opposite = self._family.sample_latents(self._on_device(read.opposite), posterior)
        of_sound = read.sound is not None and read.sound.learned in SOUND_ONLY
        quantiles = read.sound.timesteps if read.sound is not None and of_sound else read.quantiles
        return Batch(read.items, inputs, quantiles, weights, mask, opposite)

    def preservation(self, batch: Batch, prompts: Sequence[str], step: int, micro: int) -> ModelInputs:
        """Return the inputs of a batch with a random preservation prompt for each caption, and without its sound."""
        generator = self._generator("preservation prompts", step, micro)
        chosen = torch.randint(len(prompts), (len(batch.items),), generator=generator).tolist()
        return replace(batch.inputs, text=self.embeddings([prompts[index] for index in chosen]), sound=None)

    def _next(self, number: int) -> _Read:
        """Return the batch with this number, counted over the whole run. Loader threads read ahead."""
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
        quantiles = (torch.randint(LEVELS, (count,), generator=generator) + 0.5) / LEVELS
        kept = (torch.rand(count, generator=generator) >= settings.caption_dropout).tolist()
        flipped = self._flipped(items, step, micro)
        pictures = torch.rand(count, generator=self._generator("pictures", step, micro)) >= self._hidden
        kind = drawn(self._shares, torch.rand((), generator=self._generator("given", step, micro)).item())
        return _Read(
            items=items,
            shape=shape,
            moments=self._views(items, flipped, "clip"),
            text=self._clip_texts(items, kept),
            quantiles=quantiles,
            noise=self._noise(count, shape, "noise", step, micro),
            posterior=self._noise(count, shape, "posterior", step, micro),
            pictures=pictures,
            shown=self._shown(items, flipped, kind),
            mask=self._masks(items, flipped),
            opposite=self._views(items, flipped, OPPOSITE) if settings.has_pairs else None,
            sound=self._sound(items, step, micro) if items[0].heard else None,
        )

    def _sound(self, items: Sequence[RunClip], step: int, micro: int) -> SoundInputs:
        """Return the clips' sounds with noise and noise quantiles, on the CPU."""
        latents = self._views(items, [False] * len(items), SOUND)[SOUND]
        if self._settings.sound == PICTURE_FOR_SOUND:
            return SoundInputs.given(latents)
        drawn = torch.randint(LEVELS, (len(items),), generator=self._generator("sound timesteps", step, micro))
        noise = self._noise(len(items), latents.shape[1:], "sound noise", step, micro)
        return SoundInputs(latents, noise, (drawn + 0.5) / LEVELS, self._settings.sound)

    def _sound_inputs(self, sound: SoundInputs) -> SoundInputs:
        """Move sounds to the device, and turn their quantiles into timesteps."""
        latents, noise, quantiles = (
            to_device(one, self._device) for one in (sound.latents, sound.noise, sound.timesteps)
        )
        if sound.learned == PICTURE_FOR_SOUND:
            return SoundInputs.given(latents)
        return SoundInputs(latents, noise, self.schedule.timesteps(quantiles, sound_shape(latents)), sound.learned)

    # ---- conditioning

    def _shown(self, items: Sequence[RunClip], flipped: Sequence[bool], kind: GivenKind | None) -> Tensors:
        """Return the encoded conditioning of clips of one shape. A kind that would give every frame gives none."""
        if self.view != CONDITIONING:
            return self._views(items, flipped, self.view) if self.view in ("low resolution", "picture") else {}
        if kind is not None and not kind.leaves_something(len(items[0].plan.indices)):
            kind = None
        views = views_of(self._settings, kind, self.joins_conditioning)
        return {name: tensor for view in views for name, tensor in self._views(items, flipped, view).items()}

    def _given(
        self, shown: Tensors, shape: tuple[int, ...], pictures: torch.Tensor | None, prefix: str, *indices: int
    ) -> Given:
        """Make the model's input from encoded conditioning.

        Args:
            pictures: Which clips keep their picture, [B]; None for one clip that does.
            prefix: What the noise's purpose begins with.
        """
        if self.view == CONDITIONING:
            return self._as_conditioning(shown, shape, f"{prefix}told", *indices)
        count, kept = (1, None) if pictures is None else (len(pictures), to_device(pictures, self._device))
        if self.view == "picture":
            one_frame = self._noise(count, self._family.one_frame(shape), f"{prefix}picture", *indices)
            return self._family.given(self._on_device(shown), to_device(one_frame, self._device), shape, kept)
        noise = to_device(self._noise(count, shape, f"{prefix}low resolution", *indices), self._device)
        beside = self._family.sample_latents(self._on_device(shown), noise)
        return Given(beside=beside if kept is None else beside * kept.view(-1, 1, 1, 1, 1).to(beside.dtype))

    def fixed_kind(self, item: RunClip) -> GivenKind | None:
        """Return the given frames for measurements and previews, of the largest share; None for no frames."""
        kind = largest(self._shares)
        return kind if kind is not None and kind.leaves_something(len(item.plan.indices)) else None

    @property
    def unconditioned(self) -> bool:
        """Whether the run sets no conditioning, for a model that still needs an input that says so."""
        return self.view == CONDITIONING and not self._settings.tells

    def nothing(self, item: RunClip) -> Given | None:
        """Return the model's input for no conditioning; None if the model needs no such input."""
        if not self.joins_conditioning:
            return None
        return self._as_conditioning(
            self._views([item], [False], NO_CONDITIONING), self.latents_shape(item), "told nothing"
        )

    def _as_conditioning(self, shown: Tensors, shape: tuple[int, ...], purpose: str, *indices: int) -> Given:
        return self._family.conditioning(
            self._on_device(shown), shape, self._generator(purpose, *indices), torch.float32
        )

    def _frame_moments(self, number: int) -> Tensors:
        """Encode the first frames of this batch and, on a GPU, of the next ones while the VAE is there.

        Each batch is encoded by itself with its own seed, so reading ahead does not change the result.
        """
        assert self._frames is not None
        if number not in self._encoded:
            last = number + self._stride * (FRAMES_AHEAD if self._device.type == "cuda" else 1)
            self._encoded = {}
            for ahead in range(number, last, self._stride):
                step, micro = divmod(ahead, self._settings.gradient_accumulation)
                items = self._batches.batch(ahead)
                pixels = self._views(items, self._flipped(items, step + 1, micro), "first frame")[FIRST_FRAME]
                self._encoded[ahead] = self._frames.moments(pixels, "training", step + 1, micro)
            self._frames.rest()
        return self._encoded.pop(number)

    def release(self) -> None:
        """Drop the tensors encoded ahead; they are encoded again, bit for bit, when needed."""
        self._encoded = {}

    # ---- fixed inputs for measurements

    def clips(self, items: Iterable[RunClip]) -> Iterator[EvaluationInput]:
        """Yield one input per clip, with its caption and conditioning, always with the same noise."""
        for item in items:
            yield EvaluationInput(
                name=item.sha256,
                shape=self.latents_shape(item),
                text=self._on_device(self._clip_texts([item], [True])),
                moments=self._on_device(self._views([item], [False], "clip")),
                given=self._fixed_given(item),
                fps=item.plan.fps,
                mask=self._masks([item], [False]),
                sound=to_device(self._encoder.clip(Piece(item, SOUND))[SOUND], self._device) if item.heard else None,
                learned=self._settings.sound,
            )

    def captions(self, captions: Sequence[str], item: RunClip) -> Iterator[EvaluationInput]:
        """Yield one input per caption, without a clip or a picture, in the shape of `item`."""
        shape, given = self.latents_shape(item), None  # the model's input for no picture
        if self.view == "picture":
            image = self._on_device(self._views([item], [False], "picture"))
            noise = torch.zeros(1, *self._family.one_frame(shape), device=self._device)
            hidden = torch.zeros(1, dtype=torch.bool, device=self._device)
            given = self._family.given(image, noise, shape, hidden)
        elif self.view == CONDITIONING:
            given = self.nothing(item) or self._as_conditioning({}, shape, "told nothing")
        elif self.view != "clip":
            given = Given(beside=torch.zeros(1, *shape, device=self._device))
        for caption in captions:
            text = self._on_device(self._texts([caption]))
            yield EvaluationInput(name=caption, shape=shape, text=text, given=given, fps=item.plan.fps)

    def drift_inputs(self, preservation_prompts: Sequence[str]) -> tuple[list[EvaluationInput], list[EvaluationInput]]:
        """Return the inputs that prior drift compares: of the new concept, and of what it should leave alone.

        Both are clips if the run has a regularization dataset, else captions alone.
        """
        data = self._data
        own, others = (list(self.clips(items[:DRIFT_INPUTS])) for items in (data.train, data.regularization))
        if not others:
            own = list(self.captions(drift_captions(data), data.train[0]))
            others = list(self.captions(preservation_prompts[:DRIFT_INPUTS], data.train[0]))
        return own, others

    def effect_inputs(
        self, preservation_prompts: Sequence[str], most: int
    ) -> tuple[list[EvaluationInput], list[EvaluationInput]]:
        """Return the inputs that effect and drift are measured on, at most `most` of each.

        They are clips that should show the concept, held out if there are any, and what the LoRA should leave alone.
        """
        data = self._data
        own = list(self.clips((data.held_out or data.train)[:most]))
        others = list(self.clips(data.regularization[:most]))
        return own, others or list(self.captions(preservation_prompts[:most], data.train[0]))

    def _fixed_given(self, item: RunClip) -> Given | None:
        if self.view == "clip":
            return None
        key = self._encoder.clip_key(item, "clip" if self.view == CONDITIONING else self.view)
        if key not in self._fixed:
            shape, purpose = self.latents_shape(item), f"held-out {item.sha256}"
            if self._frames is not None:
                pixels = self._views([item], [False], "first frame")[FIRST_FRAME]
                moments = self._frames.moments(pixels, purpose)
                given = self._frames.finish(moments, shape, torch.ones(1, dtype=torch.bool), purpose)
                self._frames.rest()
            else:
                shown = self._shown([item], [False], self.fixed_kind(item))
                given = self._given(shown, shape, None, f"{purpose}: ")
            self._fixed[key] = given.to(torch.device("cpu"))
        return self._fixed[key].to(self._device)

    def clean(self, clip: EvaluationInput) -> torch.Tensor:
        """Return a clip's latents, the posterior's mean."""
        assert clip.moments is not None
        return self._family.sample_latents(clip.moments, torch.zeros(1, *clip.shape, device=self._device))

    def picture(self, item: RunClip) -> torch.Tensor:
        """Return the first frame of a clip, float32 [1, 3, H, W] in [-1, 1]."""
        if self.view == "picture":
            return read_first_frame(item)[:, :, 0]
        return self._views([item], [False], "first frame")[FIRST_FRAME].float() / 127.5 - 1.0

    # ---- shared parts

    def latents_shape(self, item: RunClip) -> tuple[int, ...]:
        """Return the shape of a clip's latents, without the batch axis."""
        bucket = item.bucket
        return self._family.latents_shape(self._folder, bucket.frames, bucket.height, bucket.width)

    def embeddings(self, captions: Sequence[str]) -> Tensors:
        return self._on_device(self._texts(captions))

    def negative(self) -> Tensors:
        """Return the unconditional embeddings for the guidance of previews.

        They come from the model's negative prompt, or else from a dropped caption.
        """
        own = self._model.negative_prompt if self._settings.dropped_caption == "empty prompt" else ""
        return self._on_device(self._texts([own or None]))

    def _flipped(self, items: Sequence[RunClip], step: int, micro: int) -> list[bool]:
        """Draw which clips are flipped. Latents never are: mirrored latents do not decode to a mirrored video."""
        if not self._settings.horizontal_flip:
            return [False] * len(items)
        chance = torch.rand(len(items), generator=self._generator("mirrored", step, micro))
        drawn = (chance < self._settings.horizontal_flip).tolist()
        return [flip and item.flippable for flip, item in zip(drawn, items, strict=True)]

    def _views(self, items: Sequence[RunClip], flipped: Sequence[bool], view: View) -> Tensors:
        pieces = (Piece(item, view, flip) for item, flip in zip(items, flipped, strict=True))
        return _together([self._encoder.clip(piece) for piece in pieces])

    def _masks(self, items: Sequence[RunClip], flipped: Sequence[bool]) -> torch.Tensor | None:
        """Return the loss weight of each latent cell, [B, ...] with one channel; None if no clip is masked."""
        if not any(item.mask for item in items):
            return None
        found, axis = [], self._family.channel_axis
        for item, flip in zip(items, flipped, strict=True):
            if item.mask:
                cells = self._encoder.clip(Piece(item, "mask", flip))[MASK]
                found.append(1 - cells if self._settings.loss_mask == "outside" else cells)
            else:
                shape = self.latents_shape(item)
                found.append(torch.ones(1, *shape).narrow(axis, 0, 1))
        return torch.cat(found)

    def check_masks(self) -> None:
        """Raise DataError if a mask leaves nothing to learn from in the frames taken from its clip."""
        cells = [(item, self._masks([item], [False])) for item in self._data.items if item.mask]
        refuse_empty(self._settings, [item for item, mask in cells if mask is not None and not mask.any()])

    def _clip_texts(self, items: Sequence[RunClip], kept: Sequence[bool]) -> Tensors:
        """Return the embeddings of the clips' captions; captions that are not kept are dropped."""
        found = []
        for item, keep in zip(items, kept, strict=True):
            if keep and item.given_text:
                found.append(self._encoder.clip(Piece(item, "text")))
            else:
                found.append(self._text(item.caption if keep else None))
        return _together(found)

    def _texts(self, captions: Sequence[str | None]) -> Tensors:
        return _together([self._text(caption) for caption in captions])

    def _text(self, caption: str | None) -> Tensors:
        """Return a caption's embeddings. None stands for a dropped caption."""
        text = self._encoder.caption(caption or "")
        zeros = caption is None and self._settings.dropped_caption == "zeros"
        return self._family.no_text(text) if zeros else text

    def _on_device(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        return {name: to_device(tensor, self._device) for name, tensor in tensors.items()}

    def _noise(self, count: int, shape: tuple[int, ...], purpose: str, *indices: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=self._generator(purpose, *indices))

    def noise(self, item: RunClip, purpose: str) -> torch.Tensor:
        """Sample standard normal noise in the shape of a clip's latents; the same purpose gives the same noise."""
        return to_device(self._noise(1, self.latents_shape(item), purpose), self._device)

    def sound_noise(self, sound: torch.Tensor, purpose: str) -> torch.Tensor:
        """Sample standard normal noise in the shape of a sound's latents; the same purpose gives the same noise."""
        return to_device(self._noise(len(sound), sound.shape[1:], purpose), self._device)

    def _generator(self, purpose: str, *indices: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(self._settings.seed, purpose, *indices))


def _together(tensors: Sequence[Tensors]) -> Tensors:
    return {name: torch.cat([one[name] for one in tensors]) for name in tensors[0]}


# ---- first frames


class FirstFrames:
    """Noises and encodes first frames. The VAE stays on a GPU only while it encodes."""

    def __init__(self, encoder: Encoder, settings: TrainSettings) -> None:
        self._encoder, self._settings = encoder, settings
        self._family, self._device = encoder.family, encoder.device
        self._vae: Any = None

    def moments(self, pixels: torch.Tensor, purpose: str, *indices: int) -> Tensors:
        """Noise first frames, uint8 [B, 3, H, W], and return the VAE's moments of them, on the device."""
        generator = self._generator(f"{purpose}: first frame", *indices)
        assert self._family.image_noise is not None
        mean, deviation = self._family.image_noise
        sigma = torch.exp(torch.randn(len(pixels), 1, 1, 1, generator=generator) * deviation + mean)
        noised = pixels.float() / 127.5 - 1.0 + sigma * torch.randn(pixels.shape, generator=generator)
        return self._family.encode_image(
            self._loaded(), None, to_device(noised, self._device), 1, self._settings.image_latent_scale
        )

    def finish(
        self, moments: Tensors, shape: tuple[int, ...], kept: torch.Tensor, purpose: str, *indices: int
    ) -> Given:
        """Sample the conditioning for latents [B, *shape] from the moments; zero where `kept` [B] is false."""
        generator = self._generator(f"{purpose}: first frame's latents", *indices)
        noise = torch.randn(len(kept), *self._family.one_frame(shape), generator=generator)
        everywhere = self._settings.condition_frames == "every"
        noise, kept = to_device(noise, self._device), to_device(kept, self._device)
        return self._family.given(moments, noise, shape, kept, everywhere)

    def rest(self) -> None:
        """Move the VAE off the GPU until more moments are needed."""
        if self._vae is not None and self._device.type == "cuda":
            self._vae.to("cpu")
            free_memory()

    def _loaded(self) -> Any:
        if self._vae is None:
            dtype = self._family.vae_dtype(self._encoder.dtype)
            self._vae = self._family.load_vae(self._encoder.folder, torch.device("cpu"), dtype)
        return self._vae.to(self._device)

    def _generator(self, purpose: str, *indices: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(self._settings.seed, purpose, *indices))
