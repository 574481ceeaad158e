"""An overview of a workspace as plain data, for the page's Home tab and `workbench status`. No torch."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer

from workbench import jobs
from workbench.clips.records import INFO, METADATA, read_clips
from workbench.dataset_builder.snapshot import dataset_snapshot, last_change, task_snapshot
from workbench.dataset_builder.tasks import NAMES, Task
from workbench.display.quantities import Tone, byte_size, tone_of
from workbench.errors import ConfigError
from workbench.jobs import State, Status, queue
from workbench.jobs.devices import GIGABYTE, load, pick_device
from workbench.runs.failures import read_failure
from workbench.runs.listing import headline, summary_of
from workbench.runs.metrics import SESSIONS, read_sessions
from workbench.runs.run import Run
from workbench.runs.snapshot import activity, time_left, time_limit_of
from workbench.sampler.loras import split_scale
from workbench.sampler.queue import pending_samples
from workbench.sampler.samples import ID, Sample, Samples
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, is_slug, lora_names
from workbench.workspace.records import Kept

RUNS = 6  # ended runs listed; active ones are all listed
SAMPLES = 6
DATASETS = 6
FAILED_DAYS = 7  # how long a failed run is listed ahead of the others
LITTLE_SPACE = 5e9  # free bytes on the disk below which to warn


@dataclass(frozen=True)
class RunLine:
    """A run in one line.

    share: of its steps that are done; None while unknown.
    message: why a failed run failed and what to do next; "" for others.
    """

    name: str
    state: str
    tone: Tone
    activity: str
    share: float | None
    message: str


@dataclass(frozen=True)
class DatasetLine:
    """A dataset in one line. activity: of its running task, "" without one;  next_step: "" when nothing is missing."""

    name: str
    title: str
    contents: str
    clips: int
    activity: str
    next_step: str


@dataclass(frozen=True)
class NextStep:
    """A suggested next step. target: the name of the dataset or run it is about; "" for none."""

    kind: Literal["demo", "import", "dataset", "train", "sample", "run"]
    label: str
    reason: str
    target: str = ""


@dataclass(frozen=True)
class NowLine:
    """A run or dataset that needs attention, with one button.

    Attributes:
        claim: the main point, shown before `sentence`.
        at: Unix time.
        share: of a training run's steps that are done; None for anything else.
        label: of the button, which leads to `address` or else calls `operation` with `values`.
    """

    kind: str
    name: str
    title: str
    tone: Tone
    state: str
    claim: str
    sentence: str
    at: float | None
    share: float | None
    label: str
    address: tuple[str, ...] = ()
    operation: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Computer:
    """The device that jobs use by default, and how busy it is.

    Attributes:
        memory_used, memory_total, disk_free: bytes.
        busy: 0 to 1; None when the device does not report it.
        disk_low: whether the disk is nearly full.
    """

    name: str
    gpu: bool
    memory_used: float | None
    memory_total: float
    busy: float | None
    disk_free: int
    disk_low: bool


def _sample_line(one: Sample) -> dict[str, Any]:
    return {"id": one.id, "video": str(one.path), "prompt": one.settings.prompt, "problem": one.problem}


class Overview(Snapshot):
    """What is happening in the workspace."""

    active: tuple[RunLine, ...]
    """Runs that are training, waiting or paused: name, state, tone, activity, share (of the steps), message."""

    failed: tuple[RunLine, ...]
    """Runs that failed recently, with the same keys; message says why and what to do."""

    ended: tuple[RunLine, ...]
    """The newest of the other runs, with the same keys."""

    samples: tuple[Annotated[Any, PlainSerializer(_sample_line, dict[str, Any])], ...]
    """The newest samples: id, video, prompt, problem."""

    datasets: tuple[DatasetLine, ...]
    """The newest datasets: name, title, contents, clips (their number), activity, next_step."""

    next_steps: tuple[NextStep, ...]
    """What to do next: kind, label, reason, target."""

    machine: str
    """A warning if the disk is nearly full; otherwise ""."""

    counts: dict[str, int]
    """Number of datasets, runs, runs that are running, waiting or failed recently, queued samples, LoRAs."""

    computer: Computer
    """The default device: name, gpu, memory_used, memory_total and disk_free (bytes), busy (0 to 1), disk_low."""

    notice: str
    """A notice for visitors of the public demo; "" for everyone else."""

    sign_in: str
    """Address where the owner of the public demo signs in; "" if there is none."""

    @property
    def empty(self) -> bool:
        """Whether the workspace has no runs, samples or datasets."""
        return not (self.active or self.failed or self.ended or self.samples or self.datasets)


class OverviewReader:
    """Reads a workspace repeatedly; files that have not changed on disk are read once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._kept = Kept[Any]()

    def read(self) -> Overview:
        """Read the workspace's current state."""
        statuses, order = jobs.jobs_in(self._workspace.runs), queue.order(self._workspace)
        since = time.time() - FAILED_DAYS * 86400
        active = [one for one in statuses if one.state.alive]
        over = [one for one in statuses if not one.state.alive]
        failed = [one for one in over if one.state in (State.FAILED, State.DIED) and (one.ended_at or 0) > since]
        ended = [one for one in over if one not in failed][:RUNS]
        active.sort(key=lambda one: order.index(one.name) + 1 if one.name in order else 0)
        samples, datasets = tuple(self._samples()), tuple(self._datasets())
        free = shutil.disk_usage(self._workspace.root).free
        return Overview(
            active=tuple(self._run(one, order) for one in active),
            failed=tuple(self._run(one, order) for one in failed[:RUNS]),
            ended=tuple(self._run(one, order) for one in ended),
            samples=samples,
            datasets=datasets,
            next_steps=tuple(_next_steps(statuses, samples, datasets)),
            machine=f"Only {byte_size(free)} are free on this disk." if free < LITTLE_SPACE else "",
            counts={
                "datasets": sum(1 for path in self._workspace.datasets.glob(f"*/{INFO}") if is_slug(path.parent.name)),
                "runs": len(statuses),
                "running": sum(one.state.alive and one.name not in order for one in statuses),
                "waiting": len(order),
                "failed": len(failed),
                "queued": len(pending_samples(self._workspace)),
                "loras": len(lora_names.names(self._workspace)),
            },
            computer=self._computer(free),
            notice="",
            sign_in=os.environ.get("WORKBENCH_LOGIN", ""),
        )

    def now(self, seen: Overview) -> list[NowLine]:
        """List what is happening or needs attention: active, failed and unsampled runs, and datasets."""
        statuses = {one.name: one for one in jobs.jobs_in(self._workspace.runs)}
        order = queue.order(self._workspace)
        sampled = _runs_sampled(seen.samples)
        lines = [_now_active(statuses[one.name], one, order) for one in seen.active if one.name in statuses]
        lines += [_now_failed(statuses[one.name], one) for one in seen.failed if one.name in statuses]
        for one in seen.ended:
            status = statuses.get(one.name)
            if not status or status.state is not State.FINISHED or one.name in sampled:
                continue
            if not Run(status.folder).model:
                read = partial(summary_of, Run(status.folder), ended=True)
                diagnosis = self._kept.of(status.folder / "diagnosis", status.ended_at, read).diagnosis
                lines.append(_now_finished(status, diagnosis))
        return [*lines, *filter(None, (_now_dataset(self._workspace, one, not statuses) for one in seen.datasets))]

    def _run(self, status: Status, order: list[str]) -> RunLine:
        status, waiting = queue.with_position(self._workspace, status), status.name in order
        word = headline(status, waiting)

        def failure() -> str:
            found = read_failure(status)
            return f"{found.cause}. {found.advice}".strip() if found else ""

        when = time_left(status, self._stops_at(status)) or (
            jobs.ago(status.ended_at) if status.ended_at and not status.state.alive else ""
        )
        return RunLine(
            name=status.name,
            state=word,
            tone=tone_of(word),
            activity=" · ".join(filter(None, (activity(status), when))),
            share=0.0 if waiting else 1.0 if status.state is State.FINISHED else status.share,
            message=self._kept.of(status.folder, (status.state, status.ended_at), failure),
        )

    def _stops_at(self, status: Status) -> float | None:
        """Return the Unix time at which a run's time limit ends it; None without one."""
        path = status.folder / SESSIONS
        if not status.state.alive or not path.exists():
            return None
        mark = path.stat().st_mtime_ns
        return time_limit_of(status, self._kept.of(path, mark, lambda: read_sessions(status.folder)))

    def _samples(self) -> list[Sample]:
        def read(name: str) -> Sample | None:
            with contextlib.suppress(ConfigError):
                return Samples(self._workspace).get(name)
            return None

        days = sorted((path for path in self._workspace.samples.glob("[0-9]*") if path.is_dir()), reverse=True)
        found: list[Sample] = []
        for day in days:
            ids = sorted((path.stem for path in day.glob("*.json") if ID.fullmatch(path.stem)), reverse=True)
            found += filter(None, (self._kept.of(day / name, name, partial(read, name)) for name in ids[:SAMPLES]))
            if len(found) >= SAMPLES:
                break
        return found[:SAMPLES]

    def _datasets(self) -> list[DatasetLine]:
        changed: dict[Path, int] = {}
        for name in (INFO, METADATA):
            for path in self._workspace.datasets.glob(f"*/{name}"):
                if is_slug(path.parent.name):
                    changed[path.parent] = max(path.lstat().st_mtime_ns, changed.get(path.parent, 0))
        newest = sorted(changed, key=lambda folder: changed[folder], reverse=True)[:DATASETS]
        return [self._dataset(folder, changed[folder]) for folder in newest]

    def _dataset(self, folder: Path, changed: int) -> DatasetLine:
        def read() -> DatasetLine:
            seen = dataset_snapshot(folder)
            next_step = seen.next_steps[0] if seen.next_steps else ""
            return DatasetLine(seen.name, seen.title, seen.summary.sentence, seen.summary.clips, "", next_step)

        tasks = (task_snapshot(Task(folder, name)) for name in NAMES if (folder / f".{name}").exists())
        activity = next((task.activity for task in tasks if task.activity), "")
        line: DatasetLine = self._kept.of(folder, changed, read)
        return replace(line, activity=activity)

    def _computer(self, free: int) -> Computer:
        device = pick_device("auto")
        busy = load(device)
        return Computer(
            name=device.name,
            gpu=device.is_gpu,
            memory_used=None if busy.memory_used_gb is None else busy.memory_used_gb * GIGABYTE,
            memory_total=busy.memory_total_gb * GIGABYTE,
            busy=None if busy.utilization is None else busy.utilization / 100,
            disk_free=free,
            disk_low=free < LITTLE_SPACE,
        )


