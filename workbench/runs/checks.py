"""Checks before a run that need no weights: files, packages, conflicting settings, device limits. No torch.

Each refusal is one sentence. Bounds of single settings are in `settings`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from workbench import hub
from workbench.clips.frame_plan import Shape, shape_of
from workbench.clips.records import INFO, METADATA
from workbench.display.quantities import counted, listed
from workbench.errors import ConfigError, DataError
from workbench.families.base import ResolvedModel
from workbench.families.conditioning import BESIDE, NOTHING
from workbench.families.model import Model
from workbench.families.model_inputs import GIVEN_STREAM, PICTURE_FOR_SOUND, SOUND_ONLY
from workbench.families.settings import check_own
from workbench.jobs import platform
from workbench.jobs.devices import Device, gpus
from workbench.runs import optimizer_options
from workbench.runs.data import Batches, RunClip, TrainingData, datasets_of, load_data, read_mask
from workbench.runs.frozen_loras import check_frozen
from workbench.runs.settings import HAS_EFFECT, TrainSettings, chosen_blocks
from workbench.settings import value_text
from workbench.workspace import SLUG, Workspace, lora_names, named_paths, read_object
from workbench.workspace.folders import Bin
from workbench.workspace.safetensors_header import read_header

# Why some LoRA initializations are refused.
NOT_PORTABLE = {
    "pissa": "moves part of the base model's weights into the LoRA",
    "olora": "moves part of the base model's weights into the LoRA",
    "corda": "moves part of the base model's weights into the LoRA",
    "loftq": "quantizes the base model and puts the error into the LoRA",
    "eva": "needs a pass over the data before the start, which is not supported",
}
# Environment variables with which accelerate wraps models in a backend of its own.
FOREIGN_BACKENDS = {"ACCELERATE_USE_DEEPSPEED": "DeepSpeed", "ACCELERATE_USE_FSDP": "FSDP"}
TARGETS = {"attention", "attention+feed-forward", "all-linear"}  # or a regular expression
FRAMES_LOOKED_AT = 5000  # of masks, before a run is created: takes a few seconds
TRACKERS = ("tensorboard", "trackio", "wandb", "comet_ml")


def check(workspace: Workspace, settings: TrainSettings) -> Shape:
    """Check that a run can start, and return the shape of its first bucket. Raises ConfigError."""
    if not settings.dataset and not settings.is_slider:
        raise ConfigError.about("dataset is empty: choose one of yours, or make one from clips")
    for setting, name in datasets_of(settings):
        if not (workspace.dataset(name) / METADATA).exists():
            has = "has" if setting == "more_datasets" else "is"
            why = "which this workspace does not have: choose another, or make one from clips"
            if (workspace.dataset(name) / INFO).exists():
                why = "which has no clips yet: import some, or choose another"
            if name in Bin(workspace.datasets, "dataset").names:
                why = f"which was removed: workbench dataset restore {name}"
            raise ConfigError.about(f"{setting} {has} {name!r}, {why}")
    resolved = settings.resolved
    check_own(settings, resolved)
    _check_lora(settings)
    if settings.is_slider:
        _check_slider(settings, resolved)
    if settings.best_point != "off":
        _check_best_point(settings, resolved)
    _check_sound(settings)
    if settings.blocks and settings.method != "full":
        chosen_blocks(settings.blocks, resolved.facts.blocks)
    check_frozen(workspace, settings, resolved)
    _check_memory(settings)
    _check_conditioning(settings, resolved)
    if settings.gpus != 1:
        check_ranks(settings, settings.gpus or len(gpus()) or 1)
    initial_lora(workspace, settings)
    for path in settings.preview_images:
        if not named_paths.resolve(path, "preview_images").is_file():
            raise ConfigError.about(f"preview_images has {path!r}, which is not a file: enter the path of an image")
    optimizer_options.check(settings)
    check_tracker(settings)
    _check_push(settings)
    shape = shape_of(settings, resolved.model)
    _check_preview_frames(settings, resolved.model)
    return shape


def _check_conditioning(settings: TrainSettings, resolved: ResolvedModel) -> None:
    """Refuse conditioning that the model does not support, and conditioning set in two ways at once."""
    family, model = resolved
    of_both_ends = model.task == "image-to-video" and not family.refusal(model, "first+last")
    if not settings.given and of_both_ends and (why := family.refusal(model, "first")):  # the meaning of empty
        raise ConfigError.about(f"given is empty, {why}: write first+last 1")
    if not settings.tells:
        return
    if not settings.given and (why := family.refusal(model, NOTHING)):
        raise ConfigError.about(f"given is empty beside a reference, {why}: write first 1")
    frames, rule = settings.frames or model.frames, model.frame_rule
    for kind in (one.kind for one in settings.given_shares):
        if why := family.refusal(model, kind.name):
            raise ConfigError.about(f"given has {kind}, {why}")
        if kind.name in ("prefix", "suffix") and kind.count not in (1, *rule.legal()):
            legal = sorted((1, *rule.legal()), key=lambda count: abs(count - kind.count))[:2]
            use = " or ".join(f"{kind.name} {count}" for count in sorted(legal))
            raise ConfigError.about(f"given has {kind}, {model.title} takes 1 or {rule} frames at an end: use {use}")
        if not kind.leaves_something(frames):
            raise ConfigError.about(
                f"given has {kind}, which leaves nothing to learn of {frames} frames: give fewer, or raise frames"
            )
    for name in BESIDE:
        if getattr(settings, name) and (why := family.refusal(model, name)):
            raise ConfigError.about(f"{name} is on, {why}")
    for name in ("condition", "condition_frames"):
        value, usual = getattr(settings, name), TrainSettings.model_fields[name].default
        if value != usual:
            tells = "given" if settings.given else "control" if settings.control else "reference"
            raise ConfigError.about(
                f"{name} is {value}, but {tells} already sets the conditioning: set {name} to {usual}, or turn {tells} "
                f"off"
            )


def _check_preview_frames(settings: TrainSettings, model: Model) -> None:
    if (frames := settings.preview_frames) is None:
        return
    try:
        model.check_shape(frames, model.height, model.width)
    except ConfigError as error:
        raise ConfigError.about(f"preview_{error}") from error
    whole_clip = settings.condition == "low resolution" or settings.condition_frames == "every"
    shown = settings.tells or settings.sound in GIVEN_STREAM or settings.resolved.family.joins_conditioning(model)
    if shown or (model.task == "image-to-video" and whole_clip):
        raise ConfigError.about(
            f"preview_frames is {frames}, but previews of this run get a whole clip, which sets their length: leave "
            f"preview_frames empty"
        )


def _check_lora(settings: TrainSettings) -> None:
    if settings.method == "lora" and settings.lora_init in NOT_PORTABLE:
        raise ConfigError.about(
            f"lora_init is {settings.lora_init}, which {NOT_PORTABLE[settings.lora_init]}, so its file would not work "
            f"with the original base model: use default, gaussian or orthogonal"
        )
    if settings.method == "lora" and settings.lora_init == "orthogonal" and settings.rank % 2:
        raise ConfigError.about(
            f"lora_init is orthogonal, which needs an even rank, but rank is {settings.rank}: set rank to "
            f"{settings.rank + 1}"
        )
    if settings.method == "full":
        for name in ("start_from", "train_also"):
            if getattr(settings, name):
                raise ConfigError.about(f"{name} is set, but method is full, which has no LoRA: leave {name} empty")
    if settings.method == "full" or settings.train_also:
        changing = "train_also" if settings.train_also else "method"
        target = settings.regularization_target if settings.regularization_dataset else "clips"
        for name, value, off in (
            ("preservation_weight", f"{settings.preservation_weight:g}", "0"),
            ("regularization_target", target, "clips"),
            ("outside_weight", f"{settings.outside_weight:g}" if settings.loss_mask != "off" else "0", "0"),
        ):
            if value != off:
                raise ConfigError.about(
                    f"{name} is {value}, which needs the base model's predictions, but {changing} changes its weights: "
                    f"train only a LoRA, or set {name} to {off}"
                )


def _check_best_point(settings: TrainSettings, resolved: ResolvedModel) -> None:
    """Refuse to look for the best point where effect and drift cannot be measured."""
    family, model = resolved
    why = ""
    if settings.method == "full" or settings.train_also:
        why = "it compares with the base model, which is kept only when a LoRA alone is trained"
    elif settings.is_slider:
        why = "a slider has no clips that it should come to resemble"
    elif family.codes(model):
        why = f"{model.title} predicts codes, whose distance from a clip cannot be measured"
    if why:
        raise ConfigError.about(f"best_point is {settings.best_point}, but {why}: set best_point to off")


def _check_sound(settings: TrainSettings) -> None:
    """Refuse what works on the picture's predictions alone, in runs that learn a sound."""
    if settings.sound == "picture":
        return
    refused: list[tuple[str, Any]] = [("regularization_target", "clips"), ("outside_weight", 0.0)]
    if settings.sound in SOUND_ONLY:
        refused += [("loss_mask", "off"), ("preservation_weight", 0.0), ("best_point", "off")]
        refused += [("given", ()), ("reference", False)]
    if settings.sound == PICTURE_FOR_SOUND:
        refused = []  # the picture's prediction for the sound takes the place of the picture's alone
    if settings.is_slider:
        raise ConfigError.about(
            f"sound is {settings.sound}, but a slider learns from predictions of the picture: set sound to picture"
        )
    for name, off in refused:
        in_effect = name not in HAS_EFFECT or HAS_EFFECT[name](settings.model_dump())
        if in_effect and (value := getattr(settings, name)) != off:
            raise ConfigError.about(
                f"{name} is {value_text(value)}, which works on the picture, but sound is {settings.sound}: set {name} "
                f"to {value_text(off)}, or sound to picture"
            )


