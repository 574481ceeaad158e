"""Estimate memory by phase from a model's sizes and the settings, before anything is loaded. Arithmetic, no torch.

First the trained values, then what a block keeps for its backward pass (bytes per token and unit of the model's width,
`Rates`), then each phase of a run, CPU memory and disk. Weights and optimizer states are counted exactly. constants.py
has the constants and their sources; benchmarks/fit_check.py shows the error of the estimates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from workbench.clips.buckets import parse_bucket
from workbench.clips.frame_plan import shape_of
from workbench.families.facts import ALL_LINEAR, Linear, ModelFacts
from workbench.families.low_rank import factorized
from workbench.families.model import Model
from workbench.fit import constants as known
from workbench.fit.constants import NUMBER, PRECISIONS, STATES, Rates
from workbench.fit.gpus import GpuModel
from workbench.jobs.devices import GIGABYTE
from workbench.runs.settings import TrainSettings, chosen_blocks

CAPTIONS, CLIPS, TRAINING, MEASURING = "encoding captions", "encoding clips", "training", "measuring"
DENOISING, DECODING, SAVING = "previews, denoising", "previews, decoding", "saving"
LEFT, RESERVED, MAPPED_FILES = "not given back", "workspace and fragmentation", "mapped files"
CONTEXTS = {"cuda": "CUDA", "mps": "Metal", "cpu": "Python and its libraries"}
NO_TENSORS = frozenset({*CONTEXTS.values(), LEFT, RESERVED, MAPPED_FILES})  # parts that are not tensors
PHASES = (CAPTIONS, CLIPS, TRAINING, MEASURING, DENOISING, DECODING, SAVING)


# ---- the sizes of a run


@dataclass(frozen=True)
class RunSizes:
    """A run on a GPU, and the sizes that follow from it. shape: (frames, height, width) of its largest bucket."""

    settings: TrainSettings
    model: Model
    facts: ModelFacts
    gpu: GpuModel
    shape: tuple[int, int, int]

    @property
    def full(self) -> bool:
        """Whether all weights are trained."""
        return self.settings.method == "full"

    @cached_property
    def precision(self) -> str:
        if self.settings.precision != "auto":
            return self.settings.precision
        return "fp32" if self.gpu.kind == "cpu" else PRECISIONS[self.facts.auto or self.facts.stored]

    @property
    def number(self) -> int:
        """Bytes per number in the transformer."""
        return NUMBER[self.precision]

    @property
    def of_vae(self) -> int:
        """Bytes per number in the VAE."""
        return self.facts.vae_bytes(self.number)

    @cached_property
    def tokens(self) -> int:
        """Tokens of one clip, including its caption and its reference."""
        own, (frames, height, width) = self.facts.tokens(*self.shape), self.shape
        if per_second := self.facts.sound_tokens:
            return round(per_second * frames / (self.settings.fps or self.model.fps)) + 1
        if not self.settings.reference:
            return own
        if self.facts.reference_frames:
            latents = 1 + self.facts.temporal * (self.facts.reference_frames - 1)
            return own + self.facts.tokens(latents, height, width)
        smaller = self.settings.reference_downscale
        return own + self.facts.tokens(frames, height // smaller, width // smaller)

    @property
    def unit(self) -> int:
        """Tokens of a batch times the model's width."""
        return self.tokens * self.facts.width * self.settings.batch_size

    @cached_property
    def preview(self) -> RunSizes:
        """The run with the shape of its previews, which are generated one at a time."""
        shape = (self.settings.preview_frames or self.shape[0], *self.shape[1:])
        facts = self.facts.learning.get("picture", self.facts)  # previews of a run that learns the sound have pictures
        return replace(self, facts=facts, shape=shape, settings=self.settings.model_copy(update={"batch_size": 1}))

    # ---- trained values

    def blocks_with(self, linear: Linear) -> int:
        """Return in how many blocks a layer is trained; for a layer outside the blocks, 1 or 0.

        Chooses layers the way peft does. An invalid pattern trains nothing here; the run itself refuses it.
        """
        targets = self.settings.targets
        numbers: Collection[int] = range(self.facts.blocks if linear.in_blocks else 1)
        if (chosen := chosen_blocks(self.settings.blocks, self.facts.blocks)) is not None:
            numbers = chosen if linear.in_blocks else range(linear.block in chosen)
        if unreached := self.facts.unreached.get(self.settings.sound):
            numbers = [one for one in numbers if not re.fullmatch(unreached, linear.name.format(one))]
        if targets == ALL_LINEAR:
            return len(numbers)
        if (preset := self.facts.presets.get(targets)) is not None:  # the same in every block
            return len(numbers) if f".{linear.name.format(0)}".endswith(tuple(f".{one}" for one in preset)) else 0
        try:
            return sum(re.fullmatch(targets, linear.name.format(number)) is not None for number in numbers)
        except re.error:
            return 0

    @cached_property
    def trained(self) -> int:
        """How many numbers are trained."""
        settings, facts = self.settings, self.facts
        if self.full:
            return facts.values
        chosen = [(one, self.blocks_with(one)) for one in facts.linears]
        values = sum(count * adapter_values(settings, one) for one, count in chosen)
        prefixes = tuple(text.strip() for text in settings.train_also if text.strip())
        return values + (sum(one.values for name, one in facts.named() if name.startswith(prefixes)) if prefixes else 0)

    @cached_property
    def in_block(self) -> list[Linear]:
        """The trained layers of a block that process video tokens."""
        block = [one for one in self.facts.linears if one.in_blocks and one.on == "video"]
        return block if self.full else [one for one in block if self.blocks_with(one)]

    @cached_property
    def in_side(self) -> list[Linear]:
        """The same for all blocks of a side branch."""
        return [one for one in self.facts.side if one.on == "video" and (self.full or self.blocks_with(one))]

    def trained_sizes(self, size: Callable[[Linear], int]) -> float:
        """Sum a size over a block's trained layers, averaged over the blocks if they differ."""
        own, facts = sum(size(one) for one in self.in_block), self.facts
        if not facts.side:
            return own
        return (facts.blocks * own + sum(size(one) for one in self.in_side)) / facts.all_blocks

    # ---- activations of a block

    @cached_property
    def rates(self) -> Rates:
        """The rates of the model's architecture. Per-token timesteps add six vectors in each block and six outside."""
        settings, facts = self.settings, self.facts
        single = self.precision == "fp32"
        if facts.two_streams:
            streams = known.TWO_STREAMS_SINGLE if single else known.TWO_STREAMS_MIXED
            saved = streams.saved if facts.gated else known.UNGATED
            return replace(streams, saved=saved, table=facts.position_bytes)
        if facts.text_joint:
            joint = known.SINGLE if single else known.MIXED_STOCK if settings.attention == "stock" else known.MIXED
            return replace(joint, table=facts.position_bytes)
        rates = known.CROSS_SINGLE if single else known.CROSS_MIXED
        shown = 0 if settings.first_frame_share == 0 or settings.tells else facts.shown_bytes
        shown = max(shown, facts.given_bytes if settings.given else 0)
        shown = max(shown, facts.reference_bytes if settings.reference else 0)
        inside = max((one.outputs for one in facts.linears if one.in_blocks and one.on == "video"), default=0)
        wide, timed = rates.within * inside / facts.width, 6.0 * (facts.timed_bytes or shown)
        picture = 1.05 * self.number if facts.picture_tokens else 0.0  # a second cross-attention's output
        widest = max((one.inputs for one in (*self.in_block, *self.in_side)), default=0)
        # A side branch's outputs wait for their blocks and are freed before a backward pass begins.
        hints = self.number * (facts.all_blocks - facts.blocks)
        return replace(
            rates,
            attention=rates.attention + picture,
            saved=rates.saved + facts.saved_bytes + wide + picture + (timed + 3.5 if timed else 0.0),
            backward=rates.backward + wide + rates.cast * widest / facts.width,
            forward=rates.forward + wide + timed + hints,
            outside=rates.outside + facts.position_bytes + (7.5 * self.number if timed else 0.0),
        )

    @property
    def saved_by_a_block(self) -> float:
        """Bytes per token and unit of width that a block keeps for its backward pass."""
        settings, rates, width = self.settings, self.rates, self.facts.width
        every = self.trained_sizes(lambda one: one.inputs)
        inputs = self.trained_sizes(lambda one: 0 if rates.shared and one.shared else one.inputs)
        found = rates.saved + rates.inputs * inputs / width
        if self.full:
            return found + rates.full
        if settings.lora_dropout and settings.method == "lora":
            found += (rates.inputs + 1.0) * every / width
        if settings.is_dora:
            found += 2.5 * rates.inputs * self.trained_sizes(lambda one: one.outputs) / width
        return found

    # ---- weights

    @cached_property
    def weights(self) -> tuple[float, float]:
        """Bytes of the frozen weights on the device, and of those swapped to CPU memory."""
        settings, facts = self.settings, self.facts
        if self.full:
            return 0.0, 0.0
        # A side branch's blocks are a little larger, but all are counted as equal.
        of_block = facts.all_block_values / facts.all_blocks
        each = of_block * known.FROZEN.get(settings.base_model_precision, float(self.number))
        rest = (facts.values - facts.all_block_values) * self.number
        swapped = min(settings.blocks_to_swap, facts.all_blocks)
        on_device = facts.all_blocks - swapped + min(known.RING, swapped)
        return rest + on_device * each, swapped * each