def _runs_sampled(samples: Sequence[Sample]) -> set[str]:
    """Return the names of the runs whose LoRAs were used: cats for cats=0.7, runs/cats@250 or a path to its file."""
    found = set()
    for text in (text for one in samples for text in one.settings.loras):
        with contextlib.suppress(ConfigError):
            parts = Path(split_scale(text)[0]).parts
            found.add(parts[parts.index("runs") + 1 if "runs" in parts[:-1] else 0].partition("@")[0])
    return found


def _next_steps(
    statuses: Sequence[Status], samples: Sequence[Sample], datasets: Sequence[DatasetLine]
) -> Iterator[NextStep]:
    """Suggest what to do next, most useful first."""
    finished = next((one for one in statuses if one.state is State.FINISHED and not Run(one.folder).model), None)
    if finished and summary_of(Run(finished.folder), ended=True).diagnosis == "destroyed":
        yield NextStep("run", f"Look at {finished.name}", "It has finished, but the model is destroyed.", finished.name)
    elif finished and finished.name not in _runs_sampled(samples):
        reason = f"{finished.name} has finished; no sample was made with it yet."
        yield NextStep("sample", "Try it in Sample", reason, finished.name)
    for line in datasets:
        if line.next_step and not line.activity:
            yield NextStep("dataset", f"Open {line.title}", line.next_step, line.name)
            break
    ready = next((line for line in datasets if not line.next_step), None)
    if ready and not statuses:
        yield NextStep("train", f"Train on {ready.title}", f"{ready.contents}, every clip has a caption.", ready.name)
    if not statuses:
        yield NextStep("demo", "Train the demo", "The whole loop on a small built-in model, in a few minutes.")
    if not datasets:
        yield NextStep("import", "Bring your clips", "Videos, folders or archives become a dataset.")


