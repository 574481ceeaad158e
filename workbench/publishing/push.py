"""Plan a push, and run it as a background job.

    publishing/lora--NAME/       the job that pushes a LoRA or a full fine-tune
    publishing/space--NAME/      the job that pushes its Space
    <the LoRA's folder>/published.json   {"repo_id", "url", "commit", "time", "private", "sha256" of the local file},
                                 and for its Space "space": {"repo_id", "url", "commit", "time", "private"}

An interrupted or stopped push continues when it is started again: files that the Hub has are not sent twice. Unchanged
files make no commit.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from workbench import hub, jobs
from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.loras import library
from workbench.loras.library import LibraryLora
from workbench.publishing import account, space
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.publishing.upload_plan import FullModel, UploadPlan, find_full_model, full_model_upload, lora_upload
from workbench.runs.checkpoints import PUBLISHED
from workbench.runs.model_card import PUSH_MODULE, push_job
from workbench.settings import parse
from workbench.workspace import Workspace, read_json, slugify, write_json, writing

What = Literal["lora", "space"]
STAGE = "files"
POLL_SECONDS = 0.3


def folder(workspace: Workspace, what: What, name: str) -> Path:
    """Return the job's folder. Raises ConfigError if there is no LoRA or fine-tune of this name."""
    return push_job(workspace.root, what, find(workspace, name).name)


def find(workspace: Workspace, name: str) -> LibraryLora | FullModel:
    """Return the LoRA or full fine-tune of this name. Raises ConfigError if there is none."""
    return find_full_model(workspace, name) or library.find(workspace, name)


def default_repo(owner: str, title: str, what: What = "lora") -> str:
    """Make a name for the repository: "me/cats", "me/cats-demo"."""
    return f"{owner}/{slugify(title)}{'-demo' if what == 'space' else ''}"


def plan_upload(workspace: Workspace, name: str, settings: LoraPush | SpacePush) -> UploadPlan:
    """Plan what to send, without writing or requesting anything. Raises ConfigError, DataError."""
    if not settings.repo_id:
        raise ConfigError.about("repo_id is empty: write OWNER/NAME")
    hub.check_repo_id(settings.repo_id)
    found = find(workspace, name)
    if isinstance(found, FullModel):
        if isinstance(settings, SpacePush):
            raise ConfigError(f"{found.title} is a full fine-tune, but Spaces demonstrate LoRAs: push only the model")
        return full_model_upload(workspace, found, settings)
    if isinstance(settings, SpacePush):
        return space.space_upload(workspace, found, settings)
    return lora_upload(workspace, found, settings)


def named(workspace: Workspace, name: str, settings: LoraPush | SpacePush, owner: str = "") -> Any:
    """Fill in the repository: the given one, else the last push's, else the default. Raises ConfigError."""
    if settings.repo_id.strip():
        return settings.changed(repo_id=settings.repo_id.strip())
    found, what = find(workspace, name), _what(settings)
    before = found.published.get("space", {}) if what == "space" else found.published
    if not before.get("repo_id") and not owner:
        raise ConfigError.of("repo_id", "repo_id is empty, and nobody is logged in to the Hub: write OWNER/NAME")
    return settings.changed(repo_id=before.get("repo_id") or default_repo(owner, found.title, what))


def _what(settings: LoraPush | SpacePush) -> What:
    return "space" if isinstance(settings, SpacePush) else "lora"


def start(workspace: Workspace, name: str, settings: LoraPush | SpacePush) -> jobs.Status:
    """Start a push. One in progress is left alone. Raises ConfigError, DataError, CannotWrite."""
    plan_upload(workspace, name, settings)
    target = folder(workspace, _what(settings), name)
    if (now := jobs.status(target)).state.alive:
        return now
    config = {**settings.model_dump(mode="json"), "lora": name}
    return jobs.start(target, PUSH_MODULE, before=lambda: write_json(target / jobs.CONFIG, config))


# ---- inside the job -------------------------------------------------------------------------------------------------


def run(job: jobs.Job) -> None:
    """Run the push as a job. Raises ConfigError, DataError, CannotWrite, ModelUnavailable (the Hub), jobs.Stop."""
    folder, workspace = job.folder, Workspace.of(job.folder)
    config = read_json(folder / jobs.CONFIG)
    name = config.pop("lora")
    is_space = folder.name.startswith("space--")
    settings = parse(SpacePush, config, given=()) if is_space else parse(LoraPush, config, given=())
    job.beat("gathering the files", patient=True)
    owner = account.ask().name  # first, because nothing needs to be read without a login
    settings = named(workspace, name, settings, owner)  # a run that pushes itself may leave it empty
    found = find(workspace, name)
    plan = plan_upload(workspace, name, settings)
    sha256 = file_sha256(found.path)
    try:
        pushed = _push(plan, plan.staged(folder / STAGE), job)
    finally:
        shutil.rmtree(folder / STAGE, ignore_errors=True)
    _note(found, plan, pushed, sha256)
    job.outcome = {"repo_id": plan.repo_id, **asdict(pushed), "files": plan.sizes}


def _push(plan: UploadPlan, files: dict[str, Path | bytes], job: jobs.Job) -> hub.Pushed:
    """Send the files in a thread, so that a stop takes effect even during the upload of a large file."""
    pool, began, total = ThreadPoolExecutor(1), time.monotonic(), sum(plan.sizes.values())
    pushing = pool.submit(hub.push, plan.kind, plan.repo_id, files, plan.message, plan.private)
    while True:
        over = bool(wait([pushing], POLL_SECONDS).done)
        done = total if over and not pushing.exception() else min(total, _sent_bytes())
        began = began if done else time.monotonic()  # the time for hashing, before the first byte, does not count
        pace = {"step_seconds": (time.monotonic() - began) / done} if done else {}
        job.beat("uploading", done, total, patient=True, message=f"to {plan.repo_id}", **pace)
        if over:
            return pushing.result()
        job.check_stop("stopped: nothing is visible on the Hub yet; start it again to continue")


_COUNTED: dict[tuple[int, str], int] = {}


def _sent_bytes() -> int:
    """Return how many bytes huggingface_hub has sent, which only its progress bars know."""
    from huggingface_hub.utils import tqdm

    for bar in list(getattr(tqdm, "_instances", ())):
        # With Xet, a second bar counts the bytes that the Hub did not have yet.
        if getattr(bar, "unit", "") == "B" and not bar.desc.startswith("New Data"):
            _COUNTED[id(bar), bar.desc.partition(" (")[0]] = int(bar.n)
    return sum(_COUNTED.values())


def _note(found: LibraryLora | FullModel, plan: UploadPlan, pushed: hub.Pushed, sha256: str) -> None:
    """Record the push in published.json."""
    path = found.folder / PUBLISHED
    with jobs.locked(path.with_name(f".{PUBLISHED}.lock")), writing(path):
        noted = read_json(path) if path.exists() else {}
        entry = {
            "repo_id": plan.repo_id,
            "url": pushed.url,
            "commit": pushed.commit,
            "time": time.time(),
            "private": plan.private,
        }
        new = {"space": entry} if plan.kind == "space" else {**entry, "sha256": sha256}
        write_json(path, {**noted, **new})
