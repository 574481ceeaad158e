"""Long work on a dataset as a background job: `datasets/NAME/.TASK/` is the job's folder, one a task.

    .import    video files become clips                 (ingest.intake)
    .split     clips are cut into parts                 (cuts.splitting)
    .check     every clip and caption is checked        (checks.dataset_check)
    .fix       clips are cut as the findings ask        (checks.fixes)
    .caption   a model says what the clips show         (captions.captioning)
    .make      edges, masks ... are made beside clips   (making)
    .track     painted masks are carried through clips  (masking)
    .export    the dataset in another tool's layout     (export)

`each` does the same work for many clips, one a core, and says how far it is. Threads do it, because decoders and
encoders let go of Python's lock.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field

from workbench import jobs
from workbench.captioners.keys import handed_over
from workbench.errors import ConfigError
from workbench.jobs import queue
from workbench.settings import Settings
from workbench.workspace import Workspace, named_paths, read_json
from workbench.workspace.records import read_record

MODULE = "workbench.dataset_builder"
Name = Literal["import", "split", "check", "fix", "caption", "make", "track", "export"]
NAMES: tuple[Name, ...] = get_args(Name)
MODULES: dict[Name, str] = {
    "import": "ingest.intake",
    "split": "cuts.splitting",
    "check": "checks.dataset_check",
    "fix": "checks.fixes",
    "caption": "captions.captioning",
    "make": "making",
    "track": "masking",
    "export": "export",
}


class TaskFile(BaseModel):
    """What became of a file of an import."""

    name: str
    outcome: Literal["taken", "converted", "known", "refused", "skipped"]
    note: str


class TaskResult(BaseModel):
    """What readers may rely on in a task's result.json, where it is there."""

    message: str = ""
    counts: dict[str, int] = {}
    files: list[TaskFile] = []
    new: list[str] = []
    problems: list[str] = []
    companions: dict[str, int] = {}
    clips: int = 0
    parts: int = 0
    preview: bool = False
    splits: list[str] = []
    spans: list[list[Annotated[list[float], Field(min_length=2, max_length=2)]]] = []
    failed: dict[str, str] | list[str] | None = None
    done: str = ""
    url: str | None = None
    target: str | None = None
    changed: bool = True
    left_behind: str = ""


def task_module(folder: Path) -> Any:
    """The module that does a task, by its folder's name.

    It has `run(dataset, config, job)`, which does the work that the settings in the file `config` ask for (jobs.Stop
    ends it as asked), and may have `check(dataset, settings)`: it raises ConfigError for what is wrong with the
    settings beyond each by itself, before anything is started, reads little and loads no model. One with
    `devices(config)` names the devices that it needs to itself, for which it waits its turn.
    """
    name: Any = folder.name.removeprefix(".")
    return importlib.import_module(f"{MODULE}.{MODULES[name]}")


