"""Checks before a run starts that need no weights: files, packages, conflicting settings, limits of devices. No torch.

Each refusal is one sentence. The bounds of single settings are in `settings`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench import hub
from workbench.clips.frame_plan import Shape, shape_of
from workbench.clips.records import INFO, METADATA
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.families.base import ResolvedModel
from workbench.families.model import Model
from workbench.families.settings import check_own
from workbench.families.told import BESIDE, NOTHING
from workbench.jobs import platform
from workbench.jobs.devices import Device, gpus
from workbench.runs import optimizer_options
from workbench.runs.data import Batches, RunClip, TrainingData, datasets_of, load_data, read_mask
from workbench.runs.frozen_loras import check_frozen
from workbench.runs.settings import TrainSettings, chosen_blocks
from workbench.settings import value_text
from workbench.workspace import SLUG, Workspace, lora_names, named_paths, read_object
from workbench.workspace.folders import Bin
from workbench.workspace.safetensors_header import read_header

# Why some initializations of a LoRA are refused: they change the base model itself.
NOT_PORTABLE = {
    "pissa": "moves a part of the base model's weights into the LoRA",
    "olora": "moves a part of the base model's weights into the LoRA",
    "corda": "moves a part of the base model's weights into the LoRA",
    "loftq": "quantizes the base model and puts the error into the LoRA",
    "eva": "needs a pass over the data before the start, which is not built",
}
# What an accelerate configuration would add.
FOREIGN_BACKENDS = {"ACCELERATE_USE_DEEPSPEED": "DeepSpeed", "ACCELERATE_USE_FSDP": "FSDP"}
TARGETS = {"attention", "attention+feed-forward", "all-linear"}  # or a regular expression
MOST_NAMED = 3  # clips in a refusal
FRAMES_LOOKED_AT = 5000  # of masks, before a run is created: some seconds
TRACKERS = ("tensorboard", "trackio", "wandb", "comet_ml")


def check(workspace: Workspace, settings: TrainSettings) -> Shape:
    """Check that a run could start; return the shape of its first bucket. Raises ConfigError."""
    if not settings.dataset and not settings.is_slider:
        raise _refusal("dataset", "dataset is empty: choose one of yours, or make one from clips")
    for setting, name in datasets_of(settings):
        if not (workspace.dataset(name) / METADATA).exists():
            has = "has" if setting == "more_datasets" else "is"
            why = "which this workspace does not have: choose another, or make it from clips"
            if (workspace.dataset(name) / INFO).exists():
                why = "which has no clips yet: import some, or choose another"
            if name in Bin(workspace.datasets, "dataset").names:
                why = f"which was removed: workbench dataset restore {name}"
            raise _refusal(setting, f"{setting} {has} {name!r}, {why}")
    resolved = settings.resolved
    check_own(settings, resolved)
    _check_lora(settings)
    if settings.is_slider:
        _check_slider(settings, resolved)
    if settings.blocks and settings.method != "full":
        chosen_blocks(settings.blocks, resolved.facts.blocks)
    check_frozen(workspace, settings, resolved)
    _check_memory(settings)
    _check_told(settings, resolved)
    if settings.gpus != 1:
        check_ranks(settings, settings.gpus or len(gpus()) or 1)
    initial_lora(workspace, settings)
    for path in settings.preview_images:
        if not named_paths.resolve(path, "preview_images").is_file():
            raise _refusal("preview_images", f"preview_images has {path!r}, which is no file: give a picture's path")
    optimizer_options.check(settings)
    check_tracker(settings)
    _check_push(settings)
    shape = shape_of(settings, resolved.model)
    _check_preview_frames(settings, resolved.model)
    return shape


def _check_told(settings: TrainSettings, resolved: ResolvedModel) -> None:
    """Refuse what the model cannot be told of a clip, and what it would be told in two ways."""
    family, model = resolved
    of_both_ends = model.task == "image-to-video" and not family.refusal(model, "first+last")
    if not settings.given and of_both_ends and (why := family.refusal(model, "first")):  # which empty stands for
        raise _refusal("given", f"given is empty, {why}: write first+last 1")
    if not settings.tells:
        return
    if not settings.given and (why := family.refusal(model, NOTHING)):
        raise _refusal("given", f"given is empty beside a reference, {why}: write first 1")
    frames, rule = settings.frames or model.frames, model.frame_rule
    for kind in (one.kind for one in settings.given_shares):
        if why := family.refusal(model, kind.name):
            raise _refusal("given", f"given has {kind}, {why}")
        if kind.name in ("prefix", "suffix") and kind.count not in (1, *rule.legal()):
            legal = sorted((1, *rule.legal()), key=lambda count: abs(count - kind.count))[:2]
            use = " or ".join(f"{kind.name} {count}" for count in sorted(legal))
            raise _refusal("given", f"given has {kind}, {model.title} takes 1 or {rule} frames at an end: use {use}")
        if not kind.leaves_something(frames):
            raise _refusal(
                "given",
                f"given has {kind}, which leaves nothing to learn of {frames} frames: tell fewer, or raise frames",
            )
    for name in BESIDE:
        if getattr(settings, name) and (why := family.refusal(model, name)):
            raise _refusal(name, f"{name} is on, {why}")
    for name in ("condition", "condition_frames"):
        value, usual = getattr(settings, name), TrainSettings.model_fields[name].default
        if value != usual:
            tells = "given" if settings.given else "control" if settings.control else "reference"
            raise _refusal(
                name,
                f"{name} is {value}, but {tells} says what the model is told: set {name} to {usual}, or {tells} off",
            )


def _check_preview_frames(settings: TrainSettings, model: Model) -> None:
    if (frames := settings.preview_frames) is None:
        return
    try:
        model.check_shape(frames, model.height, model.width)
    except ConfigError as error:
        raise _refusal("preview_frames", f"preview_{error}") from error
    whole_clip = settings.condition == "low resolution" or settings.condition_frames == "every"
    if settings.tells or (model.task == "image-to-video" and whole_clip):
        raise _refusal(
            "preview_frames",
            f"preview_frames is {frames}, but previews of this run are shown a whole clip, which decides their length: "
            f"leave preview_frames empty",
        )


def _check_lora(settings: TrainSettings) -> None:
    if settings.method == "lora" and settings.lora_init in NOT_PORTABLE:
        raise _refusal(
            "lora_init",
            f"lora_init is {settings.lora_init}, which {NOT_PORTABLE[settings.lora_init]}: its file would not fit the "
            f"base model elsewhere. Use default, gaussian or orthogonal",
        )
    if settings.method == "lora" and settings.lora_init == "orthogonal" and settings.rank % 2:
        raise _refusal(
            "lora_init", f"lora_init is orthogonal, which needs an even rank, rank is {settings.rank}: add one to it"
        )
    if settings.method == "full":
        for name in ("start_from", "train_also"):
            if getattr(settings, name):
                raise _refusal(name, f"{name} is set, but method is full, which has no LoRA: leave {name} empty")
    if settings.method == "full" or settings.train_also:
        changing = "train_also" if settings.train_also else "method"
        target = settings.regularization_target if settings.regularization_dataset else "clips"
        for name, value, off in (
            ("preservation_weight", f"{settings.preservation_weight:g}", "0"),
            ("regularization_target", target, "clips"),
            ("outside_weight", f"{settings.outside_weight:g}" if settings.loss_mask != "off" else "0", "0"),
        ):
            if value != off:
                raise _refusal(
                    name,
                    f"{name} is {value}, but {changing} changes weights of the base model, whose predictions are to be "
                    f"kept: train a LoRA alone, or set {name} to {off}",
                )


def _check_slider(settings: TrainSettings, resolved: ResolvedModel) -> None:
    """Refuse what a slider cannot be trained with, and prompts that do not belong together."""
    family, model = resolved
    source, how = "slider_positive is set", "the base model's own predictions teach"
    if settings.has_pairs:
        source, how = "slider_from is pairs", "learns both halves of each pair at once"
    if family.codes(model):
        raise _refusal(
            source.split()[0],
            f"{source}, but {model.title} predicts codes, between which there is no direction: choose another model",
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
            raise _refusal(
                name,
                f"{name} is {value_text(value)} and {source}: a slider is a LoRA that {how}. Set {name} to "
                f"{value_text(off)}",
            )
    if settings.has_pairs:
        if not settings.dataset:
            raise _refusal(
                "dataset",
                "dataset is empty and slider_from is pairs: choose one whose clips have references beside them",
            )
        return
    positive, negative, neutral = (
        [line for line in lines if line.strip()]
        for lines in (settings.slider_positive, settings.slider_negative, settings.slider_neutral)
    )
    if len(positive) != len(negative):
        raise _refusal(
            "slider_negative",
            f"slider_negative has {counted(len(negative), 'line')}, slider_positive {len(positive)}: write one each",
        )
    if len(neutral) not in (0, 1, len(positive)):
        raise _refusal(
            "slider_neutral",
            f"slider_neutral has {counted(len(neutral), 'line')}, slider_positive {len(positive)}: write one for each, "
            f"one for all, or none",
        )
    if not settings.dataset:
        _check_generated(settings, model)


def _check_generated(settings: TrainSettings, model: Model) -> None:
    """Refuse what the clips that the base model generates for a slider lack."""
    if settings.tells:
        name = "given" if settings.given else "control" if settings.control else "reference"
        raise _refusal(
            name,
            f"{name} is set, but the slider has no dataset, and nothing lies beside the clips that are generated for "
            f"it: choose a dataset, or leave {name} out",
        )
    if model.task != "image-to-video":
        return
    if settings.condition == "low resolution":
        raise _refusal(
            "condition",
            "condition is low resolution, which is made of a dataset's clips, and the slider has none: choose a "
            "dataset, or first frame",
        )
    if not settings.preview_images:
        raise _refusal(
            "preview_images",
            f"preview_images is empty, and {model.title} starts from a picture: give those that the slider's clips are "
            f"to begin with, or choose a dataset whose clips it learns at",
        )


def _check_memory(settings: TrainSettings) -> None:
    if settings.blocks_to_swap and settings.gradient_checkpointing not in ("full", "offloaded"):
        raise _refusal(
            "blocks_to_swap",
            f"blocks_to_swap is {settings.blocks_to_swap} and gradient_checkpointing is "
            f"{settings.gradient_checkpointing}: a block whose weights have left must be computed again for its "
            f"gradient. Set gradient_checkpointing to full or offloaded",
        )
    if settings.method == "full":
        for name, none in (("blocks_to_swap", 0), ("base_model_precision", "as stored")):
            if (value := getattr(settings, name)) != none:
                raise _refusal(
                    name,
                    f"{name} is {value}, which is for frozen weights, and method full trains all of them: train a "
                    f"LoRA, or set {name} to {none}",
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
            f"tracker is {name}, its package is not installed: {remedy}, or choose none", {"tracker": remedy}
        )


def _check_push(settings: TrainSettings) -> None:
    """Refuse a push to the Hub that would fail only at the run's end."""
    if not settings.push_to_hub:
        return
    name = "push_to_hub"
    if settings.method == "full":
        raise _refusal(name, f"{name} is on, but method is full: only a LoRA is pushed. Turn it off, or train a LoRA")
    if settings.repository:
        hub.check_repo_id(settings.repository)
    if not hub.logged_in():
        raise _refusal(name, f"{name} is on, but nobody is logged in to the Hub on this machine: {hub.MAY_WRITE}")


