"""Memory by phase, estimated from a model's sizes and the settings before anything is loaded. Arithmetic, no torch.

A block keeps, for its backward pass, a number of bytes for each token and unit of the model's width (`Rates`). Weights
and optimizer states are counted. The constants in capitals were fitted to published figures and to measurements on the
built-in models; docs/memory.md says which is which, benchmarks/fit_check.py shows how far off they are. Not covered:
time (timing), several GPUs that each hold a part of the model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from workbench.clips.buckets import parse_bucket
from workbench.clips.frame_plan import shape_for
from workbench.families.facts import Linear, ModelFacts
from workbench.families.model import Model
from workbench.fit.gpus import GpuModel
from workbench.jobs.devices import GIGABYTE
from workbench.runs.settings import TrainSettings

CAPTIONS, CLIPS, TRAINING, MEASURING = "encoding captions", "encoding clips", "training", "measuring"
DENOISING, DECODING, SAVING = "previews, denoising", "previews, decoding", "saving"
LEFT = "not given back"
PHASES = (CAPTIONS, CLIPS, TRAINING, MEASURING, DENOISING, DECODING, SAVING)

NUMBER = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
# Bytes for a frozen value; scales of rows or of 64 values come on top.
FROZEN = {"int8": 1.0, "fp8": 1.0, "nf4": 0.5625}
# Bytes of state for a trained value, by optimizer.
STATES = {"adamw": 8.0, "adam": 8.0, "adamw-8bit": 2.1, "prodigy": 16.0, "came": 4.1, "schedule-free": 8.0, "muon": 4.0}
RING = 2  # swapped blocks that are on the device at a time
CONTEXT_GB = 0.6  # CUDA's own, with cuBLAS's and cuDNN's workspaces
PROCESS_GB = {"cuda": 2.6, "mps": 2.6, "cpu": 0.51}  # what Python and its libraries take of the machine's memory
EARLIER_GB = {CAPTIONS: 0.37, CLIPS: 0.47}  # on a processor, before all of them are loaded
RESERVE = 0.03  # of what comes and goes: room between tensors
CAPTIONS_AT_ONCE = 8
TEXT_UNITS = 24  # widths of text that an encoder's layer holds for a token
VAE_SPREAD = {"cuda": 1.0, "mps": 1.0, "cpu": 3.13}  # of the tensors that a video autoencoder holds at its worst moment
# A processor's allocator: what it makes of tensors that come and go, of weights that are mapped and copied, and how
# much of a phase's memory is still the process's in the next one.
SPREAD, MAPPED, NOT_GIVEN_BACK = 1.5, 1.25, 0.8
SMALLEST_GB = 0.005  # parts below this are not worth a word
TILED_FROM = 256  # pixels of height from which previews are decoded in tiles


@dataclass(frozen=True)
class Rates:
    """Bytes for each token and unit of the model's width.

    saved: kept by a block, without inputs of trained layers;  inputs: each of those, for its own width
    boundary: a block's input;  attention: what "keep attention" keeps of a block beside it
    backward, forward: beside what is kept, at the worst moment of a backward pass, and of a pass that keeps nothing
    full: kept in addition where all weights are trained;  shared: whether layers with the same input keep it once
    within: for each unit of the feed-forward's width, in addition to saved, backward and forward
    cast: the widest input of a trained layer, at the worst moment of a backward pass;  outside: kept beside the blocks
    """

    saved: float
    inputs: float
    boundary: float
    attention: float
    backward: float
    forward: float
    full: float
    shared: bool
    within: float = 0.0
    cast: float = 0.0
    outside: float = 0.0


SINGLE = Rates(47.0, 4.0, 4.0, 4.1, 36.0, 50.0, 24.0, shared=True)
MIXED = Rates(34.0, 2.0, 2.0, 2.1, 48.0, 30.0, 16.0, shared=True)
MIXED_STOCK = Rates(33.0, 2.0, 2.0, 2.1, 48.0, 34.0, 16.0, shared=False)
# Where the caption is only looked at.
CROSS_SINGLE = Rates(40.0, 4.0, 4.0, 8.1, 8.0, 28.0, 24.0, shared=True, within=4.0, cast=4.0, outside=5.0)
CROSS_MIXED = Rates(36.9, 2.0, 2.0, 4.1, 6.0, 17.0, 16.0, shared=False, within=2.0, cast=4.0, outside=4.5)


@dataclass(frozen=True)
class Phase:
    """What one phase needs of the GPU's memory, in GiB by part. measured: by a real run, in place of the sum."""

    name: str
    parts: Mapping[str, float]
    measured: float | None = None

    @property
    def gb(self) -> float:
        return sum(self.parts.values()) if self.measured is None else self.measured

    @property
    def made_of(self) -> str:
        return parts_text(self.parts)


