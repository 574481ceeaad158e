"""The sampling queue: requesting samples from the worker, following them, and the files of both sides. No torch.

One worker serves a workspace. It keeps the model warm, outlives its clients and ends when nothing was requested for a
while. A worker that crashes loses only the request that it was working on: `revive` starts another one for those that
wait.

    samples/.worker/                a job folder (workbench.jobs): config.json, process.json, result.json ...
      requests/<id>.json            {settings, into, bulk, after, scenes, decode}: waiting; ids sort by time
      active/<id>.json              taken by the worker
      progress/<id>.json            {phase, step, total, seconds_left}
      progress/<id>.webp            the latent preview, a small moving picture
      cancel/<id>                   asks the worker to cancel that request
      failed/<id>.json              {settings, into, message, exit_code}; exit code 90: cancelled
      done/<id>.json                {into}: finished, and not among the samples
      queue.lock                    held while a request is added, taken or cancelled, and while the worker ends
    samples/<day>/<id>.mp4 .json    the finished sample (workbench.sampler.samples), unless `into` names another path

A request changes folders only forward (requests, active, then sample or failed), each step with one rename or one
write.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from workbench import jobs
from workbench.clips.records import Number, Whole
from workbench.errors import ConfigError, DeviceBusy, ExitCode, Unknown
from workbench.jobs import gpu_lock, quota
from workbench.jobs.devices import pick_device
from workbench.jobs.locks import locked
from workbench.sampler.inputs import check_continues, inputs_of, portable
from workbench.sampler.samples import ID, LATENTS, Samples, checked_id, new_id, read_sample_record, video_path
from workbench.sampler.settings import SampleSettings, WorkerSettings, joined_settings
from workbench.settings import parse
from workbench.workspace import Workspace, confined, disk, make_folder, read_object, write_json, writing
from workbench.workspace.records import sound

MODULE = "workbench.sampler"
WORKER, REQUESTS, ACTIVE, PROGRESS, CANCEL = ".worker", "requests", "active", "progress", "cancel"
FAILED, DONE = "failed", "done"
MOST_WAITING = 5000  # requests; a grid has 2,000 at most
STOP_SECONDS = 30.0
HOLDER = "the sampling worker"
STOPPED = "The sampling worker was stopped before this video was done: try again."
DIED = (
    "The sampling worker ended before this video was done (killed, out of memory, or the machine went down): try again."
)


class _Request(BaseModel):
    """What readers may rely on in the files of a request, where it is there."""

    scenes: list[str] | None = None
    exit_code: int | None = None
    step: Whole = 0
    total: Whole = 0
    seconds_left: Number | None = None


class RequestState(StrEnum):
    """The state of a request, derived from its files."""

    WAITING = "waiting"
    LOADING = "loading"
    GENERATING = "generating"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self in (RequestState.DONE, RequestState.FAILED, RequestState.CANCELLED)


@dataclass(frozen=True)
class Progress:
    """A request as its files describe it. `message` is a sentence for people; `video` is set once it is done,
    `picture`, the latent preview, while it is generated.

    `settings` is None when the request's file cannot be read (damaged, or of another version); `into` is the
    path of a video that does not belong to the samples; `scenes` are the samples that it joins.
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
    scenes: tuple[str, ...] = ()


def worker_folder(workspace: Workspace) -> Path:
    """The job folder of the sampling worker."""
    return workspace.samples / WORKER


@contextlib.contextmanager
def queue_lock(folder: Path) -> Iterator[None]:
    """Held for moments: no request reaches a worker that is ending, and two clients start one worker."""
    make_folder(folder)
    with locked(folder / "queue.lock"):
        yield


def requests_in(folder: Path) -> list[Path]:
    """The requests of a folder, oldest first."""
    return sorted(path for path in folder.glob("*.json") if ID.fullmatch(path.stem))


def settings_in(record: dict[str, Any]) -> SampleSettings | None:
    """The settings of a request or a record; None where they cannot be read."""
    with contextlib.suppress(ConfigError, TypeError):
        return parse(SampleSettings, record.get("settings") or {"settings": "missing"}, given=())
    return None