def _check_slider(settings: TrainSettings, resolved: ResolvedModel) -> None:
    """Refuse settings that do not work with a slider, and prompts that do not match up."""
    family, model = resolved
    source, how = "slider_positive is set", "learns from the base model's own predictions"
    if settings.has_pairs:
        source, how = "slider_from is pairs", "learns both halves of each pair at once"
    if family.codes(model):
        raise ConfigError.about(
            f"{source}, but {model.title} predicts codes, which a slider cannot blend: choose another model"
        )
    for name, off in (
        ("method", "lora"),
        ("train_also", ()),
        ("loss_mask", "off"),
        ("dora", settings.dora if settings.method == "lokr" else False),
        ("regularization_dataset", None),
        ("more_datasets", () if not settings.dataset else settings.more_datasets),
        ("reference", settings.reference and not settings.has_pairs),
    ):
        if (value := getattr(settings, name)) != off and not (name == "method" and value != "full"):
            raise ConfigError.about(
                f"{name} is {value_text(value)} and {source}, but a slider is a LoRA that {how}: set {name} to "
                f"{value_text(off)}"
            )
    if settings.has_pairs:
        if not settings.dataset:
            raise ConfigError.about(
                "dataset is empty and slider_from is pairs: choose a dataset whose clips have references"
            )
        return
    positive, negative, neutral = (
        [line for line in lines if line.strip()]
        for lines in (settings.slider_positive, settings.slider_negative, settings.slider_neutral)
    )
    if len(positive) != len(negative):
        raise ConfigError.about(
            f"slider_negative has {counted(len(negative), 'line')} and slider_positive {len(positive)}: write the same "
            f"number of lines"
        )
    if len(neutral) not in (0, 1, len(positive)):
        raise ConfigError.about(
            f"slider_neutral has {counted(len(neutral), 'line')} and slider_positive {len(positive)}: write one for "
            f"each, one for all, or none"
        )
    if not settings.dataset:
        _check_generated(settings, model)


