"""The machine: whether a run fits it, and a checkup of its installation.

torch is not imported here: versions come from package metadata, and the trial runs in its own process (`trial`).
"""

from __future__ import annotations

import json
import os
import platform as host
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import psutil
from pydantic import Field

from workbench.errors import ConfigError, ExitCode
from workbench.families import models
from workbench.fit import levels
from workbench.fit.estimate import Fit, estimate, sized_model
from workbench.fit.gpus import HERE
from workbench.fit.warnings import run_warnings
from workbench.jobs import platform, processes, torch_devices
from workbench.jobs.devices import AUTO, GIGABYTE, MISSING, NO_XPU, gpus, pick_device
from workbench.operations.registry import operation
from workbench.operations.settings import Gpu
from workbench.paths import installed_version
from workbench.runs.settings import TrainSettings
from workbench.snapshots import Check, Snapshot, Values
from workbench.workspace import Workspace, strange_names

Lines = tuple[dict[str, Any], ...]
PACKAGES = ("torch", "diffusers", "transformers", "peft", "accelerate", "gradio", "av", "sentencepiece", "protobuf")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "firefox")
LOW_DISK_GB = 5.0
CLIP_SECONDS, STEP_SECONDS = 180.0, 420.0  # generous, for slow or busy machines
TRIAL_SECONDS = CLIP_SECONDS + STEP_SECONDS + 60  # the trial's own limits apply first
CUDA_13_DRIVER = 580
AMD_DRIVER = Path("/dev/kfd")
UNTRIED = "This project is untested on such GPUs: if it fails, set device to cpu"
TRIAL = "workbench.operations.trial"
CLIP, STEP = "a clip", "training steps"  # the stages of the trial, in order
REINSTALL = "python scripts/install.py (or pip install --force-reinstall with the package named here), then try again"


class FitView(Snapshot):
    """The fit check: what a run needs, and whether it fits the GPU."""

    fits: bool
    """Whether it fits."""

    sentence: str
    """Memory and time in words."""

    advice: str
    """What to change; "" if nothing needs to change."""

    warnings: tuple[str, ...]
    """Warnings about likely training problems, one sentence each, with the setting that helps."""

    gpu: Values
    """The GPU: name, kind, memory_gb, rate."""

    phases: Lines
    """Phases of the run: name, gb, fits, measured (true or false), parts in GB."""

    host_gb: float
    """CPU memory in GB."""

    disk: dict[str, float]
    """Disk space in GB by part."""

    step_seconds: float
    """Duration of one step in seconds."""

    seconds: float
    """Duration of the whole run in seconds."""

    settings: dict[str, Any]
    """Settings that differ from their defaults, including the changes made by --fit-to-gpu."""


@operation(by_hand="fit")
def fit(
    workspace: Workspace,
    settings: TrainSettings,
    *,
    gpu_memory: Gpu = HERE,
    fit_to_gpu: Annotated[bool, Field(description=levels.HELP)] = False,
) -> FitView:
    """Estimate a run's memory by phase, disk space and time, without starting it."""
    settings = settings.changed(model=sized_model(workspace.model(settings.model))[1].id)
    if fit_to_gpu:
        found = levels.fit_to_gpu(workspace, settings, gpu_memory)
        if found.settings is None:
            raise ConfigError(found.why)
        settings = found.settings
    return fit_view(estimate(workspace, settings, gpu_memory), settings, run_warnings(workspace, settings))


def phases_of(found: Fit) -> Lines:
    """Return what the phases of a run need and whether it fits."""
    return tuple(
        {"name": one.name, "gb": one.gb, "fits": found.phase_fits(one), "measured": one.measured is not None}
        for one in found.phases
    )


def fit_view(found: Fit, settings: TrainSettings, warnings: list[str]) -> FitView:
    """Convert an estimate or a measurement to a snapshot."""
    return FitView.from_objects(
        found,
        warnings=tuple(warnings),
        phases=tuple({**of, "parts": dict(one.parts)} for of, one in zip(phases_of(found), found.phases, strict=True)),
        disk=dict(found.disk),
        step_seconds=found.times.step,
        seconds=found.times.total,
        settings=settings.model_dump(mode="json", exclude_defaults=True),
    )


@operation(
    by_hand="doctor",
    says=lambda check: check.said,
    exit_code=lambda checks: ExitCode.BAD_CONFIG if any(one.remedy for one in checks) else 0,
)
def doctor(
    workspace: Workspace,
    *,
    quick: Annotated[bool, Field(description="Skip the trial: import no clip and train nothing.")] = False,
) -> list[Check]:
    """Check this machine: packages, device, disk, models, browser; then import a clip and train two steps.

    Exits with 0 if there is nothing to fix.
    """
    free = shutil.disk_usage(workspace.root).free / GIGABYTE
    remedy = "free some space, or choose another --workspace" if free < LOW_DISK_GB else ""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    checks = [
        *_versions(),
        _device(),
        Check.of("workspace", f"{workspace.root}, {free:.0f} GB free", remedy),
        *_models(),
        Check.of("browser", browser or "none on the PATH (the page opens from any machine that reaches this one)"),
    ]
    # Files that the workbench did not create do no harm.
    if strange := strange_names.sentence(strange_names.strange_names(workspace), workspace.root):
        checks.append(Check.of("other names", strange))
    return checks if quick else [*checks, *tried()]


