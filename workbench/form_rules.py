"""Which settings a form hides, and which change with another model: for page, notebook and shell. No torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from workbench.errors import ConfigError
from workbench.families import families, known_model
from workbench.families.base import Family
from workbench.families.model import Model
from workbench.families.settings import absent
from workbench.runs.settings import HAS_EFFECT, TrainSettings
from workbench.sampler.settings import HAS_EFFECT as SAMPLE_HAS_EFFECT
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, Spec, specs, value_text

# Setting -> whether it has an effect given the form's raw values. Settings not listed always have one.
NEEDED: Mapping[type[Settings], Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    TrainSettings: HAS_EFFECT,
    SampleSettings: SAMPLE_HAS_EFFECT,
}
# `runs.checks` refuses these in a sentence of its own.
REFUSED = ("start_from", "train_also", "preservation_weight")
SIZES = ("frames", "height", "width")
# What an empty setting stands for: an attribute of the model with another name, or a word.
FACTS = {"preview_steps": "steps", "preview_guidance": "guidance_scale"}
EMPTY = {"seed": "random"}


def without_effect(cls: type[Settings], values: Mapping[str, Any]) -> list[str]:
    """List the settings that have no effect given a form's raw values."""
    rules, named = NEEDED.get(cls, {}), known_model(str(values.get("model", "")))
    missing = absent(cls, named) if named else frozenset()
    return [
        one.name for one in specs(cls) if one.name in missing or (one.name in rules and not rules[one.name](values))
    ]


class _Read(dict[str, Any]):
    """A form's values, which remember the setting that was read last."""

    last = "model"

    def __getitem__(self, name: str) -> Any:
        self.last = self.last if name == "model" else name
        return super().__getitem__(name)


def needless(settings: Settings, given: Collection[str]) -> list[str]:
    """Explain, in one sentence each, which of the given settings have no effect and which setting decides that."""
    found, values, cls = [], settings.model_dump(), type(settings)
    rules = {name: rule for name, rule in NEEDED.get(cls, {}).items() if name in given and name not in REFUSED}
    for name in without_effect(cls, values):
        if name in rules and values[name] != cls.model_fields[name].default:
            read = _Read(values)
            # A rule reads no further than the setting that decides; other settings are not for this model.
            decides = "model" if rules[name](read) else read.last
            stands = value_text(values[decides]).removesuffix(".0")
            if values[decides] is None:
                stands = "empty" if str in get_args(cls.model_fields[decides].annotation) else "the model's own"
            found.append(f"{name} has no effect while {decides} is {stands}.")
    return found


@dataclass
class Adapted:
    """The settings that change with another model: name -> new value, and a sentence about each."""

    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def set(self, spec: Spec, before: Any, why: str) -> None:
        """Reset a setting to its default and note why, unless it already has that value."""
        after = list(spec.default) if spec.many else spec.default
        if (list(before) if spec.many and before is not None else before) == after:
            return
        now = "the model's own" if after in (None, "model") else value_text(after)
        self.values[spec.name] = after
        self.notes.append(f"{spec.title} was {value_text(before)}, is {now}: {why}.")


def adapted(cls: type[Settings], values: Mapping[str, Any]) -> Adapted:
    """Reset those of a form's raw values that its model does not have or cannot take."""
    found = Adapted()
    if (named := known_model(str(values.get("model", "")))) is None:
        return found
    family, model = named
    known = {spec.name: spec for spec in specs(cls)}
    for name in absent(cls, named) & values.keys():
        found.set(known[name], values[name], f"{model.title} has no such setting")
    if values.get("scheduler", "model") not in ("model", *family.schedulers):
        found.set(known["scheduler"], values["scheduler"], f"{model.title} has {' and '.join(family.schedulers)}")
    frames, height, width = (values.get(name) for name in SIZES)
    if isinstance(frames, int) and not takes(model, frames, model.height, model.width):
        found.set(known["frames"], frames, f"{model.title} needs {model.frames_in_words}")
    of_model = height if isinstance(height, int) else model.height, width if isinstance(width, int) else model.width
    if not takes(model, model.frames, *of_model):
        largest = f", at most {model.largest[1]}x{model.largest[0]}" if model.largest else ""
        rule = f"{model.width}x{model.height}" if model.fixed_size else f"multiples of {model.size_multiple}{largest}"
        for name in ("height", "width"):
            if values.get(name) is not None:
                found.set(known[name], values[name], f"{model.title} needs {rule}")
    return found


def takes(model: Model, frames: int, height: int, width: int) -> bool:
    """Return whether a model accepts videos of this shape."""
    try:
        model.check_shape(frames, height, width)
    except ConfigError:
        return False
    return True


def own_values(name: str) -> dict[str, str]:
    """Return what an empty model-specific setting stands for with this model, by setting."""
    named = known_model(name)
    return {setting: str(own) for setting, own in named.own_settings.items() if str(own)} if named else {}


def empty_values(cls: type[Settings], name: str) -> dict[str, str]:
    """Return what a form's empty number fields stand for with this model, by setting."""
    if (named := known_model(name)) is None:
        return {}
    own, found = own_values(name), dict[str, str]()
    for spec in specs(cls):
        if spec.optional and spec.kind in ("integer", "number"):
            fact = FACTS.get(spec.name, spec.name)
            text = own.get(fact) or (str(getattr(named.model, fact)) if hasattr(named.model, fact) else EMPTY.get(fact))
            if text:
                found[spec.name] = text
    return found


def summary(name: str) -> str:
    """Describe a model in one line; "" when it is not known."""
    named = known_model(name)
    return ", ".join(described(*named)) if named else ""


def described(family: Family, model: Model) -> list[str]:
    """List what people choose a model by: task, parameters, clip format, download and license."""
    parameters = family.facts(model).values
    count = f"{parameters / 1e9:.3g}B" if parameters >= 5e8 else f"{parameters / 1e6:.3g}M"
    clip = f"{model.frames} frames of {model.width}x{model.height} at {model.fps} fps"
    download = f"{model.download_gb:g} GB to download" if model.download_gb else "no download"
    return [model.task.replace("-", " "), f"{count} parameters", clip, download, model.license]


def owners(setting: str) -> str:
    """Name the families with a model that has this model-specific setting: "Wan and LTX-Video"."""
    titles = [one.title for one in families() if any(setting in one.own_settings(model) for model in one.models)]
    return " and ".join([", ".join(titles[:-1]), titles[-1]] if titles[1:] else titles) or "models of your own"
