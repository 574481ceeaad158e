"""The sampling worker: takes requests from its folder, keeps one model loaded, ends after a while without requests.

A bad request never ends it. It holds a GPU while it has a model there, until a job in the queue wants that GPU.

On ZeroGPU a process has a GPU only inside a call marked with `spaces.GPU`, and a detached worker never gets one. There
the page's process acts as the worker: it registers itself (`announce`), and answers waiting requests when one of its
handlers calls the function from `answering`. Files, progress and samples are the same as the worker's, but the model is
loaded again in each call.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.clips import media
from workbench.clips.sound import has_sound, read_sound
from workbench.errors import ConfigError, ExitCode, WorkbenchError, explain
from workbench.families.sound import Sound
from workbench.jobs import processes
from workbench.jobs.devices import pick_device
from workbench.jobs.queue import PROGRESS, Lease
from workbench.jobs.torch_devices import free_memory
from workbench.sampler import queue
from workbench.sampler.queue import Request
from workbench.sampler.samples import keep_as_preview, video_path, write_sample
from workbench.sampler.settings import SampleSettings, WorkerSettings
from workbench.workspace import Workspace, disk, read_object, write_json, writing

if TYPE_CHECKING:
    import numpy as np
    import torch

    from workbench.families.denoising import OnStep
    from workbench.sampler.generate import Sampler

POLL_SECONDS = 0.05
PROGRESS_SECONDS = 0.1
PREVIEW_SECONDS = 0.5  # between latent previews
JOINED_RATE = 48000  # samples per second of the sound of joined scenes
ZERO_GPU_SECONDS = 120  # how long ZeroGPU lets a call run


class Cancelled(Exception):
    """Raised to end a request that was cancelled while it is generated."""


def serve(job: jobs.Job, leaving: contextlib.ExitStack) -> None:
    """Serve the job's folder until no request comes for a while. `leaving` then holds the queue's lock."""
    config, workspace = job.folder / jobs.CONFIG, Workspace.open(job.folder.parent.parent)
    settings = WorkerSettings.load(config) if config.exists() else WorkerSettings()
    with Lease(workspace, queue.HOLDER) as lease:
        Worker(workspace, job, lease).serve(settings.idle_seconds, leaving)


class Worker:
    """The worker's loop, with what it keeps between requests: the loaded model and the lease of its device."""

    def __init__(self, workspace: Workspace, job: jobs.Job, lease: Lease) -> None:
        self._workspace, self._requests, self.job = workspace, queue.requests_in(job.folder), job
        self._lease = lease
        self._sampler: Sampler | None = None
        self._request = ""  # the id of the current request

    def serve(self, idle_seconds: float, leaving: contextlib.ExitStack) -> None:
        """Answer requests until none comes for `idle_seconds`. `leaving` then holds the queue's lock."""
        quiet_since = time.monotonic()
        while True:
            self.job.check_stop("Stopped on request.")
            # A training run gets the GPU before the next request. It never waits for a loaded model or a long queue.
            if self._lease.wanted:
                self._unload()
            request = queue.take(self._requests, self._gpu_is_taken)
            if request is not None:
                self._request = request.id
                self._answer(request)
                self.job.beat("idle")
                quiet_since = time.monotonic()
                continue
            if time.monotonic() - quiet_since > idle_seconds:
                with contextlib.ExitStack() as lock:
                    lock.enter_context(self._requests.locked())
                    if not self._requests.waiting:
                        leaving.push(lock.pop_all())
                        return
            time.sleep(POLL_SECONDS)

    def _gpu_is_taken(self, settings: SampleSettings) -> bool:
        """Return whether another job has the request's GPU or waits for it, so that the request has to wait."""
        try:
            return self._lease.taken(pick_device(settings.device))
        except ConfigError:
            return False  # answering the request fails with the same error

    def _answer(self, request: Request) -> None:
        """Answer one request. Every error ends up in its failed/<id>.json; jobs.Stop is also raised."""
        try:
            self._generate(request)
            self._requests.finish(request.id, {"into": request.into} if request.into else None)
        except jobs.Stop:
            self._requests.fail(request.id, self._requests.stopped, ExitCode.STOPPED)
            raise
        except Cancelled:
            self._requests.fail(request.id, "Cancelled.", ExitCode.STOPPED)
        except Exception as error:  # noqa: BLE001 (the boundary of a request)
            if not isinstance(error, WorkbenchError):
                traceback.print_exc()
                self._unload()  # after an unknown error or without memory, the loaded model may be broken
            exit_code, message = explain(error)
            self._requests.fail(request.id, message, exit_code)

    def _generate(self, request: Request) -> None:
        sample_id, settings, into, after, joined, decode = request
        video = queue.target(self._workspace, sample_id, into)
        if joined:
            self.report(sample_id, "Joining the scenes.")
            join(self._workspace, joined, settings, video)
            return
        if after:
            before = queue.target(self._workspace, after, "")
            if not before.is_file():
                raise ConfigError(f"the previous scene, {after}, has no video: generate this one again once it has")
            settings = settings.changed(continue_from=str(before), image="", video="", mask="")
        sampler = self._sampler_for(sample_id, settings)
        self.check_commands(sample_id)
        if decode:
            self.report(sample_id, "Decoding.")
            made = sampler.decode(sampler.read_latents(video))
            made.record["settings"] = settings.model_dump(mode="json")
        else:
            denoised = sampler.denoise(self._workspace, settings, self._step_reporter(sample_id, sampler, settings))
            if settings.latents_only:
                sampler.write_latents(video, denoised, self._workspace.root)
                return
            made = sampler.decode(denoised)
        write_sample(video, made.frames, made.fps, made.record, self._workspace.root, made.sound)
        keep_as_preview(self._workspace, video, made.record)

    def _sampler_for(self, sample_id: str, settings: SampleSettings) -> Sampler:
        """Return the requested model, loading it unless it is loaded. Raises DeviceBusy and WorkbenchError."""
        device = pick_device(settings.device)
        loaded = self._sampler
        if loaded is not None and loaded.serves(settings) and loaded.device == device:
            return loaded
        self._unload()
        self.report(sample_id, "Loading the model.")
        self._lease.take(device)
        try:
            with processes.loading(), processes.without_compiler():
                from workbench.sampler.generate import Sampler

                def report(message: str) -> None:
                    self.report(self._request, message)

                self._sampler = Sampler(settings.model, device, report, settings.speed)
        except BaseException:
            self._unload()
            raise
        return self._sampler

    def _unload(self) -> None:
        if self._sampler is not None:
            self._sampler = None
            free_memory()
        self._lease.give_back()

    def check_commands(self, sample_id: str) -> None:
        """Raise Cancelled or jobs.Stop if requested."""
        if self._requests.cancelled(sample_id):
            raise Cancelled
        self.job.check_stop("Stopped on request.")

    def report(self, sample_id: str, message: str) -> None:
        """Report work before the first step or after the last."""
        self.report_progress(sample_id, "loading", message=message)
        self.job.beat("loading", message=message)

    def _step_reporter(self, sample_id: str, sampler: Sampler, settings: SampleSettings) -> OnStep:
        """Return a callback for denoising steps that reports progress and previews. It raises Cancelled and Stop."""
        began = time.monotonic()
        first = reported = previewed = 0.0
        length, pause = sampler.seconds(settings), PREVIEW_SECONDS

        def step(done: int, total: int, latents: torch.Tensor) -> None:
            nonlocal first, reported, previewed, pause
            self.check_commands(sample_id)
            now = time.monotonic()
            first = first or now
            # The first step includes encoding the prompt and warm-up, so measure from its end if possible.
            pace = (now - first) / (done - 1) if done > 1 else now - began
            if now - reported >= PROGRESS_SECONDS or done == total:
                reported, left = now, round(pace * (total - done), 1)
                self.report_progress(sample_id, "generating", done, total, seconds_left=left)
            if now - previewed >= pause and done < total:
                self.write_progress(f"{sample_id}.webp", sampler.latent_preview().webp(latents, length))
                previewed = time.monotonic()
                pause = max(PREVIEW_SECONDS, 20 * (previewed - now))  # previews take at most 1/20 of the time
            self.job.beat("generating", done, total, step_seconds=pace)

        return step

    def report_progress(self, sample_id: str, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        values = {"phase": phase, "step": step, "total": total, **more}
        self.write_progress(f"{sample_id}.json", json.dumps(values).encode())

    def write_progress(self, name: str, data: bytes) -> None:
        """Write a progress file, without fsync: it is worthless after a power cut."""
        path = self._requests.folder / PROGRESS / name
        temporary = path.with_suffix(".tmp")
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            temporary.write_bytes(data)
            disk.replace(temporary, path)


# ---- scenes


def join(workspace: Workspace, scenes: Sequence[str], settings: SampleSettings, target: Path) -> None:
    """Join samples into one video, with sound. Raises ConfigError if one has no video, DataError, CannotWrite."""
    import numpy as np

    parts, sounds = list[np.ndarray](), list[np.ndarray]()
    records: list[dict[str, Any]] = []
    for number, sample_id in enumerate(scenes, 1):
        path = video_path(workspace, sample_id)
        record = read_object(path.with_suffix(".json"))
        if not (record and path.is_file()):
            raise ConfigError(f"scene {number}, {sample_id}, has no video: join the scenes again once it has")
        kept = int(record.get("kept_frames", 0)) if records else 0
        about = media.probe(path)
        parts.append(media.read_frames(path, range(kept, about.frames)))
        sounds.append(_sound_from(path, kept / about.fps, len(parts[-1]) / about.fps))
        records.append(record)
    frames = np.concatenate(parts)
    own = {
        "settings": settings.model_dump(mode="json"),
        "prompt": settings.prompt,
        "frames": len(frames),
        "seconds": round(sum(float(one.get("seconds") or 0) for one in records), 3),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "scenes": [
            {"id": sample_id, "prompt": str(record.get("prompt", "")), "frames": len(part)}
            for sample_id, record, part in zip(scenes, records, parts, strict=True)
        ],
    }
    fps, heard = media.probe(video_path(workspace, scenes[0])).fps, None
    if any(one.any() for one in sounds):
        heard = Sound(np.concatenate(sounds, axis=1), JOINED_RATE)
    write_sample(target, frames, fps, {**records[0], **own}, workspace.root, heard)


def _sound_from(path: Path, start: float, seconds: float) -> np.ndarray:
    """Return a part of a video's sound, float32 [2, samples]; zeros for a video without one."""
    import numpy as np

    if not has_sound(path):
        return np.zeros((2, round(seconds * JOINED_RATE)), np.float32)
    return read_sound(path, start=start, seconds=seconds, rate=JOINED_RATE)


# ---- ZeroGPU


def on_zero_gpu() -> bool:
    """Return whether this process runs in a ZeroGPU Space."""
    return bool(os.environ.get("SPACES_ZERO_GPU")) and importlib.util.find_spec("spaces") is not None


def announce(workspace: Workspace) -> None:
    """Register this process as the sampling worker, so that requests do not start one."""
    folder = queue.worker_folder(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (jobs.RESULT, jobs.HEARTBEAT):
        (folder / name).unlink(missing_ok=True)
    record = {"module": queue.MODULE, **processes.identity(os.getpid()), "started_at": time.time()}
    write_json(folder / jobs.PROCESS, record)


def answering(workspace: Workspace) -> Callable[[], None]:
    """Return a function for the page to call regularly, which answers all waiting requests in one call with a GPU."""
    import spaces

    folder = queue.worker_folder(workspace)

    def serve() -> None:
        with contextlib.ExitStack() as leaving, Lease(workspace, queue.HOLDER) as lease:
            Worker(workspace, _Silent(folder), lease).serve(0.0, leaving)

    serve_with_gpu = spaces.GPU(duration=ZERO_GPU_SECONDS)(serve)

    def answer() -> None:
        if queue.requests_in(folder).waiting:
            serve_with_gpu()

    return answer


class _Silent(jobs.Job):
    """The worker's job inside the page's process, which must not be stopped and needs no heartbeat."""

    def beat(self, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        """Do nothing: progress is in the request's own file."""

    def take(self, command: jobs.Command) -> dict[str, Any] | None:
        return None