def check_ranks(settings: TrainSettings, count: int) -> None:
    """Refuse what `count` processes cannot compute exactly as one would. Raises ConfigError."""
    if count > 1 and not platform.INHERITS:
        raise _refusal("gpus", f"gpus is {count}, but a run on several GPUs needs Linux: set gpus to 1")
    if count > 1 and ":" in settings.device:
        sentence = f"device is {settings.device}, a single GPU, but gpus is {count}: set gpus to 1, or device to cuda"
        raise _refusal("gpus", sentence)
    batches = settings.gradient_accumulation
    if batches % count:
        remedy = f"set it to {-(-batches // count) * count}"
        raise _refusal(
            "gradient_accumulation",
            f"gradient_accumulation is {batches}, must be a multiple of {count}, the GPUs that share a step's batches: "
            f"{remedy}",
        )
    for variable, name in FOREIGN_BACKENDS.items():
        if os.environ.get(variable, "").lower() in ("1", "true"):
            raise _refusal(
                "parallel",
                f"this process was started by accelerate with {name} ({variable} is set), which would wrap the model a "
                f"second time: choose a plain multi-GPU configuration there, and {name}'s work with parallel here",
            )
    if count > 1 and settings.parallel == "fsdp":
        _check_pieces(settings)


def _check_pieces(settings: TrainSettings) -> None:
    for name, plain, why in (
        ("blocks_to_swap", 0, "keeps weights elsewhere in another way"),
        ("base_model_precision", "as stored", "cuts weights as they are stored"),
        ("compile", False, "changes a block's weights while it computes, which no translated block was proved with"),
        ("dora", False, "has no whole matrix at hand to measure, with which a DoRA begins"),
    ):
        if (value := getattr(settings, name)) != plain:
            raise _refusal(
                name, f"{name} is {value} and parallel is fsdp, which {why}: set {name} to {plain}, or parallel to ddp"
            )
    if settings.method == "full" and settings.optimizer not in ("adamw", "adam"):
        raise _refusal(
            "optimizer",
            f"optimizer is {settings.optimizer}, which looks at whole matrices, and with parallel fsdp and method full "
            f"no process has one: use adamw, or ddp",
        )


