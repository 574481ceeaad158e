"""Plans: preview a new run while its form is being filled in, find settings that fit, measure, and keep presets.

`look` answers everything in one call: what is wrong, whether it fits, how long it takes, and when it would start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from workbench import jobs
from workbench.clips.records import read_clips, read_info
from workbench.display.quantities import byte_size, counted, duration, listed
from workbench.errors import ConfigError, DataError, WorkbenchError
from workbench.families import facts, known_model, split
from workbench.families.base import Family
from workbench.families.model import Model
from workbench.fit import levels, measurement
from workbench.fit.constants import SMALLEST_GB
from workbench.fit.estimate import Fit, estimate, pace
from workbench.fit.gpus import CHOICES, HERE
from workbench.fit.memory import TRAINING, gb_text
from workbench.fit.warnings import run_warnings
from workbench.form_rules import empty_values, needless, summary, takes, without_effect
from workbench.jobs import queue as run_queue
from workbench.loras.library import inserted, lacking
from workbench.operations.machine import phases_of
from workbench.operations.registry import operation
from workbench.operations.runs import TRIED, checkpoint_of
from workbench.operations.settings import Gpu
from workbench.operations.shared import FormState
from workbench.paths import ASSETS
from workbench.remote.targets import LOCAL
from workbench.runs import recipes
from workbench.runs.checkpoints import STATE, folder_of, setting_changes
from workbench.runs.checks import check
from workbench.runs.run import SLIDER, carried
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import combinations, parse_values
from workbench.settings import parse, specs, value_text
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, is_slug, numbered, read_json

Given = Annotated[dict[str, Any], Field(description="Settings that differ from their defaults.")]
Records = tuple[dict[str, Any], ...]
# Memory parts in the form: title, tone, and the fit check's names for them. All other parts count as the reserve.
STACK = (
    ("Base model", "faint", ("weights",)),
    ("Trained weights and optimizer", "accent-2", ("LoRA", "trained weights", "optimizer")),
    ("Activations", "accent", ("activations", "backward pass")),
    ("VAE and text encoder", "text", ("VAE", "text encoder", "the video")),
)
RESERVE = ("Reserve", "edge")
MEGABYTE = 1e6
SHORTER = (0.66, 0.5, 0.33)  # suggested lengths, as shares of the model's own


class Plan(FormState):
    """A preview of a new run with these settings."""

    name: str = ""
    """Name that the run gets by default."""

    runs: int = 1
    """Number of runs that these settings create."""

    fits: bool | None = None
    """Whether it fits the GPU; null if that cannot be estimated."""

    need_gb: float = 0.0
    """Its peak memory in GB."""

    memory_gb: float = 0.0
    """The available memory in GB."""

    gpu: str = ""
    """Name of the GPU or the CPU."""

    parts: Records = ()
    """Parts of the peak memory: title, gb, tone (the color of its bar)."""

    phases: Records = ()
    """Phases of the run: name, gb, fits, measured, made_of."""

    beside: Records = ()
    """Other needs, such as disk space: title, text."""

    sentence: str = ""
    """Memory and time in words, and whether they are estimated or measured."""

    advice: str = ""
    """What to change; "" if nothing needs to change."""

    seconds: float = 0.0
    """Estimated duration of one run in seconds."""

    shapes: Records = ()
    """Frames and sizes that the model accepts, its own first: frames, height, width."""

    estimable: tuple[str, ...] = ()
    """GPUs to estimate for, as `gpu_memory` takes them, this machine's first."""

    hints: dict[str, str] = {}
    """Setting -> what its value costs, in a few words."""

    when: str = ""
    """When it would start, in words."""

    begins_in: float | None = None
    """Seconds until it would start; null if unknown."""

    warnings: tuple[str, ...] = ()
    """Warnings about likely training problems, one sentence each, with the setting that helps."""

    trigger: dict[str, Any] | None = None
    """Set if preview prompts lack the dataset's trigger word: words, prompts (with it); otherwise null."""

    gpus: dict[str, Any] | None = None
    """Set if several GPUs could share the steps: sentence, settings; otherwise null."""

    changes: Records = ()
    """For a fork, each setting that differs from its parent's: title, before, after."""


