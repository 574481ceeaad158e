"""Sampling on ZeroGPU, where a process has a GPU only while it is inside a call marked with `spaces.GPU`.

A detached worker gets none there. So the page's own process stands in for the worker: it registers as the worker
(`announce`), and answers the requests that wait when one of its handlers calls `answer`. Files, progress and samples
are those of the worker. The model is loaded anew within each call. Not covered: how long a call may take (ZeroGPU ends
it after SECONDS), training, which such a Space cannot do.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

from workbench import jobs
from workbench.jobs import processes
from workbench.sampler.queue import MODULE
from workbench.sampler.request_files import waiting, worker_folder
from workbench.workspace import Workspace, write_json

SECONDS = 120


def here() -> bool:
    """Whether this is a ZeroGPU Space."""
    return bool(os.environ.get("SPACES_ZERO_GPU")) and importlib.util.find_spec("spaces") is not None


def announce(workspace: Workspace) -> None:
    """Register this process as the sampling worker, so that requests start none."""
    folder = worker_folder(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (jobs.RESULT, jobs.HEARTBEAT):
        (folder / name).unlink(missing_ok=True)
    record = {"module": MODULE, **processes.identity(os.getpid()), "started_at": time.time()}
    write_json(folder / jobs.PROCESS, record)


def answering(workspace: Workspace) -> Callable[[], None]:
    """What a handler of the page calls now and then: answers what waits, all of it in one call with a GPU."""
    import spaces

    folder = worker_folder(workspace)

    def serve() -> None:
        from workbench.sampler.worker import Worker

        with contextlib.ExitStack() as leaving, contextlib.ExitStack() as gpu:
            Worker(workspace, folder, _Silent(folder), gpu).serve(0.0, leaving)

    serve_with_gpu = spaces.GPU(duration=SECONDS)(serve)

    def answer() -> None:
        if waiting(folder):
            serve_with_gpu()

    return answer


class _Silent(jobs.Job):
    """The worker's job without a process of its own: nobody may stop the page, and the page needs no heartbeat."""

    def beat(self, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        """Progress is in the request's own file."""

    def take(self, command: jobs.Command) -> dict[str, Any] | None:
        return None
