"""Regional compilation: torch.compile compiles a single function that computes every block of a kind.

Blocks share their code and their shapes, so a model of forty blocks is compiled once per input shape, not forty times.
Gradient checkpointing can be inside the compiled function, where the compiler plans what to keep, or outside.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from workbench.errors import ConfigError

# A block is compiled again for each shape, with and without gradients, and with the LoRA on and off.
MOST_COMPILATIONS = 64


def compile_blocks(
    blocks: Sequence[torch.nn.Module],
    recompute: Callable[..., Any] | None = None,
    backend: str = "inductor",
    shapes_differ: bool = False,
) -> None:
    """Run all blocks of a kind through one compiled function, until `interpret_blocks`.

    The blocks' modules and parameters do not change.

    Args:
        recompute: Checkpointing to apply inside the compiled function (see checkpointing.recomputing).
        shapes_differ: compile for any length once a second one is met, instead of once per shape.
    """
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, MOST_COMPILATIONS)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, MOST_COMPILATIONS * 8)
    for own in dict.fromkeys(type(block).forward for block in blocks):

        def run(block: torch.nn.Module, *arguments: Any, own: Callable[..., Any] = own, **named: Any) -> Any:
            if recompute is None or not torch.is_grad_enabled():
                return own(block, *arguments, **named)
            return recompute(lambda *again: own(block, *again, **named), *arguments)

        dynamic = None if shapes_differ else False
        compiled = torch.compile(run, fullgraph=True, dynamic=dynamic, backend=backend)
        for block in blocks:
            if type(block).forward is own:
                block.forward = partial(compiled, block)


def interpret_blocks(blocks: Sequence[torch.nn.Module]) -> None:
    """Run every block's own code again, uncompiled."""
    for block in blocks:
        block.__dict__.pop("forward", None)


def check_compiler() -> None:
    """Raise ConfigError if this machine has no C compiler."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang", "cl")):
        sentence = "compile is on, but this machine has no C compiler: install one (apt install gcc), or turn it off"
        raise ConfigError.of("compile", sentence)
