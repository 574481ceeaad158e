"""Captioners, one per file. `captioners()` finds every module in this package that defines `CAPTIONER`.

`base` defines the interface. Importing a captioner loads neither its model nor torch.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from workbench.captioners.base import Captioner
from workbench.errors import ConfigError


@cache
def captioners() -> dict[str, type[Captioner]]:
    """Return every captioner by id, ordered by file name."""
    found: dict[str, type[Captioner]] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        kind = getattr(importlib.import_module(f"{__name__}.{module.name}"), "CAPTIONER", None)
        if kind is not None:
            found[kind.id] = kind
    return found


def find_captioner(name: str) -> type[Captioner]:
    """Return the captioner with this id. Raises ConfigError if there is none."""
    if name not in captioners():
        raise ConfigError(f"captioner is {name!r}, which does not exist: choose {' or '.join(captioners())}")
    return captioners()[name]
