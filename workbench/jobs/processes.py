"""Which process is it? A pid is reused; a pid with its start time and the machine's boot is not.

And how a process starts quickly and without secrets, how it is ended, what it died of.
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

# What a job gets of the environment, by the variables' names: how the machine, Python and the libraries that compute
# are set up. Nothing else, since no list of words finds every name under which somebody keeps a key.
MACHINE = re.compile(
    r"PATH|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|TEMP|TMP|LD_LIBRARY_PATH|LD_PRELOAD|DYLD_.*|VIRTUAL_ENV|CONDA_PREFIX|PYTHON.*"
    r"|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|NUMBER_OF_PROCESSORS|PROCESSOR_.*"
    r"|(OMP|MKL|GOMP|KMP|OPENBLAS|BLIS|VECLIB|NUMEXPR|MALLOC|CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|GLOO|UCX|FI|HIP|ROCR|HSA"
    r"|MIOPEN|TRITON|BNB|SPACES)_.*|(PY)?TORCH.*"
)
# And whose account it is: their folders, caches, proxies, cluster and settings of the workbench.
ACCOUNT = re.compile(
    r"HOME|USER|USERNAME|LOGNAME|SHELL|USERPROFILE|APPDATA|LOCALAPPDATA|PROGRAMDATA|NETRC|DBUS_SESSION_BUS_ADDRESS"
    r"|(HTTP|HTTPS|ALL|FTP|NO)_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|MPLCONFIGDIR"
    r"|(XDG|HF|HUGGINGFACE_HUB|TRANSFORMERS|DIFFUSERS|ACCELERATE|WANDB|TRACKIO|SLURM|SBATCH|WORKBENCH)_.*"
)
# Of those, none with such a word.
SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "JWT", "WEBHOOK", "COOKIE", "NETRC")
# All that a child gets which only computes (`bare_environment`).
WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP", "USERPROFILE")
BARE = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", VARIABLE, *WINDOWS)
# What opens a door, with the modules that need it: nothing else gets it.
RUNS = ("workbench.trainer", "workbench.remote")
TRAINER, STARTERS = "workbench.trainer", ("workbench.jobs.queue", "workbench.remote.server")  # which start runs
FOR = {"WORKBENCH_WEBHOOK": RUNS, "NETRC": RUNS, "SSH_AUTH_SOCK": ("workbench.remote",)}
_DEATHS = {
    "SIGKILL": "The process was killed: by a person, or by the system when memory ran out.",
    "SIGSEGV": "The process crashed inside a native library (segmentation fault).",
    "SIGBUS": "The process crashed on reading a mapped file (bus error): often a full disk or a file cut short.",
    "SIGABRT": "The process gave up inside a native library (abort).",
}
KILLED = 9
DEATHS = {int(getattr(signal, name)): text for name, text in _DEATHS.items() if hasattr(signal, name)}


def identity(pid: int) -> dict[str, Any]:
    """What tells this process from every other, as JSON."""
    return {"pid": pid, "start_time": platform.start_time(pid), "boot_id": platform.boot_id()}


def alive(process: dict[str, Any]) -> bool:
    """Whether the process of an `identity` still runs."""
    pid, began = process.get("pid"), process.get("start_time")
    if not isinstance(pid, int) or began is None or process.get("boot_id") != platform.boot_id():
        return False
    return bool(platform.start_time(pid) == began)


def request_end(process: dict[str, Any]) -> bool:
    """Ask the process and all that it has started to end; False where the system has no way to ask."""
    return not alive(process) or platform.request_end(process["pid"])


def end(process: dict[str, Any]) -> None:
    """End the process and all that it has started, at once; nothing when it is gone."""
    if alive(process):
        platform.end(process["pid"])


def death(process: dict[str, Any]) -> str:
    """What is known of a process that ended without a word, from its record ("signal", "memory_ran_out")."""
    if process.get("memory_ran_out"):
        return "The system ended the process because memory ran out."
    unknown = "The process ended without a word: it was killed, ran out of memory, or the machine went down."
    return DEATHS.get(process.get("signal", 0), unknown)


def end_children(pid: int | None = None) -> None:
    """Kill all that a process has started (default: this one), and what they have."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()


def command(module: str, *arguments: object) -> list[str]:
    """How a module of ours is run in a process of its own: never one of that name from the current folder (-P)."""
    return [platform.python()[0], "-P", "-m", module, *map(str, arguments)]


def answer_of(module: str, seconds: float) -> Any:
    """The JSON that `python -m module` prints as its last line, with a job's environment.

    None where it fails, or takes longer than so many seconds.
    """
    try:
        done = subprocess.run(command(module), env=environment(), capture_output=True, timeout=seconds, check=True)
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return None


def environment(account: bool = True, module: str = "") -> dict[str, str]:
    """The environment of a job: what it needs of ours, so that no token can reach a log or a child.

    account: whether it works for the account that we run as, and not for a visitor
    module: that it runs; some are given what no other gets
    """
    given = {name for name, modules in FOR.items() if account and module in modules}
    kept = {name: value for name, value in os.environ.items() if name in given or _kept(name.upper(), account)}
    root = str(CODE)
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    # Threads that wait for their next piece of work in a loop keep it from the thread that does it wherever there are
    # more of them than free cores: a step then takes many times as long (benchmarks/threads.py). A run computes with no
    # more than are free, and steps back when others come (trainer.threads); asleep, its threads are woken too late.
    if module not in STARTERS:
        kept.setdefault("GOMP_SPINCOUNT", "20000" if module == TRAINER else "1000")
    if sys.platform == "darwin":
        kept.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")  # what MPS lacks is computed on the processor
    return {**kept, **platform.python()[1], "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}


def bare_environment() -> dict[str, str]:
    """The environment of a child that only computes: no accounts, caches, proxies or keys."""
    return {name: os.environ[name] for name in BARE if name in os.environ}


def _kept(name: str, account: bool) -> bool:
    known = MACHINE.fullmatch(name) or (account and ACCOUNT.fullmatch(name))
    return bool(known) and not any(word in name for word in SECRETS)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """For importing large packages and reading models: a fifth faster without looking for garbage in what will stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def without_compiler(needed: bool = False) -> Iterator[None]:
    """Import and compute without PyTorch's compiler, unless it is needed. PyTorch documents the variable.

    bitsandbytes, which diffusers and peft import where it is installed, passes functions to torch.compile when it is
    imported, and that imports the compiler: a second of processor time for functions that are never called here.
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
