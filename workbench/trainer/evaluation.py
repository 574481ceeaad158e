"""What a run has learned, measured on fixed noise: held-out loss, prior drift and the visible effect by mask.

The training loss varies with every noise sample and its level; these numbers change only when the model does. They
depend on nothing but the run's seed, the clips' content and the weights, so neither time nor order affects them.

Prior drift shows whether the LoRA sticks to its subject: how much it changes the model's output on its own captions,
and how much on preservation prompts. At the highest noise level no signal is left, so pure noise is a valid input for
any caption, and no clip is needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from workbench.families.base import Family
from workbench.families.model_inputs import (
    PICTURE_FOR_SOUND,
    SOUND_FOR_PICTURE,
    Given,
    ModelInputs,
    SoundInputs,
    Tensors,
)
from workbench.families.noise_schedules import NoiseSchedule, float64_device
from workbench.runs.analysis.curves import BANDS
from workbench.runs.data import RunClip, read_mask, seed_for

if TYPE_CHECKING:
    from workbench.trainer.session import Session


@dataclass(frozen=True)
class EvaluationInput:
    """An input to measure with on fixed noise: a clip with its caption, or a caption alone.

    name:    seeds the noise; a clip's content hash, so that the clips' order does not matter.
    shape:   the shape of its latents, without the batch axis.
    text:    the caption's embedding, batch of 1, on the device.
    moments: the VAE's moments of the clip, batch of 1, on the device; None for a caption alone.
    given:   the conditioning, batch of 1; None for models without any.
    mask:    a masked clip's loss weight per latent cell, batch of 1.
    sound:   the latents of the clip's sound, batch of 1, on the device, in runs that learn it or are given it.
    learned: the run's setting `sound`.
    """

    name: str
    shape: tuple[int, ...]
    text: Tensors
    moments: Tensors | None = None
    given: Given | None = None
    fps: float = 8.0
    mask: torch.Tensor | None = None
    sound: torch.Tensor | None = None
    learned: str = "picture+sound"

    def to(self, device: torch.device) -> EvaluationInput:
        text = {name: tensor.to(device) for name, tensor in self.text.items()}
        moments = self.moments and {name: tensor.to(device) for name, tensor in self.moments.items()}
        sound = None if self.sound is None else self.sound.to(device)
        return replace(self, text=text, moments=moments, given=self.given and self.given.to(device), sound=sound)

    def noised(
        self,
        schedule: NoiseSchedule,
        latents: torch.Tensor,
        noise: torch.Tensor,
        quantile: float,
        sound_noise: torch.Tensor | None = None,
    ) -> ModelInputs:
        """Return the model's inputs at a noise quantile; the sound's, too, if it is given or there is noise for it."""
        exact = torch.tensor([quantile], dtype=torch.float64, device=float64_device(noise.device))
        timesteps = schedule.timesteps(exact, self.shape).to(noise.device)
        sound = None
        if self.sound is not None and self.learned == PICTURE_FOR_SOUND:
            sound = SoundInputs.given(self.sound)
        elif self.sound is not None and sound_noise is not None:
            times = schedule.timesteps(exact, sound_shape(self.sound)).to(noise.device)
            sound = SoundInputs(self.sound, sound_noise, times, self.learned)
            timesteps = timesteps * 0 if self.learned == SOUND_FOR_PICTURE else timesteps
        return ModelInputs(latents, self.text, noise, timesteps, self.given, self.fps, sound)

    def sampled(
        self,
        family: Family,
        schedule: NoiseSchedule,
        quantile: float,
        generator: torch.Generator,
        device: torch.device,
        of_sound: torch.Generator | None = None,
    ) -> ModelInputs:
        """Sample latents, or take zeros without a clip, and noise; return the model's inputs at a noise quantile.

        of_sound: to sample the noise of the sound; without it, the inputs are the picture's, and a given sound
        """
        posterior, noise = (torch.randn(1, *self.shape, generator=generator).to(device) for _ in range(2))
        latents = torch.zeros_like(noise) if self.moments is None else family.sample_latents(self.moments, posterior)
        sound_noise = None
        if self.sound is not None and of_sound is not None:
            sound_noise = torch.randn(self.sound.shape, generator=of_sound).to(device)
        return self.noised(schedule, latents, noise, quantile, sound_noise)


def sound_shape(latents: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of a sound [B, tokens, channels] as noise schedules take that of latents: (channels, tokens)."""
    return latents.shape[2], latents.shape[1]


