"""A fit in rows and sentences, for page, notebook and shell. Not covered: rendering them (ui, notebook, cli)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench import jobs
from workbench.fit.estimate import Fit
from workbench.jobs import State, Status, duration

SMALLEST_GB = 0.005  # parts below this are not worth a word
GPU_HELP = (
    "The GPU to estimate for: this machine's, or one with that much memory. A number of GB is accepted, too, as in 20."
)
MEASURE_HELP = "Some real steps, a preview and a save in a process of their own. Takes a minute or more, leaves no run."
MAKE_HELP = "Choose the fastest memory settings that fit the GPU."


@dataclass(frozen=True)
class PhaseRow:
    """One phase: what it needs in GB and as a share of the GPU, and of what it is made."""

    name: str
    gb: float
    share: float
    parts: Mapping[str, float]
    measured: bool
    fits: bool

    @property
    def made_of(self) -> str:
        return ", ".join(f"{name} {size(gb)}" for name, gb in self.parts.items())


def rows(fit: Fit) -> list[PhaseRow]:
    """The phases in order."""
    memory = fit.gpu.memory_gb
    return [
        PhaseRow(
            name=phase.name,
            gb=phase.gb,
            share=phase.gb / memory,
            parts={name: gb for name, gb in phase.parts.items() if gb >= SMALLEST_GB},
            measured=phase.measured is not None,
            fits=phase.gb <= fit.gpu.usable_gb,
        )
        for phase in fit.phases
    ]


def other_needs(fit: Fit) -> list[tuple[str, str]]:
    """What is needed beside the GPU: (name, words)."""
    found = []
    if fit.gpu.kind == "cuda":
        available = f" of {fit.host_total_gb:.0f} GB" if fit.host_total_gb else ""
        found.append(("CPU memory", f"{size(fit.host_gb)}{available}"))
    disk = ", ".join(f"{name} {size(gb)}" for name, gb in fit.disk.items() if gb >= SMALLEST_GB)
    found.append(("disk", f"{size(sum(fit.disk.values()))}" + (f": {disk}" if disk else "")))
    spent = ", ".join(f"{name} {duration(seconds)}" for name, seconds in fit.times.parts.items() if seconds >= 1)
    found.append(("time", f"{duration(fit.times.total)}: {spent}"))
    return found


def size(gb: float) -> str:
    """5.2 GB, 340 MB."""
    return f"{gb:.1f} GB" if gb >= 0.95 else f"{1024 * gb:.0f} MB"


def progress(status: Status | None) -> str:
    """What a measurement does, or how it ended, in words; "" when there is none."""
    if status is None:
        return ""
    if status.state.alive:
        doing = status.phase or "starting"
        return f"Measuring: {doing}" + (f", {status.step} of {status.total}" if status.total else "")
    if status.state is State.FINISHED:
        return "Measured."
    message = status.message or jobs.log_tail(status.folder, 1)
    return f"Not measured: {message}" if message else "Not measured."
