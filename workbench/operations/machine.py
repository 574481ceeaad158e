"""The machine: is everything in order on it, and does a run fit it?

No torch here: what is installed is read from the packages' own records, and what is tried is tried in a process of its
own (trial).
"""

from __future__ import annotations

import json
import os
import platform as host
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
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
from workbench.operations.registry import Snapshot, operation
from workbench.operations.settings import Gpu
from workbench.operations.shared import Check, said
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, strange_names

Lines = tuple[dict[str, Any], ...]
PACKAGES = ("torch", "diffusers", "transformers", "peft", "accelerate", "gradio", "av", "sentencepiece", "protobuf")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "firefox")
LOW_DISK_GB = 5.0
CLIP_SECONDS, STEP_SECONDS = 180.0, 420.0  # generous: a machine may be slow, or busy with other work
TRIAL_SECONDS = CLIP_SECONDS + STEP_SECONDS + 60  # it ends by itself long before
CUDA_13_DRIVER = 580
AMD_DRIVER = Path("/dev/kfd")  # of the kernel
UNTRIED = "Nothing of this project has run on one yet: where it fails, choose device cpu"
TRIAL = "workbench.operations.trial"
CLIP, STEP = "a clip", "training steps"  # what it tries, in this order
REINSTALL = "python scripts/install.py (or pip install --force-reinstall what the line names), then run it again"


class FitView(Snapshot):
    """Whether a run fits the GPU."""

    fits: bool
    """Whether it does."""

    sentence: str
    """Memory and time in words."""

    advice: str
    """Advice; "" if all is well."""

    warnings: tuple[str, ...]
    """What the run will probably fail to learn, and the setting that helps, a sentence each."""

    gpu: dict[str, Any]
    """Name, kind, memory_gb, rate."""

    phases: Lines
    """Phases of the run: name, gb, fits, measured (true or false), parts in GB."""

    host_gb: float
    """GB of CPU memory."""

    disk: dict[str, float]
    """GB by part."""

    step_seconds: float
    """Seconds for one step."""

    seconds: float
    """Seconds for the whole run."""

    settings: dict[str, Any]
    """Settings that differ from their defaults, with the changes of --fit-to-gpu."""


@operation(by_hand="fit")
def fit(
    workspace: Workspace,
    settings: TrainSettings,
    *,
    gpu_memory: Gpu = HERE,
    fit_to_gpu: Annotated[bool, Field(description=levels.HELP)] = False,
) -> FitView:
    """Estimate what a run needs: memory by phase, disk space and time. Nothing is started."""
    settings = settings.changed(model=sized_model(workspace.model(settings.model))[1].id)
    if fit_to_gpu:
        found = levels.fit_to_gpu(workspace, settings, gpu_memory)
        if found.settings is None:
            raise ConfigError(found.why)
        settings = found.settings
    return fit_view(estimate(workspace, settings, gpu_memory), settings, run_warnings(workspace, settings))


def fit_view(found: Fit, settings: TrainSettings, warnings: list[str]) -> FitView:
    """Return an estimate or a measurement as a snapshot."""
    phases = tuple(
        {
            "name": one.name,
            "gb": one.gb,
            "fits": found.phase_fits(one),
            "measured": one.measured is not None,
            "parts": dict(one.parts),
        }
        for one in found.phases
    )
    return FitView(
        fits=found.fits,
        sentence=found.sentence,
        advice=found.advice,
        warnings=tuple(warnings),
        gpu=asdict(found.gpu),
        phases=phases,
        host_gb=found.host_gb,
        disk=dict(found.disk),
        step_seconds=found.times.step,
        seconds=found.times.total,
        settings=settings.model_dump(mode="json", exclude_defaults=True),
    )


@operation(
    by_hand="doctor",
    says=said,
    exit_code=lambda checks: ExitCode.BAD_CONFIG if any(one.remedy for one in checks) else 0,
)
def doctor(
    workspace: Workspace,
    *,
    quick: Annotated[
        bool, Field(description="Check packages and devices only: import no clip, train nothing.")
    ] = False,
) -> list[Check]:
    """Check this machine: versions, device, disk, models, browser; then import a clip and train two steps.

    Exits with 0 if nothing needs fixing.
    """
    checks = [*_versions(), _device(), _disk(workspace), *_models(), _browser(), *_names(workspace)]
    return checks if quick else [*checks, *tried()]


def _line(title: str, found: str, remedy: str = "") -> Check:
    return Check(title=title, found=found, remedy=remedy)


def _versions() -> list[Check]:
    found = [_line("python", f"{host.python_version()} on {host.platform(terse=True)}, {sys.executable}")]
    for name in PACKAGES:
        try:
            found.append(_line(name, version(name)))
        except PackageNotFoundError:
            found.append(_line(name, "missing", f"pip install {name}, or python scripts/install.py"))
    return found


