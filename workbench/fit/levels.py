"""Choose the fastest memory settings that fit a GPU, for given settings or a recipe. No torch.

Also offers to share the steps among several GPUs. All figures come from the fit check.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from workbench.errors import ConfigError
from workbench.families.facts import ModelFacts
from workbench.families.model import Model
from workbench.families.recipes import Source
from workbench.fit.estimate import Fit, clips_of, estimate_from_facts, pace, sized_model
from workbench.fit.gpus import HERE, GpuModel, gpu_of
from workbench.jobs import platform
from workbench.jobs.devices import gpus
from workbench.runs import recipes
from workbench.runs.failures import RECOMPUTING
from workbench.runs.recipes import Reason, Recipe
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.workspace import Workspace

HELP = "Choose the fastest memory settings that fit the GPU."
# How much faster a level must make a step to justify rounding the model, or another optimizer.
WORTH = {"as stored": 1.0, "int8": 1.25, "fp8": 1.25, "nf4": 1.6}
ANOTHER_OPTIMIZER = 1.05
SHRUNK = (0.75, 0.5)  # smaller picture sizes to try, as shares of the wanted size
SOURCE = Source("docs/memory.md, the fit check")
NAMES = ("gradient_checkpointing", "base_model_precision", "blocks_to_swap", "optimizer")  # the settings of a level


@dataclass(frozen=True)
class FittingSettings:
    """Settings that fit a GPU."""

    settings: TrainSettings | None  # None if nothing fits
    changed: dict[str, Any]  # the settings that were changed, by name
    why: str  # a sentence for people
    given_up: str = ""  # why clips are smaller, shorter or fewer at a time than wanted; "" if they are not


def fit_to_gpu(workspace: Workspace, settings: TrainSettings, choice: str = HERE) -> FittingSettings:
    """Choose the fastest settings that fit the GPU (see gpus.gpu_of). Raises ConfigError, ModelUnavailable."""
    family, model = sized_model(settings.model)
    gpu, clips = gpu_of(choice, settings.device), clips_of(workspace, settings)
    return fitting(settings, model, family.facts(model), gpu, clips, here=choice == HERE)


def fitting(
    settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel, clips: int = 0, here: bool = False
) -> FittingSettings:
    """Choose the fastest settings that fit, from sizes alone."""
    best = _fastest(settings, model, facts, gpu, clips, here)
    if best is None:
        return FittingSettings(None, {}, _remedy(settings, model, facts, gpu))
    return _described(settings, *best)


def fitting_smaller(
    settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel, clips: int = 0, here: bool = False
) -> FittingSettings:
    """Choose settings that fit. If no level does, try one clip at a time, then fewer frames, then a smaller picture."""
    found = fitting(settings, model, facts, gpu, clips, here)
    if found.settings is not None:
        return found
    for changed, words in _smaller(settings, model):
        try:
            best = _fastest(settings.changed(**changed), model, facts, gpu, clips, here)
        except ConfigError:  # the model cannot take the shape
            continue
        if best is not None:
            return replace(_described(settings, *best), given_up=f"No level fits {gpu.memory_gb:.0f} GB {words}.")
    return found


def _fastest(
    settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel, clips: int, here: bool
) -> tuple[TrainSettings, Fit] | None:
    best: tuple[float, TrainSettings, Fit] | None = None
    for one, worth in candidates(settings, facts, gpu):
        found = estimate_from_facts(one, model, facts, gpu, clips, here)
        cost = found.times.step * worth
        if found.fits and not found.tight and (best is None or cost < best[0]):
            best = (cost, one, found)
    return best[1:] if best else None


def _described(wanted: TrainSettings, chosen: TrainSettings, fit: Fit) -> FittingSettings:
    changed = wanted.difference(chosen)
    need = f"{fit.need}, {pace(fit.times.step)} a step"
    if not changed:
        return FittingSettings(chosen, {}, f"These are already the fastest settings that fit: {need}.")
    return FittingSettings(chosen, changed, f"Fits with {in_words(changed)}: {need}.")


def in_words(changed: dict[str, Any]) -> str:
    """Format changed settings with the titles that people see."""
    titles = {spec.name: spec.title.lower() for spec in specs(TrainSettings)}
    return ", ".join(f"{titles[name]} {value}" for name, value in changed.items())


def candidates(settings: TrainSettings, facts: ModelFacts, gpu: GpuModel) -> Iterator[tuple[TrainSettings, float]]:
    """Yield every combination of memory settings, with the factor by which it must be faster to be chosen."""
    lora, cuda = settings.method != "full", gpu.kind == "cuda"
    half = "int8" if gpu.kind == "mps" else "fp8"
    fewer = settings.base_model_precision if settings.base_model_precision != "as stored" else half
    weights = dict.fromkeys(("as stored", fewer, "nf4")) if lora else ("as stored",)
    swapped = dict.fromkeys((0, *(round(facts.all_blocks * quarter / 4) for quarter in range(1, 5))))
    optimizers = [settings.optimizer]
    if settings.optimizer == "adamw" and cuda and importlib.util.find_spec("bitsandbytes") is not None:
        optimizers.append("adamw-8bit")
    for level, kept, blocks, optimizer in itertools.product(
        RECOMPUTING, weights, swapped if lora and cuda else (0,), optimizers
    ):
        if (blocks and level not in ("full", "offloaded")) or (level == "offloaded" and not cuda):
            continue
        worth = WORTH[kept] * (1.0 if optimizer == settings.optimizer else ANOTHER_OPTIMIZER)
        yield settings.model_copy(update=dict(zip(NAMES, (level, kept, blocks, optimizer), strict=True))), worth


def can_fit(model: Model, facts: ModelFacts, gpu: GpuModel) -> bool:
    """Whether a LoRA of the model fits the GPU with the usual settings and the cheapest memory level."""
    *_, (cheapest, _) = candidates(TrainSettings(model=model.id), facts, gpu)
    return estimate_from_facts(cheapest, model, facts, gpu).fits


def _remedy(settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel) -> str:
    for changed, words in _smaller(settings, model):
        with contextlib.suppress(ConfigError):  # the model cannot take the shape
            levels = candidates(settings.changed(**changed), facts, gpu)
            if any(estimate_from_facts(one, model, facts, gpu).fits for one, _ in levels):
                return f"No level fits {gpu.memory_gb:.0f} GB {words}."
    what = "a LoRA needs far less" if settings.method == "full" else "a smaller model may"
    where = f"{gpu.memory_gb:.0f} GB" + (" of CPU memory, in fp32" if gpu.kind == "cpu" else "")
    return f"No memory level fits {where}, at any size: {what}."


def _smaller(settings: TrainSettings, model: Model) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield smaller settings that may fit, smallest change first, each with a description."""
    one = {"batch_size": 1, "gradient_accumulation": settings.gradient_accumulation * settings.batch_size}
    if settings.batch_size > 1:
        yield one, f"with {settings.batch_size} clips at a time: lower batch_size"
    frames, height, width = (getattr(settings, side) or getattr(model, side) for side in ("frames", "height", "width"))
    for count in sorted((count for count in model.frame_rule.legal() if count < frames), reverse=True):
        yield {**one, "frames": count, "buckets": ()}, f"with {frames} frames: {count} would fit"
    for share in () if model.fixed_size else SHRUNK:
        tall, wide = (round(side * share / model.size_multiple) * model.size_multiple for side in (height, width))
        if tall and wide:
            changed = {**one, "height": tall, "width": wide, "buckets": ()}
            yield changed, f"at {width}x{height}: {wide}x{tall} would fit"


