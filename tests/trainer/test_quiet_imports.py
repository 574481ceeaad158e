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
logger.error("a real error")
"""


def test_loading_the_8_bit_optimizer_says_nothing_and_errors_are_shown() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (0, "", "a real error")


WITHOUT_COMPILER = """
import sys
from workbench.jobs import processes
with processes.without_compiler():
    import bitsandbytes
assert "torch._inductor.compile_fx" not in sys.modules
import torch
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
assert "torch._dynamo.backends.registry" in sys.modules
"""


def test_the_8_bit_optimizer_is_imported_without_the_compiler_which_works_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPILER], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
