"""Long work on a dataset as a background job: `datasets/NAME/.TASK/` is the job's folder, one a task.

    .import    video files become clips               (importing)
    .split     clips are cut into parts               (splitting)
    .check     every clip and caption is checked       (dataset_check)
    .fix      clips are cut as the findings ask      (fixes)
    .caption   a model says what the clips show       (captioning)
    .export    the dataset in another tool's layout   (export)

Not covered: what a task does, how a job lives (workbench.jobs).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, get_args

from pydantic import BaseModel, Field

from workbench import jobs, policy
from workbench.captioners.keys import handed_over
from workbench.errors import ConfigError
from workbench.settings import Settings
from workbench.workspace import read_json
from workbench.workspace.records import read_record

MODULE = "workbench.dataset_builder"
Name = Literal["import", "split", "check", "fix", "caption", "export"]
NAMES: tuple[Name, ...] = get_args(Name)
MODULES: dict[Name, str] = {
    "import": "ingest.job",
    "split": "cuts.splitting",
    "check": "checks.dataset_check",
    "fix": "checks.fixes",
    "caption": "captions.captioning",
    "export": "export.job",
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
    problems: list[str] = []
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


class TaskModule(Protocol):
    """What each of those modules offers; one may also have `check(dataset, settings)`.

    It raises ConfigError for what is wrong with the settings beyond each by itself, before anything is started: it
    reads little and loads no model.
    """

    def run(self, dataset: Path, config: Path, job: jobs.Job) -> None:
        """Do the work that the settings in `config` ask for; jobs.Stop ends it as asked."""


def task_module(folder: Path) -> TaskModule:
    """The module that does a task, by its folder's name."""
    name: Any = folder.name.removeprefix(".")
    module: Any = importlib.import_module(f"{MODULE}.{MODULES[name]}")
    found: TaskModule = module
    return found


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
        with handed_over(str(settings.get("key_variable", "")), str(settings.get("base_url", ""))) as secrets:
            return jobs.start(self.folder, MODULE, secrets["stdin"], {**secrets["env"], **policy.handed_on()})

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
        return jobs.status(self.folder)

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
