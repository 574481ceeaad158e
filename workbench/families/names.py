"""How a model is named: NAME[:VARIANT][@REVISION], where NAME is a known id or OWNER/NAME of the Hub.

`fold` makes the settings `revision` and `variant` part of the setting `model`, so that one text says which weights are
meant wherever it goes: a run's config, a sample's record, a request to the worker. Not covered: which models there
are (families), files (a family's own).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import ValidationInfo

from workbench.settings import Settings

NAME = re.compile(r"(?P<base>[\w.-]+(?:/[\w.-]+)?)(?::(?P<variant>[\w.-]+))?(?:@(?P<revision>\w[\w./-]*))?")
REVISION, VARIANT = re.compile(r"\w[\w./-]{0,199}"), re.compile(r"\w[\w.-]{0,79}")
COMMIT = re.compile(r"[0-9a-f]{40}")
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class ModelName:
    """A name taken apart. base: a known id, or OWNER/NAME; variant, revision: "" where none is named"""

    base: str
    variant: str = ""
    revision: str = ""

    def __str__(self) -> str:
        variant, revision = f":{self.variant}" if self.variant else "", f"@{self.revision}" if self.revision else ""
        return f"{self.base}{variant}{revision}"

    @property
    def on_hub(self) -> bool:
        """Whether it can be a repository of the Hub."""
        return "/" in self.base and ".." not in self.base

    @property
    def settled(self) -> bool:
        """Whether it names a commit, whose files never change."""
        return COMMIT.fullmatch(self.revision) is not None


def split(name: str) -> ModelName | None:
    """The parts of a name; None for what is none, as most paths."""
    found = NAME.fullmatch(name)
    if found is None or ".." in (found["revision"] or ""):
        return None
    return ModelName(found["base"], found["variant"] or "", found["revision"] or "")


def legal_part(value: str, info: ValidationInfo) -> str:
    """For `field_validator("revision", "variant")`. Raises ValueError."""
    rules = {"revision": (REVISION, "a branch, a tag or a commit"), "variant": (VARIANT, "a word such as fp16")}
    pattern, rule = rules[str(info.field_name)]
    if value and (not pattern.fullmatch(value) or ".." in value):
        raise ValueError(f"{info.field_name} is {value[:80]!r}, must be {rule} of a model on the Hub, or empty")
    return value


def fold(settings: S) -> S:
    """For `model_validator(mode="after")`: `revision` and `variant` go into the model's name. Raises ValueError."""
    values: Any = settings.__dict__  # the settings are frozen for everyone else
    parts = {part: values[part] for part in ("revision", "variant") if values[part]}
    if parts:
        named = split(values["model"])
        if named is None:
            name, value = next(iter(parts.items()))
            raise ValueError(f"{name} is {value!r}, but model is {values['model'][:200]}, a folder: leave {name} empty")
        values |= {"model": str(replace(named, **parts)), "revision": "", "variant": ""}
    return settings
