"""The same work for many clips, one a core, with what a person wants to know meanwhile: how far, how long.

Threads do it, because decoders and encoders let go of Python's lock. Not covered: what the work is (splitting,
cutting, measures), foreign files (ingest).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from workbench import jobs

REPORT_SECONDS = 0.5
WORKERS = os.cpu_count() or 1
Tick = Callable[..., None]
"""Called after one frame, or with the number of several; may raise to stop."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ClipProgress:
    """Where the work is. frames of total; frame_seconds: a frame takes on average, None before the first one."""

    phase: str
    frames: int
    total: int
    frame_seconds: float | None
    items: str


OnProgress = Callable[[ClipProgress], None]
"""Called twice a second; may raise to stop."""


def silent(progress: object = None) -> None:
    """Report to nobody."""


def job_progress(job: jobs.Job) -> OnProgress:
    """Report to a job's heartbeat. Raises jobs.Stop when the job is to end."""

    def on_progress(now: ClipProgress) -> None:
        job.beat(now.phase, now.frames, now.total, step_seconds=now.frame_seconds, message=now.items)
        job.check_stop(f"stopped while {now.phase}, {now.items} done: start it again to go on")

    return on_progress


def each(
    phase: str,
    frames: int,
    items: Sequence[T],
    work: Callable[[T, Tick], R],
    on_progress: OnProgress = silent,
    *,
    on_done: Callable[[R], object] = silent,
    on_stop: Callable[[], object] = silent,
) -> list[R]:
    """What `work` gives for each item, in their order; frames: how many all of them have.

    on_done: called with each result once it is there, before the progress that counts it
    on_stop: called before the end is waited for, of what works already

    Raises what `on_progress` and `on_done` raise, after which nothing goes on, and the first error of `work`.
    """
    count, stopped, began = 0, threading.Event(), time.monotonic()

    def tick(frames: int = 1) -> None:
        nonlocal count
        count += frames  # close enough for a progress bar, whatever the threads do
        if stopped.is_set():
            raise jobs.Stop("stopped")

    with ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(work, item, tick) for item in items]
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, REPORT_SECONDS, FIRST_COMPLETED)
                for future in done:
                    on_done(future.result())
                seconds = (time.monotonic() - began) / count if count else None
                items_done = f"{len(items) - len(waiting)} of {len(items)}"
                on_progress(ClipProgress(phase, min(count, frames), frames, seconds, items_done))
        except BaseException:
            stopped.set()
            on_stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [future.result() for future in futures]
