"""Operations on LoRAs as background jobs, each in a folder of its own: loras/.jobs/ID/.

config.json holds the settings and, as "task", the operation's name; result.json also holds "made", "summary", "error",
"reports" and "files".
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar

from workbench import jobs
from workbench.errors import ConfigError, Unknown
from workbench.families import lora_names
from workbench.jobs import State, log_tail, queue
from workbench.jobs.devices import Device, pick_device
from workbench.jobs.snapshot import JobSnapshot
from workbench.loras.converting import convert, import_lora
from workbench.loras.making import OperationResult, extract, fuse, merge, resize, survives
from workbench.loras.repair import repair
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    RepairSettings,
    ResizeSettings,
    SurvivesSettings,
)
from workbench.settings import Settings, parse
from workbench.snapshots import HIDDEN, Snapshot
from workbench.workspace import Workspace, fresh_folder, read_json, read_object, write_json
from workbench.workspace.lora_names import folder

MODULE, JOBS, TITLE = "workbench.loras", ".jobs", "an operation on LoRAs"
LOG_LINES = 8
KEPT_SECONDS = 24 * 3600  # how long the folder of an ended job is kept
# task -> (settings, function, phase)
TASKS: dict[str, tuple[type[Settings], Callable[..., OperationResult], str]] = {
    "merge": (MergeSettings, merge, "merging"),
    "resize": (ResizeSettings, resize, "resizing"),
    "extract": (ExtractSettings, extract, "extracting"),
    "fuse": (FuseSettings, fuse, "fusing"),
    "survives": (SurvivesSettings, survives, "measuring"),
    "repair": (RepairSettings, repair, "repairing"),
    "import": (LoraImportSettings, import_lora, "importing"),
    "convert": (ConvertSettings, convert, "converting"),
}


Match = dict[str, Any]


class RepairRow(Snapshot):
    """What one block, or a group of neighboring blocks, changes."""

    title: str
    """The blocks in words."""

    effect: tuple[float, ...]
    """Its share of the LoRA's change on its own prompts, at each noise level."""

    drift: tuple[float, ...]
    """How much it changes predictions for other prompts, relative to the base model's, at each noise level."""


class RepairPoint(Snapshot):
    """What a LoRA does in samples of prompts that the repair has not seen."""

    scale: float
    """The strength of the whole LoRA."""

    effect: float
    """The share of the LoRA's change of its own prompts that is left, 1 for the LoRA as it was."""

    drift: float
    """How much it changes other prompts, relative to the base model's samples."""


class Repair(Snapshot):
    """Where a LoRA changes what it should not, and what a repair keeps and undoes."""

    lora: str
    """The repaired LoRA in the library; "" if it is no better than one strength and was not saved."""

    source: str
    """The LoRA as it was, as `--lora` takes it."""

    helps: bool
    """Whether the repair is better than any single strength."""

    sentence: str
    """The result in a sentence, without a period."""

    levels: tuple[float, ...]
    """The noise levels of the map, 0 to 1."""

    rows: tuple[RepairRow, ...]
    """The map, block by block, before the repair."""

    after: RepairPoint
    """What the repaired LoRA measures."""

    beside: float
    """The drift of the single strength with the same effect."""

    singles: tuple[RepairPoint, ...]
    """What the LoRA as it was and single strengths measure."""

    prompts: tuple[str, ...]
    """The LoRA's own prompts of the check."""

    others: tuple[str, ...]
    """The other prompts of the check."""


class LoraJob(JobSnapshot):
    """A background job on LoRAs."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "operation", "state", "made", "message")

    activity: Annotated[str, HIDDEN]
    """What it is doing and how long that will take, or how it ended."""

    tone: Annotated[str, HIDDEN]
    """How to color it: `going`, `good`, `bad` or `plain`."""

    share: Annotated[float | None, HIDDEN]
    """Share of the work that is done, 0 to 1; null while unknown."""

    log: Annotated[str, HIDDEN]
    """The end of its log, if it failed without a message; otherwise ""."""

    fit: Annotated[tuple[tuple[str, str], ...], HIDDEN]
    """The contents of `reports` in words: (label, value)."""

    ended_at: Annotated[float | None, HIDDEN]
    """When it ended, as Unix time; null until then."""

    operation: str
    """`merge`, `resize`, `extract`, `fuse`, `survives`, `repair`, `import` or `convert`."""

    made: str
    """Name in the library, or path, of the result; "" until it is done."""

    error: float | None
    """Share of the LoRA's change that was lost, 0 to 1; null if nothing was lost."""

    files: tuple[str, ...]
    """Paths of the files that a conversion wrote."""

    survives: dict[str, float]
    """Share of the change that fusing would keep, 0 to 1, by the format of the weights; empty for other jobs."""

    repair: Annotated[Repair | None, HIDDEN]
    """What a repair found; null for other jobs and until it is done."""

    reports: tuple[Match, ...]
    """How each LoRA that was read fits its model: layers, matched, left_out (why, count, names), rank, alpha,
    alpha_from, written_by and, if they apply, converted, lost, nothing."""

    def outcome(self) -> Iterable[str]:
        matches = (f"{label:<16}{value}" for report in self.reports for label, value in lora_names.lines(report))
        return filter(None, (self.message, *(self.files or (self.made,)), *matches, *self._map()))

    def _map(self) -> Iterable[str]:
        if self.repair is None:
            return
        levels = "".join(f"{level:>8.1f}" for level in self.repair.levels)
        yield f"{'noise level':<16}{levels}  effect {levels}  drift"
        for row in self.repair.rows:
            effect, drift = ("".join(f"{one:>8.1%}" for one in values) for values in (row.effect, row.drift))
            yield f"{row.title:<16}{effect}         {drift}"


