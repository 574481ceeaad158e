"""Warnings about likely training problems before a run starts, from its settings and captions.

There are few, and each names the setting that helps; the demo and published recipes get none. No torch, and cheap
enough to be called at every change in a form.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.clips import frame_plan
from workbench.clips.frame_plan import shape_of
from workbench.clips.records import damage, read_clips
from workbench.dataset_builder.checks.findings import read_report
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.families.base import Family
from workbench.families.model import Model
from workbench.families.noise_schedules import FlowSchedule, NoiseSchedule, NoiseSettings
from workbench.runs.checks import resolved
from workbench.runs.data import Batches, datasets_of, load_data, misses, sources_of
from workbench.runs.settings import HELD_OUT, TrainSettings
from workbench.workspace import Workspace, is_slug

MOSTLY_KNOWN = 0.5  # share of the regularization dataset from which the concept's clips are counted
# Clips of the concept that a run must see, repetitions included. On the built-in model, 1,080 in 450 steps showed one
# of two shapes in no sample and the other in 42% (docs/diagnosis.md); the shortest published run has 1,000.
FEWEST = 1000
SHARE_THAT_HELPS = 0.4  # with 1,500 steps, it showed the same shape in 53% of the samples
MUCH_NOISE, RARELY = 0.8, 0.05  # noise level; share of the draws above it, which is 8 to 40% for the usual densities


def run_warnings(workspace: Workspace, settings: TrainSettings) -> list[str]:
    """Return a sentence for each problem; none if settings or dataset cannot be read, which is reported elsewhere."""
    with contextlib.suppress(ConfigError):
        family, model = settings.resolved
        return [
            *_few_clips(workspace, settings),
            *_warm_up(workspace, settings),
            *_half_precision(settings, family, model),
            *_mostly_known(settings),
            *_little_noise(settings, family, model),
            *_damaged(workspace, settings),
            *_unread(workspace, settings, model),
            *_pictures(workspace, settings),
            *_incomplete(workspace, settings),
        ]
    return []


def _few_clips(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    """Warn that nothing is held out of one or two clips. Data is loaded only if the datasets are that small."""
    if settings.is_slider:
        return
    with contextlib.suppress(ConfigError, DataError):
        if sum(len(read_clips(workspace.dataset(source.name))) for source in sources_of(settings)) <= HELD_OUT:
            dropped = load_data(workspace, settings, hashed=False).dropped
            yield from (one for one in dropped if one.startswith("No clip"))


def _warm_up(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    if settings.lr_schedule == "constant":
        return
    with contextlib.suppress(ConfigError, DataError):
        steps = settings.steps if settings.epochs is None else resolved(workspace, settings).steps
        if settings.warmup_steps >= max(steps, 2):
            yield (
                f"The warm-up of {settings.warmup_steps:,} steps takes the whole run of {steps:,}: the learning rate "
                f"reaches only {(steps - 1) / settings.warmup_steps:.0%} of its value. Set warmup_steps to "
                f"{steps // 10}."
            )


def _half_precision(settings: TrainSettings, family: Family, model: Model) -> Iterator[str]:
    if settings.precision == "fp16" and family.facts(model).stored == "bfloat16":
        yield (
            f"precision is fp16, but {model.title} was trained in bf16: values above 65,504 become infinite in fp16, "
            "and the loss becomes NaN. Set precision to auto or bf16."
        )


def _mostly_known(settings: TrainSettings) -> Iterator[str]:
    share = settings.regularization_share if settings.regularization_dataset else 0.0
    if settings.epochs is not None or share < MOSTLY_KNOWN:
        return
    a_step = settings.batch_size * settings.gradient_accumulation
    own = round(settings.steps * a_step * (1 - share))
    if own >= FEWEST:
        return
    enough, with_less = (math.ceil(FEWEST / (a_step * (1 - one))) for one in (share, SHARE_THAT_HELPS))
    more = f" and steps to {with_less:,}" if with_less > settings.steps else ""
    yield (
        f"Only {own:,} of the {settings.steps * a_step:,} clips that the steps train on show the concept, which may "
        f"not be enough to learn it. Set steps to {enough:,}, or regularization_share to {SHARE_THAT_HELPS:g}{more}."
    )


def _little_noise(settings: TrainSettings, family: Family, model: Model) -> Iterator[str]:
    own = family.own_settings(model)
    if "timestep_shift" not in own:
        return
    schedule: NoiseSchedule = FlowSchedule(NoiseSettings("uniform", settings.timestep_shift))
    if "timestep_density" in own:  # other models draw all levels equally often before the shift
        device: Any = None  # not needed for a density
        chosen = NoiseSettings(settings.timestep_density, settings.timestep_shift)
        schedule = family.noise_schedule(Path(), device, chosen)
    shape = shape_of(settings, model)
    count, channels, tall, wide = family.facts(model).latents(shape.frames, shape.height, shape.width)
    if not isinstance(schedule, FlowSchedule):
        return
    share = schedule.share_above(MUCH_NOISE, (channels, count, tall, wide))
    if share < RARELY:
        yield (
            f"Only {share:.1%} of the drawn noise levels are above {MUCH_NOISE:g}, where shapes and motion are "
            "decided, so these will stay the base model's. Leave timestep_shift empty, or set it above "
            f"{settings.timestep_shift or 1:g}."
        )


def _damaged(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    """Warn about records in the datasets that cannot be read."""
    for name in dict.fromkeys(name for _, name in datasets_of(settings) if is_slug(name)):
        yield from damage(workspace.dataset(name))


def _unread(workspace: Workspace, settings: TrainSettings, model: Model) -> Iterator[str]:
    """Warn about trigger words that the model does not read, by the last check of each dataset with this model."""
    for source in sources_of(settings) if settings.dataset else ():
        report = read_report(workspace.dataset(source.name)) if is_slug(source.name) else None
        found = [one for one in report.findings if one.kind == "trigger_unread"] if report else []
        if report is not None and report.model == model.id and found:
            yield (
                f"In {counted(len(found), 'caption')} of {source.name} the trigger word comes after the part that "
                f"{model.title} reads: shorten them in the dataset check, and training will put it in front."
            )


def _pictures(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    """Warn if too many batches hold still pictures. They are counted only if a dataset has any."""
    with contextlib.suppress(ConfigError, DataError):
        folders = [workspace.dataset(source.name) for source in sources_of(settings) if source.name]
        if any(clip.is_image for folder in folders for clip in read_clips(folder)):
            share = Batches(load_data(workspace, settings, hashed=False), settings).pictures
            yield from filter(None, [frame_plan.effect_on_motion(share)])


def _incomplete(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    """Warn about clips that are left out because their control clip, reference or mask is missing."""
    if not (settings.tells or settings.has_pairs):
        return
    for name in dict.fromkeys(name for _, name in datasets_of(settings)):
        with contextlib.suppress(ConfigError, DataError):
            folder = workspace.dataset(name)
            clips = read_clips(folder)
            missing = [(clip.name, why) for clip in clips if (why := misses(folder, clip, settings))]
            if missing and len(missing) < len(clips):  # with no clip left, the run is refused
                first, why = missing[0]
                are = "is" if len(missing) == 1 else "are"
                count = f"{len(missing):,} of {counted(len(clips), 'clip')}"
                yield f"{count} of dataset {name} {are} left out. {first}: {why}."
