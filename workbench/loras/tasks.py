"""Operations on LoRAs as background jobs, each in a folder of its own: loras/.jobs/ID/.

config.json holds the settings and, as "task", the operation's name; result.json also holds "made", "summary", "error",
"reports" and "files".
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError, Unknown
from workbench.jobs import queue
from workbench.loras.converting import convert, import_lora
from workbench.loras.making import OperationResult, extract, fuse, merge, resize, survives
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    ResizeSettings,
    SurvivesSettings,
)
from workbench.settings import Settings, parse
from workbench.workspace import Workspace, fresh_folder, read_json, read_object, write_json
from workbench.workspace.lora_names import folder

MODULE, JOBS = "workbench.loras", ".jobs"
KEPT_SECONDS = 24 * 3600  # how long the folder of an ended job is kept
# task -> (settings, function, phase)
TASKS: dict[str, tuple[type[Settings], Callable[..., OperationResult], str]] = {
    "merge": (MergeSettings, merge, "merging"),
    "resize": (ResizeSettings, resize, "resizing"),
    "extract": (ExtractSettings, extract, "extracting"),
    "fuse": (FuseSettings, fuse, "fusing"),
    "survives": (SurvivesSettings, survives, "measuring"),
    "import": (LoraImportSettings, import_lora, "importing"),
    "convert": (ConvertSettings, convert, "converting"),
}


@dataclass(frozen=True)
class LoraTask:
    """One operation.

    made: a name in the library or a path; "" until it has finished.
    reports: what matched, for each LoRA of an import or a conversion (families.lora_names).
    files: written by a conversion.
    """

    folder: Path
    name: str
    status: jobs.Status
    made: str
    message: str
    reports: Sequence[Mapping[str, Any]] = ()
    files: Sequence[str] = ()

    @property
    def id(self) -> str:
        return self.folder.name


def start(workspace: Workspace, settings: Settings) -> Path:
    """Start an operation in the background and return its job's folder. Raises CannotWrite."""
    name = next(name for name, (cls, *_) in TASKS.items() if type(settings) is cls)
    parent = folder(workspace) / JOBS
    for status in jobs.jobs_in(parent):
        if not status.state.alive and time.time() - (status.ended_at or time.time()) > KEPT_SECONDS:
            shutil.rmtree(status.folder, ignore_errors=True)
    job_folder = fresh_folder(parent, f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")
    write_json(job_folder / jobs.CONFIG, {"task": name, **settings.model_dump(mode="json")})
    queue.submit(workspace, job_folder, MODULE)
    return job_folder


def read_task(job_folder: Path) -> LoraTask:
    """Read an operation from its job's folder. Raises Unknown if there is none."""
    if not (job_folder / jobs.CONFIG).exists():
        raise Unknown(f"there is no operation {job_folder.name!r}: look at the list")
    task, result = str(read_object(job_folder / jobs.CONFIG).get("task", "")), read_object(job_folder / jobs.RESULT)
    made, message = str(result.get("made", "")), str(result.get("summary", ""))
    reports, files = result.get("reports"), result.get("files")
    reports = reports if isinstance(reports, list) and all(isinstance(one, dict) for one in reports) else []
    files = files if isinstance(files, list) and all(isinstance(one, str) for one in files) else []
    return LoraTask(job_folder, task, jobs.status(job_folder), made, message, reports, files)


def everything(workspace: Workspace) -> list[LoraTask]:
    """List active operations and those that ended in the last day, newest first."""
    return [read_task(status.folder) for status in jobs.jobs_in(folder(workspace) / JOBS)]


def settings_of(job_folder: Path) -> tuple[str, Settings]:
    """Return (task, settings) of a job's folder. Raises ConfigError."""
    values = read_json(job_folder / jobs.CONFIG)
    name = values.pop("task", "") if isinstance(values, dict) else ""
    if name not in TASKS:
        raise ConfigError(f"{job_folder / jobs.CONFIG} names no operation: use one of {', '.join(TASKS)}")
    return name, parse(TASKS[name][0], values, given=())