def _check_generated(settings: TrainSettings, model: Model) -> None:
    """Refuse settings that need more than the clips that the base model generates for a slider."""
    if settings.tells:
        name = "given" if settings.given else "control" if settings.control else "reference"
        raise ConfigError.about(
            f"{name} is set, but the slider has no dataset, and generated clips have no files beside them: choose a "
            f"dataset, or turn {name} off"
        )
    if model.task != "image-to-video":
        return
    if settings.condition == "low resolution":
        raise ConfigError.about(
            "condition is low resolution, which is made from a dataset's clips, but the slider has no dataset: choose "
            "one, or set condition to first frame"
        )
    if not settings.preview_images:
        raise ConfigError.about(
            f"preview_images is empty, but {model.title} starts from an image: add images for the slider's clips to "
            f"start from, or choose a dataset to learn on"
        )


def _check_memory(settings: TrainSettings) -> None:
    if settings.blocks_to_swap and settings.gradient_checkpointing not in ("full", "offloaded"):
        raise ConfigError.about(
            f"blocks_to_swap is {settings.blocks_to_swap}, but gradient_checkpointing is "
            f"{settings.gradient_checkpointing}, and a swapped block must be recomputed for its gradient: set "
            f"gradient_checkpointing to full or offloaded"
        )
    if settings.method == "full":
        for name, none in (("blocks_to_swap", 0), ("base_model_precision", "as stored")):
            if (value := getattr(settings, name)) != none:
                raise ConfigError.about(
                    f"{name} is {value}, which is for frozen weights, but method full trains all weights: train a "
                    f"LoRA, or set {name} to {none}"
                )


