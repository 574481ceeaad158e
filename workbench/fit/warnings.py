"""What a run will probably not show, by its settings and captions, before it starts: for page, notebook and shell.

Few sentences, each with the setting that helps; none for the demo and for published recipes. No torch, and cheap enough
to be asked at every change of a form.
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

MOSTLY_KNOWN = 0.5  # share of the regularization dataset from which it is asked what is left
# Clips of the concept, each counted as often as it comes. On the built-in model 1,080 in 450 steps showed one of two
# shapes in no sample, the other in 42 % (docs/diagnosis.md); the shortest published run has 1,000.
FEWEST = 1000
SHARE_THAT_HELPS = 0.4  # with 1,500 steps it showed the same shape in 53 % of the samples
MUCH_NOISE, RARELY = 0.8, 0.05  # of a clip; of all draws, where the usual densities have 8 to 40 %


def run_warnings(workspace: Workspace, settings: TrainSettings) -> list[str]:
    """A sentence for each; none where the settings or the dataset cannot be read, which others say."""
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
            *_untold(workspace, settings),
        ]
    return []


def _few_clips(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    """That nothing is held out of one or two clips; read only where the datasets have no more."""
    if settings.is_slider:
        return
    with contextlib.suppress(ConfigError, DataError):
        if sum(len(read_clips(workspace.dataset(source.name))) for source in sources_of(settings)) <= HELD_OUT:
            yield from (
                one for one in load_data(workspace, settings, hashed=False).dropped if one.startswith("No clip")
            )


def _warm_up(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    if settings.lr_schedule == "constant":
        return
    with contextlib.suppress(ConfigError, DataError):
        steps = settings.steps if settings.epochs is None else resolved(workspace, settings).steps
        if settings.warmup_steps >= max(steps, 2):
            yield (
                f"The warm-up of {settings.warmup_steps:,} steps takes the whole run of {steps:,}: the learning rate "
                f"reaches {(steps - 1) / settings.warmup_steps:.0%} of its value. Set warmup_steps to {steps // 10}."
            )


def _half_precision(settings: TrainSettings, family: Family, model: Model) -> Iterator[str]:
    if settings.precision == "fp16" and family.facts(model).stored == "bfloat16":
        yield (
            f"precision is fp16, and {model.title} was made in bf16: values beyond 65,504, which bf16 holds, become "
            "infinite in fp16, and the loss NaN. Set precision to auto or bf16."
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
        f"Of {settings.steps * a_step:,} clips that the steps take, {own:,} are of the concept: it may not show. "
        f"Set steps to {enough:,}, or regularization_share to {SHARE_THAT_HELPS:g}{more}."
    )


def _little_noise(settings: TrainSettings, family: Family, model: Model) -> Iterator[str]:
    own = family.own_settings(model)
    if "timestep_shift" not in own:
        return
    schedule: NoiseSchedule = FlowSchedule(NoiseSettings("uniform", settings.timestep_shift))
    if "timestep_density" in own:  # others draw all levels equally often, before they are shifted
        device: Any = None  # a density alone needs none
        chosen = NoiseSettings(settings.timestep_density, settings.timestep_shift)
        schedule = family.noise_schedule(Path(), device, chosen)
    shape = shape_of(settings, model)
    count, channels, tall, wide = family.facts(model).latents(shape.frames, shape.height, shape.width)
    if not isinstance(schedule, FlowSchedule):
        return
    share = schedule.share_above(MUCH_NOISE, (channels, count, tall, wide))
    if share < RARELY:
        yield (
            f"{share:.1%} of the drawn noise levels are above {MUCH_NOISE:g}, where shapes and movement are decided: "
            "they will stay the base model's. Leave timestep_shift empty, or set it above "
            f"{settings.timestep_shift or 1:g}."
        )


def _damaged(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    """By what cannot be read of the datasets' records."""
    for name in dict.fromkeys(name for _, name in datasets_of(settings) if is_slug(name)):
        yield from damage(workspace.dataset(name))


def _unread(workspace: Workspace, settings: TrainSettings, model: Model) -> Iterator[str]:
    """By the last check of each dataset with this model."""
    for source in sources_of(settings) if settings.dataset else ():
        report = read_report(workspace.dataset(source.name)) if is_slug(source.name) else None
        found = [one for one in report.findings if one.kind == "trigger_unread"] if report else []
        if report is not None and report.model == model.id and found:
            yield (
                f"In {counted(len(found), 'caption')} of {source.name} the trigger word stands beyond what "
                f"{model.title} reads: shorten them in the dataset check, then training puts it in front."
            )


def _pictures(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    """By the batches that hold still pictures, which are counted where a dataset has any."""
    with contextlib.suppress(ConfigError, DataError):
        folders = [workspace.dataset(source.name) for source in sources_of(settings) if source.name]
        if any(clip.is_image for folder in folders for clip in read_clips(folder)):
            share = Batches(load_data(workspace, settings, hashed=False), settings).pictures
            yield from filter(None, [frame_plan.effect_on_motion(share)])


def _untold(workspace: Workspace, settings: TrainSettings) -> Iterator[str]:
    """Clips that are left out because the control clip, reference or mask that they need is missing."""
    if not (settings.tells or settings.has_pairs):
        return
    for name in dict.fromkeys(name for _, name in datasets_of(settings)):
        with contextlib.suppress(ConfigError, DataError):
            folder = workspace.dataset(name)
            clips = read_clips(folder)
            lacking = [(clip.name, why) for clip in clips if (why := misses(folder, clip, settings))]
            if lacking and len(lacking) < len(clips):  # without any clip left, the start is refused
                first, why = lacking[0]
                is_left = "is" if len(lacking) == 1 else "are"
                yield (
                    f"{len(lacking):,} of {counted(len(clips), 'clip')} of dataset {name} {is_left} left out. "
                    f"{first}: {why}."
                )
