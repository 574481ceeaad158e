"""Asking for samples: the client's side of the sampling worker, through files. No torch.

    samples/.worker/                a job folder (workbench.jobs): config.json, process.json, result.json ...
      requests/<id>.json            {settings, into, bulk}: waiting its turn; ids sort by time
      active/<id>.json              taken by the worker
      progress/<id>.json            {phase, step, total, seconds_left}
      progress/<id>.webp            how the video looks so far, roughly; moves
      cancel/<id>                   asks the worker to leave that request
      failed/<id>.json              {settings, into, message, exit_code}; exit code 90: cancelled
      done/<id>.json                {into}: drawn, and not among the samples
      queue.lock                    held while a request is added, taken or given up, and while the worker leaves
    samples/<day>/<id>.mp4 .json    the finished sample (workbench.sampler.samples), unless `into` names another place

One worker serves a workspace. It keeps the model warm, outlives its clients and leaves when nothing was asked for a
while. A request changes folders only forward (requests, active, then sample or failed), each step with one rename or
one write. A worker that crashes takes only the request with it that it was drawing: `revive` starts another one for
those that wait. Not covered: drawing (worker, generate), several workers at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from workbench import jobs, policy
from workbench.errors import ConfigError, DeviceBusy, ExitCode
from workbench.jobs import gpu_lock
from workbench.jobs.devices import pick_device
from workbench.jobs.locks import locked
from workbench.sampler.inputs import inputs_of, portable
from workbench.sampler.samples import ID, checked_id, new_id, video_path
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, field, parse
from workbench.workspace import Workspace, confined, read_json, write_json, writing

MODULE = "workbench.sampler"
STOP_SECONDS = 30.0
HOLDER = "the sampling worker"
WORKER, REQUESTS, ACTIVE, PROGRESS, CANCEL = ".worker", "requests", "active", "progress", "cancel"
FAILED, DONE = "failed", "done"
STOPPED = "The sampling worker was stopped before this video was done: try again."
DIED = (
    "The sampling worker ended before this video was done (killed, out of memory, or the machine went down): try again."
)


class WorkerSettings(Settings):
    """How the sampling worker behaves; samples/.worker/config.json."""

    idle_seconds: float = field(
        120.0, title="Stay warm", section="Worker", unit="seconds", low=0.0, high=86400.0, advanced=True
    )
    """How long the model stays loaded after the last request."""


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
    """A request as its files tell it. `message` is a sentence for people; `video` is there once it is done,
    `picture` while it is drawn: how it looks so far, roughly.

    `settings` is None when the request's file cannot be read (damaged, or of another version); `into` says where the
    video goes when it goes elsewhere than among the samples.
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
    picture: Path | None = None
    into: str = ""


class Request(NamedTuple):
    """What the worker takes. into: see `submit`."""

    id: str
    settings: SampleSettings
    into: str


# ---- asking ---------------------------------------------------------------------------------------------------------


def submit(workspace: Workspace, settings: SampleSettings, *, into: str = "", bulk: bool = False) -> str:
    """Ask for a sample and start the worker if none is there. Returns the request's id, which becomes the sample's.

    into: where the video goes instead of among the samples: a path under the workspace, without suffix
    bulk: one of many, which lets requests that a person waits for go first

    Raises ConfigError (a setting does not suit the model, a LoRA file is unsound), ModelUnavailable (a Hub model that
    is not pinned cannot be looked at), DeviceBusy (another job holds the GPU; nothing is started then), CannotWrite.
    """
    return submit_all(workspace, [settings], into=[into], bulk=bulk)[0]


def submit_all(
    workspace: Workspace, many: Sequence[SampleSettings], *, into: Sequence[str] | None = None, bulk: bool = False
) -> list[str]:
    """Ask for several samples, all or none; see `submit`. Returns their ids, in their order."""
    places = list(into) if into is not None else [""] * len(many)
    requests = []
    for settings, place in zip(many, places, strict=True):
        if place:
            confined(workspace.root, place)
        asked = portable(settings).settled()
        inputs_of(workspace, asked)
        requests.append({"settings": asked.model_dump(mode="json"), "into": place, "bulk": bulk})
    folder = worker_folder(workspace)
    policy.check_waiting(len(_requests(folder / REQUESTS)) + len(many))
    if jobs.status(folder).state is jobs.State.STOPPING:
        jobs.wait(folder, STOP_SECONDS)  # a worker that is leaving would not take them
    with queue_lock(folder):
        for device in {settings.device for settings in many}:
            _refuse_busy_gpu(workspace, device)
        if not jobs.status(folder).state.alive:
            _give_up_active(folder)
        ids = [new_id() for _ in requests]
        for sample_id, request in zip(sorted(ids), requests, strict=True):
            write_json(folder / REQUESTS / f"{sample_id}.json", request)
        _start(folder)
    return sorted(ids)