def trackers_of(settings: TrainSettings) -> tuple[str, ...]:
    """Return the trackers that a run writes to; for "all", those that are installed."""
    if settings.tracker == "all":
        return tuple(name for name in TRACKERS if importlib.util.find_spec(name) is not None)
    return () if settings.tracker == "none" else (settings.tracker,)


def check_tracker(settings: TrainSettings) -> None:
    """Refuse a tracker whose package is missing, and "all" if none is installed. Raises ConfigError."""
    name = settings.tracker
    if name == "all" and not trackers_of(settings):
        remedy = f"install one of {', '.join(TRACKERS)}"
        raise ConfigError(f"tracker is all, but none is installed: {remedy}, or choose none", {"tracker": remedy})
    if name not in ("none", "all") and importlib.util.find_spec(name) is None:
        remedy = f"pip install {name}"
        raise ConfigError(
            f"tracker is {name}, but its package is not installed: {remedy}, or choose none", {"tracker": remedy}
        )


def _check_push(settings: TrainSettings) -> None:
    """Refuse a push to the Hub that would only fail at the end of the run."""
    if not settings.push_to_hub:
        return
    name = "push_to_hub"
    if settings.method == "full":
        raise ConfigError.about(f"{name} is on, which pushes a LoRA, but method is full: turn it off, or train a LoRA")
    if settings.repository:
        hub.check_repo_id(settings.repository)
    if not hub.logged_in():
        raise ConfigError.about(f"{name} is on, but nobody is logged in to the Hub on this machine: {hub.MAY_WRITE}")


def check_ranks(settings: TrainSettings, count: int) -> None:
    """Refuse settings with which `count` processes would not compute exactly what one does. Raises ConfigError."""
    if count > 1 and not platform.INHERITS:
        raise ConfigError.about(f"gpus is {count}, but a run on several GPUs needs Linux: set gpus to 1")
    if count > 1 and ":" in settings.device:
        sentence = f"device is {settings.device}, a single GPU, but gpus is {count}: set gpus to 1, or device to cuda"
        raise ConfigError.of("gpus", sentence)
    batches = settings.gradient_accumulation
    if batches % count:
        raise ConfigError.about(
            f"gradient_accumulation is {batches}, must be a multiple of {count}, the number of GPUs: set it to "
            f"{-(-batches // count) * count}"
        )
    for variable, name in FOREIGN_BACKENDS.items():
        if os.environ.get(variable, "").lower() in ("1", "true"):
            raise ConfigError.of(
                "parallel",
                f"accelerate started this process with {name} ({variable} is set), which would wrap the model a second "
                f"time: use a plain multi-GPU configuration there, and set parallel here instead",
            )
    if count > 1 and settings.parallel == "fsdp":
        _check_fsdp(settings)