@operation(shell=False)
def look(
    workspace: Workspace,
    *,
    settings: Given,
    tried: Annotated[tuple[str, ...], Field(description=TRIED)] = (),
    fork: Annotated[str, Field(description="Continue from this checkpoint: RUN@STEP.")] = "",
    gpu_memory: Gpu = HERE,
    target: Annotated[str, Field(description="Train on this target. Empty: on this machine.")] = "",
) -> Plan:
    """Preview a new run: what is wrong with its settings, whether it fits, how long it takes, when it would start."""
    named = str(settings.get("model", TrainSettings().model))
    common: dict[str, Any] = {"own": empty_values(TrainSettings, named), "model": summary(named)}
    try:
        given, values = parse(TrainSettings, settings), parse_values(tried)
        every = [one for _, one in combinations(given, values)] if values else [given]
    except ConfigError as error:
        # An error about a sweep's values begins with the setting's name.
        about = next((name for text in tried if str(error).startswith(name := text.partition("=")[0])), "")
        return Plan(problems=error.problems or {about: str(error)}, without_effect=(), notes=(), **common)
    first, model = every[0], known_model(given.model)
    experts = len(model.model.experts) if model and given.expert == "both" else 0
    title = fork.rpartition("@")[0] or given.dataset or (SLIDER if given.is_slider else "")
    problems, offer = _problems(workspace, first, fork), levels.offer(first)
    found = Plan(
        problems=problems,
        without_effect=tuple(without_effect(TrainSettings, given.model_dump())),
        notes=(
            *needless(given, settings),
            *(_conditions(*model) if model else ()),
            *_miniature(workspace, first, model.model if model else None),
        ),
        name=next(name for name in numbered(title) if not (workspace.runs / name).exists()) if title else "",
        runs=len(every) * max(1, experts),
        changes=_changes(workspace, first, fork),
        warnings=tuple(run_warnings(workspace, first)) if not problems else (),
        trigger=_trigger(workspace, first),
        shapes=_shapes(first),
        gpus={"sentence": offer.sentence, "settings": offer.changed} if offer else None,
        estimable=CHOICES,
        **common,
    )
    try:
        fits = [estimate(workspace, one, gpu_memory) for one in every]
    except WorkbenchError as error:
        return found if problems else found.model_copy(update={"advice": str(error)})
    worst = max(fits, key=lambda one: one.peak.gb)
    when, begins_in = _when(workspace, given, target)
    return found.model_copy(
        update={
            **_fit(worst),
            "seconds": sum(one.times.total for one in fits) / len(fits),
            "hints": _hints(workspace, first, worst),
            "when": when,
            "begins_in": begins_in,
        }
    )


def _problems(workspace: Workspace, settings: TrainSettings, fork: str) -> dict[str, str]:
    """Return what would keep the run from starting, without asking the Hub."""
    try:
        if fork:
            parent, step = checkpoint_of(workspace, fork)
            source = folder_of(parent.folder, step)
            carried(source, read_json(source / STATE), settings)
        named = split(settings.model)
        if known_model(settings.model) is not None or named is None or not named.on_hub:
            check(workspace, settings)
    except ConfigError as error:
        return error.problems or {"": str(error)}
    except DataError as error:
        return {"dataset": str(error)}
    return {}


def _shapes(settings: TrainSettings) -> Records:
    """Return the model's own frames and size, then shorter and smaller ones that it accepts."""
    if (named := known_model(settings.model)) is None:
        return ()
    model = named.model
    legal = [frames for frames in range(1, model.frames) if takes(model, frames, model.height, model.width)]
    frames = [min(legal, key=lambda one: abs(one - share * model.frames)) for share in SHORTER] if legal else []
    found = [(one, model.height, model.width) for one in (model.frames, *frames)]
    half = model.height // 2, model.width // 2
    if takes(model, model.frames, *half):
        found.append((model.frames, *half))
    return tuple({"frames": one, "height": height, "width": width} for one, height, width in dict.fromkeys(found))


def _changes(workspace: Workspace, settings: TrainSettings, fork: str) -> Records:
    if not fork:
        return ()
    with contextlib.suppress(ConfigError):
        parent, step = checkpoint_of(workspace, fork)
        before = read_json(folder_of(parent.folder, step) / STATE)["settings"]
        titles = {spec.name: spec.title for spec in specs(TrainSettings)}
        return tuple(
            {"title": titles.get(name, name), "before": value_text(old), "after": value_text(new)}
            for name, (old, new) in setting_changes(before, settings).items()
        )
    return ()