def adapter_values(settings: TrainSettings, linear: Linear) -> int:
    """Return how many numbers the adapter of a linear layer has."""
    if settings.method == "lokr":
        left, right = factorized(linear.outputs, settings.lokr_factor)
        above, below = factorized(linear.inputs, settings.lokr_factor)
        whole = settings.rank >= max(right, below) / 2
        return left * above + (right * below if whole else settings.rank * (right + below))
    return settings.rank * (linear.inputs + linear.outputs) + (linear.outputs if settings.is_dora else 0)


def sizes(settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel) -> RunSizes:
    """Return the run's sizes, for its bucket with the most tokens. Raises ConfigError if the model cannot take it."""
    facts = facts.learning.get(settings.sound, facts)
    shapes: list[Any] = [parse_bucket(text, model) for text in settings.buckets] or [shape_of(settings, model)]
    found = [(one.frames, one.height, one.width) for one in shapes]
    return RunSizes(settings, model, facts, gpu, max(found, key=lambda one: facts.tokens(*one)))


# ---- a run, phase by phase


@dataclass(frozen=True)
class Phase:
    """GPU memory of one phase, in GiB by part. measured: by a trial run, in place of the sum."""

    name: str
    parts: Mapping[str, float]
    measured: float | None = None

    @property
    def gb(self) -> float:
        return sum(self.parts.values()) if self.measured is None else self.measured

    @property
    def made_of(self) -> str:
        return parts_text(self.parts)