def _check_fsdp(settings: TrainSettings) -> None:
    for name, plain, why in (
        ("blocks_to_swap", 0, "distributes weights in its own way"),
        ("base_model_precision", "as stored", "shards weights as they are stored"),
        ("compile", False, "changes a block's weights while it computes, which is untested with compiled blocks"),
        ("dora", False, "never holds a whole matrix, whose magnitude DoRA needs at the start"),
    ):
        if (value := getattr(settings, name)) != plain:
            raise ConfigError.about(
                f"{name} is {value} and parallel is fsdp, which {why}: set {name} to {plain}, or parallel to ddp"
            )
    if settings.method == "full" and settings.optimizer not in ("adamw", "adam"):
        raise ConfigError.about(
            f"optimizer is {settings.optimizer}, which needs whole matrices, but with parallel fsdp and method full no "
            f"process has one: set optimizer to adamw, or parallel to ddp"
        )


def initial_lora(workspace: Workspace, settings: TrainSettings) -> Path | None:
    """Find the LoRA file that `start_from` names; None if it is not set. Raises ConfigError."""
    name = settings.start_from
    if not name:
        return None
    if name.endswith((".pt", ".bin", ".ckpt")):
        made = Path(name).with_suffix(".safetensors").name
        convert = f"workbench convert {name} {made} --like {settings.model}"
        raise ConfigError.about(f"start_from is {name!r}: convert it first: {convert}")
    if name.endswith(".safetensors"):
        path = named_paths.resolve(name, "start_from")
        if not path.is_file():
            raise ConfigError.about(f"start_from is {name!r}, which is not a file: check the path")
        _check_rank(path, settings.rank)
        return path
    path = workspace.runs / name / "lora.safetensors"
    if not SLUG.fullmatch(name) or not path.is_file():
        why = "no run that has exported a LoRA: choose another"
        if SLUG.fullmatch(name) and (workspace.runs / name).is_dir():
            why = f"a run that {lora_names.why_none(workspace, name)}"
        raise ConfigError.about(f"start_from is {name!r}, {why}")
    _check_rank(path, settings.rank)
    _check_layers(path.parent / "config.json", name, settings)
    return path


def _check_rank(path: Path, rank: int) -> None:
    """Refuse a LoRA of another rank. Files with keys that only their family understands are checked when loaded."""
    ranks = set[int]()
    with contextlib.suppress(OSError, ValueError):
        shapes = read_header(path).shapes
        ranks = {shape[0] for name, shape in shapes.items() if name.endswith(".lora_A.weight") and len(shape) == 2}
    if len(ranks) == 1 and rank not in ranks:
        (known,) = ranks
        raise ConfigError.of(
            "rank",
            f"the LoRA {path.name} has rank {known}, but rank is {rank}: set rank to {known}, or resize the LoRA",
        )


def _check_layers(config: Path, name: str, settings: TrainSettings) -> None:
    """Refuse a run's LoRA whose layers differ from those this run trains."""
    before = read_object(config)
    problems = {}
    for setting in ("method", "lokr_factor", "targets", "sound", "blocks", "dora"):
        was, now = before.get(setting, TrainSettings.model_fields[setting].default), getattr(settings, setting)
        if was != now and (setting != "targets" or {was, now} <= TARGETS):
            problems[setting] = f"{setting} is {value_text(now)}, but {name} has {value_text(was)}"
    if problems:
        raise ConfigError(
            f"start_from continues the LoRA of {name}: {'; '.join(problems.values())}. Use the same values", problems
        )


def resolved(workspace: Workspace, settings: TrainSettings) -> TrainSettings:
    """Check the clips, and compute `steps` from `epochs` if that is set.

    Raises ConfigError for shapes that the model does not support, DataError if too few clips can be used.
    """
    data = load_data(workspace, settings, hashed=False)
    check_masks(settings, data)
    masked = [item for item in data.items if item.mask]
    if sum(len(item.plan.indices) for item in masked) <= FRAMES_LOOKED_AT:  # otherwise the run checks while encoding
        refuse_empty(settings, [item for item in masked if _nothing_learned(item, settings.loss_mask)])
    if settings.epochs is None:
        return settings
    per_pass = Batches(data, settings).per_pass
    return settings.changed(steps=max(1, math.ceil(settings.epochs * per_pass / settings.gradient_accumulation)))