@dataclass(frozen=True)
class TrainedSize:
    """What is trained: numbers; of the layers of a block, for each token of the video, the widths of all inputs and
    outputs, and of the widest input."""

    values: int
    inputs: int
    outputs: int
    widest: int


@dataclass(frozen=True)
class Sizes:
    """What of a run decides its memory.

    shape: (frames, height, width) of the largest bucket;  tokens: of one clip in it, with its caption
    frozen: bytes of the frozen weights on the device;  waiting: of those in the machine's memory
    unit: tokens of a batch times the model's width
    """

    precision: str
    shape: tuple[int, int, int]
    tokens: int
    trained: TrainedSize
    frozen: float
    waiting: float
    unit: int
    rates: Rates


def gb_text(gb: float) -> str:
    """5.2 GB, 340 MB, 44 TB."""
    if gb >= 1000:
        return f"{gb / 1024:,.0f} TB"
    return f"{gb:.1f} GB" if gb >= 0.95 else f"{1024 * gb:.0f} MB"


def parts_text(parts: Mapping[str, float]) -> str:
    """ "weights 3.2 GB, LoRA 64 MB", without the smallest."""
    return ", ".join(f"{name} {gb_text(gb)}" for name, gb in parts.items() if gb >= SMALLEST_GB)


def sizes(settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel) -> Sizes:
    """Raises ConfigError for a shape that the model cannot take."""
    shape = largest_shape(settings, model, facts)
    precision: str = settings.precision
    if precision == "auto":
        precision = "fp32" if gpu.kind == "cpu" else PRECISIONS[facts.stored]
    tokens, what = facts.tokens(*shape), trained(settings, facts)
    frozen, waiting = _frozen(settings, facts, NUMBER[precision])
    rates = _rates(settings, facts, precision, what)
    return Sizes(precision, shape, tokens, what, frozen, waiting, tokens * facts.width * settings.batch_size, rates)


def _rates(settings: TrainSettings, facts: ModelFacts, precision: str, what: TrainedSize) -> Rates:
    """Of a model's architecture. A token's own timestep becomes six vectors in each block, and six outside."""
    if facts.text_joint:
        return SINGLE if precision == "fp32" else MIXED_STOCK if settings.attention == "stock" else MIXED
    rates, number = CROSS_SINGLE if precision == "fp32" else CROSS_MIXED, NUMBER[precision]
    wide, timed = rates.within * facts.feed_forward / facts.width, 6.0 * facts.timed_bytes
    return replace(
        rates,
        saved=rates.saved + wide + (timed + 3.5 if timed else 0.0),
        backward=rates.backward + wide + rates.cast * what.widest / facts.width,
        forward=rates.forward + wide + timed,
        outside=rates.outside + facts.position_bytes + (7.5 * number if timed else 0.0),
    )


def largest_shape(settings: TrainSettings, model: Model, facts: ModelFacts) -> tuple[int, int, int]:
    """(frames, height, width) of the bucket with the most tokens. Raises ConfigError."""
    if settings.buckets:
        buckets = [parse_bucket(text, model) for text in settings.buckets]
        found = [(bucket.frames, bucket.height, bucket.width) for bucket in buckets]
    else:
        shape = shape_for(model, settings.frames, settings.height, settings.width, settings.fps)
        found = [(shape.frames, shape.height, shape.width)]
    return max(found, key=lambda one: facts.tokens(*one))


