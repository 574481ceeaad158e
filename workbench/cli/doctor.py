"""`workbench doctor`: is everything in order on this machine? Each line says what is, and what to do if it is not.

No torch here: what is installed is read from the packages' own records, and what is tried is tried in a process of its
own (trial). Not covered: fixing anything.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, astuple, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
import psutil

from workbench import strange_names
from workbench.cli.options import json_flag, with_workspace
from workbench.cli.printing import print_json, say
from workbench.cli.tables import print_checks
from workbench.errors import ConfigError, ExitCode
from workbench.families import models
from workbench.jobs import processes, torch_devices
from workbench.jobs.devices import AUTO, GIGABYTE, MISSING, NO_XPU, gpus, pick_device
from workbench.operating_system import system
from workbench.workspace import Workspace

PACKAGES = ("torch", "diffusers", "transformers", "peft", "accelerate", "gradio", "av", "sentencepiece", "protobuf")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "firefox")
LOW_DISK_GB = 5.0
CLIP_SECONDS, STEP_SECONDS = 180.0, 420.0  # generous: a machine may be slow, or busy with other work
TRIAL_SECONDS = CLIP_SECONDS + STEP_SECONDS + 60  # it ends by itself long before
CUDA_13_DRIVER = 580
AMD_DRIVER = Path("/dev/kfd")  # of the kernel
UNTRIED = "Nothing of this project has run on one yet: where it fails, choose device cpu"
TRIAL = "workbench.cli.trial"
CLIP, STEP = "a clip", "training steps"  # what it tries, in this order
REINSTALL = "python scripts/install.py (or pip install --force-reinstall what the line names), then run it again"


@dataclass(frozen=True)
class Check:
    """One line: what was looked at, what was found, and a remedy when something is wrong (else empty)."""

    title: str
    found: str
    remedy: str = ""


@click.command()
@click.option("--quick", is_flag=True, help="Check packages and devices only: import no clip, train nothing.")
@json_flag
@with_workspace
def doctor(workspace: Workspace, quick: bool, as_json: bool) -> int:
    """Check this machine: versions, device, disk, models, browser; then import a clip and train two steps.

    Ends with 0 when nothing needs fixing.
    """
    checks = [*_versions(), _device(), _disk(workspace), *_models(), _browser(), *_names(workspace)]
    if not quick:
        say("importing a clip and training two steps on the built-in model ...", err=True)
        checks += tried()
    if as_json:
        print_json([asdict(one) for one in checks])
        return int(ExitCode.BAD_CONFIG) if any(one.remedy for one in checks) else 0
    wrong = print_checks(map(astuple, checks))
    say(f"{wrong} to fix" if wrong else "all in order")
    return int(ExitCode.BAD_CONFIG) if wrong else 0


def _versions() -> list[Check]:
    found = [Check("python", f"{platform.python_version()} on {platform.platform(terse=True)}, {sys.executable}")]
    for name in PACKAGES:
        try:
            found.append(Check(name, version(name)))
        except PackageNotFoundError:
            found.append(Check(name, "missing", f"pip install {name}, or python scripts/install.py"))
    return found


def _device() -> Check:
    """Which device "auto" takes, and why."""
    memory = psutil.virtual_memory()
    machine = f"{psutil.cpu_count()} cores, {memory.total / GIGABYTE:.0f} GB of memory"
    try:
        device = pick_device("auto")
    except ConfigError as error:
        return Check("device", str(error), f"unset {AUTO}, or set it to cpu")
    if not device.is_gpu:
        why, remedy = _why_processor()
        return Check("device", f"processor, {machine} ({why})", remedy)
    names = ", ".join(f"{gpu.name} with {gpu.total_gb:.0f} GB" for gpu in gpus())
    if device.kind == "mps":
        return Check("device", f"mps, as torch finds Apple's GPU: {names} for it; {machine}. {UNTRIED}")
    if device.rocm:
        return Check("device", f"cuda, as torch is built for ROCm {device.rocm}: {names}; {machine}. {UNTRIED}")
    if _torch().endswith("+cpu"):
        return Check("device", names, "torch is the CPU build and cannot use the GPU: python scripts/install.py")
    driver = _driver()
    if driver and driver < CUDA_13_DRIVER:
        remedy = (
            f"its driver is {driver}, torch's usual builds need {CUDA_13_DRIVER}: update the driver, or install torch "
            "from https://download.pytorch.org/whl/cu126"
        )
        return Check("device", names, remedy)
    return Check("device", f"cuda, as NVIDIA's driver finds {names}; {machine}")


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
    return Check("workspace", found, "free some space, or choose another --workspace" if free < LOW_DISK_GB else "")


def _names(workspace: Workspace) -> list[Check]:
    """Files in the workspace that the workbench did not create; they are in nobody's way."""
    found = strange_names.sentence(strange_names.strange_names(workspace), workspace.root)
    return [Check("other names", found)] if found else []


def _models() -> list[Check]:
    cache = model_cache()
    found = [Check("model cache", f"{cache}" + ("" if cache.exists() else " (not there yet)"))]
    for model in models():
        if model.local:
            there = (Path(model.source) / "model_index.json").exists()
            state, remedy = ("built in", "") if there else ("missing", "clone the project again")
            found.append(Check(model.id, state, remedy))
            continue
        folder = cache / f"models--{model.source.replace('/', '--')}" / "snapshots"
        state = "in the cache" if folder.exists() else f"not downloaded, {model.download_gb:g} GB when first used"
        found.append(Check(model.id, state))
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
        **system.detached(),
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
        found.append(Check(STEP if found else CLIP, problem, REINSTALL))
    return [*found, Check("tried in", f"{time.monotonic() - began:.0f} s")]


def _browser() -> Check:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    return Check("browser", path or "none on the PATH (the page opens from any machine that reaches this one)")
