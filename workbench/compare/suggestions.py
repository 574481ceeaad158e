"""Before a grid is created: defaults from a run (its previews' prompts, sizes and seed; checkpoints), and the cost."""

from __future__ import annotations

import contextlib
from typing import Any

from workbench.compare.axes import AXES, lora_file, plan_grid, work
from workbench.compare.settings import BASE, EXPORT, GridSettings
from workbench.display.quantities import duration
from workbench.errors import ConfigError
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.data import read_lock
from workbench.runs.run import Run
from workbench.sampler.samples import Samples
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, read_object

LAST = 3  # checkpoints in a suggested grid
HISTORY = 24  # newest samples, for estimating the pace
SCALES = ("0.5", "0.75", "1")
SHAPE = ("frames", "height", "width", "steps", "guidance_scale", "dynamic_guidance", "seed")


def saved(run: Run) -> list[str]:
    """List what can be compared in a run: base, the steps whose checkpoints hold a LoRA, and final once exported."""
    steps = [str(step) for step in run.checkpoints if (folder_of(run.folder, step) / LORA).exists()]
    return [BASE, *steps, *([EXPORT] if run.lora else [])]


def suggested(workspace: Workspace, name: str) -> GridSettings:
    """Suggest a grid of a run: its prompts, with the base model and the last checkpoints at three scales.

    Raises ConfigError.
    """
    run = Run.open(workspace, name)
    return GridSettings(run=name, prompts=prompts(run), checkpoints=_last(run), scales=SCALES)


def completed(workspace: Workspace, settings: GridSettings) -> GridSettings:
    """Fill in empty settings from the run, so that the grid stays the same as the run continues.

    Raises ConfigError if the run does not exist, has no LoRA, or lacks a checkpoint.
    """
    if not settings.run:
        if settings.checkpoints not in ((), (BASE,)):
            raise ConfigError.of("run", "checkpoints are set, but run is empty: choose the run that they belong to")
        return settings
    run = Run.open(workspace, settings.run)
    if run.settings.method == "full":
        raise ConfigError(
            f"{run.name} trained the whole model, but a grid compares LoRAs: extract a LoRA from it first"
        )
    filled: dict[str, Any] = {"prompts": list(settings.prompts or prompts(run)), "title": settings.title or run.name}
    if not settings.images:
        filled["images"] = _images(run, filled["prompts"])
    if not any(getattr(settings, axis) for axis in AXES):
        filled["checkpoints"] = list(_last(run))
    elif not settings.checkpoints and not settings.loras:
        filled["checkpoints"] = [saved(run)[-1]]
    done = settings.changed(**filled)
    known = saved(run)
    if len(known) == 1:
        raise ConfigError(f"{run.name} has no checkpoint yet: wait for the first, or press Save now")
    for checkpoint in done.checkpoints:
        if checkpoint != BASE and not lora_file(workspace, run.name, checkpoint).exists():
            raise ConfigError.of(
                "checkpoints",
                f"checkpoints has {checkpoint}, but {run.name} has {', '.join(known)}: choose from these",
            )
    return done


def newest(workspace: Workspace) -> str:
    """Return the name of the newest run that has something to compare; "" if there is none."""
    for run in Run.all(workspace):
        with contextlib.suppress(ConfigError):  # a run of a later version, or a missing model folder
            if len(saved(run)) > 1:
                return run.name
    return ""


def base_of(workspace: Workspace, settings: GridSettings) -> SampleSettings:
    """Return the settings that the grid's samples start from: those of the run's previews. Raises ConfigError."""
    if not settings.run:
        return SampleSettings()
    run = Run.open(workspace, settings.run)
    train, record = run.settings, dict[str, Any]()
    for preview in run.previews[:1]:
        record = read_object(preview.video.with_suffix(".json"))
    values: dict[str, Any] = {
        "frames": train.frames,
        "height": train.height,
        "width": train.width,
        "steps": train.preview_steps,
        "guidance_scale": train.preview_guidance,
        "dynamic_guidance": train.preview_dynamic_guidance,
        "flow_shift": train.preview_flow_shift,
        "seed": train.preview_seed,
    }
    values |= {name: record[name] for name in SHAPE if name in record}
    if values["frames"] == 1:  # previews of a run on images are images, but samples are videos
        values["frames"] = train.frames
    return SampleSettings(
        model=train.model, device=train.device, fps=train.fps, image_scale=train.image_latent_scale
    ).changed(**values)


