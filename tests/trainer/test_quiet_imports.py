"""What other packages say of themselves when they are loaded is no message of ours; their errors are."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE

# The warning is written on processors with AVX-512 only, so it is also logged here by hand, as bitsandbytes does it.
LOADED = """
import workbench, logging
import bitsandbytes
logger = logging.getLogger("bitsandbytes.backends.cpu.ops")
logger.warning("Failed to load CPU gemm_4bit_forward from kernels-community: %s.", "No module named 'kernels'")
logger.warning("a real warning")
logger.error("a real error")

import warnings
def warn(module, kind=FutureWarning):
    warnings.warn_explicit(f"of {module}", kind, f"{module}.py", 1, module)
for name in ("bitsandbytes._ops", "torch", "torch.utils.checkpoint", "peft.tuners.lora", "diffusers"):
    warn(name)
warn("workbench.trainer")
warn("torchlike")
warn("torch", UserWarning)
"""


def test_what_libraries_tell_their_programmers_is_not_shown_and_all_else_is() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "a real warning",
        "a real error",
        "workbench.trainer.py:1: FutureWarning: of workbench.trainer",
        "torchlike.py:1: FutureWarning: of torchlike",
        "torch.py:1: UserWarning: of torch",
    ]