def start(workspace: Workspace, settings: Settings) -> Path:
    """Start an operation in the background and return its job's folder. Raises CannotWrite."""
    name = next(name for name, (cls, *_) in TASKS.items() if type(settings) is cls)
    parent = folder(workspace) / JOBS
    for status in jobs.jobs_in(parent):
        if not status.state.alive and time.time() - (status.ended_at or time.time()) > KEPT_SECONDS:
            shutil.rmtree(status.folder, ignore_errors=True)
    job_folder = fresh_folder(parent, f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")
    write_json(job_folder / jobs.CONFIG, {"task": name, **settings.model_dump(mode="json")})
    queue.submit(workspace, job_folder, MODULE, held_by(settings), TITLE)
    return job_folder


def held_by(settings: Settings) -> list[Device]:
    """Return the devices that an operation reserves: the GPU of a repair. The CPU is shared."""
    device = pick_device(settings.device) if isinstance(settings, RepairSettings) else None
    return [device] if device is not None and device.is_gpu else []


def read_task(job_folder: Path) -> LoraJob:
    """Read a job from its folder. Raises Unknown if there is none."""
    if not (job_folder / jobs.CONFIG).exists():
        raise Unknown(f"there is no operation {job_folder.name!r}: look at the list")
    task, result = str(read_object(job_folder / jobs.CONFIG).get("task", "")), read_object(job_folder / jobs.RESULT)
    status, summary = jobs.status(job_folder), str(result.get("summary", ""))
    reports, files = result.get("reports"), result.get("files")
    reports = reports if isinstance(reports, list) and all(isinstance(one, dict) for one in reports) else []
    files = files if isinstance(files, list) and all(isinstance(one, str) for one in files) else []
    phase, log = TASKS[task][2] if task in TASKS else "the operation", ""
    if status.state.alive:
        count = f"{'pass' if task == 'repair' else 'layer'} {status.step} of {status.total}" if status.total else ""
        activity, tone = " · ".join(filter(None, (status.phase or "starting", count, status.left))), "going"
    elif status.state is State.FINISHED:
        activity, tone = f"{summary[:1].upper()}{summary[1:]}.", "good"
    elif status.state is State.STOPPED:
        activity, tone = f"{phase.capitalize()} was stopped; nothing was made.", "plain"
    else:
        activity, tone = f"{phase.capitalize()} failed. {status.message}", "bad"
        log = "" if status.message else log_tail(job_folder, LOG_LINES)
    return LoraJob.from_objects(
        status,
        id=job_folder.name,
        message=summary or status.message,
        activity=activity,
        tone=tone,
        share=status.share if status.state.alive else None,
        log=log,
        fit=tuple(line for one in reports for line in lora_names.lines(one)) if status.state is State.FINISHED else (),
        operation=task,
        made=str(result.get("made", "")),
        error=result.get("error"),
        files=tuple(files),
        survives=result.get("survives") or {},
        repair=result.get("repair") or None,
        reports=tuple(reports),
    )


def everything(workspace: Workspace) -> list[LoraJob]:
    """List active operations and those that ended in the last day, newest first."""
    return [read_task(status.folder) for status in jobs.jobs_in(folder(workspace) / JOBS)]


def settings_of(job_folder: Path) -> tuple[str, Settings]:
    """Return (task, settings) of a job's folder. Raises ConfigError."""
    values = read_json(job_folder / jobs.CONFIG)
    name = values.pop("task", "") if isinstance(values, dict) else ""
    if name not in TASKS:
        raise ConfigError(f"{job_folder / jobs.CONFIG} names no operation: use one of {', '.join(TASKS)}")
    return name, parse(TASKS[name][0], values, given=())
