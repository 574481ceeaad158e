"""Asking for samples: the client's side of the sampling worker, through files. No torch.

    samples/.worker/                a job folder (workbench.jobs): config.json, process.json, result.json ...
      requests/<id>.json            {settings}: waiting its turn; ids sort by time
      active/<id>.json              taken by the worker
      progress/<id>.json            {phase, step, total, seconds_left}
      cancel/<id>                   asks the worker to leave that request
      failed/<id>.json              {settings, message, exit_code}; exit code 90: cancelled
      queue.lock                    held while a request is added, taken or given up, and while the worker leaves
    samples/<day>/<id>.mp4 .json    the finished sample (workbench.sampler.samples)

One worker serves a workspace. It keeps the model warm, outlives its clients and leaves when nothing was asked for a
while. A request changes folders only forward (requests, active, then sample or failed), each step with one rename or
one write. Not covered: drawing (worker, generate), several workers at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from workbench import gpu_lock, jobs
from workbench.devices import pick_device
from workbench.errors import ConfigError, DeviceBusy, ExitCode
from workbench.sampler.inputs import inputs_of, portable
from workbench.sampler.samples import ID, checked_id, new_id, video_path
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, field, parse
from workbench.workspace import Workspace, read_json, write_json, writing

MODULE = "workbench.sampler"
STOP_SECONDS = 30.0
HOLDER = "the sampling worker"
WORKER, REQUESTS, ACTIVE, PROGRESS, CANCEL, FAILED = ".worker", "requests", "active", "progress", "cancel", "failed"
STOPPED = "The sampling worker was stopped before this video was done: try again."
DIED = (
    "The sampling worker ended before this video was done (killed, out of memory, or the machine went down): try again."
)


class WorkerSettings(Settings):
    """How the sampling worker behaves; samples/.worker/config.json."""

    idle_seconds: float = field(
        120.0, title="Stay warm", section="Worker", unit="seconds", low=0.0, high=86400.0, advanced=True,
        help="How long the model stays loaded after the last request.",
    )  # fmt: skip


class RequestState(StrEnum):
    """Where a request is, derived from its files."""

    WAITING = "waiting"
    LOADING = "loading"
    DRAWING = "drawing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self in (RequestState.DONE, RequestState.FAILED, RequestState.CANCELLED)


@dataclass(frozen=True)
class Progress:
    """A request as its files tell it. `message` is a sentence for people; `video` is there once it is done.

    `settings` is None when the request's file cannot be read (damaged, or of another version).
    """

    id: str
    state: RequestState
    settings: SampleSettings | None
    step: int = 0
    total: int = 0
    seconds_left: float | None = None
    message: str = ""
    video: Path | None = None
    exit_code: int | None = None


# ---- asking ---------------------------------------------------------------------------------------------------------


def submit(workspace: Workspace, settings: SampleSettings) -> str:
    """Ask for a sample and start the worker if none is there. Returns the request's id, which becomes the sample's.

    Raises ConfigError (a setting does not suit the model, a LoRA file is unsound), DeviceBusy (another job holds the
    GPU; nothing is started then), CannotWrite.
    """
    inputs_of(workspace, settings)
    folder = worker_folder(workspace)
    request = {"settings": portable(settings).model_dump(mode="json")}
    if jobs.status(folder).state is jobs.State.STOPPING:
        jobs.wait(folder, STOP_SECONDS)  # a worker that is leaving would not take it
    with queue_lock(folder):
        _refuse_busy_gpu(workspace, settings)
        if not jobs.status(folder).state.alive:
            _give_up_leftovers(folder)
        sample_id = new_id()
        write_json(folder / REQUESTS / f"{sample_id}.json", request)
        if not (folder / jobs.CONFIG).exists():
            WorkerSettings().save(folder / jobs.CONFIG)
        jobs.start(folder, MODULE)
    return sample_id


def cancel(workspace: Workspace, sample_id: str) -> None:
    """Give up a request: at once while it waits, within one denoising step while it is drawn. Done ones stay.

    Raises ConfigError for an unknown id, CannotWrite.
    """
    folder = worker_folder(workspace)
    with queue_lock(folder):
        request = folder / REQUESTS / f"{checked_id(sample_id)}.json"
        if request.exists():
            fail(folder, sample_id, "Cancelled before it began.", ExitCode.STOPPED)
        elif (folder / ACTIVE / request.name).exists():
            write_json(folder / CANCEL / sample_id, {})
        else:
            progress(workspace, sample_id)  # raises for an unknown id


def stop_worker(workspace: Workspace, grace: float | None = None) -> None:
    """Ask the worker to leave now, as before a training run that needs the GPU; see jobs.stop for `grace`."""
    jobs.stop(worker_folder(workspace), grace)


# ---- watching -------------------------------------------------------------------------------------------------------


def progress(workspace: Workspace, sample_id: str) -> Progress:
    """Where a request is now. Raises ConfigError for an unknown id."""
    folder, name = worker_folder(workspace), f"{checked_id(sample_id)}.json"
    video = video_path(workspace, sample_id)
    alive = jobs.status(folder).state.alive
    # A request moves forward only, so looking in the same order cannot miss it.
    request, active = _read(folder / REQUESTS / name), _read(folder / ACTIVE / name)
    record, failed = _read(video.with_suffix(".json")), _read(folder / FAILED / name)
    known = record or failed or active or request
    if not known:
        raise ConfigError(f"the request {sample_id!r} is not known here: it may have been deleted; submit it again")
    settings = _settings(known)
    if record and video.exists():
        steps = int(record.get("steps", 0))
        return Progress(sample_id, RequestState.DONE, settings, steps, steps, 0.0, video=video)
    if failed:
        code = failed.get("exit_code")
        state = RequestState.CANCELLED if code == ExitCode.STOPPED else RequestState.FAILED
        return Progress(sample_id, state, settings, message=str(failed.get("message", "")), exit_code=code)
    if not alive:
        return Progress(sample_id, RequestState.FAILED, settings, message=_death(folder), exit_code=int(ExitCode.BUG))
    if not active:
        return Progress(sample_id, RequestState.WAITING, settings, message=_place(folder, sample_id))
    beat = _read(folder / PROGRESS / name)
    state = RequestState.DRAWING if beat.get("phase") == RequestState.DRAWING else RequestState.LOADING
    step, total, left = int(beat.get("step", 0)), int(beat.get("total", 0)), beat.get("seconds_left")
    return Progress(sample_id, state, settings, step, total, left, str(beat.get("message", "")))


def pending(workspace: Workspace) -> list[str]:
    """Ids of the requests that wait or are drawn, in their order: what a page shows again after a reload."""
    folder = worker_folder(workspace)
    if not jobs.status(folder).state.alive:
        return []
    return sorted({path.stem for part in (REQUESTS, ACTIVE) for path in _requests(folder / part)})


def wait(workspace: Workspace, sample_id: str, seconds: float | None = None, poll: float = 0.1) -> Progress:
    """Wait until the request is over or the time is up; returns where it is. Raises ConfigError for an unknown id."""
    end = None if seconds is None else time.monotonic() + seconds
    while not (now := progress(workspace, sample_id)).state.over and (end is None or time.monotonic() < end):
        time.sleep(poll)
    return now


# ---- the files, for both sides --------------------------------------------------------------------------------------


def worker_folder(workspace: Workspace) -> Path:
    return workspace.samples / WORKER


@contextlib.contextmanager
def queue_lock(folder: Path) -> Iterator[None]:
    """Held for moments: a request never reaches a worker that is just leaving, and two clients start one worker."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "queue.lock").open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def take(folder: Path) -> tuple[str, SampleSettings] | None:
    """The worker takes the oldest request: it moves from requests/ to active/. One that cannot be read fails."""
    if not waiting(folder):
        return None
    with queue_lock(folder):
        for path in _requests(folder / REQUESTS):
            settings = _settings(_read(path))
            if settings is None:
                fail(folder, path.stem, "The request's file cannot be read: submit it again.", ExitCode.BAD_CONFIG)
                continue
            with writing(folder):
                (folder / ACTIVE).mkdir(exist_ok=True)
                path.rename(folder / ACTIVE / path.name)
            return path.stem, settings
    return None


