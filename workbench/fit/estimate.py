"""The fit of a run: what it needs beside what there is, in one object for page, notebook and shell. No torch.

Cheap enough to be called at every change of a form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import psutil

from workbench.clips.records import METADATA
from workbench.display.quantities import duration
from workbench.errors import ConfigError
from workbench.families import known_model, settled_model
from workbench.families.base import ResolvedModel
from workbench.families.facts import ModelFacts
from workbench.families.model import Model
from workbench.fit import measurement, memory, timing
from workbench.fit.gpus import HERE, GpuModel, gpu_of
from workbench.fit.measurement import Measurement
from workbench.fit.memory import Phase, gb_text, parts_text
from workbench.fit.timing import RunTimes
from workbench.jobs.devices import GIGABYTE, pick_device
from workbench.runs.data import datasets_of
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, is_slug

GPU_HELP = (
    "The GPU to estimate for: this machine's, or one with that much memory. A number of GB is accepted, too, as in 20."
)
TIGHT = 0.93  # of what is usable: an estimate may be off by that much
FAR_GB = 1000.0  # more than any GPU has: from here on a figure says nothing


@dataclass(frozen=True)
class Fit:
    """What a run needs and whether the GPU has it.

    phases: memory of the GPU, in order;  host_gb, disk: GiB of the machine's memory and of its disk, by part
    host_total_gb: GiB of CPU memory, None where the GPU is not in this machine
    measured: where a trial run gave the figures in place of the estimate
    computes_in: the precision, in words
    """

    gpu: GpuModel
    phases: tuple[Phase, ...]
    host_gb: float
    host_total_gb: float | None
    disk: Mapping[str, float]
    times: RunTimes
    measured: Measurement | None = None
    computes_in: str = ""

    @property
    def peak(self) -> Phase:
        """The phase that needs most."""
        return max(self.phases, key=lambda phase: phase.gb)

    @property
    def fits(self) -> bool:
        out = self.measured is not None and bool(self.measured.ran_out)
        return not out and self.phase_fits(self.peak) and self.host_fits

    @property
    def host_fits(self) -> bool:
        return self.host_total_gb is None or self.gpu.kind == "cpu" or self.host_gb <= self.host_total_gb

    @property
    def tight(self) -> bool:
        """Whether it fits by so little that an estimate cannot promise it."""
        return self.fits and self.measured is None and self.peak.gb > TIGHT * self.gpu.usable_gb

    @property
    def far(self) -> bool:
        """Whether it needs more than any GPU has."""
        return self.peak.gb > max(FAR_GB, self.gpu.memory_gb)

    @property
    def need(self) -> str:
        """How much memory of how much."""
        if self.far:
            return f"far more memory than the {self.gpu.memory_gb:.0f} GB there are"
        return f"about {self.peak.gb:.1f} of {self.gpu.memory_gb:.0f} GB"

    @property
    def sentence(self) -> str:
        """One line: memory, time, and how it is known."""
        words = [f"Needs {self.need}"]
        if self.measured is not None and self.measured.ran_out:
            words = [f"Ran out of the {self.gpu.memory_gb:.0f} GB while {self.measured.ran_out}"]
        if not self.far:
            words += [f"{pace(self.times.step)} a step", f"{duration(self.times.total)} in all"]
        how = "measured" if self.measured is not None else "estimated"
        return f"{', '.join(words)}; {how}."

    @property
    def advice(self) -> str:
        """What to think of it, "" where all is well."""
        if self.far:
            return "It does not fit: lower batch_size, frames, height or width first."
        if not self.host_fits:
            return f"CPU memory is too small: {gb_text(self.host_gb)} of {self.host_total_gb:.0f} GB are needed."
        if not self.fits:
            return f"It does not fit: most is needed in {self.peak.name}."
        return "That is close: measure it to be sure." if self.tight else ""

    @property
    def summary(self) -> str:
        """The fit in one line: `sentence` and `advice`."""
        return f"{self.sentence} {self.advice}".rstrip()

    def share(self, phase: Phase) -> float:
        """What a phase needs of the GPU's memory."""
        return phase.gb / self.gpu.memory_gb

    def phase_fits(self, phase: Phase) -> bool:
        return phase.gb <= self.gpu.usable_gb

    @property
    def beside(self) -> list[tuple[str, str]]:
        """The precision, and what is needed beside the GPU: (name, words)."""
        found = [("precision", self.computes_in)] if self.computes_in else []
        if self.gpu.kind == "cuda":
            available = f" of {self.host_total_gb:.0f} GB" if self.host_total_gb else ""
            found.append(("CPU memory", f"{gb_text(self.host_gb)}{available}"))
        disk = gb_text(sum(self.disk.values())), parts_text(self.disk)
        found.append(("disk", ": ".join(filter(None, disk))))
        spent = ", ".join(f"{name} {duration(seconds)}" for name, seconds in self.times.parts.items() if seconds >= 1)
        return [*found, ("time", f"{duration(self.times.total)}: {spent}")]


