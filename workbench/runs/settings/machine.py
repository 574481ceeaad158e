"""What makes a step cheaper in memory or time, on which device and in which format. What is to be learned stays.

Not covered: how much memory the choices need (fit), how they are carried out (memory, trainer.model.memory_levels).
"""

from __future__ import annotations

from typing import Literal

from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

Checkpointing = Literal["none", "keep attention", "full", "offloaded"]
BasePrecision = Literal["as stored", "int8", "fp8", "nf4"]
AttentionKernel = Literal["auto", "flash", "efficient", "cudnn", "math", "flash-attn", "stock"]
Parallel = Literal["ddp", "fsdp"]


class MemorySettings(Settings):
    SECTION = "Memory and speed"

    gradient_checkpointing: Checkpointing = field("none", title="Gradient checkpointing", advanced=True)
    """What is computed twice so that the run needs less memory. none: nothing, fastest. keep attention: all but the
    attention, which costs most to repeat. full: every block. offloaded: every block, with what is still kept in CPU
    memory. Needed for the large models on most GPUs."""

    base_model_precision: BasePrecision = field("as stored", title="Base model precision", advanced=True)
    """How the base model's weights, which a LoRA leaves unchanged, are stored: int8 and fp8 need half the memory of
    bf16, nf4 a quarter. Each rounds the model a little. Not with full fine-tuning."""

    blocks_to_swap: int = field(0, title="Blocks to swap", low=0, high=1000, unit="blocks", advanced=True)
    """Block swap: so many transformer blocks keep their frozen weights in CPU memory and are copied to the GPU just
    before they are used. Needs full or offloaded gradient checkpointing. 0 keeps all on the GPU."""

    compile: bool = field(False, title="Compile", advanced=True)
    """Translate each block for this GPU before the first step: some minutes once a shape, then faster steps and less
    memory. Needs a C compiler."""

    attention: AttentionKernel = field("auto", title="Attention", advanced=True)
    """Which kernel computes the attention. auto: the fastest that PyTorch has for the GPU. flash-attn: the package of
    that name. stock: diffusers' own code, for comparing."""

    oom_fallback: bool = field(True, title="OOM fallback", advanced=True)
    """When the GPU's memory runs out, go on once from the last checkpoint with the next cheaper setting that does not
    change what is learned, instead of ending."""

    gpus: int = field(1, title="GPUs", low=0, high=1024, advanced=True)
    """GPUs that share the batches of a step; what is learned does not depend on it. Gradient accumulation must be a
    multiple of it. 0 takes all of this machine."""

    parallel: Parallel = field("ddp", title="How GPUs share", advanced=True)
    """ddp: each GPU holds the whole model. fsdp: each holds a part of it (FSDP2), which cuts what DeepSpeed's ZeRO
    stages 2 and 3 cut."""

    nccl_timeout: float = field(60.0, title="NCCL timeout", low=1.0, high=10_000.0, unit="minutes", advanced=True)
    """How long one NVIDIA GPU of several waits for the others before the run ends with an error. Raise it where a
    single transfer takes longer, such as over a slow network."""


class MachineSettings(Settings):
    SECTION = "Machine"

    device: DeviceChoice = field("auto", title="Device", source="devices", advanced=True)
    """auto takes the first GPU that torch can use, else the processor. cuda: NVIDIA, and AMD by ROCm. mps: Apple.
    cuda:1: that GPU of several, counted from 0 as torch does."""

    precision: Literal["auto", "bf16", "fp16", "fp32"] = field("auto", title="Precision", advanced=True)
    """Number format of the computation. auto: on a GPU what the model's authors compute in, which for Wan and LTX-Video
    is bf16 even where the files hold fp32; fp32 on a processor. Wan's VAE always computes in fp32."""

    exact: bool = field(False, title="Exact on the GPU", advanced=True)
    """Use only computations that give the same bits every time, so that a resumed run equals an uninterrupted one on a
    GPU, too. Slower. A processor is always exact."""

    tf32: bool = field(True, title="TF32", advanced=True)
    """On an NVIDIA GPU: multiply fp32 matrices with shortened numbers, much faster."""

    loader_threads: int = field(0, title="Loader threads", low=0, high=16, advanced=True)
    """Threads that read the next batches while a step is computed, for a workspace on a slow disk. 0 reads in between.
    No effect on results."""