def target(workspace: Workspace, sample_id: str, into: str) -> Path:
    """The path of a request's video. Raises ConfigError, DataError for a path outside the workspace."""
    return confined(workspace.root, f"{into}.mp4") if into else video_path(workspace, sample_id)


def fail(folder: Path, sample_id: str, message: str, exit_code: ExitCode) -> None:
    """Write how a request ended without a video, then take it out of the queue."""
    name = f"{sample_id}.json"
    request = read_object(folder / ACTIVE / name) or read_object(folder / REQUESTS / name)
    record = {**request, "message": message, "exit_code": int(exit_code)}
    write_json(folder / FAILED / name, record)
    clear(folder, sample_id)


def clear(folder: Path, sample_id: str) -> None:
    """Remove the files of a request that is over; its sample or its failure is on disk already.

    Its picture stays until the next request is over: a page may be about to load it.
    """
    for part in (REQUESTS, ACTIVE, PROGRESS):
        (folder / part / f"{sample_id}.json").unlink(missing_ok=True)
    for picture in (folder / PROGRESS).glob("*.webp"):
        if picture.stem != sample_id and not (folder / ACTIVE / f"{picture.stem}.json").exists():
            picture.unlink(missing_ok=True)
    (folder / CANCEL / sample_id).unlink(missing_ok=True)


# ---- requesting -----------------------------------------------------------------------------------------------------


def submit(workspace: Workspace, settings: SampleSettings, *, into: str = "", bulk: bool = False) -> str:
    """Request a sample and start the worker if there is none. Returns the request's id, which becomes the sample's.

    into: the video's path where it does not belong to the samples: under the workspace, without suffix
    bulk: one of many; requests that a person waits for come first

    Raises ConfigError (a setting does not suit the model, a LoRA file is unsound), ModelUnavailable (a Hub model that
    is not pinned cannot be looked at), DeviceBusy (another job holds the GPU; nothing is started then), CannotWrite.
    """
    return submit_all(workspace, [settings], into=[into], bulk=bulk)[0]


def submit_all(
    workspace: Workspace,
    many: Sequence[SampleSettings],
    *,
    into: Sequence[str] | None = None,
    bulk: bool = False,
    chains: int = 0,
) -> list[str]:
    """Request several samples, all or none; see `submit`. Returns their ids, in their order.

    chains: each sample goes on from the one so many before it, where there is one, and behind all of them each chain
    follows as one video (`scenes`); 0: none does
    """
    paths = list(into) if into is not None else [""] * len(many)
    folder = worker_folder(workspace)
    stories = [range(first, len(many), chains) for first in range(chains)] if 0 < chains < len(many) else []
    count = len(requests_in(folder / REQUESTS)) + len(many) + len(stories)
    if (limits := quota.current()) is not None and count > limits.waiting:
        raise ConfigError(f"{count} videos would wait, at most {limits.waiting} in this demo: request fewer, or wait")
    if count > MOST_WAITING:
        raise ConfigError(
            f"{count:,} videos would wait, at most {MOST_WAITING:,} are allowed: request fewer, or cancel those that "
            "wait with workbench samples cancel-all"
        )
    requests: list[dict[str, Any]] = []
    for number, (settings, path) in enumerate(zip(many, paths, strict=True)):
        if path:
            confined(workspace.root, path)
            if settings.latents_only:
                raise ConfigError.of("latents_only", "latents_only is on, and a grid shows videos: leave it off")
        ready = resolved(workspace, settings, continues=0 < chains <= number)
        requests.append({"settings": ready.model_dump(mode="json"), "into": path, "bulk": bulk})
    if jobs.status(folder).state is jobs.State.STOPPING:
        jobs.wait(folder, STOP_SECONDS)  # a worker that is ending would not take them
    with queue_lock(folder):
        _check_devices(workspace, many)
        if not jobs.status(folder).state.alive:
            _fail_active(folder)
        ids = sorted(new_id() for _ in (*requests, *stories))
        for story in stories:
            for before, number in zip(story, story[1:], strict=False):
                requests[number]["after"] = ids[before]
            whole = joined_settings([settings_in(requests[number]) or many[number] for number in story])
            joined = {"settings": whole.model_dump(mode="json"), "scenes": [ids[number] for number in story]}
            requests.append(joined | {"into": "", "bulk": bulk})
        for sample_id, request in zip(ids, requests, strict=True):
            write_json(folder / REQUESTS / f"{sample_id}.json", request)
        _start(folder)
    return ids