BAND_MIDDLES = tuple((2 * band + 1) / (2 * BANDS) for band in range(BANDS))
"""The noise quantile in the middle of each band."""
PURE_NOISE = 1.0


class HeldOut(NamedTuple):
    """The mean loss of held-out clips, inside their masks if they have any.

    bands:   the loss in each noise band, low to high; of the sound, if the run learns nothing else.
    outside: the loss outside the masks, over all bands; None if no clip is masked.
    sound:   the loss of the sounds beside the pictures, over all bands; None if the run learns none.
    """

    bands: tuple[float, ...]
    outside: float | None = None
    sound: float | None = None

    @property
    def loss(self) -> float:
        return sum(self.bands) / len(self.bands)


def held_out_by_band(
    family: Family,
    transformer: Any,
    schedule: NoiseSchedule,
    probes: Iterable[EvaluationInput],
    seed: int,
    device: torch.device,
) -> HeldOut:
    """Measure the mean loss of clips by noise band, and outside their masks. Leaves the transformer in evaluation mode.

    probes: at least one clip; a generator keeps only one clip on the device at a time
    """
    transformer.eval()
    losses: list[list[float]] = []
    outside, sounds = list[float](), list[float]()
    for probe in probes:
        assert probe.moments is not None, f"{probe.name} has no clip to measure the loss on"
        generator = torch.Generator().manual_seed(seed_for(seed, f"held-out {probe.name}"))
        of_sound = torch.Generator().manual_seed(seed_for(seed, f"held-out sound {probe.name}"))
        of_clip = []
        for quantile in BAND_MIDDLES:
            with torch.no_grad():
                inputs = probe.sampled(family, schedule, quantile, generator, device, of_sound)
                if probe.mask is None:
                    loss, heard = family.losses(transformer, schedule, inputs)
                    sounds += [] if heard is None else [heard.item()]
                else:
                    mask = probe.mask.to(device)
                    target = schedule.target(inputs.latents, inputs.noise, inputs.timesteps)
                    predicted, *of_sounds = family.predictions(transformer, schedule, inputs)
                    loss = family.error(predicted, target, inputs.given, mask)
                    if of_sounds and (sound := inputs.sound) is not None:
                        aim = schedule.target(sound.latents, sound.noise, sound.timesteps)
                        sounds.append(family.error(of_sounds[0], aim).item())
                    if (mask < 1).any():
                        outside.append(family.error(predicted, target, inputs.given, 1 - mask).item())
            of_clip.append(loss.item())
        losses.append(of_clip)
    bands = tuple(sum(band) / len(losses) for band in zip(*losses, strict=True))
    others = (sum(values) / len(values) if values else None for values in (outside, sounds))
    return HeldOut(bands, *others)


EFFECT_LEVEL = 0.7
"""The noise quantile at which the visible effect by mask is measured: layout and appearance are still open there."""


def effect_by_mask(session: Session, items: Sequence[RunClip]) -> dict[str, float]:
    """Measure how much the LoRA changes masked clips, inside the region it learns from and outside.

    The clips are noised, always alike, then denoised in one step with and without the LoRA, and both results are
    decoded. Leaves the transformer in evaluation mode.
    """
    family, schedule, settings = session.family, session.schedule, session.settings
    transformer = session.bare_transformer

    def denoised() -> list[torch.Tensor]:
        found = []
        for clip in session.inputs.clips(items):
            generator = torch.Generator().manual_seed(seed_for(settings.seed, f"seen {clip.name}"))
            inputs = clip.sampled(family, schedule, EFFECT_LEVEL, generator, session.device)
            noisy = family.with_known(schedule.mix(inputs.latents, inputs.noise, inputs.timesteps), inputs.given)
            predicted = family.predictions(transformer, schedule, inputs)[0].float()
            found.append(family.with_known(schedule.clean(noisy, predicted, inputs.timesteps), inputs.given).cpu())
        return found

    transformer.eval()
    with session.as_in_use(), session.accelerator.autocast(), torch.no_grad():
        changed = denoised()
        with session.base_model():
            before = denoised()
    levels = list[tuple[float | None, float | None]]()
    if session.ranks.first:
        with session.previewer.decoding():
            for item, *latents in zip(items, before, changed, strict=True):
                mask = torch.from_numpy(read_mask(item))
                one, other = (frames_of(family.decode(session.previewer.vae, each), len(mask)) for each in latents)
                levels.append(levels_by_mask(one, other, 1 - mask if settings.loss_mask == "outside" else mask))
    means = {}
    for name, values in zip(("visible_inside", "visible_outside"), zip(*levels, strict=True), strict=False):
        if known := [value for value in values if value is not None]:
            means[name] = round(sum(known) / len(known), 3)
    return means


