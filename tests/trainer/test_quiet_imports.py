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
