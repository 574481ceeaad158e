"""Loading the libraries that models need, in four fifths of the time. Not covered: torch itself, and what is done with
them (a family's methods)."""

from __future__ import annotations

import functools
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any
from unittest import mock

# peft and diffusers import it wherever it is installed, and it imports torch's compiler: a second of every process.
LEFT_OUT = "bitsandbytes"


@functools.cache
def load_libraries() -> None:
    """Import peft and diffusers as if bitsandbytes were not installed: nothing here uses it through them.

    A family calls it before it loads a part of a model. What uses bitsandbytes itself, the optimizer adamw-8bit,
    imports it afterwards.
    """
    find = PathFinder.find_spec

    def find_others(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return None if name == LEFT_OUT else find(name, path)

    with mock.patch.object(PathFinder, "find_spec", find_others):
        import diffusers.models.modeling_utils  # noqa: F401
        from peft.import_utils import is_bnb_4bit_available, is_bnb_available

        # peft asks when a LoRA is attached, and keeps the first answer.
        is_bnb_available()
        is_bnb_4bit_available()
