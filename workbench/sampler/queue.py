"""Requesting samples from the sampling worker, and following them. No torch.

One worker serves a workspace. It keeps the model loaded, outlives its clients and ends after a while without requests.
`jobs.queue.Requests` handles the files of both sides; this module knows what a request for a sample contains.

    samples/.worker/                a job folder (workbench.jobs): config.json, process.json, result.json ...
      requests/<id>.json            {settings, into, bulk, after, scenes, decode}: waiting; ids sort by time
      progress/<id>.json            {phase, step, total, seconds_left}
      progress/<id>.webp            the latent preview, a small animation
      done/<id>.json                {into}: finished, and not among the samples
    samples/<day>/<id>.mp4 .json    the finished sample (workbench.sampler.samples), unless `into` names another path
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
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
from workbench.jobs.queue import ACTIVE, DONE, FAILED, PROGRESS, REQUESTS, Requests
from workbench.sampler.inputs import check_continues, inputs_of, portable
from workbench.sampler.samples import ID, LATENTS, Samples, checked_id, new_id, read_sample_record, video_path
from workbench.sampler.settings import SampleSettings, WorkerSettings, joined_settings
from workbench.settings import parse
from workbench.workspace import Workspace, confined, read_object
from workbench.workspace.records import read_once, sound

MODULE = "workbench.sampler"
WORKER = ".worker"
MOST_WAITING = 5000  # requests; a grid has at most 2,000
STOP_SECONDS = 30.0
KEPT = ("into", "bulk", "after", "scenes", "decode")  # carried over when a request is repeated
HOLDER = "the sampling worker"


class _Request(BaseModel):
    """The fields that readers of a request's files rely on, each of which may be missing."""

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
    """The state of a request, read from its files.

    settings: None if the request's file cannot be read (damaged, or from another version).
    message:  a sentence for the user.
    video:    set once it is done.
    picture:  the latent preview, while it is generated.
    into:     the path of a video that does not belong to the samples.
    scenes:   the samples that it joins.
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
    return workspace.samples / WORKER


def requests_of(workspace: Workspace) -> Requests:
    return requests_in(worker_folder(workspace))


def requests_in(folder: Path) -> Requests:
    return Requests(folder, MODULE, HOLDER, "video", ID, WorkerSettings().save)


def settings_in(record: dict[str, Any]) -> SampleSettings | None:
    """Return the settings of a request or a record, or None if they cannot be read."""
    with contextlib.suppress(ConfigError, TypeError):
        return parse(SampleSettings, record.get("settings") or {"settings": "missing"}, given=())
    return None


def target(workspace: Workspace, sample_id: str, into: str) -> Path:
    """Return the path of a request's video. Raises ConfigError, DataError for a path outside the workspace."""
    return confined(workspace.root, f"{into}.mp4") if into else video_path(workspace, sample_id)


# ---- requesting


