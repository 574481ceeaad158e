"""Identify, start and end processes: which one it is, which environment it gets, and what it died of.

A pid may be reused, but not a pid together with its start time and the machine's boot.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil

from workbench.jobs import platform
from workbench.paths import CODE
from workbench.workspace.disk import VARIABLE

# The environment variables that a job inherits: the setup of the machine, of Python and of numerical libraries. This is
# an allowlist because no list of forbidden words would catch every name under which somebody keeps a key.
MACHINE = re.compile(
    r"PATH|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|TEMP|TMP|LD_LIBRARY_PATH|LD_PRELOAD|DYLD_.*|VIRTUAL_ENV|CONDA_PREFIX|PYTHON.*"
    r"|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|NUMBER_OF_PROCESSORS|PROCESSOR_.*"
    r"|(OMP|MKL|GOMP|KMP|OPENBLAS|BLIS|VECLIB|NUMEXPR|MALLOC|CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|GLOO|UCX|FI|HIP|ROCR|HSA"
    r"|MIOPEN|TRITON|BNB|SPACES)_.*|(PY)?TORCH.*"
)
# And those of the account: its folders, caches, proxies, cluster and workbench settings.
ACCOUNT = re.compile(
    r"HOME|USER|USERNAME|LOGNAME|SHELL|USERPROFILE|APPDATA|LOCALAPPDATA|PROGRAMDATA|NETRC|DBUS_SESSION_BUS_ADDRESS"
    r"|(HTTP|HTTPS|ALL|FTP|NO)_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|MPLCONFIGDIR"
    r"|(XDG|HF|HUGGINGFACE_HUB|TRANSFORMERS|DIFFUSERS|ACCELERATE|WANDB|TRACKIO|SLURM|SBATCH|WORKBENCH)_.*"
)
# Except names that contain one of these words.
SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "JWT", "WEBHOOK", "COOKIE", "NETRC")
# Everything that a child gets which only computes (`bare_environment`).
WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP", "USERPROFILE")
BARE = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", VARIABLE, *WINDOWS)
# Variables that grant access, and the only modules that get them.
RUNS = ("workbench.trainer", "workbench.remote")
TRAINER, STARTERS = "workbench.trainer", ("workbench.jobs.queue", "workbench.remote.server")  # starters start runs
FOR = {"WORKBENCH_WEBHOOK": RUNS, "NETRC": RUNS, "SSH_AUTH_SOCK": ("workbench.remote",)}
_DEATHS = {
    "SIGKILL": "The process was killed: by a person, or by the system when memory ran out.",
    "SIGSEGV": "The process crashed inside a native library (segmentation fault).",
    "SIGBUS": "The process crashed while reading a mapped file (bus error): often a full disk or a truncated file.",
    "SIGABRT": "The process aborted inside a native library.",
}
KILLED = 9
DEATHS = {int(getattr(signal, name)): text for name, text in _DEATHS.items() if hasattr(signal, name)}


def identity(pid: int) -> dict[str, Any]:
    """Return what identifies this process among all others, as JSON."""
    return {"pid": pid, "start_time": platform.start_time(pid), "boot_id": platform.boot_id()}


def alive(process: dict[str, Any]) -> bool:
    """Whether the process with this `identity` still runs."""
    pid, began = process.get("pid"), process.get("start_time")
    if not isinstance(pid, int) or began is None or process.get("boot_id") != platform.boot_id():
        return False
    return bool(platform.start_time(pid) == began)


def request_end(process: dict[str, Any]) -> bool:
    """Ask the process and its children to end; return False if the system has no way to ask."""
    return not alive(process) or platform.request_end(process["pid"])


def end(process: dict[str, Any]) -> None:
    """Kill the process and its children. Does nothing if it is gone."""
    if alive(process):
        platform.end(process["pid"])


def death(process: dict[str, Any]) -> str:
    """Say what is known about a process that ended without a result, from its record ("signal", "memory_ran_out")."""
    if process.get("memory_ran_out"):
        return "The system ended the process because memory ran out."
    unknown = "The process ended without a message: it was killed, ran out of memory, or the machine went down."
    return DEATHS.get(process.get("signal", 0), unknown)


def end_children(pid: int | None = None) -> None:
    """Kill all descendants of a process (default: this one)."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()


def command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of the workbench; -P keeps modules of the current folder out."""
    return [platform.python()[0], "-P", "-m", module, *map(str, arguments)]


def answer_of(module: str, seconds: float) -> Any:
    """Run `python -m module` in a job's environment; return the JSON it prints last, None if it fails or is late."""
    try:
        done = subprocess.run(command(module), env=environment(), capture_output=True, timeout=seconds, check=True)
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return None


def environment(account: bool = True, module: str = "") -> dict[str, str]:
    """Return the environment of a job, without anything that could carry a token to a log or a child.

    Args:
        account: whether it works for the account we run as, and not for a visitor.
        module: what it runs; some modules get variables that no other gets.
    """
    given = {name for name, modules in FOR.items() if account and module in modules}

    def allowed(name: str) -> bool:
        known = MACHINE.fullmatch(name) or (account and ACCOUNT.fullmatch(name))
        return bool(known) and not any(word in name for word in SECRETS)

    kept = {name: value for name, value in os.environ.items() if name in given or allowed(name.upper())}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH", "")]))
    # OpenMP threads spin while they wait for work. With more threads than free cores they take the core from the thread
    # they wait for, and a step takes many times as long (benchmarks/threads.py), so they should soon go to sleep. A run
    # may spin longer: it uses no more threads than cores are free (trainer.threads), and waking threads is slow.
    if module not in STARTERS:
        kept.setdefault("GOMP_SPINCOUNT", "20000" if module == TRAINER else "1000")
    if sys.platform == "darwin":
        kept.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")  # run operations that MPS lacks on the CPU
    return {**kept, **platform.python()[1], "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}


def bare_environment() -> dict[str, str]:
    """Return the environment of a child that only computes: no accounts, caches, proxies or keys."""
    return {name: os.environ[name] for name in BARE if name in os.environ}


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Pause garbage collection while importing large packages or loading models, which makes it a fifth faster."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def without_compiler(needed: bool = False) -> Iterator[None]:
    """Import and compute without PyTorch's compiler, unless it is needed.

    diffusers and peft import bitsandbytes if it is installed, which calls torch.compile on import, and that loads the
    compiler: a second of CPU time for functions that are never called here.
    """
    name = "TORCHDYNAMO_DISABLE"
    if needed or name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name, None)