def revive(workspace: Workspace) -> None:
    """Give requests that wait a worker, where theirs ended without being told to. Cheap where there is nothing to do.

    Whoever shows requests calls it now and then. Raises CannotWrite.
    """
    folder = worker_folder(workspace)
    if not (_requests(folder / REQUESTS) or _requests(folder / ACTIVE)) or jobs.status(folder).state.alive:
        return
    with queue_lock(folder):
        state = jobs.status(folder).state
        if state.alive:
            return
        cause = _death(folder)
        # Each new worker gives up one request at least, so that this comes to an end whatever kills them. One that
        # ended without a request would do so again, and one that was stopped was not wanted.
        if _give_up_active(folder) and state is not jobs.State.STOPPED:
            if _requests(folder / REQUESTS):
                _start(folder)
            return
        for path in _requests(folder / REQUESTS):
            fail(folder, path.stem, cause, ExitCode.STOPPED if state is jobs.State.STOPPED else ExitCode.BUG)


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


def cancel_all(workspace: Workspace, ids: Iterable[str]) -> None:
    """Give up several requests; those that are over already, or unknown, stay as they are. Raises CannotWrite."""
    for sample_id in ids:
        with contextlib.suppress(ConfigError):
            cancel(workspace, sample_id)


def stop_worker(workspace: Workspace, grace: float | None = None) -> None:
    """Ask the worker to leave now, as before a training run that needs the GPU; see jobs.stop for `grace`."""
    jobs.stop(worker_folder(workspace), grace)


# ---- watching -------------------------------------------------------------------------------------------------------


def progress(workspace: Workspace, sample_id: str) -> Progress:
    """Where a request is now. Raises ConfigError for an unknown id."""
    folder, name = worker_folder(workspace), f"{checked_id(sample_id)}.json"
    alive = jobs.status(folder).state.alive
    # A request moves forward only, so looking in the same order cannot miss it.
    request, active = _read(folder / REQUESTS / name), _read(folder / ACTIVE / name)
    failed = _read(folder / FAILED / name)
    asked = active or request or _read(folder / DONE / name)
    into = str((asked or failed).get("into", ""))
    video = target(workspace, sample_id, into)
    record = _read(video.with_suffix(".json"))
    if known := record if video.exists() else {}:
        steps = int(known.get("steps", 0))
        return Progress(sample_id, RequestState.DONE, _settings(known), steps, steps, 0.0, video=video, into=into)
    if failed:
        code = failed.get("exit_code")
        state = RequestState.CANCELLED if code == ExitCode.STOPPED else RequestState.FAILED
        return Progress(
            sample_id, state, _settings(failed), message=str(failed.get("message", "")), exit_code=code, into=into
        )  # fmt: skip
    known = active or request
    if not known:
        raise ConfigError(f"the request {sample_id!r} is not known here: it may have been deleted; submit it again")
    settings = _settings(known)
    if not active:
        return Progress(sample_id, RequestState.WAITING, settings, message=_place(folder, sample_id), into=into)
    if not alive:
        return Progress(
            sample_id, RequestState.FAILED, settings, message=_death(folder), exit_code=int(ExitCode.BUG), into=into
        )
    beat = _read(folder / PROGRESS / name)
    state = RequestState.DRAWING if beat.get("phase") == RequestState.DRAWING else RequestState.LOADING
    step, total, left = int(beat.get("step", 0)), int(beat.get("total", 0)), beat.get("seconds_left")
    picture = folder / PROGRESS / f"{sample_id}.webp"
    return Progress(
        sample_id, state, settings, step, total, left, str(beat.get("message", "")),
        picture=picture if picture.exists() else None, into=into,
    )  # fmt: skip


def pending(workspace: Workspace) -> list[str]:
    """Ids of the requests that wait or are drawn, in the order they were asked: what a page shows after a reload."""
    folder = worker_folder(workspace)
    drawn = _requests(folder / ACTIVE) if jobs.status(folder).state.alive else []
    return sorted({path.stem for path in (*_requests(folder / REQUESTS), *drawn)})


