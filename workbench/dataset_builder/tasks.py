"""Long work on a dataset as background jobs; each task has its job folder `datasets/NAME/.TASK/`.

    .import    turn video files into clips              (ingest.intake)
    .split     cut clips into parts                     (cuts.scenes)
    .check     check all clips and captions             (checks.dataset_check)
    .fix       cut clips to fix findings                (checks.fixes)
    .caption   caption clips with a model               (captions.captioning)
    .make      make control clips, masks ...            (companions)
    .track     track painted masks through clips        (masking)
    .export    write another tool's layout              (export)

`each` processes many clips in threads, one per core, and reports progress. Decoders and encoders release the GIL.
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
from workbench.display.quantities import counted
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
    "split": "cuts.scenes",
    "check": "checks.dataset_check",
    "fix": "checks.fixes",
    "caption": "captions.captioning",
    "make": "companions",
    "track": "masking",
    "export": "export",
}


class TaskFile(BaseModel):
    """The result of one imported file."""

    name: str
    outcome: Literal["taken", "converted", "known", "refused", "skipped"]
    note: str


class TaskResult(BaseModel):
    """The known fields of a task's result.json."""

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
    """Import the module of a task by its folder's name. It defines:

    - `run(dataset, config, job)`: do the work, with the settings in the file `config`. Raises jobs.Stop when asked to.
    - `check(dataset, settings)`, optional: raise ConfigError for settings that cannot work, before the start. It reads
      little and loads no model.
    - `devices(config)`, optional: the devices that it needs exclusively, and queues for.
    """
    name: Any = folder.name.removeprefix(".")
    return importlib.import_module(f"{MODULE}.{MODULES[name]}")


class Task:
    """A task of a dataset, from outside its process: start, watch, stop it."""

    def __init__(self, dataset: Path, name: Name) -> None:
        self.name, self.folder = name, dataset / f".{name}"

    def start(self, settings: Settings) -> jobs.Status:
        """Start the task in the background.

        Raises ConfigError for settings that cannot work, or if the task is already running; CannotWrite.
        """
        if self.status.state.alive:
            dataset = self.folder.parent.name
            raise ConfigError(f"{dataset} has a running task ({self.name}): wait for its end, or stop it")
        if (check := getattr(task_module(self.folder), "check", None)) is not None:
            check(self.folder.parent, settings)
        settings.save(self.folder / jobs.CONFIG)
        return self.go_on()

    def go_on(self) -> jobs.Status:
        """Resume the task with its settings after a stop, failure or power cut. Raises ConfigError."""
        settings = read_json(self.folder / jobs.CONFIG)
        needs = getattr(task_module(self.folder), "devices", lambda config: ())
        devices = needs(self.folder / jobs.CONFIG)
        with handed_over(str(settings.get("key_variable", "")), str(settings.get("base_url", ""))) as secrets:
            env = {**secrets["env"], **named_paths.variables(named_paths.roots())}
            workspace, title = Workspace.of(self.folder.parent), f"{self.name} of {self.folder.parent.name}"
            return queue.submit(workspace, self.folder, MODULE, devices, title, env=env, stdin=secrets["stdin"])

    def stop(self) -> None:
        """Ask the task to stop. Finished work stays. Raises CannotWrite."""
        jobs.stop(self.folder)

    def dismiss(self) -> None:
        """Discard the outcome, so that it is no longer displayed. Finished work stays."""
        jobs.forget(self.folder)

    def wait(self, seconds: float | None = None) -> jobs.Status:
        return jobs.wait(self.folder, seconds)

    @property
    def status(self) -> jobs.Status:
        return queue.with_position(Workspace.of(self.folder.parent), jobs.status(self.folder))

    @property
    def version(self) -> tuple[int, ...]:
        """A value that changes with every start, heartbeat and end. Cheap: three stat calls."""
        return changed_at(self.folder / name for name in (jobs.PROCESS, jobs.HEARTBEAT, jobs.RESULT))

    @property
    def result(self) -> dict[str, Any]:
        """The content of result.json; {} while the task is not finished or if the file cannot be read."""
        return read_record(self.folder / jobs.RESULT, TaskResult) or {}


def changed_at(paths: Iterable[Path]) -> tuple[int, ...]:
    """Return each file's modification time in nanoseconds, 0 for missing ones."""
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)


# ---- many clips at once ----------------------------------------------------------------------------------------------

REPORT_SECONDS = 0.5
WORKERS = os.cpu_count() or 1
Tick = Callable[..., None]  # called after each frame, or with a number of frames; may raise to stop
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ClipProgress:
    """Progress in frames. frame_seconds: the average time per frame, None before the first one."""

    phase: str
    frames: int
    total: int
    frame_seconds: float | None
    items: str


OnProgress = Callable[[ClipProgress], None]  # called twice a second; may raise to stop


def silent(progress: object = None) -> None:
    """Ignore progress."""


def job_progress(job: jobs.Job) -> OnProgress:
    """Return a callback that writes a job's heartbeat and raises jobs.Stop when the job is asked to stop."""

    def on_progress(now: ClipProgress) -> None:
        job.beat(now.phase, now.frames, now.total, step_seconds=now.frame_seconds, message=now.items)
        job.check_stop(f"stopped while {now.phase}, {now.items} done: start it again to resume")

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
    """Run `work` for each item in threads, and return the results in the order of the items.

    frames: the total number of frames of all items.
    on_done: called with each result, before the progress that counts it.
    on_stop: called on an error, before waiting for running items.

    Raises what `on_progress` or `on_done` raises, and the first error of `work`. Remaining items are cancelled.
    """
    count, stopped, began = 0, threading.Event(), time.monotonic()

    def tick(frames: int = 1) -> None:
        nonlocal count
        count += frames  # races between threads do not matter for a progress bar
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
                items_done = f"{len(items) - len(waiting):,} of {counted(len(items), 'clip')}"
                on_progress(ClipProgress(phase, min(count, frames), frames, seconds, items_done))
        except BaseException:
            stopped.set()
            on_stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [future.result() for future in futures]
