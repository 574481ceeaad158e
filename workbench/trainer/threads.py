"""How many threads a run on the processor computes with: tried when it begins, kept by its checkpoints.

Whether more threads help depends on the model, the clips of a step and the machine, so the first step is rehearsed with
one thread, half of them and all. Beside other runs nothing is tried: threads that share a core wait for one another,
and a step of two threads takes up to eight times as long as alone, so a run takes its share. Where others come later,
a run that took all of them steps back to half. OMP_NUM_THREADS says otherwise. docs/performance.md has measurements.
Sums are added in another order by another number of threads, so a run that goes on takes the number that it had.
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
LONGEST = 3.0  # seconds of a rehearsal: where one takes longer, trying costs more than it finds
WORTH = 0.87  # of the time that fewer threads take: what more threads must reach
SLOW_STEPS = 8  # in a row, before a run steps back
SLOWER = 1.2  # than fewer threads would have been: what counts as slow


class Threads:
    """The number of threads of this process while it trains."""

    def __init__(self, run: Path, kept: int | None) -> None:
        """Take a first number. kept: what the checkpoint says, None where the run begins."""
        self._most = torch.get_num_threads()
        self._tries = False
        self._fewer, self._gain = 0, 1.0  # to step back to, and what the present number takes of its time
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
        """Take the fewest threads that are about as fast as any. rehearse: one step's work, without consequences"""
        if not self._tries:
            return
        half, seconds = torch.get_num_threads(), dict[int, float]()
        for count in dict.fromkeys((half, 1, self._most)):
            torch.set_num_threads(count)
            if (first := _timed(rehearse)) > LONGEST:
                break
            seconds[count] = min(first, _timed(rehearse))  # the first one warms up
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
        """Step back where steps have become slower than with fewer threads. shapes: of the batches, which decide the
        time of a step"""
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
    """How many other runs train on this machine now, in whichever workspace."""
    found = set[str]()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if MODULE in words[:-1] and words[words.index(MODULE) - 1] == "-m":
                found.add(words[words.index(MODULE) + 1])
    return len(found - {str(run)})
