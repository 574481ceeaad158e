"""When a sample's setting has an effect, so that forms can hide it elsewhere.

Not covered: settings that a model does not have (families.settings), what is refused (sampler.inputs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.families import known_model


def chosen_model(values: Mapping[str, Any]) -> Any:
    """The chosen model; None for one that is not known."""
    found = known_model(str(values["model"]))
    return found and found.model


def _guided(values: Mapping[str, Any]) -> bool:
    """Whether the video is pushed away from the negative prompt."""
    scale, model = values["guidance_scale"], chosen_model(values)
    scale = getattr(model, "guidance_scale", None) if scale is None else scale
    return not isinstance(scale, int | float) or scale > 1


def _image(values: Mapping[str, Any]) -> bool:
    """Whether the model begins with a picture; true for one that is not known."""
    model = chosen_model(values)
    return model is None or model.task != "text-to-video"


def _schedulers(values: Mapping[str, Any]) -> bool:
    """Whether there is a scheduler to choose."""
    found = known_model(str(values["model"]))
    return found is None or len(found.family.schedulers) > 1


# Those that are not named here always have an effect.
NEEDED: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    **dict.fromkeys(("image", "image_scale"), _image),
    "scheduler": _schedulers,
    **dict.fromkeys(
        ("negative_prompt", "dynamic_guidance", "guidance_from", "guidance_until", "guidance_rescale", "zero_star"),
        _guided,
    ),
    **dict.fromkeys(("height", "width"), lambda values: not getattr(chosen_model(values), "fixed_size", False)),
    "video": lambda values: getattr(chosen_model(values), "task", "") != "image-to-video",
    "strength": lambda values: bool(values["video"]),
    "force_loras": lambda values: bool(values["loras"]),
}