def frames_of(video: torch.Tensor, count: int) -> torch.Tensor:
    """Return the last frames of a decoded clip [1, 3, F, H, W] as [count, H, W, 3] in [0, 1].

    Families pad latents at the front, so the padding comes first in the decoded clip.
    """
    return (video[0, :, -count:].float().cpu().permute(1, 2, 3, 0) + 1) / 2


def levels_by_mask(one: torch.Tensor, other: torch.Tensor, mask: torch.Tensor) -> tuple[float | None, float | None]:
    """Return the mean difference of two videos inside and outside a mask, in levels of 255; None for an empty side.

    The videos are [F, H, W, 3] in [0, 1], the mask is [F, H, W], 0 to 1.
    """
    error = 255 * (one - other).abs().mean(-1)
    inside, outside = (float((error * part).sum() / part.sum()) if part.any() else None for part in (mask, 1 - mask))
    return inside, outside


class PriorDrift:
    """Measures how much the LoRA changes the model's output, on its own captions and on others.

    The change is the mean of |with - without| / |without| over the inputs. A measurement takes one forward pass per
    probe: captions alone in pure noise, clips at levels spread over the bands. Both sides get the same noise and
    levels in turn, and should hold the same kinds of probes. The base model's output never changes during a run, so it
    is computed once. It and the probes stay on the CPU between measurements.
    """

    def __init__(
        self,
        family: Family,
        schedule: NoiseSchedule,
        own: Sequence[EvaluationInput],
        others: Sequence[EvaluationInput],
        seed: int,
        device: torch.device,
    ) -> None:
        self._family, self._schedule, self._seed, self._device = family, schedule, seed, device
        self._own, self._others = ([probe.to(torch.device("cpu")) for probe in probes] for probes in (own, others))
        self._base: list[torch.Tensor] | None = None

    def measure(self, transformer: Any, without: Callable[[], AbstractContextManager[Any]]) -> tuple[float, float]:
        """Return (change on its own captions, change on the others). Leaves the transformer in evaluation mode.

        without: returns a context in which the transformer is the base model
        """
        transformer.eval()
        if self._base is None:
            with without():
                self._base = self._outputs(transformer)
        changes = [
            float((trained - base).norm() / base.norm().clamp(min=1e-12))
            for trained, base in zip(self._outputs(transformer), self._base, strict=True)
        ]
        own, others = changes[: len(self._own)], changes[len(self._own) :]
        return sum(own) / len(own), sum(others) / len(others)

    def _outputs(self, transformer: Any) -> list[torch.Tensor]:
        """Return the model's output for every probe, own ones first, in float32 on the CPU."""
        # Spread a few clips over the whole range: pure noise, then the middle, then outwards.
        levels = (PURE_NOISE, *sorted(BAND_MIDDLES, key=lambda one: (round(abs(one - 0.5), 6), one)))
        found = []
        for index, probe in (*enumerate(self._own), *enumerate(self._others)):
            # Seeded by index, not by caption: both sides get the same noise, and only the caption differs.
            generator = torch.Generator().manual_seed(seed_for(self._seed, "leak", index))
            probe = probe.to(self._device)
            quantile = PURE_NOISE if probe.moments is None else levels[index % len(levels)]
            with torch.no_grad():
                inputs = probe.sampled(self._family, self._schedule, quantile, generator, self._device)
                found.append(self._family.predictions(transformer, self._schedule, inputs)[0].float().cpu())
        return found


