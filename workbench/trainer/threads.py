"""How many threads a run on the CPU computes with: measured when it starts, kept in its checkpoints.

Whether more threads help depends on the model, the clips of a step and the machine, so the first step is rehearsed with
one thread, half of them and all. If other runs are active, nothing is tried and the run takes its share of the cores:
threads that share a core wait for each other, and a step on two threads can take eight times as long as alone. If other
runs start later, a run that took all threads falls back to half. OMP_NUM_THREADS overrides all of this.
docs/performance.md has measurements. The number of threads affects the order of sums, so a resumed run keeps it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Hashable
from pathlib import Path

import psutil
import torch

from workbench.display.quantities import counted
from workbench.jobs.log import log

MODULE = "workbench.trainer"
VARIABLE = "OMP_NUM_THREADS"
LONGEST = 3.0  # seconds: if a rehearsal takes longer, trying costs more than it gains
WORTH = 0.87  # more threads must take at most this share of the time that fewer take
SLOW_STEPS = 8  # slow steps in a row before a run falls back to fewer threads
SLOWER = 1.2  # a step is slow if it takes this much longer than fewer threads would


class Threads:
    """The number of threads of this process while it trains."""

    def __init__(self, run: Path, kept: int | None) -> None:
        """Choose a first number. kept: the number from the checkpoint; None for a new run"""
        self._most = torch.get_num_threads()
        self._tries = False
        self._fewer, self._gain = 0, 1.0  # the number to fall back to, and the current number's share of its time
        self._fastest: dict[Hashable, float] = {}
        self._slow = 0
        if kept is not None:
            if kept != self._most:
                torch.set_num_threads(kept)
                log(f"computing with {counted(kept, 'thread')}, as before")
        elif VARIABLE not in os.environ and self._most > 1:
            beside = others(run)
            count = max(1, self._most // 2 // (1 + beside))
            torch.set_num_threads(count)
            self._tries = not beside
            if beside:
                log(f"computing with {count} of {counted(self._most, 'thread')}: {beside} other runs share the cores")

    def choose(self, rehearse: Callable[[], None]) -> None:
        """Choose the fewest threads that are about as fast as any. rehearse: does a step's work without effects"""
        if not self._tries:
            return
        half, seconds = torch.get_num_threads(), dict[int, float]()
        for count in dict.fromkeys((half, 1, self._most)):
            torch.set_num_threads(count)
            if (first := _timed(rehearse)) > LONGEST:
                break
            seconds[count] = min(first, _timed(rehearse))  # the first one includes warm-up
        fastest = min(seconds.values(), default=0.0)
        chosen = min((one for one in seconds if seconds[one] * WORTH <= fastest), default=half)
        torch.set_num_threads(chosen)
        if chosen > half:
            self._fewer, self._gain = half, seconds[chosen] / seconds[half]
        tried = ", ".join(f"{1000 * seconds[one]:.0f} ms with {one}" for one in sorted(seconds))
        log(
            f"computing with {chosen} of {counted(self._most, 'thread')}: a step took {tried or 'too long to try more'}"
        )

    def watch(self, shapes: Hashable, seconds: float) -> None:
        """Fall back to fewer threads once steps are slower than with them.

        shapes: the batches' shapes; only steps of the same shapes are compared
        """
        if not self._fewer:
            return
        fastest = self._fastest[shapes] = min(seconds, self._fastest.get(shapes, seconds))
        self._slow = self._slow + 1 if seconds > SLOWER * fastest / self._gain else 0
        if self._slow == SLOW_STEPS:
            torch.set_num_threads(self._fewer)
            log(f"computing with {counted(self._fewer, 'thread')} from here on: something else needs the cores")
            self._fewer = 0


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def others(run: Path) -> int:
    """Count the other runs that are training on this machine, in any workspace."""
    found = set[str]()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if MODULE in words[:-1] and words[words.index(MODULE) - 1] == "-m":
                found.add(words[words.index(MODULE) + 1])
    return len(found - {str(run)})
