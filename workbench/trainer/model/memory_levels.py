"""Puts what makes a step cheaper on a transformer, in the one order in which it fits together.

    host -> attention -> LoRA -> joined projections -> fewer bits -> device, or pieces -> swapped blocks -> recomputing
    -> compiling

Every level computes the same as the plain model: bit for bit on a processor where nothing is rounded, within rounding
elsewhere (benchmarks/memory_levels.py). Not covered: which levels a GPU needs (fit), how each works (memory).
"""

from __future__ import annotations

from typing import Any

import torch

from workbench.families.base import Family
from workbench.memory import compiling
from workbench.memory.checkpointing import recomputing
from workbench.runs.settings import TrainSettings


def begins_on_host(settings: TrainSettings, in_pieces: bool = False) -> bool:
    """Whether the model must not come to the device as it is stored: it may not fit there."""
    return in_pieces or settings.base_model_precision != "as stored" or settings.blocks_to_swap > 0


def put_on(
    family: Family, transformer: Any, settings: TrainSettings, device: torch.device, in_pieces: bool = False
) -> None:
    """Put the levels on a transformer whose LoRA is attached and whose attention is chosen; then it on the device.

    in_pieces: a piece of it for each process. Raises ConfigError.
    """
    blocks = family.blocks(transformer)
    if settings.method == "lora" and settings.attention != "stock":
        family.join_projections(transformer)
    if settings.base_model_precision != "as stored":
        from workbench.memory.low_bit import shrink

        for block in blocks:  # rounded where that is fast, one at a time, so that one at most is there unrounded
            shrink([block.to(device)], settings.base_model_precision)
            if settings.blocks_to_swap:
                block.to("cpu")
    if settings.blocks_to_swap:
        from workbench.memory.block_swap import BlockSwap

        BlockSwap(blocks, settings.blocks_to_swap, device)
    if in_pieces:
        from workbench.trainer.distributed.sharding import cut

        cut(blocks, transformer, device)
    else:
        transformer.to(device)
    level, random = settings.gradient_checkpointing, settings.lora_dropout > 0
    recompute = recomputing(level, random) if level != "none" else None
    # Within a translated block the compiler plans what is kept; what comes and goes must stay outside of it.
    inside = settings.compile and not settings.blocks_to_swap and level in ("keep attention", "full")
    if recompute is not None and not inside:
        transformer.enable_gradient_checkpointing(recompute)
    if settings.compile:
        compiling.check_compiler()
        compiling.compile_blocks(blocks, recompute if inside else None)


def take_off(family: Family, transformer: Any) -> None:
    """Back to blocks that run line by line: before layers are taken out of them or put in."""
    compiling.interpret_blocks(family.blocks(transformer))
