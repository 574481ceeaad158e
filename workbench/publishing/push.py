"""A push as a background job, and what it would send, before it does.

    publishing/lora--NAME/       the job's folder of a LoRA's push, one a LoRA
    publishing/space--NAME/      of the push of its Space
    <the LoRA's folder>/published.json   {"repo_id", "url", "commit", "time", "private", "sha256"} of the LoRA's file
                                 here, and of its Space "space": {"repo_id", "url", "commit", "time", "private"}

A push that broke off or was stopped goes on when it is started again: what the Hub has is not sent twice. Equal files
make no commit. Not covered: the Hub's client (workbench.hub), what is in a parcel (lora, space).
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal

from workbench import hub, jobs
from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.loras import library
from workbench.loras.library import LibraryLora
from workbench.publishing import account, lora, space
from workbench.publishing.settings import LoraJob, LoraPush, SpaceJob, SpacePush
from workbench.publishing.upload_plan import Parcel
from workbench.runs.hub_push import MODULE, job_of
from workbench.runs.retention import PUBLISHED
from workbench.workspace import Workspace, read_json, slugify, write_json, writing

What = Literal["lora", "space"]
STAGE = "files"
LOOK_SECONDS = 0.3


def folder(workspace: Workspace, what: What, name: str) -> Path:
    """The job's folder. Raises ConfigError for what is no LoRA."""
    found = library.find(workspace, name)
    return job_of(workspace.root, what, found.name)


def status(workspace: Workspace, what: What, name: str) -> jobs.Status:
    return jobs.status(folder(workspace, what, name))


def result(workspace: Workspace, what: What, name: str) -> dict[str, Any]:
    """What the last push left, {} while it is not over."""
    return jobs.result(folder(workspace, what, name))


def default_repo(owner: str, title: str, what: What = "lora") -> str:
    """A name for the repository: "me/cats", "me/cats-demo"."""
    return f"{owner}/{slugify(title)}{'-demo' if what == 'space' else ''}"


def parcel(workspace: Workspace, name: str, settings: LoraPush | SpacePush) -> Parcel:
    """What would be sent; nothing is written and nobody is asked. Raises ConfigError, DataError."""
    if not settings.repo_id:
        raise ConfigError("repo_id is empty: write OWNER/NAME", {"repo_id": "write OWNER/NAME"})
    hub.check_repo_id(settings.repo_id)
    found = library.find(workspace, name)
    if isinstance(settings, SpacePush):
        return space.parcel(workspace, found, settings)
    return lora.parcel(workspace, found, settings)


def named(workspace: Workspace, name: str, settings: LoraPush | SpacePush, owner: str = "") -> Any:
    """The settings with a repository: the one that was asked for, else where it went before, else the default one."""
    if settings.repo_id.strip():
        return settings.changed(repo_id=settings.repo_id.strip())
    found, what = library.find(workspace, name), "space" if isinstance(settings, SpacePush) else "lora"
    before = found.published.get("space", {}) if what == "space" else found.published
    if before.get("repo_id"):
        return settings.changed(repo_id=before["repo_id"])
    if not owner:
        raise ConfigError("repo_id is empty, and nobody is logged in to the Hub: write OWNER/NAME")
    return settings.changed(repo_id=default_repo(owner, found.title, "space" if what == "space" else "lora"))


def start(workspace: Workspace, name: str, settings: LoraPush | SpacePush) -> jobs.Status:
    """Start a push; one that is under way goes on. Raises ConfigError, DataError, CannotWrite."""
    parcel(workspace, name, settings)
    what: What = "space" if isinstance(settings, SpacePush) else "lora"
    place = folder(workspace, what, name)
    if (now := jobs.status(place)).state.alive:
        return now
    job = SpaceJob if isinstance(settings, SpacePush) else LoraJob
    return jobs.start(place, MODULE, before=lambda: job(**settings.model_dump(), lora=name).save(place / jobs.CONFIG))


def stop(workspace: Workspace, what: What, name: str) -> None:
    """Ask a push to end; what is sent stays sent, and nothing of it is seen."""
    jobs.stop(folder(workspace, what, name))


# ---- inside the job -------------------------------------------------------------------------------------------------


def run(place: Path, job: jobs.Job) -> None:
    """The push as a job. Raises ConfigError, DataError, CannotWrite, ModelUnavailable (the Hub), jobs.Stop."""
    workspace = Workspace(place.parent.parent)
    settings: LoraJob | SpaceJob = (SpaceJob if place.name.startswith("space--") else LoraJob).load(place / jobs.CONFIG)
    job.beat("gathering the files", patient=True)
    owner = account.ask().name  # who is not logged in hears so before anything is read
    settings = named(workspace, settings.lora, settings, owner)  # a run that pushes itself may not say where to
    found = library.find(workspace, settings.lora)
    sent = parcel(workspace, settings.lora, settings)
    sha256 = file_sha256(found.path)
    try:
        files = sent.staged(place / STAGE)
        pushed = _push(sent, files, job)
    finally:
        shutil.rmtree(place / STAGE, ignore_errors=True)
    _note(found, sent, pushed, sha256)
    job.outcome = {
        "repo_id": sent.repo_id,
        "url": pushed.url,
        "commit": pushed.commit,
        "changed": pushed.changed,
        "files": sent.sizes,
    }


def _push(sent: Parcel, files: dict[str, Path | bytes], job: jobs.Job) -> hub.Pushed:
    """Send in a thread of its own, so that a stop is heard while a large file is on its way."""
    pool, began, total = ThreadPoolExecutor(1), time.monotonic(), sum(sent.sizes.values())
    pushing = pool.submit(hub.push, sent.kind, sent.repo_id, files, sent.message, sent.private)
    while True:
        over = bool(wait([pushing], LOOK_SECONDS).done)
        done = total if over and not pushing.exception() else min(total, _sent_bytes())
        began = began if done else time.monotonic()  # what is looked at before the first byte goes says no pace
        pace = {"step_seconds": (time.monotonic() - began) / done} if done else {}
        job.beat("uploading", done, total, patient=True, message=f"to {sent.repo_id}", **pace)
        if over:
            return pushing.result()
        if job.take("stop") is not None:
            raise jobs.Stop("stopped: nothing of it is seen on the Hub; started again, it goes on")


_COUNTED: dict[tuple[int, str], int] = {}


def _sent_bytes() -> int:
    """How much huggingface_hub has sent. It tells by its progress bars alone."""
    from huggingface_hub.utils import tqdm

    for bar in list(getattr(tqdm, "_instances", ())):
        # With Xet a second bar counts the part of the bytes that the Hub did not have.
        if getattr(bar, "unit", "") == "B" and not bar.desc.startswith("New Data"):
            _COUNTED[id(bar), bar.desc.partition(" (")[0]] = int(bar.n)
    return sum(_COUNTED.values())


def _note(found: LibraryLora, sent: Parcel, pushed: hub.Pushed, sha256: str) -> None:
    """published.json."""
    path = found.folder / PUBLISHED
    with jobs.locked(path.with_name(f".{PUBLISHED}.lock")), writing(path):
        noted = read_json(path) if path.exists() else {}
        entry = {
            "repo_id": sent.repo_id,
            "url": pushed.url,
            "commit": pushed.commit,
            "time": time.time(),
            "private": sent.private,
        }
        if sent.kind == "space":
            noted = {**noted, "space": entry}
        else:
            noted = {**noted, **entry, "sha256": sha256}
        write_json(path, noted)
