"""Simulate a CUDA device: tensors report cuda, keep their values on the CPU, and fail where a card would.

PyTorch's CUDA build asks the CUDA runtime for a device even where no kernel runs. So a stub of the runtime, made of the
library's own symbols, answers "one H100" (`preload`); `Simulated` then computes every operation on cuda tensors with
the processor's kernels. Tensors on two devices in one operation raise what they raise on a card. What would be slow or
wrong there without an error is noted with the line of ours that did it: see `Finding`.

Not simulated: the card's own rounding, its memory, streams that race.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

READY = "SIMULATED_GPU"  # set in the process that has the stub
NAME, MEMORY_GB, CAPABILITY = "simulated H100", 80, (9, 0)
ROOT = Path(__file__).resolve().parent.parent
OURS = str(ROOT / "workbench")

# ---- the stub of the CUDA runtime

STUB = """
#include <stdlib.h>
#include <string.h>
static struct { char *begin; size_t size; } pinned[65536];
static int pin(void **p, size_t n) {
  if (posix_memalign(p, 4096, n ? n : 1)) return 2;
  for (int i = 0; i < 65536; i++) if (!pinned[i].begin) { pinned[i].begin = *p; pinned[i].size = n; return 0; }
  return 0;
}
int cudaMallocHost(void **p, size_t n) { return pin(p, n); }
int cudaHostAlloc(void **p, size_t n, unsigned f) { return pin(p, n); }
int cudaFreeHost(void *p) {
  for (int i = 0; i < 65536; i++) if (pinned[i].begin == p) pinned[i].begin = 0;
  free(p);
  return 0;
}
/* type, device, device pointer, host pointer; type 0 is memory of the program, 1 is pinned */
int cudaPointerGetAttributes(int *a, char *p) {
  memset(a, 0, 24);
  for (int i = 0; i < 65536; i++)
    if (pinned[i].begin && p >= pinned[i].begin && p < pinned[i].begin + pinned[i].size) a[0] = 1;
  return 0;
}
static int properties(char *p) {
  memset(p, 0, 1008);
  strcpy(p, "NAME");
  *(size_t *)(p + 288) = (size_t)MEMORY << 30;
  *(size_t *)(p + 296) = 49152;
  *(int *)(p + 304) = 65536;
  *(int *)(p + 308) = 32;
  *(int *)(p + 312) = 1024;
  *(int *)(p + 360) = MAJOR;
  *(int *)(p + 364) = MINOR;
  *(int *)(p + 384) = 132;
  return 0;
}
int cudaGetDeviceProperties(char *p, int d) { return properties(p); }
int cudaGetDeviceProperties_v2(char *p, int d) { return properties(p); }
int cudaGetDeviceCount(int *n) { *n = 1; return 0; }
int cudaGetDevice(int *n) { *n = 0; return 0; }
int cudaDriverGetVersion(int *v) { *v = 13000; return 0; }
int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
int cudaDeviceGetStreamPriorityRange(int *a, int *b) { *a = 0; *b = -1; return 0; }
int cudaStreamCreateWithPriority(void **s, unsigned f, int p) { *s = (void *)0x10; return 0; }
int cudaStreamCreateWithFlags(void **s, unsigned f) { *s = (void *)0x10; return 0; }
int cudaStreamGetPriority(void *s, int *p) { *p = 0; return 0; }
int cudaEventCreateWithFlags(void **e, unsigned f) { *e = (void *)0x20; return 0; }
int cudaEventCreate(void **e) { *e = (void *)0x20; return 0; }
int cudaEventElapsedTime(float *t, void *a, void *b) { *t = 1.0f; return 0; }
int cudaEventElapsedTime_v2(float *t, void *a, void *b) { *t = 1.0f; return 0; }
int cudaStreamIsCapturing(void *s, int *c) { *c = 0; return 0; }
int cudaStreamGetCaptureInfo_v2(void *s, int *c) { *c = 0; return 0; }
int cudaMemGetInfo(size_t *f, size_t *t) { *f = (size_t)(MEMORY - 1) << 30; *t = (size_t)MEMORY << 30; return 0; }
const char *cudaGetErrorString(int e) { return "simulated"; }
const char *cudaGetErrorName(int e) { return "simulated"; }
void **__cudaRegisterFatBinary(void *a) { static void *h[4]; return h; }
"""
DRIVER = """
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) { *f = 0; *a = 0; return 0; }
int cuGetProcAddress_v2(const char *n, void **p, int v, unsigned long f, void *s) { *p = 0; return 1; }
"""


def missing() -> str:
    """Say what this machine lacks for the simulation, "" if nothing."""
    if sys.platform != "linux" or not (shutil.which("gcc") and shutil.which("nm")):
        return "The simulated GPU needs Linux with gcc and nm."
    if _runtime() is None:
        return "The simulated GPU needs PyTorch's CUDA build: pip install torch from PyPI, without an index of its own."
    return ""


def preload() -> None:
    """Re-run this script with the stub in place of the CUDA runtime. Returns only in the process that has it."""
    if os.environ.get(READY):
        return
    with tempfile.TemporaryDirectory(prefix="simulated-gpu-") as folder:
        library = _built(Path(folder))
        environment = {**os.environ, READY: "1", "LD_PRELOAD": str(library)}
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH"))))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


def _runtime() -> Path | None:
    """Find the CUDA runtime library that torch was installed with."""
    import importlib.util

    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    torch = Path(spec.origin).parent
    found = [*torch.parent.glob("nvidia/*/lib/libcudart.so.*"), *torch.glob("lib/libcudart*.so*")]
    return found[0] if found else None


def _built(folder: Path) -> Path:
    """Compile the stubs into the folder: every function of the runtime that `STUB` does not define returns 0."""
    runtime = _runtime()
    assert runtime is not None
    listed = subprocess.run(["nm", "-D", "--defined-only", runtime], capture_output=True, text=True, check=True).stdout
    names = {line.split()[2].partition("@")[0] for line in listed.splitlines() if line.split()[1] in "TW"}
    others = [f"int {name}() {{ return 0; }}" for name in sorted(names) if not re.search(rf"\b{name}\(", STUB)]
    values = {"NAME": NAME, "MEMORY": MEMORY_GB, "MAJOR": CAPABILITY[0], "MINOR": CAPABILITY[1]}
    defines = [f"-D{name}={value}" for name, value in values.items() if name != "NAME"]
    for source, target, more in (
        ("\n".join([STUB.replace('"NAME"', f'"{NAME}"'), *others]), "runtime.so", defines),
        (DRIVER, "libcuda.so.1", ["-Wl,-soname,libcuda.so.1"]),
    ):
        path = folder / f"{target}.c"
        path.write_text(source)
        subprocess.run(["gcc", "-w", "-O1", "-shared", "-fPIC", *more, "-o", folder / target, path], check=True)
    return folder / "runtime.so"


# ---- what is noted


class Finding(NamedTuple):
    """An operation that would be slow or inexact on a card, and the line of workbench/ that asked for it."""

    kind: str  # one of the constants below
    where: str  # file:line, of the innermost frame in workbench/
    what: str  # the operation


ROUND_TRIP = "host round trip"  # the processor waits until the card has done all that was queued
FLOAT64 = "float64 on the device"
FLOAT32 = "fp32 product in a half-precision model"
BLOCKING_UPLOAD = "upload that waits for the device"
UNPINNED = "copy that cannot overlap"  # non-blocking, of memory that is not pinned
FEW = 256  # float64 values that cost nothing


class Watch:
    """Collect findings while switched on."""

    def __init__(self) -> None:
        self.found: Counter[Finding] = Counter()
        self.in_step = False  # whether waiting for the device is a finding
        self.half = False  # whether products in fp32 are

    def note(self, kind: str, what: str) -> None:
        if kind == FLOAT32 and _in_float32():
            return
        self.found[Finding(kind, _ours(), what)] += 1


def _in_float32() -> bool:
    """Whether a part computes that its family keeps in float32 on purpose: VAE and image encoder."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        own = frame.f_code.co_name in ("encode_video", "decoded", "encode_image")
        if own and getattr(frame.f_locals.get("self"), "float32_vae", False):
            return True
        frame = frame.f_back
    return False