def _trigger(workspace: Workspace, settings: TrainSettings) -> dict[str, Any] | None:
    """Return the dataset's trigger word and the preview prompts with it, if any of them lacks it."""
    word = ""
    with contextlib.suppress(ConfigError):
        word = read_info(workspace.dataset(settings.dataset)).trigger_word.strip() if settings.dataset else ""
    if not word or not any(lacking(prompt, [word]) for prompt in settings.preview_prompts):
        return None
    return {"words": word, "prompts": [inserted(prompt, [word]) for prompt in settings.preview_prompts]}


# ---- memory and time


def _fit(found: Fit) -> dict[str, Any]:
    return {
        "fits": found.fits,
        "need_gb": found.peak.gb,
        "memory_gb": found.gpu.memory_gb,
        "gpu": found.gpu.name,
        "parts": tuple(_parts(found)),
        "phases": tuple({**of, "made_of": one.made_of} for of, one in zip(phases_of(found), found.phases, strict=True)),
        "beside": tuple({"title": title, "text": text} for title, text in found.beside),
        "sentence": found.sentence,
        "advice": found.advice,
    }


def _parts(found: Fit) -> Iterator[dict[str, Any]]:
    """Yield the peak memory in a few parts. If the peak was measured, scale the estimated parts to it."""
    parts = found.peak.parts
    scale = found.peak.gb / (sum(parts.values()) or 1.0)
    known = {name for _, _, names in STACK for name in names}
    sums = [(title, tone, sum(parts.get(name, 0.0) for name in names)) for title, tone, names in STACK]
    sums.append((*RESERVE, sum(gb for name, gb in parts.items() if name not in known)))
    for title, tone, gb in sums:
        if gb >= SMALLEST_GB:
            yield {"title": title, "gb": gb * scale, "tone": tone}


def _conditions(family: Family, model: Model) -> list[str]:
    """Return what to know before a download: a license with conditions, distillation, and the size of each part."""
    found = [f"License: {model.license}."] if "(" in model.license else []
    if model.distillation:
        found.append(model.distillation)
    if (parts := facts.download_parts(model)) and family.on_disk(model) is None:
        sizes = sorted(parts.items(), key=lambda part: -part[1])
        each = ", ".join(f"{name.replace('_', ' ')} {byte_size(size * 1e9)}" for name, size in sizes)
        found.append(f"To download from https://huggingface.co/{model.source}, about: {each}.")
    return found


def _miniature(workspace: Workspace, settings: TrainSettings, model: Model | None) -> list[str]:
    """Say what a built-in model is for, if the dataset has other clips than the demo's."""
    if model is None or not model.embedded or not settings.dataset:
        return []
    known = {path.name for path in (ASSETS / "demo_clips").glob("*/*.mp4")}
    with contextlib.suppress(ConfigError, DataError):
        if any(Path(clip.source).name not in known for clip in read_clips(workspace.dataset(settings.dataset))):
            return [f"{model.title} is a miniature: on your clips it shows the workflow, not quality."]
    return []