def trained(settings: TrainSettings, facts: ModelFacts) -> TrainedSize:
    """A pattern that names no layer counts as none: the run itself refuses it."""
    block = _chosen_in_block(settings, facts)
    if settings.method == "full":
        return _trained(facts.values, block)
    chosen = [(one, _targets(one, settings, facts)) for one in facts.linears]
    values = sum(count * settings.rank * (one.inputs + one.outputs) for one, count in chosen)
    values += sum(count * one.outputs for one, count in chosen) if settings.dora else 0
    prefixes = tuple(text.strip() for text in settings.train_also if text.strip())
    values += sum(one.values for name, one in facts.named() if name.startswith(prefixes)) if prefixes else 0
    return _trained(values, block)


def _targets(linear: Linear, settings: TrainSettings, facts: ModelFacts) -> int:
    """In how many blocks a layer is trained; of a layer outside of them 1 or 0."""
    numbers = range(facts.blocks if linear.in_blocks else 1)
    if settings.targets in facts.presets:  # the same in every block
        return len(numbers) * _is_target(linear.name.format(0), settings, facts)
    return sum(_is_target(linear.name.format(number), settings, facts) for number in numbers)


def _trained(values: int, block: list[Linear]) -> TrainedSize:
    inputs = [one.inputs for one in block]
    return TrainedSize(values, sum(inputs), sum(one.outputs for one in block), max(inputs, default=0))


def _is_target(name: str, settings: TrainSettings, facts: ModelFacts) -> bool:
    """As peft chooses layers."""
    preset = facts.presets.get(settings.targets)
    if preset is not None:
        return any(name == one or name.endswith(f".{one}") for one in preset)
    try:
        return re.fullmatch(settings.targets, name) is not None
    except re.error:
        return False


def _frozen(settings: TrainSettings, facts: ModelFacts, number: int) -> tuple[float, float]:
    """Bytes of the frozen weights: on the device, and waiting in the machine's memory."""
    if settings.method == "full":
        return 0.0, 0.0
    of_blocks = facts.blocks * facts.block_values
    each = facts.block_values * FROZEN.get(settings.base_model_precision, float(number))
    rest = (facts.values - of_blocks) * number
    swapped = min(settings.blocks_to_swap, facts.blocks)
    here = facts.blocks - swapped + (min(RING, swapped))
    return rest + here * each, swapped * each


def phases(settings: TrainSettings, facts: ModelFacts, gpu: GpuModel, size: Sizes) -> tuple[Phase, ...]:
    """Every phase of the run that the settings ask for, in order."""
    number = NUMBER[size.precision]
    held = _base(gpu) | _held(settings, size, gpu)
    vae = {"VAE": facts.vae.values * number / GIGABYTE}
    one_clip = size.unit / settings.batch_size * (size.rates.forward + size.rates.outside)
    captions = _captions(facts, gpu, _base(gpu, CAPTIONS), number)
    encoders = vae | _gb({"image encoder": facts.image_encoder_values * number})
    clips = _clips(facts, gpu, _base(gpu, CLIPS) | encoders, size, number)
    before = {LEFT: NOT_GIVEN_BACK * clips.parts["activations"]} if gpu.kind == "cpu" else {}
    training = Phase(TRAINING, held | _training(settings, facts, size, gpu) | before)
    found = [captions, clips, training]
    if settings.evaluate_every:
        found.append(Phase(MEASURING, held | _gb({"activations": one_clip})))
    if settings.preview_every:
        # With guidance the model computes with and without the prompt at once.
        found.append(Phase(DENOISING, held | _gb({"activations": 2 * one_clip})))
        if not settings.preview_latents_only:
            tiled = size.shape[1] >= TILED_FROM
            working = _vae_work(facts, "decoder", size, number, gpu, tiled)
            # On a GPU the frozen weights make room for the VAE meanwhile (Previewer.spare).
            rest = {name: gb for name, gb in held.items() if name != "weights" or gpu.kind != "cuda"}
            found.append(Phase(DECODING, rest | vae | _gb({"activations": working, "the video": 2 * _pixels(size)})))
    # The state is copied, and once more as the bytes of a file.
    copies = {"copies to write": 2 * size.trained.values * STATES[settings.optimizer]}
    found.append(Phase(SAVING, held | (_gb(copies) if gpu.kind == "cpu" else {})))
    if gpu.kind == "cpu":
        found[3:] = [_at_least(phase, training) for phase in found[3:]]
    return tuple(found)


