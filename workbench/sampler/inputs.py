"""The inputs of one sample: the settings with the model's own values filled in, checked without weights. No torch.

Not covered: whether a LoRA fits the model (loras, once the model is loaded); reading first frames (pictures).
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench import policy
from workbench.clips.frame_plan import Shape, shape_of
from workbench.errors import ConfigError
from workbench.families import settle
from workbench.families.denoising import Guidance
from workbench.families.model import Model
from workbench.families.settings import check_own
from workbench.sampler.input_files import check_picture, check_video
from workbench.sampler.loras import Lora, absolute, resolve
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace


@dataclass(frozen=True)
class SampleInputs:
    """Everything that makes a sample, nothing left open.

    negative_prompt: the model's own where none is set
    kept_frames: how many of the last frames of `settings.continue_from` the video begins with
    """

    settings: SampleSettings
    shape: Shape
    steps: int
    guidance: Guidance
    negative_prompt: str
    scheduler: str
    flow_shift: float | None
    temperature: float | None
    loras: tuple[Lora, ...]
    kept_frames: int = 0


def inputs_of(workspace: Workspace, settings: SampleSettings) -> SampleInputs:
    """Fill in the model's own values and check all that can be checked before the weights. Raises ConfigError."""
    family, model = resolved = settings.resolved
    check_own(settings, resolved)
    _check_pictures(model, settings)
    scheduler = model.scheduler if settings.scheduler == "model" else settings.scheduler
    if scheduler not in family.schedulers:
        rule = " or ".join(("model", *family.schedulers))
        sentence = f"scheduler is {scheduler}, {model.title} has {rule}: choose one of these"
        raise ConfigError(sentence, {"scheduler": sentence})
    shape = shape_of(settings, model)
    steps = settings.steps or model.steps
    if settings.video and int(steps * settings.strength) < 1:
        sentence = f"strength is {settings.strength:g}, which leaves none of {steps} steps: use {1 / steps:.2g} or more"
        raise ConfigError(sentence, {"strength": sentence})
    kept_frames = _kept_frames(model, settings, shape)
    temperature = settings.temperature
    if temperature is None and "temperature" in (own := family.own_settings(model)):
        temperature = own["temperature"].default
    scale = model.guidance_scale if settings.guidance_scale is None else settings.guidance_scale
    return SampleInputs(
        settings=settings,
        shape=shape,
        steps=steps,
        guidance=Guidance(
            scale,
            settings.dynamic_guidance,
            settings.guidance_from,
            settings.guidance_until,
            settings.guidance_rescale,
            settings.zero_star,
            model.guidance_scale_2 if settings.guidance_scale_2 is None else settings.guidance_scale_2,
            1000 * model.boundary,
        ),
        negative_prompt=model.negative_prompt if settings.negative_prompt is None else settings.negative_prompt,
        scheduler=scheduler,
        flow_shift=settings.flow_shift or model.flow_shift_at(shape.height, shape.width),
        temperature=temperature,
        loras=tuple(resolve(workspace, settings.loras)),
        kept_frames=kept_frames if settings.continue_from else 0,
    )


def _kept_frames(model: Model, settings: SampleSettings, shape: Shape) -> int:
    """How many frames a continued video takes over. Raises ConfigError."""
    if settings.continue_from:
        check_continues(model, shape)
    possible = [count for count in (1, *model.frame_rule.legal()) if count < shape.frames]
    if settings.kept_frames is None:
        # The shortest clip that the model generates shows a movement; one frame where that is all of the video.
        return possible[1] if len(possible) > 1 else 1
    if settings.kept_frames not in possible:
        nearest = min(possible, key=lambda count: abs(count - (settings.kept_frames or 0)))
        rule = f"1 or {model.frame_rule}, and fewer than the video's {shape.frames}"
        sentence = f"kept_frames is {settings.kept_frames}, must be {rule}: use {nearest}"
        raise ConfigError(sentence, {"kept_frames": sentence})
    return settings.kept_frames


def check_continues(model: Model, shape: Shape) -> None:
    """Refuse to continue a video by a picture. Raises ConfigError."""
    if shape.frames == 1:
        sentence = f"frames is 1, a picture, which continues no video: use {model.frame_rule.legal()[0]} or more"
        raise ConfigError(sentence, {"frames": sentence})


def _check_pictures(model: Model, settings: SampleSettings) -> None:
    """Refuse a first frame where none is taken, its lack where one is needed, and files that are none."""
    from_image = model.task == "image-to-video"
    if settings.image and not from_image:
        sentence = f"image is {settings.image}, {model.title} starts from the prompt alone: leave it empty"
        raise ConfigError(sentence, {"image": sentence})
    if from_image and not (settings.image or settings.continue_from):
        sentence = f"image is empty, {model.title} starts from a first frame: give a picture's file"
        raise ConfigError(sentence, {"image": sentence})
    if settings.image:
        check_picture(policy.resolve(settings.image, "image"))
    if settings.video and from_image:
        sentence = f"video is {settings.video}, {model.title} begins with a first frame: choose a text-to-video model"
        raise ConfigError(sentence, {"video": sentence})
    if settings.video and settings.continue_from:
        sentence = "video and continue_from are both given: change one video, or continue one"
        raise ConfigError(sentence, {"video": sentence})
    for name in ("video", "continue_from"):
        if file := getattr(settings, name):
            check_video(policy.resolve(file, name), name)


def portable(workspace: Workspace, settings: SampleSettings) -> SampleSettings:
    """The same settings for another process: relative paths made absolute, the model's revision its commit.

    Raises ConfigError, ModelUnavailable.
    """
    files = {key: getattr(settings, key) for key in ("image", "video", "continue_from")}
    found = {key: str(policy.resolve(file, key)) for key, file in files.items() if file}
    return settings.changed(
        model=settle(workspace.model(settings.model)), loras=list(absolute(workspace, settings.loras)), **found
    )