def gb_text(gb: float) -> str:
    """Format GiB: 5.2 GB, 340 MB, 44 TB."""
    if gb >= 1000:
        return f"{gb / 1024:,.0f} TB"
    return f"{gb:.1f} GB" if gb >= 0.95 else f"{1024 * gb:.0f} MB"


def parts_text(parts: Mapping[str, float]) -> str:
    """List parts without the smallest: "weights 3.2 GB, LoRA 64 MB"."""
    return ", ".join(f"{name} {gb_text(gb)}" for name, gb in parts.items() if gb >= known.SMALLEST_GB)


def phases(run: RunSizes) -> tuple[Phase, ...]:
    """Return the phases of the run, in order."""
    settings, facts, gpu = run.settings, run.facts, run.gpu
    held = _base(gpu) | _held(run)
    vae = {"VAE": facts.vae.values * run.of_vae / GIGABYTE}
    generated, rates = run.preview, run.rates
    one_clip, two_previews = (
        _gb({"activations": unit * (count * (rates.forward + rates.outside) + rates.table)})
        for unit, count in ((run.unit / settings.batch_size, 1), (generated.unit, 2))
    )
    clips = _clips(run, _base(gpu, CLIPS) | vae | _gb({"image encoder": facts.image_encoder_values * run.of_vae}))
    left = min(known.HEAP_GB, known.NOT_GIVEN_BACK * (clips.parts["activations"] + clips.parts[RESERVED]))
    training = Phase(TRAINING, held | _training(run) | ({LEFT: left} if gpu.kind == "cpu" else {}))
    found = [_captions(run, _base(gpu, CAPTIONS)), clips, training]
    if settings.evaluate_every:
        found.append(Phase(MEASURING, held | one_clip))
    if settings.preview_every:
        # With guidance, the prompt and the empty prompt are computed together.
        found.append(Phase(DENOISING, held | two_previews))
        if not settings.preview_latents_only:
            working = _vae_work(generated, "decoder", run.shape[1] >= known.TILED_FROM)
            values = 3.0 * math.prod(generated.shape)
            # The video grows while the decoder works; the whole video is then converted to fp32 and clamped.
            video = {"the video": max(run.of_vae * values, (run.of_vae + 8) * values - working)}
            # On a GPU, the frozen weights are moved away for the VAE (Previewer.decoding).
            rest = {name: gb for name, gb in held.items() if name != "weights" or gpu.kind != "cuda"}
            found.append(Phase(DECODING, rest | vae | _vae_parts(working, video, gpu)))
    # The state is copied twice: as tensors and as the bytes of a file.
    copies = {"copies to write": 2 * run.trained * STATES[settings.optimizer]}
    decoded = found[-1].name == DECODING
    found.append(Phase(SAVING, held | (_gb(copies) if gpu.kind == "cpu" else {})))
    if gpu.kind == "cpu":
        # The process still holds training's memory, which later phases use first.
        for at, phase in enumerate(found[3:], 3):
            if (rest_gb := training.gb - phase.gb) > 0:
                found[at] = Phase(phase.name, {**phase.parts, LEFT: rest_gb})
        # The VAE stays in memory after it has decoded a preview.
        found[-1] = Phase(SAVING, {**found[-1].parts, **(vae if decoded else {})})
    return tuple(found)