def _at_least(phase: Phase, training: Phase) -> Phase:
    """On a processor what training took is still the process's: later phases work within it, or beyond it."""
    rest = training.gb - phase.gb
    return Phase(phase.name, {**phase.parts, LEFT: rest}) if rest > 0 else phase


def _base(gpu: GpuModel, phase: str = "") -> dict[str, float]:
    if gpu.kind != "cpu":
        return {"Metal" if gpu.kind == "mps" else "CUDA": CONTEXT_GB}
    return {"Python and its libraries": EARLIER_GB.get(phase, PROCESS_GB["cpu"])}


def _captions(facts: ModelFacts, gpu: GpuModel, base: Mapping[str, float], number: int) -> Phase:
    text = TEXT_UNITS * CAPTIONS_AT_ONCE * facts.text_tokens * facts.text_width * number
    needed = Phase(CAPTIONS, {**base, **_gb({"text encoder": facts.text_encoder_values * number, "activations": text})})
    # What does not fit a GPU is encoded on the processor (Encoder).
    return needed if gpu.kind == "cpu" or needed.gb <= gpu.usable_gb else Phase(CAPTIONS, base)


def _clips(facts: ModelFacts, gpu: GpuModel, base: Mapping[str, float], size: Sizes, number: int) -> Phase:
    found = []
    for tiled in (False, True):
        working = _vae_work(facts, "encoder", size, number, gpu, tiled)
        found.append(Phase(CLIPS, {**base, **_gb({"activations": working, "the clip": _pixels(size)})}))
    # What does not fit a GPU in one piece is encoded in tiles (Encoder).
    return found[0] if gpu.kind == "cpu" or found[0].gb <= gpu.usable_gb else found[1]


def _vae_work(facts: ModelFacts, side: str, size: Sizes, number: int, gpu: GpuModel, tiled: bool) -> float:
    (frames, height, wide), vae = size.shape, facts.vae
    tile = vae.tile if tiled else (height, wide)
    area = min(height, tile[0]) * min(wide, tile[1])
    channels = vae.encoder_width * vae.encoder_tensors if side == "encoder" else vae.decoder_width * vae.decoder_tensors
    return VAE_SPREAD[gpu.kind] * channels * min(vae.frames_at_once, frames) * area * number


def _pixels(size: Sizes) -> float:
    return 12.0 * math.prod(size.shape)


def _held(settings: TrainSettings, size: Sizes, gpu: GpuModel) -> dict[str, float]:
    """What lies on the device from the first step to the last."""
    values = size.trained.values
    what = "trained weights" if settings.method == "full" else "LoRA"
    found = {"weights": size.frozen * (MAPPED if gpu.kind == "cpu" else 1.0)} if size.frozen else {}
    full = settings.method == "full" and gpu.kind == "cpu"
    found |= {what: values * 4.0 * (MAPPED if full else 1.0), "optimizer": values * STATES[settings.optimizer]}
    if settings.ema_decay:
        found["average (EMA)"] = values * 4.0
    return _gb(found)