def submit(workspace: Workspace, settings: SampleSettings, *, into: str = "", bulk: bool = False) -> str:
    """Request a sample, start the worker if none is running, and return the id of the request and the sample.

    Args:
        into: The video's path in the workspace, without suffix, if it does not belong to the samples.
        bulk: Whether this is one of many requests, which wait for those that a person waits for.

    Raises:
        ConfigError: A setting does not suit the model, or a LoRA file cannot be used.
        ModelUnavailable: The Hub cannot be asked about a model that is not pinned.
        DeviceBusy: Another job holds the GPU. Nothing is started.
        CannotWrite: The disk refused.
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
    """Request several samples, all or none, and return their ids in order. See `submit`.

    chains: the number of interleaved chains of scenes, or 0; each sample continues the one `chains` places before it,
    and after all samples a joined video of each chain (`scenes`) is requested
    """
    paths = list(into) if into is not None else [""] * len(many)
    waiting = requests_of(workspace)
    stories = [range(first, len(many), chains) for first in range(chains)] if 0 < chains < len(many) else []
    count = len(waiting.files(REQUESTS)) + len(many) + len(stories)
    if (limits := quota.current()) is not None and count > limits.waiting:
        raise ConfigError(f"{count} videos would wait, at most {limits.waiting} in this demo: request fewer, or wait")
    if count > MOST_WAITING:
        raise ConfigError(
            f"{count:,} videos would wait, at most {MOST_WAITING:,} are allowed: request fewer, or cancel the waiting "
            "ones with workbench samples cancel-all"
        )
    requests: list[dict[str, Any]] = []
    for number, (settings, path) in enumerate(zip(many, paths, strict=True)):
        if path:
            confined(workspace.root, path)
            if settings.latents_only:
                raise ConfigError.of("latents_only", "latents_only is on, but a grid shows videos: turn it off")
        ready = resolved(workspace, settings, continues=0 < chains <= number)
        requests.append({"settings": ready.model_dump(mode="json"), "into": path, "bulk": bulk})
    if jobs.status(waiting.folder).state is jobs.State.STOPPING:
        jobs.wait(waiting.folder, STOP_SECONDS)  # an ending worker takes no more requests
    with waiting.locked():
        _check_devices(workspace, many)
        if not jobs.status(waiting.folder).state.alive:
            waiting.fail_active()
        ids = sorted(new_id() for _ in (*requests, *stories))
        for story in stories:
            for before, number in zip(story, story[1:], strict=False):
                requests[number]["after"] = ids[before]
            whole = joined_settings([settings_in(requests[number]) or many[number] for number in story])
            joined = {"settings": whole.model_dump(mode="json"), "scenes": [ids[number] for number in story]}
            requests.append(joined | {"into": "", "bulk": bulk})
        waiting.add(dict(zip(ids, requests, strict=True)))
    return ids


def again(workspace: Workspace, sample_id: str, **changes: Any) -> None:
    """Request a failed sample again, with some settings changed. It keeps its id, so that its next scene finds it.

    Raises ConfigError if it has not failed, and what `submit` raises.
    """
    waiting = requests_of(workspace)
    request = waiting.read(FAILED, checked_id(sample_id))
    settings = settings_in(request)
    if not request or settings is None:
        raise ConfigError("this request is gone: submit it again with the form")
    ready = resolved(workspace, settings.changed(**changes))
    with waiting.locked():
        _check_devices(workspace, [ready])
        kept = {name: value for name, value in request.items() if name in KEPT}
        waiting.add({sample_id: {**kept, "settings": ready.model_dump(mode="json")}})


def decode(workspace: Workspace, sample_id: str) -> None:
    """Request the video of a sample that was kept as latents. Do nothing if there is a video.

    The id stays, and the latents stay beside the video. Raises ConfigError for an unknown id, and what `submit` raises.
    """
    sample, waiting = Samples(workspace).get(sample_id), requests_of(workspace)
    if not sample.latents_only:
        return
    settings = sample.settings.changed(latents_only=False)
    with waiting.locked():
        _check_devices(workspace, [settings])
        if waiting.read(REQUESTS, sample_id) or waiting.read(ACTIVE, sample_id):
            return
        request = {"settings": settings.model_dump(mode="json"), "into": "", "bulk": False, "decode": True}
        waiting.add({sample_id: request})


def check(workspace: Workspace, settings: SampleSettings) -> None:
    """Raise what `submit` would raise, without requesting anything."""
    resolved(workspace, settings)
    _check_devices(workspace, [settings])


def resolved(workspace: Workspace, settings: SampleSettings, continues: bool = False) -> SampleSettings:
    """Return the settings for the worker, with all names resolved. Raises ConfigError, ModelUnavailable.

    continues: whether the sample continues another one, which does not exist yet
    """
    ready = portable(workspace, settings).settled()
    inputs = inputs_of(workspace, ready)
    if continues and ready.latents_only:
        raise ConfigError.of(
            "latents_only",
            "latents_only is on, but a scene continues the frames of the one before: turn it off for scenes",
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
    """Start a worker for waiting requests whose worker crashed. See `Requests.revive`. Raises CannotWrite."""
    requests_of(workspace).revive()


def cancel(workspace: Workspace, sample_id: str) -> None:
    """Cancel a request: at once if it waits, within one denoising step if it is being generated. Finished ones stay.

    Raises ConfigError for an unknown id, CannotWrite.
    """
    if not requests_of(workspace).cancel(checked_id(sample_id)):
        progress(workspace, sample_id)  # raises for an unknown id


def cancel_all(workspace: Workspace, ids: Iterable[str]) -> None:
    """Cancel several requests. Finished and unknown ones are left alone. Raises CannotWrite."""
    for sample_id in sorted(ids, reverse=True):  # last first, or the worker would start on one after the other
        with contextlib.suppress(ConfigError):
            cancel(workspace, sample_id)


def stop_worker(workspace: Workspace, grace: float | None = None) -> None:
    """Stop the worker now, for example before a training run that needs the GPU. For `grace` see jobs.stop."""
    jobs.stop(worker_folder(workspace), grace)


# ---- following


def progress(workspace: Workspace, sample_id: str) -> Progress:
    """Return the current state of a request. Raises Unknown for an unknown id."""
    waiting, worker = requests_of(workspace), jobs.status(worker_folder(workspace))
    files = partial(waiting.read, name=checked_id(sample_id))
    # Requests only move forward through these folders, so reading them in this order cannot miss one.
    request, active, failed = files(REQUESTS), files(ACTIVE), files(FAILED)
    known = active or request or files(DONE)
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
        message = "Next."
        if worker.state is jobs.State.STARTING or worker.phase == "starting":
            message = "Starting the sampling worker."
        elif not worker.state.alive:
            message = "Waiting for the sampling worker to start again."
        elif before := sum(path.stem < sample_id for part in (ACTIVE, REQUESTS) for path in waiting.files(part)):
            message = f"{before} before this one."
        return now(RequestState.WAITING, message=message)
    if not worker.state.alive:
        return now(RequestState.FAILED, message=waiting.ending(), exit_code=int(ExitCode.BUG))
    beat = sound(files(PROGRESS), _Request)
    picture = waiting.folder / PROGRESS / f"{sample_id}.webp"
    return now(
        RequestState.GENERATING if beat.get("phase") == RequestState.GENERATING else RequestState.LOADING,
        step=int(beat.get("step", 0)),
        total=int(beat.get("total", 0)),
        seconds_left=beat.get("seconds_left"),
        message=str(beat.get("message", "")),
        picture=picture if picture.exists() else None,
    )


def pending(workspace: Workspace) -> list[str]:
    """Return the ids of the waiting and active requests, oldest first."""
    return requests_of(workspace).pending()


def pending_samples(workspace: Workspace) -> list[str]:
    """Return the ids of the waiting and active requests that do not belong to a grid, oldest first."""
    waiting = requests_of(workspace)
    names, files = waiting.pending(), (path for part in (REQUESTS, ACTIVE) for path in waiting.files(part))
    of_grids = {path.stem for path in files if read_once(path, _into)}
    return [name for name in names if name not in of_grids]


def _into(path: Path) -> str:
    return str(read_object(path).get("into", ""))


def wait(workspace: Workspace, sample_id: str, seconds: float | None = None, poll: float = 0.1) -> Progress:
    """Wait until a request is over or the time is up, and return its state. Raises ConfigError for an unknown id."""
    end = None if seconds is None else time.monotonic() + seconds
    while not (now := progress(workspace, sample_id)).state.over and (end is None or time.monotonic() < end):
        revive(workspace)
        time.sleep(poll)
    return now


# ---- the worker's side


class Request(NamedTuple):
    """A request that the worker has taken.

    into:   see `submit`.
    after:  the sample that it continues, or "".
    scenes: the samples that it joins; () for a sample to generate.
    decode: whether only its video is missing, because its latents exist.
    """

    id: str
    settings: SampleSettings
    into: str
    after: str = ""
    scenes: tuple[str, ...] = ()
    decode: bool = False


def take(requests: Requests, waits: Callable[[SampleSettings], bool] = lambda settings: False) -> Request | None:
    """Take the oldest request, bulk requests last. waits: see `Requests.take`"""
    found = requests.take(settings_in, waits)
    if found is None:
        return None
    sample_id, record, settings = found
    into, after = (str(record.get(name, "")) for name in ("into", "after"))
    return Request(sample_id, settings, into, after, tuple(record.get("scenes") or ()), record.get("decode") is True)
