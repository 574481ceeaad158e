"""Memory by phase, estimated from a model's sizes and the settings before anything is loaded. Arithmetic, no torch.

A block keeps, for its backward pass, a number of bytes for each token and unit of the model's width (`Rates`). Weights
and optimizer states are counted. The constants in capitals were fitted to published figures and to measurements on the
built-in models; docs/memory.md says which is which, benchmarks/fit_check.py shows how far off they are. Not covered:
time (timing), several GPUs that each hold a part of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from workbench.clips.buckets import parse_bucket
from workbench.clips.frame_plan import shape_of
from workbench.families.facts import ModelFacts
from workbench.families.model import Model
from workbench.fit.gpus import GpuModel
from workbench.fit.rates import NUMBER, Rates, rates_of, saved_by_a_block
from workbench.fit.trained_size import TrainedSize, trained
from workbench.jobs.devices import GIGABYTE
from workbench.runs.settings import TrainSettings

CAPTIONS, CLIPS, TRAINING, MEASURING = "encoding captions", "encoding clips", "training", "measuring"
DENOISING, DECODING, SAVING = "previews, denoising", "previews, decoding", "saving"
LEFT, RESERVED = "not given back", "workspace and fragmentation"
MAPPED_FILES = "mapped files"
CONTEXTS = ("CUDA", "Metal", "Python and its libraries")
NO_TENSORS = frozenset({*CONTEXTS, LEFT, RESERVED, MAPPED_FILES})  # parts that are no tensors
PHASES = (CAPTIONS, CLIPS, TRAINING, MEASURING, DENOISING, DECODING, SAVING)

PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
# Bytes for a frozen value; scales of rows or of 64 values come on top.
FROZEN = {"int8": 1.0, "fp8": 1.0, "nf4": 0.5625}
# Bytes of state for a trained value, by optimizer.
STATES = {
    "adamw": 8.0,
    "adam": 8.0,
    "adamw-8bit": 2.1,
    "adam-8bit": 2.1,
    "prodigy": 16.0,
    "came": 4.1,
    "schedule-free": 8.0,
    "muon": 4.0,
}
RING = 2  # swapped blocks that are on the device at a time
CONTEXT_GB = 0.6  # CUDA's own, with cuBLAS's and cuDNN's workspaces
PROCESS_GB = {"cuda": 2.6, "mps": 2.6, "cpu": 0.51}  # what Python and its libraries take of the machine's memory
EARLIER_GB = {CAPTIONS: 0.37, CLIPS: 0.47}  # on a processor, before all of them are loaded
# What is no tensor, as a share of tensors that are kept and of those that a backward pass works with: workspaces
# inside of kernels, room between tensors that the allocator cannot give to others.
RESERVES = {"cuda": (0.03, 1.4), "cpu": (0.5, 0.5)}
COMING_BACK = 3  # inputs of blocks that are on their way from the machine's memory
CAPTIONS_AT_ONCE = 8
TEXT_UNITS = 24  # widths of text that an encoder's layer holds for a token
VAE_RESERVES = {"cuda": 0.15, "mps": 0.15, "cpu": 2.7}  # the same of a video autoencoder
# A processor: what weights take that are mapped and trained, and how much of the video encoder's memory is still the
# process's in the next phase. HEAP_GB: the most of that and of a reserve, since tensors of 32 MB and more lie outside
# of the C library's heap and go back at once.
MAPPED, NOT_GIVEN_BACK, HEAP_GB = 1.25, 0.8, 0.5
SMALLEST_GB = 0.005  # parts below this are not worth a word
TILED_FROM = 256  # pixels of height from which previews are decoded in tiles


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