def pace(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else duration(seconds)


def sized_model(name: str) -> ResolvedModel:
    """The model of a name. The Hub is asked only where this disk does not know the model's sizes.

    Raises ConfigError, ModelUnavailable.
    """
    return known_model(name) or settled_model(name)


def estimate(workspace: Workspace, settings: TrainSettings, choice: str = HERE) -> Fit:
    """The fit of these settings on a GPU (see gpus.gpu_of), measured where it was measured before.

    Raises ConfigError for a shape that the model cannot take, ModelUnavailable for a model whose files are broken.
    """
    family, model = settings.resolved
    gpu = gpu_of(choice, settings.device)
    clips = clips_of(workspace, settings)
    found = estimate_from_facts(settings, model, family.facts(model), gpu, clips, here=choice == HERE)
    if choice != HERE:
        return found
    known = measurement.find(workspace, settings, pick_device(settings.device))
    return found if known is None else with_measured(found, known, settings)


def estimate_from_facts(
    settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel, clips: int = 0, here: bool = False
) -> Fit:
    """From sizes alone; clips: how many are encoded and trained on; here: whether the GPU is this machine's."""
    run = memory.sizes(settings, model, facts, gpu)
    other_vae = facts.float32_vae and run.precision != "fp32"
    return Fit(
        gpu=gpu,
        phases=memory.phases(run),
        host_gb=memory.host_gb(run),
        host_total_gb=psutil.virtual_memory().total / GIGABYTE if here else None,
        disk=memory.disk_gb(run, clips, timing.steps_of(run, clips)),
        times=timing.times(run, clips),
        computes_in=f"{run.precision}, the VAE in fp32" if other_vae else run.precision,
    )


def with_measured(found: Fit, known: Measurement, settings: TrainSettings) -> Fit:
    """The same with a trial's figures in place of the estimated ones."""
    phases = tuple(replace(phase, measured=known.phases.get(phase.name)) for phase in found.phases)
    times = found.times
    if known.step_seconds:
        parts = dict(times.parts)
        parts["training"] *= known.step_seconds / times.step
        times = RunTimes(known.step_seconds, parts)
    disk = dict(found.disk)
    if known.checkpoint_bytes:
        kept = min(settings.steps // settings.save_every + 1, settings.keep_checkpoints + 1)
        disk["checkpoints"] = kept * known.checkpoint_bytes / GIGABYTE
    return replace(found, phases=phases, times=times, disk=disk, host_gb=known.host_gb, measured=known)


def clips_of(workspace: Workspace, settings: TrainSettings) -> int:
    """Clips that are encoded for the run, counted by the lines of their datasets."""
    try:
        names = [name for setting, name in datasets_of(settings) if setting != "validation_dataset"]
    except ConfigError:
        names = [settings.dataset]
    paths = [workspace.dataset(name) / METADATA for name in names if is_slug(name)]
    return sum(_lines(path, path.stat().st_mtime_ns) for path in paths if path.is_file())


@lru_cache(maxsize=64)
def _lines(path: Path, _: int) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())