def initial_lora(workspace: Workspace, settings: TrainSettings) -> Path | None:
    """Find the LoRA file that `start_from` names; None if it is not set. Raises ConfigError."""
    name = settings.start_from
    if not name:
        return None
    if name.endswith((".pt", ".bin", ".ckpt")):
        made = Path(name).with_suffix(".safetensors").name
        convert = f"workbench convert {name} {made} --like {settings.model}"
        raise _refusal("start_from", f"start_from is {name!r}: convert it first: {convert}")
    if name.endswith(".safetensors"):
        path = named_paths.resolve(name, "start_from")
        if not path.is_file():
            raise _refusal("start_from", f"start_from is {name!r}, which is no file: check the path")
        _check_rank(path, settings.rank)
        return path
    path = workspace.runs / name / "lora.safetensors"
    if not SLUG.fullmatch(name) or not path.is_file():
        why = "no run that has exported a LoRA: choose another"
        if SLUG.fullmatch(name) and (workspace.runs / name).is_dir():
            why = f"a run that {lora_names.why_none(workspace, name)}"
        raise _refusal("start_from", f"start_from is {name!r}, {why}")
    _check_rank(path, settings.rank)
    _check_layers(path.parent / "config.json", name, settings)
    return path


def _check_rank(path: Path, rank: int) -> None:
    """Refuse a LoRA of another rank. Files with keys that only their family can read are checked when loaded."""
    ranks = set[int]()
    with contextlib.suppress(OSError, ValueError):
        shapes = read_header(path).shapes
        ranks = {shape[0] for name, shape in shapes.items() if name.endswith(".lora_A.weight") and len(shape) == 2}
    if len(ranks) == 1 and rank not in ranks:
        (known,) = ranks
        sentence = f"the LoRA {path.name} has rank {known}, rank is {rank}: set rank to {known}, or resize the LoRA"
        raise ConfigError(sentence, {"rank": sentence})


