"""Where a model's parts are kept while sampling, chosen by free memory before weights are loaded. No torch.

    exact, fast   everything on the GPU if it fits; else model offload: text encoder, transformer and VAE take turns on
                  the GPU; else block swap as well: the transformer's blocks are moved one by one
    low-memory    8-bit blocks, model offload, the two guidance predictions one after the other, and block swap for what
                  still does not fit. Without CUDA nothing is moved, and both predictions are computed at once if there
                  is room, because one after the other takes a third longer

Results do not depend on the plan, except for the rounding of `low-memory`. The constants are fitted to published
numbers (33 GB for 5B at 49x480x720 with everything on the GPU).
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.clips.frame_plan import Shape
from workbench.families.facts import ModelFacts
from workbench.jobs.devices import GIGABYTE, Device, load
from workbench.sampler.settings import Speed

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
WAVES = 16  # tensors of [tokens, width] that a block holds at once, its feed-forward included
DECODING = 7  # full-size tensors with the widest channels that the decoder holds at once
CONTEXT_GB = 1.0  # used by CUDA and its libraries
ROOM = 4  # both predictions may take 1/ROOM of a CPU's free memory; weights and decoder need the rest
SLOTS = 2  # blocks on the device while others are moved


@dataclass(frozen=True)
class OffloadPlan:
    """Where a model's parts are kept.

    weights:             "as stored" or "int8".
    model_offload:       one part on the device at a time.
    blocks_to_swap:      the number of blocks that are moved to the device when needed.
    sequential_guidance: the two guidance predictions are computed one after the other.
    tiled:               the VAE decodes in tiles from the start.
    """

    weights: str = "as stored"
    model_offload: bool = False
    blocks_to_swap: int = 0
    sequential_guidance: bool = False
    tiled: bool = False

    @property
    def summary(self) -> str:
        """The plan in words."""
        parts = ["model offload" if self.model_offload else "everything on the device"]
        if self.blocks_to_swap:
            parts.append(f"{self.blocks_to_swap} blocks swapped")
        if self.weights != "as stored":
            parts.append(f"blocks in {self.weights}")
        return ", ".join(parts)


def choose(speed: Speed, device: Device, facts: ModelFacts, shape: Shape) -> OffloadPlan:
    """Choose the plan for a device, by the memory that is free now."""
    low_memory, now = speed == "low-memory", load(device)
    free_gb = now.memory_total_gb - (now.memory_used_gb or 0.0)
    if device.kind == "cuda":
        return plan_for(low_memory, free_gb, facts, shape)
    if not low_memory:  # Apple's GPU shares the machine's memory, so moving parts frees nothing
        return OffloadPlan()
    both = 2 * _waves(facts, shape, BYTES[(facts.auto or facts.stored) if device.is_gpu else "float32"])
    return OffloadPlan("int8", sequential_guidance=both > free_gb * GIGABYTE / ROOM, tiled=device.is_gpu)


def plan_for(low_memory: bool, free_gb: float, facts: ModelFacts, shape: Shape) -> OffloadPlan:
    """Return the plan for a GPU with this much free memory."""
    each = BYTES[facts.auto or facts.stored]
    vae_each = facts.vae_bytes(each)
    free = (free_gb - CONTEXT_GB) * GIGABYTE
    blocks = facts.all_block_values * (1 if low_memory else each)
    rest = (facts.values - facts.all_block_values) * each
    waves = _waves(facts, shape, each) * (1 if low_memory else 2)
    vae, text = facts.vae.values * vae_each, facts.text_encoder_values * each
    at_once = min(shape.frames, facts.vae.frames_at_once) * shape.height * shape.width
    pixels = 3 * shape.frames * shape.height * shape.width
    decoding = DECODING * facts.vae.decoder_width * at_once * vae_each + 4 * pixels
    tiled = low_memory or vae + decoding > free
    if not low_memory and blocks + rest + vae + text + max(waves, decoding) <= free:
        return OffloadPlan()
    blocks_to_swap = 0
    if blocks + rest + waves > free:
        available = max(free - rest - waves, 0.0)
        kept = max(int(available // (blocks / facts.all_blocks)) - SLOTS, 0)
        blocks_to_swap = facts.all_blocks - min(kept, facts.all_blocks)
    return OffloadPlan(
        "int8" if low_memory else "as stored", True, blocks_to_swap, sequential_guidance=low_memory, tiled=tiled
    )


def _waves(facts: ModelFacts, shape: Shape, each: int) -> int:
    """Return the bytes that one prediction holds at once. each: bytes per value"""
    return WAVES * facts.tokens(shape.frames, shape.height, shape.width) * facts.width * each