def _hints(workspace: Workspace, settings: TrainSettings, found: Fit) -> dict[str, str]:
    """Map settings to what their values cost."""
    parts = next((one.parts for one in found.phases if one.name == TRAINING), found.peak.parts)
    step = found.times.step
    trained = sum(parts.get(name, 0.0) for name in ("LoRA", "trained weights", "optimizer"))
    activations = sum(parts.get(name, 0.0) for name in ("activations", "backward pass"))
    size_mb = found.disk.get("the export", 0.0) * 1024**3 / MEGABYTE
    size = f"{size_mb:.0f} MB" if size_mb >= 10 else f"{size_mb:.1f} MB"
    hints = {
        "model": f"{gb_text(parts['weights'])} {settings.base_model_precision}" if "weights" in parts else "",
        "frames": ", ".join(filter(None, [gb_text(activations) if activations else "", f"{pace(step)} a step"])),
        "steps": f"100 more: {duration(100 * step)}",
        "learning_rate": "several values: 1e-4, 3e-4",
        "rank": f"{gb_text(trained)}, file {size}",
        "batch_size": "least memory"
        if settings.batch_size == 1
        else f"{gb_text(activations * (1 - 1 / settings.batch_size))} more",
        "dataset": _dataset_hint(workspace, settings.dataset),
    }
    if settings.preview_every and (spent := found.times.parts.get("previews")):
        each = spent / (settings.steps // settings.preview_every + 1)
        hints["preview_prompts"] = f"Generated every {settings.preview_every} steps, {duration(each)} each time"
    return hints


def _dataset_hint(workspace: Workspace, dataset: str) -> str:
    """Return the number of clips and how many of them lack a caption."""
    if not is_slug(dataset):
        return ""
    with contextlib.suppress(ConfigError, DataError):
        clips = read_clips(workspace.dataset(dataset))
        without = sum(not clip.text.strip() for clip in clips)
        return f"{counted(len(clips), 'clip')}, {f'{without} without a caption' if without else 'all captioned'}"
    return ""


def _when(workspace: Workspace, settings: TrainSettings, target: str) -> tuple[str, float | None]:
    """Return when the run would start, in words and in seconds from now (None if unknown)."""
    if target not in ("", LOCAL):
        return f"Sent to {target}.", None
    waiting = run_queue.order(workspace)
    active = [one for one in jobs.jobs_in(workspace.runs) if one.state.alive and one.name not in waiting]
    before = [*(one.name for one in active), *waiting]
    if not before:
        return "Starts right away.", 0.0
    left = [one.seconds_left for one in active]
    known = sum(one for one in left if one is not None) if not waiting and None not in left else None
    return f"Waits for {listed(before, 1)}.", known


class Fitting(Snapshot):
    """Memory settings that fit a GPU."""

    settings: dict[str, Any]
    """Settings to change; {} if nothing fits or nothing needs to change."""

    fits: bool
    """Whether there are settings that fit."""

    why: str
    """What was changed and why, or what would help, in one sentence."""


@operation(shell=False)
def fitting(workspace: Workspace, *, settings: Given, gpu_memory: Gpu = HERE) -> Fitting:
    """Find the fastest memory settings that fit a GPU."""
    found = levels.fit_to_gpu(workspace, parse(TrainSettings, settings), gpu_memory)
    return Fitting(settings=found.changed if found.settings else {}, fits=found.settings is not None, why=found.why)


class Measuring(Snapshot):
    """A measurement of memory and time."""

    alive: bool
    """Whether it is running."""

    said: str
    """What it is doing, or how it ended; "" if there was none in the last hour."""


@operation(shell=False)
def measuring(workspace: Workspace) -> Measuring:
    """Show the running measurement, or the last one of the past hour."""
    status = measurement.newest(workspace)
    return Measuring(alive=status is not None and status.state.alive, said=measurement.progress(status))


@operation(changes=True, shell=False)
def measure(workspace: Workspace, *, settings: Given) -> Measuring:
    """Measure the memory and time that a run needs by training a few steps on this machine."""
    measurement.start(workspace, parse(TrainSettings, settings))
    return measuring(workspace)


@operation(changes=True, shell=False)
def stop_measuring(workspace: Workspace) -> Measuring:
    """Stop the running measurement. Call it again to kill it."""
    status = measurement.newest(workspace)
    if status is not None and status.state.alive:
        measurement.stop(status)
    return measuring(workspace)


# ---- presets


class Preset(Snapshot):
    """Saved settings for new runs."""

    name: str
    """Name of the preset."""

    settings: dict[str, Any]
    """Its settings."""

    problem: str
    """Why it cannot be read; "" if it can."""


def _preset(workspace: Workspace, name: str) -> Preset:
    try:
        return Preset(name=name, settings=recipes.load_preset(workspace, name), problem="")
    except ConfigError as error:
        return Preset(name=name, settings={}, problem=str(error))


@operation(path="/presets", shell=False)
def presets(workspace: Workspace) -> list[Preset]:
    """List the presets for new runs."""
    return [_preset(workspace, name) for name in recipes.preset_names(workspace)]


@operation(path="/presets/save", changes=True, shell=False)
def save_preset(
    workspace: Workspace,
    title: Annotated[str, Field(max_length=200, description="Its name. A preset of the same name is replaced.")],
    *,
    settings: Given,
) -> Preset:
    """Save settings as a preset, except those that refer to this workspace."""
    return _preset(workspace, recipes.save_preset(workspace, title, parse(TrainSettings, settings)))