def _training(settings: TrainSettings, facts: ModelFacts, size: Sizes, gpu: GpuModel) -> dict[str, float]:
    rates, mixed = size.rates, size.precision != "fp32"
    saved = _saved(settings, facts, size)
    level = settings.gradient_checkpointing
    kept = {
        "none": facts.blocks * saved,
        "keep attention": facts.blocks * (rates.boundary + rates.attention) + saved,
        "full": facts.blocks * rates.boundary + saved,
        "offloaded": 2 * rates.boundary + saved,
    }[level]
    number, spread = NUMBER[size.precision], SPREAD if gpu.kind == "cpu" else 1.0
    kept += rates.outside
    found = {
        # Trained values are fp32; a step computes with copies of them in its own format.
        "gradients": size.trained.values * (4.0 + (number if mixed else 0)),
        "activations": kept * size.unit * spread,
        "backward pass": rates.backward * size.unit * spread,
    }
    if settings.attention == "math":
        scores = size.tokens**2 + (0 if facts.text_joint else size.tokens * facts.text_tokens)
        found["attention scores"] = 3.0 * settings.batch_size * facts.heads * scores * number
    if gpu.kind == "cuda":
        found["reserve"] = RESERVE * (found["activations"] + found["backward pass"])
    return _gb(found)


def _saved(settings: TrainSettings, facts: ModelFacts, size: Sizes) -> float:
    """Bytes that a block keeps for its backward pass, for each token and unit of width."""
    rates, width = size.rates, facts.width
    inputs = size.trained.inputs
    if rates.shared and inputs:
        inputs -= sum(one.inputs for one in _chosen_in_block(settings, facts) if one.shared)
    found = rates.saved + rates.inputs * inputs / width
    if settings.method == "full":
        return found + rates.full
    if settings.lora_dropout:
        found += (rates.inputs + 1.0) * size.trained.inputs / width
    if settings.dora:
        found += 2.5 * rates.inputs * size.trained.outputs / width
    return found


def _chosen_in_block(settings: TrainSettings, facts: ModelFacts) -> list[Linear]:
    block = [one for one in facts.linears if one.in_blocks and one.on == "video"]
    return block if settings.method == "full" else [one for one in block if _targets(one, settings, facts)]


def host_gb(settings: TrainSettings, facts: ModelFacts, gpu: GpuModel, size: Sizes) -> float:
    """The machine's own memory that a run on a GPU needs, at its worst moment."""
    number = NUMBER[size.precision]
    offloaded = settings.gradient_checkpointing == "offloaded"
    waiting = size.waiting + (facts.blocks * size.rates.boundary * size.unit if offloaded else 0.0)
    # Each part comes through the machine's memory on its way, one at a time.
    coming = max(facts.text_encoder_values, facts.values) * number
    training = waiting + facts.vae.values * number
    return PROCESS_GB[gpu.kind] + max(coming, training) / GIGABYTE


def disk_gb(
    settings: TrainSettings, model: Model, facts: ModelFacts, size: Sizes, clips: int, steps: int
) -> dict[str, float]:
    """What a run leaves on the disk, by part."""
    number = NUMBER[size.precision]
    frames, height, width = size.shape
    count, channels, tall, wide = facts.latents(frames, height, width)
    moments = 2 * 4 * count * channels * tall * wide * (1 + (settings.horizontal_flip > 0))
    image = 3 * height * width if model.task == "image-to-video" else 0
    caption = facts.text_tokens * facts.text_width * number
    values = size.trained.values
    checkpoint = values * (4 + STATES[settings.optimizer] + (4 if settings.ema_decay else 0))
    kept = min(steps // settings.save_every + 1, settings.keep_checkpoints + 1)
    kept += steps // settings.keep_every if settings.keep_every else 0
    generated = (1 + steps // settings.preview_every) if settings.preview_every else 0
    found = {
        "encoded clips and captions": float(clips * (moments + image + caption)),
        "checkpoints": float(kept * checkpoint),
        "previews": generated * settings.previews_at_once * frames * height * width * 0.02,
        "the export": values * 4.0,
    }
    if not facts.on_disk:
        found["the model"] = model.download_gb * 1e9
    return _gb(found)


def _gb(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: size / GIGABYTE for name, size in parts.items()}
