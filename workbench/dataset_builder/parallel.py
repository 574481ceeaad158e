"""The same work for many clips, one a core, with what a person wants to know meanwhile: how far, how long.

Threads do it, because decoders and encoders let go of Python's lock. Not covered: what the work is (splitting,
recutting), foreign files (ingest, which takes processes).
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
Tick = Callable[[], None]
"""Called after each frame; may raise to stop."""
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


def silent(progress: ClipProgress) -> None:
    """Report to nobody."""


def job_progress(job: jobs.Job) -> OnProgress:
    """Report to a job's heartbeat. Raises jobs.Stop when the job is to end."""

    def on_progress(now: ClipProgress) -> None:
        job.beat(now.phase, now.frames, now.total, step_seconds=now.frame_seconds, message=now.items)
        if job.take("stop") is not None:
            raise jobs.Stop(f"stopped while {now.phase}, {now.items} done: start it again to go on")

    return on_progress


def each(
    phase: str, frames: int, items: Sequence[T], work: Callable[[T, Tick], R], on_progress: OnProgress = silent
) -> list[R]:
    """What `work` gives for each item, in their order; frames: how many all of them have.

    Raises what `on_progress` raises, after which nothing goes on, and the first error of `work`.
    """
    count, stopped, began = 0, threading.Event(), time.monotonic()

    def tick() -> None:
        nonlocal count
        count += 1  # close enough for a progress bar, whatever the threads do
        if stopped.is_set():
            raise jobs.Stop("stopped")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(work, item, tick) for item in items]
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, REPORT_SECONDS, FIRST_COMPLETED)
                for future in done:
                    future.result()
                seconds = (time.monotonic() - began) / count if count else None
                items_done = f"{len(items) - len(waiting)} of {len(items)}"
                on_progress(ClipProgress(phase, min(count, frames), frames, seconds, items_done))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [future.result() for future in futures]
