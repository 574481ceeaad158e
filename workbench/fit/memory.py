"""Memory by phase, estimated from a model's sizes and the settings before anything is loaded. Arithmetic, no torch.

First what is trained, then what a block keeps of it for its backward pass (a number of bytes for each token and unit of
the model's width, `Rates`), then each phase of a run, the machine's memory and the disk. Weights and optimizer states
are counted. The constants and their sources are in constants.py; benchmarks/fit_check.py shows how far off they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from workbench.clips.buckets import parse_bucket
from workbench.clips.frame_plan import shape_of
from workbench.families.facts import ALL_LINEAR, Linear, ModelFacts
from workbench.families.model import Model
from workbench.fit.constants import (
    CAPTIONS_AT_ONCE,
    COMING_BACK,
    CONTEXT_GB,
    CROSS_MIXED,
    CROSS_SINGLE,
    EARLIER_GB,
    FROZEN,
    HEAP_GB,
    MAPPED,
    MIXED,
    MIXED_STOCK,
    NOT_GIVEN_BACK,
    NUMBER,
    PRECISIONS,
    PROCESS_GB,
    RESERVES,
    RING,
    SINGLE,
    SMALLEST_GB,
    STATES,
    TEXT_UNITS,
    TILED_FROM,
    VAE_RESERVES,
    Rates,
)
from workbench.fit.gpus import GpuModel
from workbench.jobs.devices import GIGABYTE
from workbench.runs.settings import TrainSettings

CAPTIONS, CLIPS, TRAINING, MEASURING = "encoding captions", "encoding clips", "training", "measuring"
DENOISING, DECODING, SAVING = "previews, denoising", "previews, decoding", "saving"
LEFT, RESERVED = "not given back", "workspace and fragmentation"
MAPPED_FILES = "mapped files"
CONTEXTS = ("CUDA", "Metal", "Python and its libraries")
NO_TENSORS = frozenset({*CONTEXTS, LEFT, RESERVED, MAPPED_FILES})  # parts that are no tensors
PHASES = (CAPTIONS, CLIPS, TRAINING, MEASURING, DENOISING, DECODING, SAVING)


# ---- what is trained


@dataclass(frozen=True)
class TrainedSize:
    """What is trained: numbers; of the layers of a block, for each token of the video, the widths of all inputs and
    outputs, and of the widest input."""

    values: int
    inputs: int
    outputs: int
    widest: int


def trained(settings: TrainSettings, facts: ModelFacts) -> TrainedSize:
    """A pattern that names no layer counts as none: the run itself refuses it."""
    block = chosen_in_block(settings, facts)
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
    if settings.targets == ALL_LINEAR or settings.targets in facts.presets:  # the same in every block
        return len(numbers) * _is_target(linear.name.format(0), settings, facts)
    return sum(_is_target(linear.name.format(number), settings, facts) for number in numbers)


def _trained(values: int, block: list[Linear]) -> TrainedSize:
    inputs = [one.inputs for one in block]
    return TrainedSize(values, sum(inputs), sum(one.outputs for one in block), max(inputs, default=0))


def _is_target(name: str, settings: TrainSettings, facts: ModelFacts) -> bool:
    """As peft chooses layers."""
    if settings.targets == ALL_LINEAR:
        return True
    preset = facts.presets.get(settings.targets)
    if preset is not None:
        return any(name == one or name.endswith(f".{one}") for one in preset)
    try:
        return re.fullmatch(settings.targets, name) is not None
    except re.error:
        return False


def chosen_in_block(settings: TrainSettings, facts: ModelFacts) -> list[Linear]:
    block = [one for one in facts.linears if one.in_blocks and one.on == "video"]
    return block if settings.method == "full" else [one for one in block if _targets(one, settings, facts)]


# ---- what a block keeps


def rates_of(settings: TrainSettings, facts: ModelFacts, precision: str, what: TrainedSize) -> Rates:
    """Of a model's architecture. A token's own timestep becomes six vectors in each block, and six outside."""
    if facts.text_joint:
        joint = SINGLE if precision == "fp32" else MIXED_STOCK if settings.attention == "stock" else MIXED
        return replace(joint, table=facts.position_bytes)
    rates, number = CROSS_SINGLE if precision == "fp32" else CROSS_MIXED, NUMBER[precision]
    shown = 0 if settings.first_frame_share == 0 else facts.shown_bytes
    wide, timed = rates.within * facts.feed_forward / facts.width, 6.0 * (facts.timed_bytes or shown)
    picture = 1.05 * number if facts.picture_tokens else 0.0  # a second cross-attention's output
    return replace(
        rates,
        attention=rates.attention + picture,
        saved=rates.saved + wide + picture + (timed + 3.5 if timed else 0.0),
        backward=rates.backward + wide + rates.cast * what.widest / facts.width,
        forward=rates.forward + wide + timed,
        outside=rates.outside + facts.position_bytes + (7.5 * number if timed else 0.0),
    )


def saved_by_a_block(settings: TrainSettings, facts: ModelFacts, rates: Rates, trained: TrainedSize) -> float:
    """Bytes that a block keeps for its backward pass, for each token and unit of width."""
    width = facts.width
    inputs = trained.inputs
    if rates.shared and inputs:
        inputs -= sum(one.inputs for one in chosen_in_block(settings, facts) if one.shared)
    found = rates.saved + rates.inputs * inputs / width
    if settings.method == "full":
        return found + rates.full
    if settings.lora_dropout:
        found += (rates.inputs + 1.0) * trained.inputs / width
    if settings.dora:
        found += 2.5 * rates.inputs * trained.outputs / width
    return found


# ---- a run, phase by phase


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


def precision_text(precision: str, facts: ModelFacts) -> str:
    """ "bf16, the VAE in fp32"."""
    return f"{precision}, the VAE in fp32" if facts.float32_vae and precision != "fp32" else precision


def sizes(settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel) -> Sizes:
    """Raises ConfigError for a shape that the model cannot take."""
    shape = largest_shape(settings, model, facts)
    precision: str = settings.precision
    if precision == "auto":
        precision = "fp32" if gpu.kind == "cpu" else PRECISIONS[facts.auto or facts.stored]
    tokens, what = facts.tokens(*shape), trained(settings, facts)
    frozen, waiting = _frozen(settings, facts, NUMBER[precision])
    rates = rates_of(settings, facts, precision, what)
    return Sizes(precision, shape, tokens, what, frozen, waiting, tokens * facts.width * settings.batch_size, rates)


def largest_shape(settings: TrainSettings, model: Model, facts: ModelFacts) -> tuple[int, int, int]:
    """(frames, height, width) of the bucket with the most tokens. Raises ConfigError."""
    if settings.buckets:
        buckets = [parse_bucket(text, model) for text in settings.buckets]
        found = [(bucket.frames, bucket.height, bucket.width) for bucket in buckets]
    else:
        shape = shape_of(settings, model)
        found = [(shape.frames, shape.height, shape.width)]
    return max(found, key=lambda one: facts.tokens(*one))


def preview_sizes(settings: TrainSettings, facts: ModelFacts, size: Sizes) -> Sizes:
    """The sizes of a preview, one video of which is generated at a time."""
    shape = (settings.preview_frames or size.shape[0], *size.shape[1:])
    tokens = facts.tokens(*shape)
    return replace(size, shape=shape, tokens=tokens, unit=tokens * facts.width)


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
    of_vae = facts.vae_bytes(number)
    held = _base(gpu) | _held(settings, facts, size, gpu)
    vae = {"VAE": facts.vae.values * of_vae / GIGABYTE}
    generated, rates = preview_sizes(settings, facts, size), size.rates
    one_clip, two_previews = (
        _gb({"activations": unit * (count * (rates.forward + rates.outside) + rates.table)})
        for unit, count in ((size.unit / settings.batch_size, 1), (generated.unit, 2))
    )
    captions = _captions(facts, gpu, _base(gpu, CAPTIONS), number)
    encoders = vae | _gb({"image encoder": facts.image_encoder_values * of_vae})
    clips = _clips(facts, gpu, _base(gpu, CLIPS) | encoders, size, of_vae)
    before = {LEFT: _left(clips.parts["activations"] + clips.parts[RESERVED])} if gpu.kind == "cpu" else {}
    training = Phase(TRAINING, held | _training(settings, facts, size, gpu) | before)
    found = [captions, clips, training]
    if settings.evaluate_every:
        found.append(Phase(MEASURING, held | one_clip))
    if settings.preview_every:
        # With guidance the model computes with and without the prompt at once.
        found.append(Phase(DENOISING, held | two_previews))
        if not settings.preview_latents_only:
            tiled = size.shape[1] >= TILED_FROM
            working = _vae_work(facts, "decoder", generated, of_vae, tiled)
            # On a GPU the frozen weights make room for the VAE meanwhile (Previewer.spare).
            rest = {name: gb for name, gb in held.items() if name != "weights" or gpu.kind != "cuda"}
            found.append(Phase(DECODING, rest | vae | _vae_parts(working, _decoded(generated, of_vae, working), gpu)))
    # The state is copied, and once more as the bytes of a file.
    copies = {"copies to write": 2 * size.trained.values * STATES[settings.optimizer]}
    decoded = found[-1].name == DECODING
    found.append(Phase(SAVING, held | (_gb(copies) if gpu.kind == "cpu" else {})))
    if gpu.kind == "cpu":
        found[3:] = [_at_least(phase, training) for phase in found[3:]]
        # The video encoder stays when it has decoded a preview.
        found[-1] = Phase(SAVING, {**found[-1].parts, **(vae if decoded else {})})
    return tuple(found)


def _left(gb: float) -> float:
    return min(HEAP_GB, NOT_GIVEN_BACK * gb)


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
    clip = {"the clip": 3.0 * number * math.prod(size.shape)}
    found = []
    for tiled in (False, True):
        working = _vae_work(facts, "encoder", size, number, tiled)
        found.append(Phase(CLIPS, {**base, **_vae_parts(working, clip, gpu)}))
    # What does not fit a GPU in one piece is encoded in tiles (Encoder).
    return found[0] if gpu.kind == "cpu" or found[0].gb <= gpu.usable_gb else found[1]


def _vae_work(facts: ModelFacts, side: str, size: Sizes, number: int, tiled: bool) -> float:
    (frames, height, wide), vae = size.shape, facts.vae
    tile = vae.tile if tiled else (height, wide)
    area = min(height, tile[0]) * min(wide, tile[1])
    channels = vae.encoder_width * vae.encoder_tensors if side == "encoder" else vae.decoder_width * vae.decoder_tensors
    return channels * min(vae.frames_at_once, frames) * area * number


def _decoded(size: Sizes, number: int, working: float) -> dict[str, float]:
    """The video that grows while the decoder works; when it is whole it becomes fp32, and is cut to [-1, 1]."""
    values = 3.0 * math.prod(size.shape)
    return {"the video": max(number * values, (number + 8) * values - working)}


def _vae_parts(working: float, video: Mapping[str, float], gpu: GpuModel) -> dict[str, float]:
    reserve = VAE_RESERVES[gpu.kind] * working
    if gpu.kind == "cpu":
        reserve = min(reserve, HEAP_GB * GIGABYTE)
    return _gb({"activations": working, **video, RESERVED: reserve})


def _held(settings: TrainSettings, facts: ModelFacts, size: Sizes, gpu: GpuModel) -> dict[str, float]:
    """What lies on the device from the first step to the last."""
    values = size.trained.values
    what = "trained weights" if settings.method == "full" else "LoRA"
    found = {"weights": size.frozen} if size.frozen else {}
    if gpu.kind == "cpu" and (twice := _mapped_and_joined(settings, facts, size)):
        found[MAPPED_FILES] = twice
    full = settings.method == "full" and gpu.kind == "cpu"
    found |= {what: values * 4.0 * (MAPPED if full else 1.0), "optimizer": values * STATES[settings.optimizer]}
    if settings.ema_decay:
        found["average (EMA)"] = values * 4.0
    return _gb(found)


def _mapped_and_joined(settings: TrainSettings, facts: ModelFacts, size: Sizes) -> float:
    """Bytes of query, key and value that lie in one layer (Family.join_projections) and in the file, too, which stays
    mapped for the other layers. What is stored in another format than it computes in is read, and no file mapped."""
    joined = facts.text_joint and settings.method == "lora" and settings.attention != "stock"
    if not joined or PRECISIONS[facts.stored] != size.precision:
        return 0.0
    keys_and_values = sum(one.values for one in facts.linears if one.in_blocks and one.shared)
    return 1.5 * keys_and_values * facts.blocks * NUMBER[size.precision]


def _training(settings: TrainSettings, facts: ModelFacts, size: Sizes, gpu: GpuModel) -> dict[str, float]:
    rates, number, unit = size.rates, NUMBER[size.precision], size.unit
    saved = saved_by_a_block(settings, facts, rates, size.trained)
    level = settings.gradient_checkpointing
    by_blocks = {
        "none": facts.blocks * saved,
        "keep attention": facts.blocks * (rates.boundary + rates.attention),
        "full": facts.blocks * rates.boundary,
        "offloaded": COMING_BACK * rates.boundary,
    }[level]
    again = 0.0 if level == "none" else saved  # a block at a time
    # Trained values are fp32; a step computes with copies of them in its own format.
    copies = (
        size.trained.values * number / (1 if level == "none" else facts.blocks) if size.precision != "fp32" else 0.0
    )
    gradients = size.trained.values * 4.0
    if level != "offloaded" and settings.gradient_accumulation == 1 and not settings.preservation_weight:
        # There are none before the backward pass: what blocks kept makes room for them.
        gradients = max(0.0, gradients - by_blocks * unit)
    found = {
        "gradients": gradients,
        "activations": (by_blocks + again + rates.outside + rates.table / settings.batch_size) * unit + copies,
        "backward pass": rates.backward * unit,
    }
    if settings.attention == "math":
        scores = size.tokens**2 + (0 if facts.text_joint else size.tokens * facts.text_tokens)
        found["attention scores"] = 3.0 * settings.batch_size * facts.heads * scores * number
    return _gb(found | _reserve(gpu, found["activations"], found["backward pass"]))


def _reserve(gpu: GpuModel, kept: float, working: float) -> dict[str, float]:
    """Beside tensors that are kept, and those that a backward pass works with."""
    if gpu.kind == "mps":
        return {}
    of_kept, of_working = RESERVES[gpu.kind]
    return {RESERVED: of_kept * kept + of_working * working}


def host_gb(settings: TrainSettings, facts: ModelFacts, gpu: GpuModel, size: Sizes) -> float:
    """The machine's own memory that a run on a GPU needs, at its worst moment."""
    number = NUMBER[size.precision]
    offloaded = settings.gradient_checkpointing == "offloaded"
    waiting = size.waiting + (facts.blocks * size.rates.boundary * size.unit if offloaded else 0.0)
    # Each part comes through the machine's memory on its way, one at a time.
    coming = max(facts.text_encoder_values, facts.values) * number
    training = waiting + facts.vae.values * facts.vae_bytes(number)
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
        "previews": generated * settings.previews_at_once * (settings.preview_frames or frames) * height * width * 0.02,
        "the export": values * 4.0,
    }
    if not facts.on_disk:
        found["the model"] = model.download_gb * 1e9
    return _gb(found)


def _gb(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: size / GIGABYTE for name, size in parts.items()}