# ---- effect and drift, which tell the best point of a run (runs.analysis.best_point)

EFFECT_LEVELS = (0.7, 0.5)
"""Noise quantiles at which the effect is measured: layout, motion and appearance are still open there. Drift takes the
first; together they make best_point.PASSES predictions."""
EFFECT_INPUTS = 2  # clips of each side


class EffectAndDrift:
    """Measures how far the LoRA has moved the model's predictions toward the new clips, and how far it moves others.

    Effect is how far the prediction p has moved from the base model's prediction b to the target t, (p - b)(t - b) / |t
    - b|^2, for clips that were held out, or trained on if there are none. Drift is |p - b| / |b| for clips of the
    regularization dataset, or for preservation prompts in pure noise. Both come from mean squared errors, so that masks
    and known frames count as in the loss. Noise and inputs are always the same. The base model's output never changes
    during a run, so it is computed once and stays on the CPU.
    """

    def __init__(
        self,
        family: Family,
        schedule: NoiseSchedule,
        own: Sequence[EvaluationInput],
        others: Sequence[EvaluationInput],
        seed: int,
        device: torch.device,
    ) -> None:
        self._family, self._schedule, self._seed, self._device = family, schedule, seed, device
        cpu, level_of_drift = torch.device("cpu"), EFFECT_LEVELS[0]
        self._own = [(probe.to(cpu), level) for probe in own for level in EFFECT_LEVELS]
        self._others = [(probe.to(cpu), PURE_NOISE if probe.moments is None else level_of_drift) for probe in others]
        self._base: list[torch.Tensor] | None = None

    def measure(self, transformer: Any, without: Callable[[], AbstractContextManager[Any]]) -> dict[str, Any]:
        """Return the values of a line of metrics.jsonl. Leaves the transformer in evaluation mode.

        without: returns a context in which the transformer is the base model
        """
        transformer.eval()
        began, inputs = time.perf_counter(), [*self._own, *self._others]
        with torch.no_grad():
            if self._base is None:
                with without():
                    made = [self._picture(transformer, self._inputs(index, *one)) for index, one in enumerate(inputs)]
                    self._base = [one.float().cpu() for one in made]
            shares = [
                self._share(transformer, index, *one, base, of_target=index < len(self._own))
                for index, (one, base) in enumerate(zip(inputs, self._base, strict=True))
            ]
        own, others = shares[: len(self._own)], shares[len(self._own) :]
        found: dict[str, Any] = {"effect": sum(own) / len(own), "effects": [round(one, 5) for one in own]}
        if others:
            found["drift"] = sum(others) / len(others)
        return {**found, "probe_seconds": time.perf_counter() - began}

    def _inputs(self, index: int, probe: EvaluationInput, level: float) -> ModelInputs:
        generator = torch.Generator().manual_seed(seed_for(self._seed, "effect and drift", index))
        return probe.to(self._device).sampled(self._family, self._schedule, level, generator, self._device)

    def _picture(self, transformer: Any, inputs: ModelInputs) -> torch.Tensor:
        return self._family.predictions(transformer, self._schedule, inputs)[0]

    def _share(
        self,
        transformer: Any,
        index: int,
        probe: EvaluationInput,
        level: float,
        base: torch.Tensor,
        of_target: bool,
    ) -> float:
        family, inputs = self._family, self._inputs(index, probe, level)
        mask = None if probe.mask is None else probe.mask.to(self._device)

        def error(one: torch.Tensor, other: torch.Tensor) -> float:
            return float(family.error(one.float(), other.float(), inputs.given, mask))

        predicted, base = self._picture(transformer, inputs), base.to(self._device)
        moved = error(predicted, base)
        if not of_target:
            return math.sqrt(moved / max(error(base, torch.zeros_like(base)), 1e-24))
        target = self._schedule.target(inputs.latents, inputs.noise, inputs.timesteps)
        whole = error(base, target)
        return (moved + whole - error(predicted, target)) / (2 * max(whole, 1e-24))
