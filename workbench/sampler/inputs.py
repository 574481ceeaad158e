"""What a request comes to: the settings with the model's own values filled in, checked without weights. No torch.

Not covered: whether a LoRA fits the model (loras, once the model is loaded).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.base import Family, Model
from workbench.frame_plan import Shape, shape_for
from workbench.sampler.loras import Lora, absolute, resolve
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace


@dataclass(frozen=True)
class Inputs:
    """Everything that makes a sample, nothing left open."""

    settings: SampleSettings
    family: Family
    model: Model
    shape: Shape
    steps: int
    guidance_scale: float
    scheduler: str
    loras: tuple[Lora, ...]


def inputs_of(workspace: Workspace, settings: SampleSettings) -> Inputs:
    """Fill in the model's own values and check all that can be checked before the weights. Raises ConfigError."""
    family, model = find_model(settings.model)
    if model.task != "text-to-video":
        sentence = f"model is {model.id}, which needs a first image: choose a text-to-video model"
        raise ConfigError(sentence, {"model": sentence})
    scheduler = model.scheduler if settings.scheduler == "model" else settings.scheduler
    if scheduler not in family.schedulers:
        rule = " or ".join(("model", *family.schedulers))
        sentence = f"scheduler is {scheduler}, {model.title} has {rule}: choose one of these"
        raise ConfigError(sentence, {"scheduler": sentence})
    return Inputs(
        settings=settings,
        family=family,
        model=model,
        shape=shape_for(model, settings.frames, settings.height, settings.width),
        steps=settings.steps or model.steps,
        guidance_scale=model.guidance_scale if settings.guidance_scale is None else settings.guidance_scale,
        scheduler=scheduler,
        loras=tuple(resolve(workspace, settings.loras)),
    )


def portable(settings: SampleSettings) -> SampleSettings:
    """The same settings for a process with another working folder: relative paths made absolute. Raises ConfigError."""
    _, model = find_model(settings.model)
    name = model.id if model.id == settings.model else str(Path(settings.model).expanduser().resolve())
    return settings.changed(model=name, loras=list(absolute(settings.loras)))
