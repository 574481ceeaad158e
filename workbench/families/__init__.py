"""Video model families: one module or package each. Facts are torch-free; methods load torch and diffusers when run.

`families()` finds every module and package beside this one, each of which has a `FAMILY`; `find_model` is how the rest
of the project turns a model's name, or a folder of weights, into a family and a model; `convert` writes weights in
another layout.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from workbench.errors import ConfigError
from workbench.families.base import Family, Model, Report

SHARED = ("base", "facts", "guidance", "lora_files")  # modules beside the families


@cache
def families() -> tuple[Family, ...]:
    """Every family, in the order of their modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in SHARED)
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


def convert(source: str, target: str, like: str | None = None, report: Report = print) -> str:
    """Write a model or a LoRA in its authors' own layout from diffusers', or back; which way is read from the source.

    source: a file, a folder, or the name of a known model;  target: a new file or folder
    like:   a model of the same architecture; needed where the source is none itself

    Returns a sentence that says what was written. Raises ConfigError, ModelUnavailable, CannotWrite.
    """
    place = Path(source).expanduser().resolve()
    itself = source in {model.id for model in models()} or (place / "model_index.json").is_file()
    if like is None and not itself:
        raise ConfigError(f"like is empty, and {source} does not say which model it is of: choose {_known()}")
    family, model = find_model(like or source)
    folder = family.fetch(model, report)
    if itself:
        found, own = find_model(source)
        place = found.fetch(own, report)
    return family.convert(place, Path(target).expanduser().absolute(), folder, report)


def _known() -> str:
    return ", ".join(model.id for model in models())
