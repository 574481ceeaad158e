"""Settings that depend on the model: the class of settings that name one, and settings that only some models have.

A setting declared with `field(..., own=True)` exists for models whose family lists it in `Family.own_settings`. For
others, forms omit it and `check_own` refuses it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Self

from pydantic import ValidationInfo, field_validator, model_validator

from workbench.errors import ConfigError
from workbench.families import find_model, split
from workbench.families.base import ResolvedModel
from workbench.settings import Settings, specs, value_text

REVISION, VARIANT = re.compile(r"\w[\w./-]{0,199}"), re.compile(r"\w[\w.-]{0,79}")


class NamesModel(Settings):
    """Settings with a field `model`.

    Fields `revision` and `variant` are folded into the model's name, so that one string identifies the weights in a
    run's config, a sample's record or a request to the worker.
    """

    @property
    def resolved(self) -> ResolvedModel:
        """The model and its family, looked up only on this disk. Raises ConfigError."""
        return find_model(self.__dict__["model"])

    @field_validator("revision", "variant", check_fields=False)
    @classmethod
    def _legal_part(cls, value: str, info: ValidationInfo) -> str:
        rules = {"revision": (REVISION, "a branch, a tag or a commit"), "variant": (VARIANT, "a word such as fp16")}
        pattern, rule = rules[str(info.field_name)]
        if value and (not pattern.fullmatch(value) or ".." in value):
            raise ValueError(f"{info.field_name} is {value[:80]!r}, must be {rule} of a model on the Hub, or empty")
        return value

    @model_validator(mode="after")
    def _fold(self) -> Self:
        values: Any = self.__dict__  # the settings are frozen, so bypass their setters
        parts = {part: values[part] for part in ("revision", "variant") if values.get(part)}
        if parts:
            named = split(values["model"])
            if named is None:
                name, value = next(iter(parts.items()))
                raise ValueError(
                    f"{name} is {value!r}, but model is {values['model'][:200]}, a folder: leave {name} empty"
                )
            values |= {"model": str(replace(named, **parts)), "revision": "", "variant": ""}
        return self


# ---- settings that only some models have


def absent(cls: type[Settings], resolved: ResolvedModel) -> frozenset[str]:
    """Return the settings of a class that a model does not have."""
    return frozenset(spec.name for spec in specs(cls) if spec.own) - set(resolved.own_settings)


def check_own(settings: Settings, resolved: ResolvedModel) -> None:
    """Refuse settings that the model does not have. Raises ConfigError."""
    missing, problems = absent(type(settings), resolved), {}
    for spec in specs(type(settings)):
        value = getattr(settings, spec.name)
        if spec.name in missing and value != spec.default:
            empty = "leave it empty" if spec.default in (None, "", ()) else f"set it to {spec.default}"
            title = resolved.model.title
            shown = value_text(value) if spec.many else value
            problems[spec.name] = f"{spec.name} is {shown}, a setting that {title} does not have: {empty}"
    if problems:
        raise ConfigError("; ".join(problems.values()), problems)
