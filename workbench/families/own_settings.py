"""Settings that only some models have: which ones, and what an empty one stands for.

A setting declared with `field(..., own=True)` is offered for the models whose family names it (`Family.own_settings`):
forms leave it out for the others, `check` refuses it. Not covered: settings that need a certain task or another
setting (the forms' own rules), bounds (settings).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.settings import Settings, specs

if TYPE_CHECKING:
    from workbench.families.base import Family
    from workbench.families.model import Model


@dataclass(frozen=True)
class OwnSetting:
    """One that a model has.

    default: what an empty one stands for, None where the setting's own default says it
    source:  where that value comes from, for people: "as the authors generate"
    """

    default: Any = None
    source: str = ""

    def __str__(self) -> str:
        """The value with its source, as forms show it in an empty field."""
        value = f"{self.default:g}" if isinstance(self.default, int | float) else str(self.default or "")
        return f"{value} ({self.source})" if self.source else value


def absent(cls: type[Settings], family: Family, model: Model) -> frozenset[str]:
    """The settings of a class that a model does not have."""
    return frozenset(spec.name for spec in specs(cls) if spec.own) - set(family.own_settings(model))


def present(cls: type[Settings], values: Mapping[str, Any], family: Family, model: Model) -> dict[str, Any]:
    """Raw values without those of settings that the model does not have, as a form hands them on."""
    missing = absent(cls, family, model)
    return {name: value for name, value in values.items() if name not in missing}


def check(settings: Settings, family: Family, model: Model) -> None:
    """Refuse a setting that the model does not have. Raises ConfigError."""
    missing, problems = absent(type(settings), family, model), {}
    for spec in specs(type(settings)):
        value = getattr(settings, spec.name)
        if spec.name in missing and value != spec.default:
            empty = "leave it empty" if spec.default in (None, "") else f"set it to {spec.default}"
            problems[spec.name] = f"{spec.name} is {value}, a setting that {model.title} does not have: {empty}"
    if problems:
        raise ConfigError("; ".join(problems.values()), problems)
