"""The device, the numbers' format, and how exactly it computes."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

MACHINE = "Machine"


class MachineSettings(Settings):
    """The part of TrainSettings about the machine."""

    device: Literal["auto", "cuda", "cpu"] = field("auto", title="Device", section=MACHINE, advanced=True)
    """auto takes the NVIDIA GPU if there is one, else the processor."""

    precision: Literal["auto", "bf16", "fp16", "fp32"] = field(
        "auto", title="Precision", section=MACHINE, advanced=True
    )
    """Number format of the computation. auto: the model's own on a GPU, fp32 on a processor."""

    exact: bool = field(False, title="Exact on the GPU", section=MACHINE, advanced=True)
    """Use only computations that give the same bits every time, so that a resumed run equals an uninterrupted one on a
    GPU, too. Slower. A processor is always exact."""

    tf32: bool = field(True, title="TF32", section=MACHINE, advanced=True)
    """On a GPU: multiply fp32 matrices with shortened numbers, much faster."""

    loader_threads: int = field(0, title="Loader threads", section=MACHINE, low=0, high=16, advanced=True)
    """Threads that read the next batches while a step is computed, for a workspace on a slow disk. 0 reads in between.
    No effect on results."""
