"""Video model families: one file each. Facts are torch-free; methods load torch and diffusers when they run.

`families()` finds every module beside this one that has a `FAMILY`; `find_model` is how the rest of the project turns
a model's name, or a folder of weights, into a family and a model.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from workbench.errors import ConfigError
from workbench.families.base import Family, Model


@cache
def families() -> tuple[Family, ...]:
    """Every family, in the order of their file names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")
    return tuple(importlib.import_module(f"{__name__}.{name}").FAMILY for name in names)


def models() -> list[Model]:
    """All known models, the embedded ones first."""
    known = [model for family in families() for model in family.models]
    return sorted(known, key=lambda model: not model.embedded)


def default_model() -> str:
    """The id that forms start with: the embedded model, which needs no download."""
    return models()[0].id


def find_model(name: str) -> tuple[Family, Model]:
    """The family and model of a known id, or of a folder in diffusers' layout. Raises ConfigError."""
    for family in families():
        for model in family.models:
            if name == model.id:
                return family, model
    folder = Path(name).expanduser()
    if (folder / "model_index.json").is_file():
        for family in families():
            if (described := family.describe_folder(folder.resolve())) is not None:
                return family, described
        raise ConfigError(f"model is {name}, a pipeline of a family this version does not know: choose {_known()}")
    raise ConfigError(
        f"model is {name!r}, which is neither known nor a folder with a model_index.json: choose {_known()}"
    )


def _known() -> str:
    return ", ".join(model.id for model in models())