def _base(gpu: GpuModel, phase: str = "") -> dict[str, float]:
    context = known.EARLIER_GB.get(phase, known.PROCESS_GB["cpu"]) if gpu.kind == "cpu" else known.CONTEXT_GB
    return {CONTEXTS[gpu.kind]: context}


def _captions(run: RunSizes, base: Mapping[str, float]) -> Phase:
    facts, number = run.facts, run.number
    text = known.TEXT_UNITS * known.CAPTIONS_AT_ONCE * facts.text_tokens * facts.text_width * number
    needed = Phase(CAPTIONS, {**base, **_gb({"text encoder": facts.text_encoder_values * number, "activations": text})})
    # If it does not fit the GPU, captions are encoded on the CPU (Encoder).
    return needed if run.gpu.kind == "cpu" or needed.gb <= run.gpu.usable_gb else Phase(CAPTIONS, base)


def _clips(run: RunSizes, base: Mapping[str, float]) -> Phase:
    clip = {"the clip": 3.0 * run.of_vae * math.prod(run.shape)}
    whole, tiled = (
        Phase(CLIPS, {**base, **_vae_parts(_vae_work(run, "encoder", tiled), clip, run.gpu)}) for tiled in (False, True)
    )
    # If a whole clip does not fit the GPU, it is encoded in tiles (Encoder).
    return whole if run.gpu.kind == "cpu" or whole.gb <= run.gpu.usable_gb else tiled


def _vae_work(run: RunSizes, side: str, tiled: bool) -> float:
    (frames, height, wide), vae = run.shape, run.facts.vae
    tile = vae.tile if tiled else (height, wide)
    area = min(height, tile[0]) * min(wide, tile[1])
    encoder = (tiled and vae.tiled_encoder_tensors) or vae.encoder_tensors
    channels = vae.encoder_width * encoder if side == "encoder" else vae.decoder_width * vae.decoder_tensors
    return channels * min(vae.frames_at_once, frames) * area * run.of_vae


def _vae_parts(working: float, video: Mapping[str, float], gpu: GpuModel) -> dict[str, float]:
    reserve = known.VAE_RESERVES[gpu.kind] * working
    if gpu.kind == "cpu":
        reserve = min(reserve, known.HEAP_GB * GIGABYTE)
    return _gb({"activations": working, **video, RESERVED: reserve})


def _held(run: RunSizes) -> dict[str, float]:
    """Return what stays on the device from the first step to the last."""
    settings, facts, on_cpu = run.settings, run.facts, run.gpu.kind == "cpu"
    found = {"weights": run.weights[0]} if run.weights[0] else {}
    # Query, key and value are joined into one layer (Family.join_projections), but their file stays mapped for the
    # other layers. Files in another format than the run computes in are converted and not mapped.
    joined = facts.text_joint and not facts.two_streams and settings.method != "full" and settings.attention != "stock"
    if on_cpu and joined and PRECISIONS[facts.stored] == run.precision:
        keys_and_values = sum(one.values for one in facts.linears if one.in_blocks and one.shared)
        found |= {MAPPED_FILES: 1.5 * keys_and_values * facts.blocks * run.number} if keys_and_values else {}
    mapped = known.MAPPED if run.full and on_cpu else 1.0
    found |= {"trained weights" if run.full else "LoRA": run.trained * 4.0 * mapped}
    found |= {"optimizer": run.trained * STATES[settings.optimizer]}
    if settings.ema_decay:
        found["average (EMA)"] = run.trained * 4.0
    return _gb(found)