# ---- a recipe with memory settings for a GPU


def suggest(
    workspace: Workspace, subject: str, settings: TrainSettings, gpu: str | None = HERE, clips: int | None = None
) -> Recipe:
    """Suggest settings for a subject, given the model and dataset of `settings`. Raises ConfigError, ModelUnavailable.

    Args:
        gpu: see gpus.gpu_of; None leaves the memory settings alone.
        clips: number of clips, if not the dataset's.
    """
    family, model = named = sized_model(settings.model)
    count = recipes.clips_of(workspace, settings.dataset) if clips is None else clips
    found = recipes.suggest(subject, named, count)
    if gpu is None:
        return found
    wanted = settings.changed(model=model.id, **found.settings)
    on_gpu = gpu_of(gpu, settings.device)
    fit = fitting_smaller(wanted, model, family.facts(model), on_gpu, clips_of(workspace, wanted), here=gpu == HERE)
    if fit.settings is None:
        warning = " ".join(filter(None, (found.warning, f"{on_gpu.name}: {fit.why}")))
        return found.model_copy(update={"warning": warning, "gpu": on_gpu.name})
    reasons = [one for one in found.reasons if one.setting not in fit.changed]
    reasons.append(Reason("", on_gpu.name, "", " ".join(filter(None, (fit.given_up, fit.why))), (SOURCE,)))
    titles = {spec.name: spec.title for spec in specs(TrainSettings)}
    for name, value in fit.changed.items():
        plain = value if isinstance(value, str | int | float) else "none"
        why = f"The fastest memory settings that fit {on_gpu.name}." if name in NAMES else fit.given_up
        reasons.append(Reason(name, titles[name], plain, why, (SOURCE,)))
    settings_too = {**found.settings, **fit.changed}
    return found.model_copy(update={"settings": settings_too, "reasons": tuple(reasons), "gpu": on_gpu.name})


# ---- several GPUs


@dataclass(frozen=True)
class Offer:
    """An offer to use all GPUs of this machine. changed: the settings for that;  sentence: what they do."""

    count: int
    changed: dict[str, Any]
    sentence: str

    @property
    def flags(self) -> str:
        """The settings as flags of a shell command."""
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.changed.items())


def offer(settings: TrainSettings) -> Offer | None:
    """Return an offer for these settings; None if more GPUs would not help or are not possible (runs.checks)."""
    alone = settings.device == "cpu" or ":" in settings.device or not platform.INHERITS
    count = 0 if alone else len(gpus())
    if count < 2 or settings.gpus == 0 or settings.gpus >= count:
        return None
    before = settings.gradient_accumulation
    batches = -(-before // count) * count
    changed: dict[str, Any] = {"gpus": count}
    sentence = f"All {count} GPUs share each step, and the result stays the same."
    if batches != before:
        changed["gradient_accumulation"] = batches
        sentence = f"All {count} GPUs share each step, which then takes {batches} batches instead of {before}."
    return Offer(count, changed, sentence)
