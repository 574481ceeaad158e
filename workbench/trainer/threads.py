"""How many threads a run on the processor computes with: chosen when it begins, kept by its checkpoints.

Threads of two runs that share the cores wait for one another, so each takes its share; OMP_NUM_THREADS says otherwise.
Sums are added in another order by another number of threads, so a run that goes on takes the number that it had. Not
covered: threads that read ahead (inputs), how long threads spin (processes), runs of several processes (launcher).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

MODULE = "workbench.trainer"
VARIABLE = "OMP_NUM_THREADS"


def settle(run: Path, kept: int | None) -> str:
    """Set the number of threads of this process; a sentence that says it. kept: what the checkpoint says, if anything.

    Loads torch.
    """
    import torch

    most, beside = torch.get_num_threads(), 0
    if kept is None and VARIABLE not in os.environ:
        beside = others(run)
    count = kept or max(1, most // (1 + beside))
    if count != most:
        torch.set_num_threads(count)
    if kept is not None:
        return f"computing with {count} threads, as before" if count != most else ""
    return f"computing with {count} of {most} threads: {beside} other runs share the cores" if beside else ""


def others(run: Path) -> int:
    """How many other runs train on this machine now, in whichever workspace."""
    found = set[str]()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if MODULE in words[:-1] and words[words.index(MODULE) - 1] == "-m":
                found.add(words[words.index(MODULE) + 1])
    return len(found - {str(run)})