def check_masks(settings: TrainSettings, data: TrainingData) -> None:
    """With a masked loss, refuse clips without a mask unless they are to be learned whole. Raises DataError."""
    if settings.loss_mask == "off":
        return
    bare = {item.path: item.name for item in data.train if not item.mask}
    if len(bare) == len({item.path for item in data.train}):
        raise DataError.about(
            f"loss_mask is {settings.loss_mask}, but no clip of dataset {settings.dataset} has a mask: add masks to "
            f"its clips, or set loss_mask to off"
        )
    if bare and settings.unmasked_clips == "refuse":
        has = "has" if len(bare) == 1 else "have"
        sentence = (
            f"loss_mask is {settings.loss_mask}, but {counted(len(bare), 'clip')} {has} no mask "
            f"({listed(list(bare.values()))}): add one to each, or set unmasked_clips to whole"
        )
        raise DataError(sentence, {"unmasked_clips": sentence})


def refuse_empty(settings: TrainSettings, empty: Sequence[RunClip]) -> None:
    """Refuse clips whose masks leave nothing to learn. Raises DataError if there are any."""
    if not (names := list(dict.fromkeys(item.name for item in empty))):
        return
    marks = "marks nothing" if settings.loss_mask == "inside" else "marks everything"
    raise DataError.about(
        f"loss_mask is {settings.loss_mask}, but the mask of {listed(names)} {marks} in the frames that the run uses: "
        f"correct the mask, or remove the clip from the dataset"
    )


@lru_cache(maxsize=10_000)
def _nothing_learned(item: RunClip, loss_mask: str) -> bool:
    """Whether a mask leaves nothing to learn in the frames the run uses. Cached: mask files never change."""
    mask = read_mask(item)
    return bool(mask.min() >= 1 if loss_mask == "outside" else mask.max() <= 0)


# ---- limits of devices: NVIDIA GPUs and CPUs have none


class DeviceRule(NamedTuple):
    """A setting, the values that a device does not support (empty: all but `instead`), why, and what to use instead."""

    setting: str
    refused: Sequence[Any]
    why: str
    instead: Any


MPS = (
    DeviceRule("blocks_to_swap", (), "shares the machine's memory, so swapping a block frees nothing", 0),
    DeviceRule(
        "gradient_checkpointing", ("offloaded",), "shares the machine's memory, so offloading frees nothing", "full"
    ),
    DeviceRule("base_model_precision", ("fp8",), "has no 8-bit floats", "int8"),
    DeviceRule("optimizer", ("adamw-8bit",), "bitsandbytes does not support with this optimizer", "adamw"),
    DeviceRule("optimizer", ("adam-8bit",), "bitsandbytes does not support with this optimizer", "adam"),
    DeviceRule("compile", (), "PyTorch's compiler supports only as a prototype", False),
    DeviceRule("exact", (), "is not guaranteed to give the same bits twice (device cpu is)", False),
    DeviceRule("attention", ("flash", "efficient", "cudnn", "flash-attn"), "has only its own kernel", "auto"),
)
ROCM = (DeviceRule("attention", ("cudnn",), "has no cuDNN", "auto"),)


def check_device(settings: TrainSettings, device: Device) -> None:
    """Refuse settings that the device does not support. Raises ConfigError, which names all of them."""
    what, rules = ("mps", MPS) if device.kind == "mps" else ("an AMD GPU", ROCM) if device.rocm else ("", ())
    problems = {}
    for name, refused, why, instead in rules:
        value = getattr(settings, name)
        if value in refused if refused else value != instead:
            problems[name] = f"{name} is {value}, but the device is {what}, which {why}: set {name} to {instead}"
    if problems:
        raise ConfigError("; ".join(problems.values()), problems)
