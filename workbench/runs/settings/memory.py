"""What makes a step cheaper in memory or time, and how many GPUs share it: none of it changes what is to be learned.

Not covered: how much memory the choices need (fit), how they are carried out (engine, trainer.model.memory_levels).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from workbench.settings import Settings, field

MEMORY = "Memory and speed"
Checkpointing = Literal["none", "keep attention", "full", "offloaded"]
BaseWeights = Literal["as stored", "int8", "fp8", "nf4"]
AttentionKernel = Literal["auto", "flash", "efficient", "cudnn", "math", "flash-attn", "stock"]
Parallel = Literal["ddp", "fsdp"]


class MemorySettings(Settings):
    """The part of TrainSettings about memory, speed and several GPUs."""

    gradient_checkpointing: Checkpointing = field("none", title="Gradient checkpointing", section=MEMORY, advanced=True)
    """What is computed twice so that the run needs less memory. none: nothing, fastest. keep attention: all but the
    attention, which costs most to repeat. full: every block. offloaded: every block, with what is still kept in the
    machine's own memory. Needed for the large models on most cards."""

    base_model_precision: BaseWeights = field("as stored", title="Frozen weights", section=MEMORY, advanced=True)
    """How the model's own weights, which a LoRA leaves alone, are kept: int8 and fp8 need half the memory of bf16, nf4
    a quarter. Each rounds the model a little. Not with full fine-tuning."""

    blocks_to_swap: int = field(
        0, title="Streamed blocks", section=MEMORY, low=0, high=1000, unit="blocks", advanced=True
    )
    """So many transformer blocks keep their frozen weights in the machine's own memory and come to the GPU just before
    they are used. Needs full or offloaded gradient checkpointing. 0 keeps all on the GPU."""

    compile: bool = field(False, title="Compile", section=MEMORY, advanced=True)
    """Translate each block for this GPU before the first step: some minutes once a shape, then faster steps and less
    memory. Needs a C compiler."""

    attention: AttentionKernel = field("auto", title="Attention", section=MEMORY, advanced=True)
    """Which kernel computes the attention. auto: the fastest that PyTorch has for the card. flash-attn: the package of
    that name. stock: diffusers' own code, for comparing."""

    oom_fallback: bool = field(True, title="Step down when memory runs out", section=MEMORY, advanced=True)
    """When the GPU's memory runs out, go on once from the last checkpoint with the next cheaper setting that does not
    change what is learned, instead of ending."""

    gpus: int = field(1, title="GPUs", section=MEMORY, low=0, high=1024, advanced=True)
    """GPUs that share the batches of a step; what is learned does not depend on it. Gradient accumulation must be a
    multiple of it. 0 takes all of this machine."""

    parallel: Parallel = field("ddp", title="How GPUs share", section=MEMORY, advanced=True)
    """ddp: each GPU holds the whole model. fsdp: each holds a part of it (FSDP2), which cuts what DeepSpeed's ZeRO
    stages 2 and 3 cut."""

    @field_validator("gradient_checkpointing", mode="before")
    @classmethod
    def _from_a_switch(cls, value: Any) -> Any:
        """It was a switch before it had levels: runs of that time are still read."""
        return {True: "full", False: "none"}[value] if isinstance(value, bool) else value
