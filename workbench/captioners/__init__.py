"""Captioners: one file each. `captioners()` finds every module beside this one that has a `CAPTIONER`.

Importing them loads no model and no torch; `base` holds the contract.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from workbench.captioners.base import Captioner
from workbench.errors import ConfigError


@cache
def captioners() -> dict[str, type[Captioner]]:
    """Every captioner by its id, in the order of their file names."""
    found: dict[str, type[Captioner]] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        kind = getattr(importlib.import_module(f"{__name__}.{module.name}"), "CAPTIONER", None)
        if kind is not None:
            found[kind.id] = kind
    return found


def find_captioner(name: str) -> type[Captioner]:
    """The captioner of that id. Raises ConfigError."""
    if name not in captioners():
        raise ConfigError(f"captioner is {name!r}, which is not known: choose {' or '.join(captioners())}")
    return captioners()[name]