def _training(run: RunSizes) -> dict[str, float]:
    settings, facts, rates, unit = run.settings, run.facts, run.rates, run.unit
    level, number, saved = settings.gradient_checkpointing, run.number, run.saved_by_a_block
    by_blocks = {
        "none": facts.all_blocks * saved,
        "keep attention": facts.all_blocks * (rates.boundary + rates.attention),
        "full": facts.all_blocks * rates.boundary,
        "offloaded": known.COMING_BACK * rates.boundary + known.HINTS_KEPT * number * (facts.all_blocks - facts.blocks),
    }[level]
    again = 0.0 if level == "none" else saved  # recomputed one block at a time
    # Trained values are fp32; a step computes with copies in its own format.
    copies = run.trained * number / (1 if level == "none" else facts.all_blocks) if run.precision != "fp32" else 0.0
    gradients = run.trained * 4.0
    if level != "offloaded" and settings.gradient_accumulation == 1 and not settings.preservation_weight:
        # Gradients appear during the backward pass, while activations are freed.
        gradients = max(0.0, gradients - by_blocks * unit)
    kept = (by_blocks + again + rates.outside + rates.table / settings.batch_size) * unit + copies
    found = {"gradients": gradients, "activations": kept, "backward pass": rates.backward * unit}
    if settings.attention == "math":
        scores = run.tokens**2 + (0 if facts.text_joint else run.tokens * facts.text_tokens)
        found["attention scores"] = 3.0 * settings.batch_size * facts.heads * scores * number
    if run.gpu.kind != "mps":
        of_kept, of_working = known.RESERVES[run.gpu.kind]
        found[RESERVED] = of_kept * kept + of_working * found["backward pass"]
    return _gb(found)


def host_gb(run: RunSizes) -> float:
    """Return the peak CPU memory of a run on a GPU, in GiB."""
    facts = run.facts
    offloaded = run.settings.gradient_checkpointing == "offloaded"
    swapped = run.weights[1] + (facts.all_blocks * run.rates.boundary * run.unit if offloaded else 0.0)
    # The parts of the model pass through CPU memory one at a time.
    loading = max(facts.text_encoder_values, facts.values) * run.number
    training = swapped + facts.vae.values * run.of_vae
    return known.PROCESS_GB[run.gpu.kind] + max(loading, training) / GIGABYTE


def disk_gb(run: RunSizes, clips: int, steps: int) -> dict[str, float]:
    """Return what a run writes to disk in GiB, by part."""
    settings, facts, model, (frames, height, width) = run.settings, run.facts, run.model, run.shape
    count, channels, tall, wide = facts.latents(frames, height, width)
    moments = 2 * 4 * count * channels * tall * wide * (1 + (settings.horizontal_flip > 0))
    image = 3 * height * width if model.task == "image-to-video" and not settings.tells else 0
    companions = settings.conditioning_ways + settings.has_pairs
    image += companions * (moments // 2 + 4 * 4 * count * tall * wide)  # latents without variance, and a mask
    caption = facts.text_tokens * facts.text_width * run.number
    checkpoint = run.trained * (4 + STATES[settings.optimizer] + (4 if settings.ema_decay else 0))
    kept = min(steps // settings.save_every + 1, settings.keep_checkpoints + 1)
    kept += steps // settings.keep_every if settings.keep_every else 0
    generated = (1 + steps // settings.preview_every) if settings.preview_every else 0
    found = {
        "encoded clips and captions": float(clips * (moments + image + caption)),
        "checkpoints": float(kept * checkpoint),
        "previews": generated * settings.previews_at_once * (settings.preview_frames or frames) * height * width * 0.02,
        "the export": run.trained * 4.0,
    }
    if not facts.on_disk:
        found["the model"] = model.download_gb * 1e9
    return _gb(found)


def _gb(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: size / GIGABYTE for name, size in parts.items()}