def again(workspace: Workspace, sample_id: str, **changes: Any) -> None:
    """Request a failed sample once more, with some settings changed. Its id stays: its next scene goes on from it.

    Raises ConfigError for one that did not fail, and what `submit` raises.
    """
    folder = worker_folder(workspace)
    failed = folder / FAILED / f"{checked_id(sample_id)}.json"
    request = read_object(failed)
    settings = settings_in(request)
    if not request or settings is None:
        raise ConfigError("this request is gone: submit it again with the form")
    ready = resolved(workspace, settings.changed(**changes))
    with queue_lock(folder):
        _check_devices(workspace, [ready])
        kept = {name: request[name] for name in ("into", "bulk", "after", "scenes", "decode") if name in request}
        write_json(folder / REQUESTS / failed.name, {**kept, "settings": ready.model_dump(mode="json")})
        failed.unlink(missing_ok=True)
        _start(folder)


def decode(workspace: Workspace, sample_id: str) -> None:
    """Request the video of a sample that was kept as latents; of one that has its video, nothing.

    Its id stays, and so do the latents, beside the video. Raises ConfigError for an unknown id, and what `submit`
    raises.
    """
    sample, folder = Samples(workspace).get(sample_id), worker_folder(workspace)
    if not sample.latents_only:
        return
    settings = sample.settings.changed(latents_only=False)
    with queue_lock(folder):
        _check_devices(workspace, [settings])
        if (folder / REQUESTS / f"{sample_id}.json").exists() or (folder / ACTIVE / f"{sample_id}.json").exists():
            return
        request = {"settings": settings.model_dump(mode="json"), "into": "", "bulk": False, "decode": True}
        write_json(folder / REQUESTS / f"{sample_id}.json", request)
        (folder / FAILED / f"{sample_id}.json").unlink(missing_ok=True)
        _start(folder)


def check(workspace: Workspace, settings: SampleSettings) -> None:
    """Raise what `submit` would, and request nothing."""
    resolved(workspace, settings)
    _check_devices(workspace, [settings])


def resolved(workspace: Workspace, settings: SampleSettings, continues: bool = False) -> SampleSettings:
    """The settings for the worker, all names resolved. Raises ConfigError, ModelUnavailable.

    continues: the sample goes on from another one, which is not there yet
    """
    ready = portable(workspace, settings).settled()
    inputs = inputs_of(workspace, ready)
    if continues and ready.latents_only:
        raise ConfigError.of(
            "latents_only",
            "latents_only is on, and a scene goes on from the frames of the one before: leave it off for scenes",
        )
    if continues:
        check_continues(ready.resolved.model, inputs.shape)
    return ready


def _check_devices(workspace: Workspace, many: Sequence[SampleSettings]) -> None:
    for device in {pick_device(settings.device) for settings in many}:
        holder = gpu_lock.holder(workspace.locks, device.uuid) if device.is_gpu else None
        if holder not in (None, HOLDER):
            raise DeviceBusy(f"the GPU is held by {holder}: wait until it ends, stop it, or choose device cpu")