def _device() -> Check:
    """Which device "auto" takes, and why."""
    memory = psutil.virtual_memory()
    machine = f"{psutil.cpu_count()} cores, {memory.total / GIGABYTE:.0f} GB of memory"
    try:
        device = pick_device("auto")
    except ConfigError as error:
        return _line("device", str(error), f"unset {AUTO}, or set it to cpu")
    if not device.is_gpu:
        why, remedy = _why_processor()
        return _line("device", f"processor, {machine} ({why})", remedy)
    names = ", ".join(f"{gpu.name} with {gpu.total_gb:.0f} GB" for gpu in gpus())
    if device.kind == "mps":
        return _line("device", f"mps, as torch finds Apple's GPU: {names} for it; {machine}. {UNTRIED}")
    if device.rocm:
        return _line("device", f"cuda, as torch is built for ROCm {device.rocm}: {names}; {machine}. {UNTRIED}")
    if _torch().endswith("+cpu"):
        return _line("device", names, "torch is the CPU build and cannot use the GPU: python scripts/install.py")
    driver = _driver()
    if driver and driver < CUDA_13_DRIVER:
        remedy = (
            f"its driver is {driver}, torch's usual builds need {CUDA_13_DRIVER}: update the driver, or install torch "
            "from https://download.pytorch.org/whl/cu126"
        )
        return _line("device", names, remedy)
    return _line("device", f"cuda, as NVIDIA's driver finds {names}; {machine}")


def _why_processor() -> tuple[str, str]:
    """Why no GPU is taken, and what to do about it, "" where nothing is wrong."""
    if os.environ.get(AUTO):
        return f"{AUTO} is cpu", ""
    if sys.platform == "darwin":
        return MISSING["mps"].partition(":")[0], ""
    if (build := torch_devices.build()) == "hip":
        return "torch is built for ROCm, and finds no AMD GPU", "install AMD's driver, or another build of torch"
    if build == "xpu":
        return f"torch is built for XPU. {NO_XPU.partition(':')[0]}", ""
    if AMD_DRIVER.exists() and _torch().endswith("+cpu"):
        remedy = "install torch's build for ROCm, with the --index-url that pytorch.org/get-started/locally names"
        return "AMD's driver is here, and torch is the CPU build", remedy
    return "no NVIDIA GPU", ""


def _torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _driver() -> int:
    """The NVIDIA driver's main version, 0 when unknown."""
    command = shutil.which("nvidia-smi")
    if not command:
        return 0
    completed = subprocess.run(
        [command, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
    )
    number = completed.stdout.strip().split(".")[0]
    return int(number) if number.isdecimal() else 0


def _disk(workspace: Workspace) -> Check:
    free = shutil.disk_usage(workspace.root).free / GIGABYTE
    found = f"{workspace.root}, {free:.0f} GB free"
    return _line("workspace", found, "free some space, or choose another --workspace" if free < LOW_DISK_GB else "")


def _names(workspace: Workspace) -> list[Check]:
    """Files in the workspace that the workbench did not create; they are in nobody's way."""
    found = strange_names.sentence(strange_names.strange_names(workspace), workspace.root)
    return [_line("other names", found)] if found else []


def _models() -> list[Check]:
    cache = model_cache()
    found = [_line("model cache", f"{cache}" + ("" if cache.exists() else " (not there yet)"))]
    for model in models():
        if model.local:
            there = (Path(model.source) / "model_index.json").exists()
            state, remedy = ("built in", "") if there else ("missing", "clone the project again")
            found.append(_line(model.id, state, remedy))
            continue
        folder = cache / f"models--{model.source.replace('/', '--')}" / "snapshots"
        state = "in the cache" if folder.exists() else f"not downloaded, {model.download_gb:g} GB when first used"
        found.append(_line(model.id, state))
    return found


def model_cache() -> Path:
    """Where the Hub's library keeps models; its own rules, without importing it."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def tried(seconds: float = TRIAL_SECONDS) -> list[Check]:
    """What the trial found; a process that hangs or crashes is a finding, too."""
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
        problem = f"no answer within {seconds:.0f} s"
    found = [Check(**json.loads(line)) for line in output.splitlines() if line.startswith("{")]
    if not problem and process.returncode and not any(check.remedy for check in found):
        last = errors.strip().splitlines()[-1:] or [f"ended with code {process.returncode} and no word"]
        problem = last[0].removeprefix("workbench.errors.")[:300]
    if problem:
        found.append(_line(STEP if found else CLIP, problem, REINSTALL))
    return [*found, _line("tried in", f"{time.monotonic() - began:.0f} s")]


def _browser() -> Check:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    return _line("browser", path or "none on the PATH (the page opens from any machine that reaches this one)")