def wait(workspace: Workspace, sample_id: str, seconds: float | None = None, poll: float = 0.1) -> Progress:
    """Wait until the request is over or the time is up; returns where it is. Raises ConfigError for an unknown id."""
    end = None if seconds is None else time.monotonic() + seconds
    while not (now := progress(workspace, sample_id)).state.over and (end is None or time.monotonic() < end):
        revive(workspace)
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
    with locked(folder / "queue.lock"):
        yield


def take(folder: Path, without_gpu: bool = False) -> Request | None:
    """The worker takes the oldest request, those in bulk last: it moves from requests/ to active/.

    One that cannot be read fails. without_gpu: those that may want the GPU wait
    """
    if not waiting(folder):
        return None
    with queue_lock(folder):
        found = [(bool(values.get("bulk")), path, values) for path in _requests(folder / REQUESTS)
                 if (values := _read(path)) is not None]  # fmt: skip
        for _, path, values in sorted(found, key=lambda one: one[:2]):
            settings = _settings(values)
            if settings is None:
                fail(folder, path.stem, "The request's file cannot be read: submit it again.", ExitCode.BAD_CONFIG)
                continue
            if without_gpu and settings.device != "cpu":
                continue
            with writing(folder):
                (folder / ACTIVE).mkdir(exist_ok=True)
                path.rename(folder / ACTIVE / path.name)
            return Request(path.stem, settings, str(values.get("into", "")))
    return None


def target(workspace: Workspace, sample_id: str, into: str) -> Path:
    """Where the video of a request goes. Raises ConfigError, DataError for a place outside the workspace."""
    return confined(workspace.root, f"{into}.mp4") if into else video_path(workspace, sample_id)


def waiting(folder: Path) -> bool:
    """Whether a request waits for the worker."""
    return bool(_requests(folder / REQUESTS))


def fail(folder: Path, sample_id: str, message: str, exit_code: ExitCode) -> None:
    """Write how a request ended without a video, then take it out of the queue."""
    name = f"{sample_id}.json"
    request = _read(folder / ACTIVE / name) or _read(folder / REQUESTS / name)
    record = {**request, "message": message, "exit_code": int(exit_code)}
    write_json(folder / FAILED / name, record)
    clear(folder, sample_id)


def finish(folder: Path, request: Request) -> None:
    """Take a request out of the queue whose video is on the disk."""
    if request.into:
        write_json(folder / DONE / f"{request.id}.json", {"into": request.into})
    clear(folder, request.id)


def clear(folder: Path, sample_id: str) -> None:
    """Remove what belongs to a request that is over; its sample or its failure is on disk already."""
    for part in (REQUESTS, ACTIVE, PROGRESS):
        (folder / part / f"{sample_id}.json").unlink(missing_ok=True)
    (folder / PROGRESS / f"{sample_id}.webp").unlink(missing_ok=True)
    (folder / CANCEL / sample_id).unlink(missing_ok=True)


def _start(folder: Path) -> None:
    if not (folder / jobs.CONFIG).exists():
        WorkerSettings().save(folder / jobs.CONFIG)
    jobs.start(folder, MODULE)


def _give_up_active(folder: Path) -> bool:
    """What a worker was drawing when it ended fails for good, as `progress` has shown it since; whether it was any."""
    message, drawn = _death(folder), _requests(folder / ACTIVE)
    for path in drawn:
        fail(folder, path.stem, message, ExitCode.BUG)
    return bool(drawn)


def _refuse_busy_gpu(workspace: Workspace, wanted: str) -> None:
    device = pick_device(wanted)
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
    if not worker.state.alive:
        return "Waiting for the sampling worker to start again."
    before = sum(path.stem < sample_id for part in (ACTIVE, REQUESTS) for path in _requests(folder / part))
    return f"{before} before this one." if before else "Next."


def _death(folder: Path) -> str:
    worker = jobs.status(folder)
    if worker.state is jobs.State.FAILED:
        return f"The sampling worker ended: {worker.message} Try again."
    return STOPPED if worker.state is jobs.State.STOPPED else DIED


def _settings(record: dict[str, Any]) -> SampleSettings | None:
    with contextlib.suppress(ConfigError, TypeError):
        return parse(SampleSettings, record.get("settings") or {"settings": "missing"}, given=())
    return None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, {} when it is not there (any more) or broken."""
    with contextlib.suppress(ConfigError):
        value = read_json(path)
        return value if isinstance(value, dict) else {}
    return {}