# ---- lines that need attention --------------------------------------------------------------------------------------


def _now_active(status: Status, line: RunLine, order: list[str]) -> NowLine:
    about, at = ("run", status.name, status.name, line.tone, line.state), status.started_at
    if status.name in order:
        place = order.index(status.name)
        text = f"Starts after {order[place - 1]}." if place else "Starts when the device is free."
        return NowLine(*about, "", text, at, None, "Queue", ("train",))
    doing = status.phase if status.phase.startswith("encoding") else "training"
    doing = doing if line.state == "running" else line.state
    claim = doing if line.share is None else f"{doing} {line.share:.0%}"
    repeated = (doing, "train", f"{status.step} of {status.total}")  # the claim says these already
    text = " · ".join(part for part in line.activity.split(" · ") if line.share is None or part not in repeated)
    claim, text = (f"{one[:1].upper()}{one[1:]}" for one in (claim, f"{text}." if text else ""))
    return NowLine(*about, f"{claim}.", text, at, line.share, "Watch", ("train", status.name))


def _now_failed(status: Status, line: RunLine) -> NowLine:
    cause, _, advice = line.message.partition(". ")
    saved = Run(status.folder).checkpoints
    found = NowLine(
        *("run", status.name, status.name, line.tone, line.state),
        claim=f"{cause.removesuffix('.')}.",
        sentence=advice,
        at=status.ended_at,
        share=None,
        label="What to do",
        address=("train", status.name),
    )
    if status.state is State.DIED and saved:  # its settings were fine
        resume = f"Resume from step {saved[-1]:,}"
        return replace(found, label=resume, address=(), operation="runs/start", values={"name": status.name})
    return found


