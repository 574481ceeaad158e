"""The memory levels: which are cheaper, and what is the least that one gives up to fit a GPU. No torch.

Not covered: what each level needs (estimate, timing), how it is carried out (trainer.model.memory_levels).
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workbench.errors import ConfigError
from workbench.families import find_model, settle
from workbench.families.base import Model
from workbench.families.facts import ModelFacts
from workbench.fit.estimate import Fit, clips_of, estimate_from_facts, pace
from workbench.fit.gpus import HERE, GpuModel, gpu_of
from workbench.runs.oom_fallback import RECOMPUTING
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.workspace import Workspace

# How much faster a level must make a step to be worth what it does to the model: rounding it, or another optimizer.
WORTH = {"as stored": 1.0, "int8": 1.25, "fp8": 1.25, "nf4": 1.6}
ANOTHER_OPTIMIZER = 1.05
SHRUNK = (0.75, 0.5)  # sizes that are tried for a remedy, as shares of what was wanted


@dataclass(frozen=True)
class FittingSettings:
    """The settings that fit, or None; what was changed, by name; and why, in a sentence."""

    settings: TrainSettings | None
    changed: dict[str, Any]
    why: str


def make_it_fit(workspace: Workspace, settings: TrainSettings, choice: str = HERE) -> FittingSettings:
    """The fastest settings that fit the GPU (gpus.gpu_of). Raises ConfigError, ModelUnavailable."""
    family, model = find_model(settle(settings.model))
    return fitting(
        settings,
        model,
        family.facts(model),
        gpu_of(choice, settings.device),
        clips_of(workspace, settings),
        here=choice == HERE,
    )


def fitting(
    settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel, clips: int = 0, here: bool = False
) -> FittingSettings:
    """The same, from sizes alone."""
    best: tuple[float, TrainSettings, Fit] | None = None
    for one, worth in candidates(settings, facts, gpu):
        found = estimate_from_facts(one, model, facts, gpu, clips, here)
        cost = found.times.step * worth
        if found.fits and not found.tight and (best is None or cost < best[0]):
            best = (cost, one, found)
    if best is None:
        return FittingSettings(None, {}, _remedy(settings, model, facts, gpu))
    _, chosen, fit = best
    before, after = settings.model_dump(mode="json"), chosen.model_dump(mode="json")
    changed = {name: value for name, value in after.items() if before[name] != value}
    need = f"about {fit.peak.gb:.1f} of {gpu.memory_gb:.0f} GB, {pace(fit.times.step)} a step"
    if not changed:
        return FittingSettings(chosen, {}, f"These are the fastest settings that fit already: {need}.")
    return FittingSettings(chosen, changed, f"Fits with {in_words(changed)}: {need}.")


def in_words(changed: dict[str, Any]) -> str:
    """Changed settings by the names that people see."""
    titles = {spec.name: spec.title.lower() for spec in specs(TrainSettings)}
    return ", ".join(f"{titles[name]} {value}" for name, value in changed.items())


def candidates(settings: TrainSettings, facts: ModelFacts, gpu: GpuModel) -> Iterator[tuple[TrainSettings, float]]:
    """Every combination of memory levels, with what it must be worth."""
    lora, cuda = settings.method == "lora", gpu.kind == "cuda"
    fewer = settings.base_model_precision if settings.base_model_precision != "as stored" else "fp8"
    weights = dict.fromkeys(("as stored", fewer, "nf4")) if lora else ("as stored",)
    swapped = dict.fromkeys((0, *(round(facts.blocks * quarter / 4) for quarter in range(1, 5))))
    optimizers = [settings.optimizer]
    if settings.optimizer == "adamw" and cuda and importlib.util.find_spec("bitsandbytes") is not None:
        optimizers.append("adamw-8bit")
    for level, kept, blocks, optimizer in itertools.product(
        RECOMPUTING, weights, swapped if lora and cuda else (0,), optimizers
    ):
        if (blocks and level not in ("full", "offloaded")) or (level == "offloaded" and not cuda):
            continue
        worth = WORTH[kept] * (1.0 if optimizer == settings.optimizer else ANOTHER_OPTIMIZER)
        update = {
            "gradient_checkpointing": level,
            "base_model_precision": kept,
            "blocks_to_swap": blocks,
            "optimizer": optimizer,
        }
        yield settings.model_copy(update=update), worth


def _remedy(settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel) -> str:
    """What would fit where no level does: fewer frames, else a smaller size."""
    least = settings.changed(batch_size=1)
    if settings.batch_size > 1 and _fits(least, model, facts, gpu):
        return f"No level fits {gpu.memory_gb:.0f} GB with {settings.batch_size} clips at a time: lower batch_size."
    frames, height, width = (
        settings.frames or model.frames,
        settings.height or model.height,
        settings.width or model.width,
    )
    fewer = [count for count in model.frame_rule.legal() if count < frames]
    for count in sorted(fewer, reverse=True):
        if _fits(least.changed(frames=count, buckets=()), model, facts, gpu):
            return f"No level fits {gpu.memory_gb:.0f} GB with {frames} frames: {count} would fit."
    if not model.fixed_size:
        for share in SHRUNK:
            tall, wide = (round(side * share / model.size_multiple) * model.size_multiple for side in (height, width))
            if tall and wide and _fits(least.changed(height=tall, width=wide, buckets=()), model, facts, gpu):
                return f"No level fits {gpu.memory_gb:.0f} GB at {width}x{height}: {wide}x{tall} would fit."
    what = "a LoRA needs far less" if settings.method == "full" else "a smaller model may"
    return f"No memory level fits {gpu.memory_gb:.0f} GB, at any size: {what}."


def _fits(settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel) -> bool:
    try:
        return any(estimate_from_facts(one, model, facts, gpu).fits for one, _ in candidates(settings, facts, gpu))
    except ConfigError:
        return False