def _versions() -> list[Check]:
    found = [Check.of("python", f"{host.python_version()} on {host.platform(terse=True)}, {sys.executable}")]
    for name in PACKAGES:
        known, remedy = installed_version(name), f"pip install {name}, or python scripts/install.py"
        found.append(Check.of(name, known) if known else Check.of(name, "missing", remedy))
    return found


def _device() -> Check:
    """Report which device "auto" selects, and why."""
    memory = psutil.virtual_memory()
    machine = f"{psutil.cpu_count()} cores, {memory.total / GIGABYTE:.0f} GB of memory"
    try:
        device = pick_device("auto")
    except ConfigError as error:
        return Check.of("device", str(error), f"unset {AUTO}, or set it to cpu")
    if not device.is_gpu:
        why, remedy = _why_processor()
        return Check.of("device", f"CPU, {machine} ({why})", remedy)
    names = ", ".join(f"{gpu.name} with {gpu.total_gb:.0f} GB" for gpu in gpus())
    if device.kind == "mps":
        return Check.of("device", f"mps: {names}; {machine}. {UNTRIED}")
    if device.rocm:
        return Check.of("device", f"cuda (ROCm {device.rocm}): {names}; {machine}. {UNTRIED}")
    if installed_version("torch").endswith("+cpu"):
        return Check.of("device", names, "torch is the CPU build and cannot use the GPU: python scripts/install.py")
    if 0 < (driver := _driver()) < CUDA_13_DRIVER:
        remedy = (
            f"its driver is {driver}, torch's standard builds need {CUDA_13_DRIVER}: update the driver, or install "
            "torch from https://download.pytorch.org/whl/cu126"
        )
        return Check.of("device", names, remedy)
    return Check.of("device", f"cuda: {names}; {machine}")


def _why_processor() -> tuple[str, str]:
    """Return why no GPU is used, and the remedy; "" if nothing is wrong."""
    if os.environ.get(AUTO):
        return f"{AUTO} is cpu", ""
    if sys.platform == "darwin":
        return MISSING["mps"].partition(":")[0], ""
    if (build := torch_devices.build()) == "hip":
        return "torch is built for ROCm but finds no AMD GPU", "install AMD's driver, or another build of torch"
    if build == "xpu":
        return f"torch is built for XPU. {NO_XPU.partition(':')[0]}", ""
    if AMD_DRIVER.exists() and installed_version("torch").endswith("+cpu"):
        remedy = "install torch's ROCm build, with the --index-url given at pytorch.org/get-started/locally"
        return "AMD's driver is installed, but torch is the CPU build", remedy
    return "no NVIDIA GPU", ""


def _driver() -> int:
    """Return the major version of the NVIDIA driver; 0 if unknown."""
    command = shutil.which("nvidia-smi")
    if not command:
        return 0
    completed = subprocess.run(
        [command, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
    )
    number = completed.stdout.strip().split(".")[0]
    return int(number) if number.isdecimal() else 0


def _models() -> list[Check]:
    # By the rules of huggingface_hub, but without importing it.
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
    found = [Check.of("model cache", f"{cache}{'' if cache.exists() else ' (not created yet)'}")]
    for model in models():
        if model.local:
            exists = (Path(model.source) / "model_index.json").exists()
            state, remedy = ("built in", "") if exists else ("missing", "clone the project again")
            found.append(Check.of(model.id, state, remedy))
            continue
        folder = cache / f"models--{model.source.replace('/', '--')}" / "snapshots"
        state = "in the cache" if folder.exists() else f"not downloaded, {model.download_gb:g} GB when first used"
        found.append(Check.of(model.id, state))
    return found


def tried(seconds: float = TRIAL_SECONDS) -> list[Check]:
    """Run the trial and return its checks. If it hangs or crashes, that is a finding, too."""
    began, problem = time.monotonic(), ""
    process = subprocess.Popen(
        processes.command(TRIAL),
        env=processes.environment(),
        encoding="utf-8",
        **platform.detached(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        problem = f"no response within {seconds:.0f} s"
    found = [Check(**json.loads(line)) for line in output.splitlines() if line.startswith("{")]
    if not problem and process.returncode and not any(check.remedy for check in found):
        last = errors.strip().splitlines()[-1:] or [f"exited with code {process.returncode} without a message"]
        problem = last[0].removeprefix("workbench.errors.")[:300]
    if problem:
        found.append(Check.of(STEP if found else CLIP, problem, REINSTALL))
    return [*found, Check.of("tried in", f"{time.monotonic() - began:.0f} s")]