def _now_finished(status: Status, diagnosis: str) -> NowLine:
    about, run = ("run", status.name, status.name), ("train", status.name)
    if diagnosis == "destroyed":
        text = "The run has finished, but the model makes noise."
        return NowLine(*about, "bad", "finished", "Destroyed.", text, status.ended_at, None, "What to do", run)
    text = "No sample was made with it yet."
    return NowLine(*about, "good", "finished", "Finished.", text, status.ended_at, None, "Sample it", ("sample",))


def _now_dataset(workspace: Workspace, line: DatasetLine, untrained: bool) -> NowLine | None:
    """Say what a dataset needs; None when nothing is to be done. untrained: whether the workspace has no run yet."""
    folder = workspace.datasets / line.name
    about, page, at = ("dataset", line.name, line.title), ("dataset", line.name), last_change(folder)
    if line.activity:
        return NowLine(*about, "going", "at work", "", f"{line.activity}.", at, None, "Watch", page)
    if line.next_step:
        empty = next((clip for clip in read_clips(folder) if not clip.text.strip()), None)
        label, to = ("Write captions", (*page, "clip", empty.id)) if empty else ("Open it", page)
        return NowLine(*about, "warn", "to do", "", line.next_step, at, None, label, to)
    if untrained:
        text = f"{line.contents}; every clip has a caption."
        return NowLine(*about, "good", "ready", "", text, at, None, "Train on it", ("train", "new"))
    return None