def revive(workspace: Workspace) -> None:
    """Start a worker for waiting requests, where theirs crashed. Cheap where there is nothing to do.

    Everything that shows requests calls it regularly. Raises CannotWrite.
    """
    folder = worker_folder(workspace)
    if not (requests_in(folder / REQUESTS) or requests_in(folder / ACTIVE)) or jobs.status(folder).state.alive:
        return
    with queue_lock(folder):
        state = jobs.status(folder).state
        if state.alive:
            return
        cause = _end_of_worker(folder)
        # Each crash fails one request at least, so that this comes to an end whatever the cause. A worker that ended
        # without a request would do so again, and one that was stopped is not restarted.
        if _fail_active(folder) and state is not jobs.State.STOPPED:
            if requests_in(folder / REQUESTS):
                _start(folder)
            return
        for path in requests_in(folder / REQUESTS):
            fail(folder, path.stem, cause, ExitCode.STOPPED if state is jobs.State.STOPPED else ExitCode.BUG)


def cancel(workspace: Workspace, sample_id: str) -> None:
    """Cancel a request: at once while it waits, within one denoising step while it is generated. Done ones stay.

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
    """Cancel several requests, the last one first; those that are over already, or unknown, stay as they are.

    Raises CannotWrite.
    """
    for sample_id in sorted(ids, reverse=True):  # else the worker would begin with one after the other
        with contextlib.suppress(ConfigError):
            cancel(workspace, sample_id)


def stop_worker(workspace: Workspace, grace: float | None = None) -> None:
    """Stop the worker now, as before a training run that needs the GPU; see jobs.stop for `grace`."""
    jobs.stop(worker_folder(workspace), grace)


# ---- following ------------------------------------------------------------------------------------------------------


def progress(workspace: Workspace, sample_id: str) -> Progress:
    """The state of a request now. Raises Unknown for an unknown id."""
    folder, name = worker_folder(workspace), f"{checked_id(sample_id)}.json"
    alive = jobs.status(folder).state.alive
    # A request moves forward only, so reading in the same order cannot miss it.
    request, active = read_object(folder / REQUESTS / name), read_object(folder / ACTIVE / name)
    failed = read_object(folder / FAILED / name)
    known = active or request or read_object(folder / DONE / name)
    into = str((known or failed).get("into", ""))
    video = target(workspace, sample_id, into)
    record = read_sample_record(video.with_suffix(".json"))
    wanted = failed or active or request
    if not video.exists() and not wanted and video.with_suffix(LATENTS).exists():
        video = video.with_suffix(LATENTS)
    now = partial(Progress, sample_id, into=into)
    if record and video.exists():
        steps, joined = int(record.get("steps", 0)), tuple(one["id"] for one in record.get("scenes") or ())
        done = RequestState.DONE
        return now(done, settings_in(record), steps, steps, 0.0, video=video, scenes=joined)
    now = partial(now, settings=settings_in(wanted), scenes=tuple(sound(wanted, _Request).get("scenes") or ()))
    if failed:
        code = sound(failed, _Request).get("exit_code")
        state = RequestState.CANCELLED if code == ExitCode.STOPPED else RequestState.FAILED
        return now(state, message=str(failed.get("message", "")), exit_code=code)
    if not (active or request):
        raise Unknown(f"the request {sample_id!r} is not known here: it may have been deleted; submit it again")
    if not active:
        worker, message = jobs.status(folder), "Next."
        if worker.state is jobs.State.STARTING or worker.phase == "starting":
            message = "Starting the sampling worker."
        elif not worker.state.alive:
            message = "Waiting for the sampling worker to start again."
        elif before := sum(path.stem < sample_id for part in (ACTIVE, REQUESTS) for path in requests_in(folder / part)):
            message = f"{before} before this one."
        return now(RequestState.WAITING, message=message)
    if not alive:
        return now(RequestState.FAILED, message=_end_of_worker(folder), exit_code=int(ExitCode.BUG))
    beat = sound(read_object(folder / PROGRESS / name), _Request)
    picture = folder / PROGRESS / f"{sample_id}.webp"
    return now(
        RequestState.GENERATING if beat.get("phase") == RequestState.GENERATING else RequestState.LOADING,
        step=int(beat.get("step", 0)),
        total=int(beat.get("total", 0)),
        seconds_left=beat.get("seconds_left"),
        message=str(beat.get("message", "")),
        picture=picture if picture.exists() else None,
    )


def pending(workspace: Workspace) -> list[str]:
    """Ids of the waiting and active requests, oldest first: what a page shows after a reload."""
    folder = worker_folder(workspace)
    active = requests_in(folder / ACTIVE) if jobs.status(folder).state.alive else []
    return sorted({path.stem for path in (*requests_in(folder / REQUESTS), *active)})


def pending_samples(workspace: Workspace) -> list[str]:
    """Ids of the waiting and active requests that belong to no grid, oldest first."""
    folder = worker_folder(workspace)
    return [
        name
        for name in pending(workspace)
        if not any(read_object(folder / part / f"{name}.json").get("into") for part in (REQUESTS, ACTIVE))
    ]


def wait(workspace: Workspace, sample_id: str, seconds: float | None = None, poll: float = 0.1) -> Progress:
    """Wait until the request is over or the time is up; returns its state. Raises ConfigError for an unknown id."""
    end = None if seconds is None else time.monotonic() + seconds
    while not (now := progress(workspace, sample_id)).state.over and (end is None or time.monotonic() < end):
        revive(workspace)
        time.sleep(poll)
    return now


# ---- its life -------------------------------------------------------------------------------------------------------


def _start(folder: Path) -> None:
    if not (folder / jobs.CONFIG).exists():
        WorkerSettings().save(folder / jobs.CONFIG)
    jobs.start(folder, MODULE)


def _fail_active(folder: Path) -> bool:
    """Fail the request that a worker left active when it ended, as `progress` has shown it since; whether there was
    one."""
    message, active = _end_of_worker(folder), requests_in(folder / ACTIVE)
    for path in active:
        fail(folder, path.stem, message, ExitCode.BUG)
    return bool(active)


def _end_of_worker(folder: Path) -> str:
    worker = jobs.status(folder)
    if worker.state is jobs.State.FAILED:
        return f"The sampling worker ended: {worker.message} Try again."
    return STOPPED if worker.state is jobs.State.STOPPED else DIED


# ---- the worker's side ----------------------------------------------------------------------------------------------


class Request(NamedTuple):
    """A request that the worker has taken. into: see queue.submit;  after: the sample that it continues, or ""

    scenes: the samples that it joins; () for one that is generated
    decode: whether its latents are there already, and only the video is missing
    """

    id: str
    settings: SampleSettings
    into: str
    after: str = ""
    scenes: tuple[str, ...] = ()
    decode: bool = False


def take(folder: Path, waits: Callable[[SampleSettings], bool] = lambda settings: False) -> Request | None:
    """Take the oldest request, those in bulk last: it moves from requests/ to active/.

    One that cannot be read fails. waits: whether a request has to wait for its device, while others are taken
    """
    if not waiting(folder):
        return None
    with queue_lock(folder):
        found = [(path, read_object(path)) for path in requests_in(folder / REQUESTS)]
        for path, values in sorted(found, key=lambda one: bool(one[1].get("bulk"))):
            settings = settings_in(values)
            if settings is None:
                fail(folder, path.stem, "The request's file cannot be read: submit it again.", ExitCode.BAD_CONFIG)
                continue
            if waits(settings):
                continue
            with writing(folder):
                (folder / ACTIVE).mkdir(exist_ok=True)
                disk.replace(path, folder / ACTIVE / path.name)
            into, after = (str(values.get(name, "")) for name in ("into", "after"))
            joined, decode = tuple(values.get("scenes") or ()), values.get("decode") is True
            return Request(path.stem, settings, into, after, joined, decode)
    return None


def waiting(folder: Path) -> bool:
    """Whether a request waits for the worker."""
    return bool(requests_in(folder / REQUESTS))


def finish(folder: Path, request: Request) -> None:
    """Take a request out of the queue whose video is on the disk."""
    if request.into:
        write_json(folder / DONE / f"{request.id}.json", {"into": request.into})
    clear(folder, request.id)
