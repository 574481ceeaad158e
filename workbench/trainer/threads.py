"""How many threads a run on the processor computes with: chosen when it begins, kept by its checkpoints.

Threads that share a core wait for one another: beside another run a step of two threads took up to eight times as long
as alone. So a run takes half of the threads that PyTorch would, which leaves cores to the page and its browser, and of
these its share where other runs train; OMP_NUM_THREADS says otherwise. docs/performance.md has the measurements.
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
    count = kept or most
    if kept is None and VARIABLE not in os.environ:
        beside = others(run)
        count = max(1, most // 2 // (1 + beside))
    if count == most:
        return ""
    torch.set_num_threads(count)
    if kept is not None:
        return f"computing with {count} threads, as before"
    shared = f"{beside} other runs share the cores" if beside else "the rest is for other work"
    return f"computing with {count} of {most} threads: {shared}"


def others(run: Path) -> int:
    """How many other runs train on this machine now, in whichever workspace."""
    found = set[str]()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if MODULE in words[:-1] and words[words.index(MODULE) - 1] == "-m":
                found.add(words[words.index(MODULE) + 1])
    return len(found - {str(run)})
