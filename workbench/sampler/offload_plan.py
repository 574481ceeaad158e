"""Where a model's parts are kept while sampling: chosen from the free memory before weights are read.

    exact, fast   everything on the GPU where it fits; else model offload: text encoder, transformer and VAE are moved
                  to the GPU in turn; else block swap, too: the transformer's blocks are moved one by one
    low-memory    blocks in 8 bits, model offload, guidance's two predictions one after the other; block swap for what
                  still does not fit. Without CUDA nothing is moved, and both predictions are made at once where there
                  is room: one after the other takes a third longer

The choice changes no number but the rounding of `low-memory`. Constants are fitted to published figures (33 GB for 5B
at 49x480x720 with everything on the GPU). No torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.clips.frame_plan import Shape
from workbench.families.facts import ModelFacts
from workbench.jobs.devices import GIGABYTE, Device, load
from workbench.sampler.settings import Speed

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
WAVES = 16  # tensors of [tokens, width] that a block holds at once, its feed-forward included
DECODING = 7  # tensors of the decoder's widest channels at full size that it holds at once
CONTEXT_GB = 1.0  # what CUDA and its libraries take for themselves
ROOM = 4  # of a processor's free memory, the part that both predictions may take: weights and decoder need the rest
SLOTS = 2  # blocks on the device while others are moved


@dataclass(frozen=True)
class OffloadPlan:
    """What is kept where.

    weights:             "as stored" or "int8"
    model_offload:       one part on the device at a time
    blocks_to_swap:      blocks that are moved to the device when they are needed
    sequential_guidance: the two predictions of guidance one after the other
    tiled:               the VAE decodes in tiles from the start
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
    """The plan for samples of this shape on this device as it is now."""
    low_memory, now = speed == "low-memory", load(device)
    free_gb = now.memory_total_gb - (now.memory_used_gb or 0.0)
    if device.kind == "cuda":
        return plan_for(low_memory, free_gb, facts, shape)
    if not low_memory:  # Apple's GPU has the machine's memory: what is moved frees nothing
        return OffloadPlan()
    both = 2 * _waves(facts, shape, BYTES[(facts.auto or facts.stored) if device.is_gpu else "float32"])
    return OffloadPlan("int8", sequential_guidance=both > free_gb * GIGABYTE / ROOM, tiled=device.is_gpu)


def plan_for(low_memory: bool, free_gb: float, facts: ModelFacts, shape: Shape) -> OffloadPlan:
    """The plan for a GPU with this much free memory."""
    each = BYTES[facts.auto or facts.stored]
    of_vae = facts.vae_bytes(each)
    free = (free_gb - CONTEXT_GB) * GIGABYTE
    blocks = facts.all_block_values * (1 if low_memory else each)
    rest = (facts.values - facts.all_block_values) * each
    waves = _waves(facts, shape, each) * (1 if low_memory else 2)
    vae, text = facts.vae.values * of_vae, facts.text_encoder_values * each
    at_once = min(shape.frames, facts.vae.frames_at_once) * shape.height * shape.width
    decoding = DECODING * facts.vae.decoder_width * at_once * of_vae + 3 * shape.frames * shape.height * shape.width * 4
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
    """Bytes that one prediction holds at once. each: of a value"""
    return WAVES * facts.tokens(shape.frames, shape.height, shape.width) * facts.width * each