def of_sample(settings: SampleSettings, guidance: float) -> tuple[GridSettings, SampleSettings]:
    """Suggest a grid around a sample, and its base: its LoRAs at other scales or, without LoRAs, other guidance scales.

    Args:
        guidance: The guidance scale of the sample.
    """
    rows: dict[str, Any] = {
        "title": settings.prompt[:40],
        "prompts": [settings.prompt],
        "seeds": [str(settings.seed or 0)],
    }
    if settings.image:
        rows["images"] = [settings.image]
    columns: dict[str, Any]
    if settings.loras:
        columns = {"loras": [" + ".join(settings.loras)], "scales": ["0", "0.5", "0.75", "1", "1.25"]}
    else:
        columns = {"guidance": [f"{max(guidance + more, 1):g}" for more in (-2, 0, 2)]}
    return GridSettings().changed(**rows, **columns), settings.changed(loras=[])


def cost(workspace: Workspace, settings: GridSettings, base: SampleSettings) -> str:
    """Say how many videos a grid has, and how long they take at the pace of similar samples. Raises ConfigError.

    Args:
        base: The settings that the samples start from (`base_of`).
    """
    if not settings.run and not settings.prompts:
        return "Choose a run, or write prompts and choose LoRAs."
    plan = plan_grid(workspace, completed(workspace, settings), base)
    rows, columns = len(plan.rows), len(plan.columns)
    text = f"{rows * columns} videos: {rows} {'row' if rows == 1 else 'rows'} by {columns} columns"
    seconds = pace(workspace, base)
    if seconds is not None:
        total = sum(work(sample, base.resolved.model.steps) for sample in plan.samples.values())
        text += f", about {duration(total * seconds)} at the pace of earlier samples"
    return f"{text}. Videos that already exist are not generated again."


def pace(workspace: Workspace, base: SampleSettings) -> float | None:
    """Return the seconds per model pass in the newest similar sample; None if there is none."""
    model = base.resolved.model
    for sample in Samples(workspace).history(HISTORY):
        record = sample.record
        alike = sample.settings.model in (base.model, model.id) and sample.settings.speed == base.speed
        if alike and record.get("frames") in (base.frames, None) and record.get("seconds"):
            return float(record["seconds"]) / work(sample.settings, model.steps)
    return None


def prompts(run: Run) -> tuple[str, ...]:
    """Return the prompts of a run's previews, or its first captions if it has no previews yet."""
    settings = run.settings
    if settings.preview_prompts:
        return settings.preview_prompts
    of_previews = tuple(dict.fromkeys(preview.prompt for preview in run.previews if preview.prompt))
    if of_previews:
        return of_previews
    captions = [clip["caption"] for clip in read_lock(run.folder) if clip["role"] == "train"]
    return tuple(dict.fromkeys(filter(None, captions)))[:2]


def _last(run: Run) -> tuple[str, ...]:
    """Return the base model and the last checkpoints, or the exported LoRA if no checkpoint is left."""
    steps = [name for name in saved(run) if name.isdecimal()][-LAST:]
    return (BASE, *(steps or saved(run)[1:]))


def _images(run: Run, wanted: list[str]) -> list[str]:
    """Return the first frames of an image-to-video run's previews; [] for other models."""
    if run.settings.resolved.model.task != "image-to-video":
        return []
    found: dict[str, str] = {}
    for preview in run.previews:
        picture = run.folder / "previews" / f"picture-{preview.index}.png"
        if picture.exists():
            found.setdefault(preview.prompt, str(picture))
    pictures = list(found.values()) or list(run.settings.preview_images)
    return [found.get(prompt, pictures[0]) for prompt in wanted] if pictures else []