def _check_layers(config: Path, name: str, settings: TrainSettings) -> None:
    """Refuse a run's LoRA that is on other layers than this run trains."""
    before = read_object(config)
    problems = {}
    for setting in ("method", "lokr_factor", "targets", "blocks", "dora"):
        was, now = before.get(setting, TrainSettings.model_fields[setting].default), getattr(settings, setting)
        if was != now and (setting != "targets" or {was, now} <= TARGETS):
            problems[setting] = f"{setting} is {value_text(now)}, {name} has {value_text(was)}"
    if problems:
        raise ConfigError(
            f"start_from goes on with the layers of {name}: {'; '.join(problems.values())}. Set the same", problems
        )


def resolved(workspace: Workspace, settings: TrainSettings) -> TrainSettings:
    """Check the clips, and compute `steps` from `epochs` if those are set.

    Raises:
        ConfigError: For shapes that the model does not support.
        DataError: If too few clips can be used.
    """
    data = load_data(workspace, settings, hashed=False)
    check_masks(settings, data)
    masked = [item for item in data.items if item.mask]
    if sum(len(item.plan.indices) for item in masked) <= FRAMES_LOOKED_AT:  # else the run looks as it encodes them
        refuse_empty(settings, [item for item in masked if _nothing_learned(item, settings.loss_mask)])
    if settings.epochs is None:
        return settings
    per_pass = Batches(data, settings).per_pass
    return settings.changed(steps=max(1, math.ceil(settings.epochs * per_pass / settings.gradient_accumulation)))