def _ours() -> str:
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(OURS):
            return f"{os.path.relpath(name, ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "backward pass"


# ---- tensors


@contextlib.contextmanager
def simulated() -> Iterator[Watch]:
    """Make `cuda` the simulated card inside the block, for torch and for NVML.

    The process must have been started by `preload`.
    """
    import torch
    from simulated_tensors import Functions, Operations

    sys.modules["pynvml"] = _nvml()
    watch = Watch()
    torch.compiler.set_stance("force_eager")  # there is nothing to compile for
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda"): made here, then moved
    try:
        # Backward passes in this thread: in one of autograd's own, what makes tensors of nothing would not be seen.
        with Functions(), Operations(watch), torch.autograd.set_multithreading_enabled(False):
            yield watch
    finally:
        torch._C._set_only_lift_cpu_tensors(False)


def _nvml() -> types.ModuleType:
    """Stand in for NVML, as workbench.jobs.devices uses it, with one card."""
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = type("NVMLError", (Exception,), {})
    module.nvmlInit = module.nvmlShutdown = lambda: None
    module.nvmlDeviceGetCount = lambda: 1
    module.nvmlDeviceGetHandleByIndex = module.nvmlDeviceGetHandleByUUID = lambda which: which
    module.nvmlDeviceGetUUID = lambda handle: "GPU-simulated"
    module.nvmlDeviceGetName = lambda handle: NAME
    module.used_gb = 1.0  # a benchmark's own: how much other programs hold
    module.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(
        total=MEMORY_GB << 30, used=int(module.used_gb * (1 << 30))
    )
    module.nvmlDeviceGetUtilizationRates = lambda handle: types.SimpleNamespace(gpu=0)
    return module
