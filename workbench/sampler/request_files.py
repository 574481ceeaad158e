"""The files of the sampling queue, for both sides: the clients that request samples and the worker. No torch.

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
write. Not covered: requesting samples and following them (queue), generating them (worker).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from workbench.errors import ConfigError, ExitCode
from workbench.jobs.locks import locked
from workbench.sampler.samples import ID, video_path
from workbench.sampler.settings import SampleSettings
from workbench.settings import parse
from workbench.workspace import Workspace, confined, disk, make_folder, read_object, write_json, writing

WORKER, REQUESTS, ACTIVE, PROGRESS, CANCEL = ".worker", "requests", "active", "progress", "cancel"
FAILED, DONE = "failed", "done"


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


def worker_folder(workspace: Workspace) -> Path:
    """The job folder of the sampling worker."""
    return workspace.samples / WORKER


@contextlib.contextmanager
def queue_lock(folder: Path) -> Iterator[None]:
    """Held for moments: no request reaches a worker that is ending, and two clients start one worker."""
    make_folder(folder)
    with locked(folder / "queue.lock"):
        yield


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


def target(workspace: Workspace, sample_id: str, into: str) -> Path:
    """The path of a request's video. Raises ConfigError, DataError for a path outside the workspace."""
    return confined(workspace.root, f"{into}.mp4") if into else video_path(workspace, sample_id)


def waiting(folder: Path) -> bool:
    """Whether a request waits for the worker."""
    return bool(requests_in(folder / REQUESTS))


def fail(folder: Path, sample_id: str, message: str, exit_code: ExitCode) -> None:
    """Write how a request ended without a video, then take it out of the queue."""
    name = f"{sample_id}.json"
    request = read_object(folder / ACTIVE / name) or read_object(folder / REQUESTS / name)
    record = {**request, "message": message, "exit_code": int(exit_code)}
    write_json(folder / FAILED / name, record)
    clear(folder, sample_id)


def finish(folder: Path, request: Request) -> None:
    """Take a request out of the queue whose video is on the disk."""
    if request.into:
        write_json(folder / DONE / f"{request.id}.json", {"into": request.into})
    clear(folder, request.id)


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


def requests_in(folder: Path) -> list[Path]:
    """The requests of a folder, oldest first."""
    return sorted(path for path in folder.glob("*.json") if ID.fullmatch(path.stem))


def settings_in(record: dict[str, Any]) -> SampleSettings | None:
    """The settings of a request or a record; None where they cannot be read."""
    with contextlib.suppress(ConfigError, TypeError):
        return parse(SampleSettings, record.get("settings") or {"settings": "missing"}, given=())
    return None