def check_masks(settings: TrainSettings, data: TrainingData) -> None:
    """Refuse clips without a mask where the loss is masked, unless they are to count as a whole. Raises DataError."""
    if settings.loss_mask == "off":
        return
    bare = {item.path: item.name for item in data.train if not item.mask}
    if len(bare) == len({item.path for item in data.train}):
        sentence = (
            f"loss_mask is {settings.loss_mask}, but no clip of dataset {settings.dataset} has a mask: add masks to "
            f"its clips, or set loss_mask to off"
        )
        raise DataError(sentence, {"loss_mask": sentence})
    if bare and settings.unmasked_clips == "refuse":
        has = "has" if len(bare) == 1 else "have"
        sentence = (
            f"loss_mask is {settings.loss_mask}, but {counted(len(bare), 'clip')} {has} no mask "
            f"({_named(list(bare.values()))}): add one to each, or set unmasked_clips to whole"
        )
        raise DataError(sentence, {"unmasked_clips": sentence})


def refuse_empty(settings: TrainSettings, empty: Sequence[RunClip]) -> None:
    """Refuse the clips of whose masks nothing is left to learn from. Raises DataError where there is one."""
    if not (names := list(dict.fromkeys(item.name for item in empty))):
        return
    marks = "marks nothing" if settings.loss_mask == "inside" else "marks all"
    sentence = (
        f"loss_mask is {settings.loss_mask}, but the mask of {_named(names)} {marks} in the frames that the run takes: "
        f"correct the mask, or leave the clip out of the dataset"
    )
    raise DataError(sentence, {"loss_mask": sentence})


def _nothing_learned(item: RunClip, loss_mask: str) -> bool:
    lowest, highest = _extremes(item)
    return lowest >= 1 if loss_mask == "outside" else highest <= 0


@lru_cache(maxsize=10_000)
def _extremes(item: RunClip) -> tuple[float, float]:
    """The darkest and the lightest value of a mask, in what is taken of it; a mask's file never changes."""
    mask = read_mask(item)
    return float(mask.min()), float(mask.max())


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _refusal(setting: str, sentence: str) -> ConfigError:
    return ConfigError(sentence, {setting: sentence})


# ---- limits of devices: NVIDIA GPUs and processors have none


@dataclass(frozen=True)
class DeviceRule:
    """A setting, the values a device does not support (empty: all but `instead`), why, and what to set instead."""

    setting: str
    refused: Sequence[Any]
    why: str
    instead: Any


MPS = (
    DeviceRule("blocks_to_swap", (), "shares the machine's memory, so that a block that leaves frees nothing", 0),
    DeviceRule(
        "gradient_checkpointing",
        ("offloaded",),
        "shares the machine's memory, so that what leaves frees nothing",
        "full",
    ),
    DeviceRule("base_model_precision", ("fp8",), "has no 8-bit floats", "int8"),
    DeviceRule("optimizer", ("adamw-8bit",), "is none of those for which bitsandbytes has this optimizer", "adamw"),
    DeviceRule("optimizer", ("adam-8bit",), "is none of those for which bitsandbytes has this optimizer", "adam"),
    DeviceRule("compile", (), "is one for which PyTorch's compiler is a prototype", False),
    DeviceRule("exact", (), "is not promised to give the same bits twice; device cpu is", False),
    DeviceRule(
        "attention",
        ("flash", "efficient", "cudnn", "flash-attn"),
        "has one kernel of its own, which auto takes",
        "auto",
    ),
)
ROCM = (DeviceRule("attention", ("cudnn",), "has no cuDNN", "auto"),)


def check_device(settings: TrainSettings, device: Device) -> None:
    """Refuse what the device cannot do. Raises ConfigError, which names every such setting."""
    what, rules = ("mps", MPS) if device.kind == "mps" else ("an AMD GPU", ROCM) if device.rocm else ("", ())
    problems = {}
    for rule in rules:
        value = getattr(settings, rule.setting)
        if value in rule.refused if rule.refused else value != rule.instead:
            problems[rule.setting] = (
                f"{rule.setting} is {value}, but the device is {what}, which {rule.why}: set {rule.setting} to "
                f"{rule.instead}"
            )
    if problems:
        raise ConfigError("; ".join(problems.values()), problems)
