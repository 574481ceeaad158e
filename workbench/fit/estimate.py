"""The fit check: what a run needs compared with what the machine has, for page, notebook and shell. No torch.

Cheap enough to be called at every change in a form.
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
    "The GPU to estimate for: this machine's, or one with that much memory. Also accepts a number of GB, such as 20."
)
TIGHT = 0.93  # share of the usable memory above which an estimate is not accurate enough
FAR_GB = 1000.0  # more than any GPU has, so that the exact figure does not matter


@dataclass(frozen=True)
class Fit:
    """What a run needs and whether the GPU has it."""

    gpu: GpuModel
    phases: tuple[Phase, ...]  # GPU memory by phase, in order
    host_gb: float  # CPU memory needed, in GiB
    host_total_gb: float | None  # CPU memory of this machine in GiB; None if the GPU is not in this machine
    disk: Mapping[str, float]  # GiB by part
    times: RunTimes
    measured: Measurement | None = None  # a trial run's figures, if there was one; they replace the estimate
    computes_in: str = ""  # the precision, in words

    @property
    def peak(self) -> Phase:
        """The phase that needs the most memory."""
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
        """Whether it fits so tightly that an estimate cannot be sure."""
        return self.fits and self.measured is None and self.peak.gb > TIGHT * self.gpu.usable_gb

    @property
    def far(self) -> bool:
        """Whether it needs more than any GPU has."""
        return self.peak.gb > max(FAR_GB, self.gpu.memory_gb)

    @property
    def need(self) -> str:
        """How much memory it needs out of how much there is."""
        if self.far:
            return f"far more memory than the {self.gpu.memory_gb:.0f} GB there are"
        return f"about {self.peak.gb:.1f} of {self.gpu.memory_gb:.0f} GB"

    @property
    def sentence(self) -> str:
        """Memory and time in one line, and whether they are measured or estimated."""
        words = [f"Needs {self.need}"]
        if self.measured is not None and self.measured.ran_out:
            words = [f"Ran out of the {self.gpu.memory_gb:.0f} GB while {self.measured.ran_out}"]
        if not self.far:
            words += [f"{pace(self.times.step)} a step", f"{duration(self.times.total)} in all"]
        how = "measured" if self.measured is not None else "estimated"
        return f"{', '.join(words)}; {how}."

    @property
    def advice(self) -> str:
        """What to do about it; "" if it fits."""
        if self.far:
            return "It does not fit: lower batch_size, frames, height or width first."
        if not self.host_fits:
            return f"There is not enough CPU memory: it needs {gb_text(self.host_gb)} of {self.host_total_gb:.0f} GB."
        if not self.fits:
            return f"It does not fit: {self.peak.name} needs the most memory."
        return "That is close: measure it to be sure." if self.tight else ""

    @property
    def summary(self) -> str:
        """`sentence` and `advice` in one line."""
        return f"{self.sentence} {self.advice}".rstrip()

    def share(self, phase: Phase) -> float:
        """Return the share of the GPU's memory that a phase needs."""
        return phase.gb / self.gpu.memory_gb

    def phase_fits(self, phase: Phase) -> bool:
        return phase.gb <= self.gpu.usable_gb

    @property
    def beside(self) -> list[tuple[str, str]]:
        """The precision and the needs besides GPU memory, as (name, words)."""
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
    """Return the model with this name, asking the Hub only if its sizes are not known locally.

    Raises ConfigError, ModelUnavailable.
    """
    return known_model(name) or settled_model(name)


def estimate(workspace: Workspace, settings: TrainSettings, choice: str = HERE) -> Fit:
    """Check the fit of settings on a GPU (see gpus.gpu_of), using a measurement if there is one.

    Raises ConfigError if the model cannot take the shape, ModelUnavailable if its files are broken.
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
    """Check the fit from sizes alone. clips: the number trained on;  here: whether the GPU is in this machine."""
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
    """Replace estimated figures with those of a trial run."""
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
    """Return the number of clips in the run's datasets, counted by lines."""
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