class Task:
    """One task of one dataset, seen from outside: start it, watch it, stop it."""

    def __init__(self, dataset: Path, name: Name) -> None:
        self.name, self.folder = name, dataset / f".{name}"

    def start(self, settings: Settings) -> jobs.Status:
        """Start it in the background. Raises ConfigError for settings that cannot work or when it runs already,
        CannotWrite."""
        if self.status.state.alive:
            dataset = self.folder.parent.name
            raise ConfigError(f"{dataset} has a task at work ({self.name}): wait for its end, or stop it")
        if (check := getattr(task_module(self.folder), "check", None)) is not None:
            check(self.folder.parent, settings)
        settings.save(self.folder / jobs.CONFIG)
        return self.go_on()

    def go_on(self) -> jobs.Status:
        """Start it again with the settings it had: after a stop, a failure, a power cut. Raises ConfigError."""
        settings = read_json(self.folder / jobs.CONFIG)
        needs = getattr(task_module(self.folder), "devices", lambda config: ())
        devices = needs(self.folder / jobs.CONFIG)
        with handed_over(str(settings.get("key_variable", "")), str(settings.get("base_url", ""))) as secrets:
            env = {**secrets["env"], **named_paths.variables(named_paths.roots())}
            workspace, title = Workspace.of(self.folder.parent), f"{self.name} of {self.folder.parent.name}"
            return queue.submit(workspace, self.folder, MODULE, devices, title, env=env, stdin=secrets["stdin"])

    def stop(self) -> None:
        """Ask it to end; what is done stays. Raises CannotWrite."""
        jobs.stop(self.folder)

    def dismiss(self) -> None:
        """Forget how it ended, so that nobody is shown it again; what it made stays."""
        jobs.forget(self.folder)

    def wait(self, seconds: float | None = None) -> jobs.Status:
        return jobs.wait(self.folder, seconds)

    @property
    def status(self) -> jobs.Status:
        return queue.with_position(Workspace.of(self.folder.parent), jobs.status(self.folder))

    @property
    def version(self) -> tuple[int, ...]:
        """Changes with every start, heartbeat and end; costs three looks at the disk."""
        return changed_at(self.folder / name for name in (jobs.PROCESS, jobs.HEARTBEAT, jobs.RESULT))

    @property
    def result(self) -> dict[str, Any]:
        """How it ended (result.json with what it made), {} while it is not over, or where that cannot be read."""
        return read_record(self.folder / jobs.RESULT, TaskResult) or {}


def changed_at(paths: Iterable[Path]) -> tuple[int, ...]:
    """When each file was changed last, nanoseconds; 0 where there is none."""
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)


# ---- many clips at once ----------------------------------------------------------------------------------------------

REPORT_SECONDS = 0.5
WORKERS = os.cpu_count() or 1
Tick = Callable[..., None]
"""Called after one frame, or with the number of several; may raise to stop."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ClipProgress:
    """Where the work is. frames of total; frame_seconds: a frame takes on average, None before the first one."""

    phase: str
    frames: int
    total: int
    frame_seconds: float | None
    items: str


OnProgress = Callable[[ClipProgress], None]
"""Called twice a second; may raise to stop."""


def silent(progress: object = None) -> None:
    """Report to nobody."""


def job_progress(job: jobs.Job) -> OnProgress:
    """Report to a job's heartbeat. Raises jobs.Stop when the job is to end."""

    def on_progress(now: ClipProgress) -> None:
        job.beat(now.phase, now.frames, now.total, step_seconds=now.frame_seconds, message=now.items)
        job.check_stop(f"stopped while {now.phase}, {now.items} done: start it again to go on")

    return on_progress


def each(
    phase: str,
    frames: int,
    items: Sequence[T],
    work: Callable[[T, Tick], R],
    on_progress: OnProgress = silent,
    *,
    on_done: Callable[[R], object] = silent,
    on_stop: Callable[[], object] = silent,
    workers: int = WORKERS,
) -> list[R]:
    """What `work` gives for each item, in their order; frames: how many all of them have.

    on_done: called with each result once it is there, before the progress that counts it
    on_stop: called before the end is waited for, of what works already
    workers: how many items are worked on at once

    Raises what `on_progress` and `on_done` raise, after which nothing goes on, and the first error of `work`.
    """
    count, stopped, began = 0, threading.Event(), time.monotonic()

    def tick(frames: int = 1) -> None:
        nonlocal count
        count += frames  # close enough for a progress bar, whatever the threads do
        if stopped.is_set():
            raise jobs.Stop("stopped")

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, item, tick) for item in items]
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, REPORT_SECONDS, FIRST_COMPLETED)
                for future in done:
                    on_done(future.result())
                seconds = (time.monotonic() - began) / count if count else None
                items_done = f"{len(items) - len(waiting)} of {len(items)}"
                on_progress(ClipProgress(phase, min(count, frames), frames, seconds, items_done))
        except BaseException:
            stopped.set()
            on_stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [future.result() for future in futures]