def waiting(folder: Path) -> bool:
    """Whether a request waits for the worker."""
    return bool(_requests(folder / REQUESTS))


def fail(folder: Path, sample_id: str, message: str, exit_code: ExitCode) -> None:
    """Write how a request ended without a video, then take it out of the queue."""
    name = f"{sample_id}.json"
    request = _read(folder / ACTIVE / name) or _read(folder / REQUESTS / name)
    record = {"settings": request.get("settings"), "message": message, "exit_code": int(exit_code)}
    write_json(folder / FAILED / name, record)
    clear(folder, sample_id)


def clear(folder: Path, sample_id: str) -> None:
    """Remove what belongs to a request that is over; its sample or its failure is on disk already."""
    for part in (REQUESTS, ACTIVE, PROGRESS):
        (folder / part / f"{sample_id}.json").unlink(missing_ok=True)
    (folder / CANCEL / sample_id).unlink(missing_ok=True)


def _give_up_leftovers(folder: Path) -> None:
    """What a worker that has ended left behind fails for good, as `progress` has shown it since."""
    message = _death(folder)
    for part in (ACTIVE, REQUESTS):
        for path in _requests(folder / part):
            fail(folder, path.stem, message, ExitCode.BUG)


def _refuse_busy_gpu(workspace: Workspace, settings: SampleSettings) -> None:
    device = pick_device(settings.device)
    holder = gpu_lock.holder(workspace.locks, device.uuid) if device.kind == "cuda" else None
    if holder not in (None, HOLDER):
        raise DeviceBusy(f"the GPU is held by {holder}: wait until it ends, stop it, or choose device cpu")


def _requests(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if ID.fullmatch(path.stem))


def _place(folder: Path, sample_id: str) -> str:
    """Why a request waits, in words."""
    worker = jobs.status(folder)
    if worker.state is jobs.State.STARTING or worker.phase == "starting":
        return "Starting the sampling worker."
    before = sum(path.stem < sample_id for part in (ACTIVE, REQUESTS) for path in _requests(folder / part))
    return f"{before} before this one." if before else "Next."


def _death(folder: Path) -> str:
    worker = jobs.status(folder)
    if worker.state is jobs.State.FAILED:
        return f"The sampling worker ended: {worker.message} Try again."
    return STOPPED if worker.state is jobs.State.STOPPED else DIED


def _settings(record: dict[str, Any]) -> SampleSettings | None:
    with contextlib.suppress(ConfigError, TypeError):
        return parse(SampleSettings, record.get("settings") or {"settings": "missing"})
    return None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, {} when it is not there (any more) or broken."""
    with contextlib.suppress(ConfigError):
        value = read_json(path)
        return value if isinstance(value, dict) else {}
    return {}
