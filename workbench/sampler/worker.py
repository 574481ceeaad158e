"""The sampling worker: takes requests from its folder, keeps one model warm, leaves when nothing is asked for a while.

One bad request never ends it. It holds the GPU lock while it has a model on the GPU. Not covered: the client's side and
the folder's format (queue), drawing itself (generate).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import gpu_lock, jobs, processes
from workbench.devices import pick_device
from workbench.errors import ExitCode, WorkbenchError
from workbench.sampler import queue
from workbench.sampler.samples import write_sample
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, writing

if TYPE_CHECKING:
    from workbench.sampler.generate import Sampler

POLL_SECONDS = 0.05
PROGRESS_SECONDS = 0.1


class Cancelled(Exception):
    """Raised inside a drawing to give it up."""


def main(folder: Path) -> int:
    """Serve the worker's folder until nothing was asked for a while. Returns the exit code."""
    workspace = Workspace.open(folder.parent.parent)
    config = folder / jobs.CONFIG
    settings = queue.WorkerSettings.load(config) if config.exists() else queue.WorkerSettings()
    # Outermost: the lock taken on leaving is kept until result.json is written, so that no request slips in between.
    with contextlib.ExitStack() as leaving, contextlib.ExitStack() as gpu, jobs.Job(folder) as job:
        Worker(workspace, folder, job, gpu).serve(settings.idle_seconds, leaving)
    return int(job.exit_code)


class Worker:
    """The loop, and what it keeps between requests: the loaded model and the GPU lock."""

    def __init__(self, workspace: Workspace, folder: Path, job: jobs.Job, gpu: contextlib.ExitStack) -> None:
        self._workspace, self._folder, self._job, self._gpu = workspace, folder, job, gpu
        self._sampler: Sampler | None = None

    def serve(self, idle_seconds: float, leaving: contextlib.ExitStack) -> None:
        """Answer requests until none came for `idle_seconds`; `leaving` then holds the queue's lock."""
        quiet_since = time.monotonic()
        while True:
            if self._job.take("stop") is not None:
                raise jobs.Stop("Stopped on request.")
            request = queue.take(self._folder)
            if request is not None:
                self._answer(request)
                self._job.beat("idle")
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > idle_seconds and self._may_leave(leaving):
                return
            else:
                self._let_go_if_wanted()
                time.sleep(POLL_SECONDS)

    def _let_go_if_wanted(self) -> None:
        """A warm model must not keep a training run waiting: it is loaded again with the next request."""
        if self._sampler and gpu_lock.wanted(self._workspace.locks, self._sampler.device.uuid):
            self._unload()

    def _may_leave(self, leaving: contextlib.ExitStack) -> bool:
        with contextlib.ExitStack() as lock:
            lock.enter_context(queue.queue_lock(self._folder))
            if queue.waiting(self._folder):
                return False
            leaving.push(lock.pop_all())
            return True

    def _answer(self, request: queue.Request) -> None:
        """Draw one request. Whatever goes wrong ends up in its failed/<id>.json, except the order to stop."""
        try:
            self._draw(request)
            queue.finish(self._folder, request)
        except jobs.Stop:
            queue.fail(self._folder, request.id, queue.STOPPED, ExitCode.STOPPED)
            raise
        except Cancelled:
            queue.fail(self._folder, request.id, "Cancelled.", ExitCode.STOPPED)
        except Exception as error:  # noqa: BLE001 (the boundary of a request)
            if not isinstance(error, WorkbenchError):
                traceback.print_exc()
                self._unload()  # after an unknown error, or without memory, nothing loaded can be trusted
            exit_code, message = jobs.explain(error)
            queue.fail(self._folder, request.id, message, exit_code)

    def _draw(self, request: queue.Request) -> None:
        sample_id, settings, _ = request
        sampler = self._sampler_for(sample_id, settings)
        first: list[float] = []
        said = 0.0

        def on_step(done: int, total: int) -> None:
            nonlocal said
            self._obey(sample_id)
            now = time.monotonic()
            first.append(now)
            # The first step also encodes the prompt and warms up: measure from its end where possible.
            pace = (now - first[0]) / (done - 1) if done > 1 else now - began
            if now - said >= PROGRESS_SECONDS or done == total:
                said = now
                self._say(sample_id, "drawing", done, total, seconds_left=round(pace * (total - done), 1))
            self._job.beat("drawing", done, total, step_seconds=pace)

        self._obey(sample_id)
        began = time.monotonic()
        drawn = sampler.generate(self._workspace, settings, on_step)
        write_sample(queue.target(self._workspace, *request[::2]), drawn.frames, drawn.fps, drawn.record)

    def _sampler_for(self, sample_id: str, settings: SampleSettings) -> Sampler:
        """The warm model if it is the one that is wanted, else that model, loaded. Raises DeviceBusy and others."""
        device = pick_device(settings.device)
        loaded = self._sampler
        if loaded is not None and (loaded.name, loaded.device) == (settings.model, device):
            return loaded
        self._unload()
        self._report(sample_id, "Loading the model.")
        if device.kind == "cuda":
            self._gpu.enter_context(gpu_lock.hold(self._workspace.locks, device.uuid, queue.HOLDER))
        try:
            with processes.loading():
                from workbench.sampler.generate import Sampler

                self._sampler = Sampler(settings.model, device, lambda message: self._report(sample_id, message))
        except BaseException:
            self._unload()
            raise
        return self._sampler

    def _unload(self) -> None:
        """Let go of the model, then of the GPU."""
        if self._sampler is not None:
            import torch

            self._sampler = None
            gc.collect()
            torch.cuda.empty_cache()
        self._gpu.close()

    def _obey(self, sample_id: str) -> None:
        if (self._folder / queue.CANCEL / sample_id).exists():
            raise Cancelled
        if self._job.take("stop") is not None:
            raise jobs.Stop("Stopped on request.")

    def _report(self, sample_id: str, message: str) -> None:
        self._say(sample_id, "loading", message=message)
        self._job.beat("loading", message=message)

    def _say(self, sample_id: str, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        """Progress for the client. No fsync: it is worth nothing after a power cut."""
        path = self._folder / queue.PROGRESS / f"{sample_id}.json"
        temporary = path.with_suffix(".tmp")
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps({"phase": phase, "step": step, "total": total, **more}))
            os.replace(temporary, path)
