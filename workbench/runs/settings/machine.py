"""The device, the numbers' format, and how exactly it computes."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

MACHINE = "Machine"


class MachineSettings(Settings):
    """The part of TrainSettings about the machine."""

    device: Literal["auto", "cuda", "cpu"] = field(
        "auto", title="Device", section=MACHINE, advanced=True,
        help="auto takes the NVIDIA GPU if there is one, else the processor.",
    )  # fmt: skip
    precision: Literal["auto", "bf16", "fp16", "fp32"] = field(
        "auto", title="Precision", section=MACHINE, advanced=True,
        help="Number format of the computation. auto: the model's own on a GPU, fp32 on a processor.",
    )  # fmt: skip
    exact: bool = field(
        False, title="Exact on the GPU", section=MACHINE, advanced=True,
        help="Use only computations that give the same bits every time, so that a resumed run equals an "
        "uninterrupted one on a GPU, too. Slower. A processor is always exact.",
    )  # fmt: skip
    tf32: bool = field(
        True, title="TF32", section=MACHINE, advanced=True,
        help="On a GPU: multiply fp32 matrices with shortened numbers, much faster.",
    )  # fmt: skip
    loader_threads: int = field(
        0, title="Loader threads", section=MACHINE, low=0, high=16, advanced=True,
        help="Threads that read the next batches while a step is computed, for a workspace on a slow disk. 0 reads in "
        "between. No effect on results.",
    )  # fmt: skip
