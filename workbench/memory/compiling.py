"""Regional compilation: one function computes every block of a kind, and torch.compile translates that one.

All blocks share their code and their shapes, so a model of forty blocks is translated once for each shape of its
inputs, not forty times. Recomputing (checkpointing) may lie inside the translated function, where the compiler plans
what to keep, or outside of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from workbench.errors import ConfigError

# A block is translated again for each shape, with and without gradients, and with the LoRA on and off.
TRANSLATIONS = 64


def compile_blocks(
    blocks: Sequence[torch.nn.Module], recompute: Callable[..., Any] | None = None, backend: str = "inductor"
) -> None:
    """Let all blocks of a kind run as one translated function. recompute: see checkpointing; here it lies inside.

    The blocks' own modules and parameters stay as they are. `interpret_blocks` undoes it.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, TRANSLATIONS)
    torch._dynamo.config.accumulated_recompile_limit = max(
        torch._dynamo.config.accumulated_recompile_limit, TRANSLATIONS * 8
    )
    for own in dict.fromkeys(type(block).forward for block in blocks):

        def run(block: torch.nn.Module, *arguments: Any, own: Callable[..., Any] = own, **named: Any) -> Any:
            if recompute is None or not torch.is_grad_enabled():
                return own(block, *arguments, **named)
            return recompute(lambda *again: own(block, *again, **named), *arguments)

        translated = torch.compile(run, fullgraph=True, dynamic=False, backend=backend)
        for block in blocks:
            if type(block).forward is own:
                block.forward = partial(translated, block)


def interpret_blocks(blocks: Sequence[torch.nn.Module]) -> None:
    """Let every block run its own code again, line by line."""
    for block in blocks:
        block.__dict__.pop("forward", None)


def check_compiler() -> None:
    """Refuse where nothing could be translated. Raises ConfigError."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang", "cl")):
        sentence = "compile is on, but this machine has no C compiler: install one (apt install gcc), or switch it off"
        raise ConfigError(sentence, {"compile": sentence})
