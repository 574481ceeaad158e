"""The background tasks of a dataset: start, watch and stop them, and read and fix what a check found.

A dataset has one task of each kind: import, split, check, fix, caption, make, track, export. Each is a job
with the id `DATASET/TASK`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field

from workbench.dataset_builder.checks.findings import FIXES, CheckReport, Fix
from workbench.dataset_builder.checks.fixes import expected_seconds
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import CheckSettings
from workbench.dataset_builder.snapshot import FileResult, task_snapshot
from workbench.dataset_builder.tasks import NAMES
from workbench.dataset_builder.tasks import Name as TaskName
from workbench.display.quantities import shortened
from workbench.errors import ConfigError, Unknown
from workbench.jobs import State
from workbench.jobs.snapshot import JobSnapshot
from workbench.operations.registry import Opened, operation
from workbench.settings import Settings
from workbench.snapshots import HIDDEN, Shown, Snapshot
from workbench.workspace import Workspace
from workbench.workspace.records import Kept

T = TypeVar("T")
CHECKING, TASKS = "Checking", "Background tasks"
MOST_SHOWN = 40  # findings of each kind on the page
MOST_OF_A_KIND = 5  # findings of each kind in the shell, unless only one kind is listed

Name = Annotated[
    str, Field(title="Dataset", description="Name of the dataset.", json_schema_extra={"source": "datasets"})
]
NamedDataset = Annotated[Dataset, Opened(Dataset.open, Name)]
Task = Annotated[TaskName, Field(description="The task.")]
Kind = Annotated[str, Field(description="Kind of finding, as `findings` lists it.")]
How = Annotated[str, Field(description=f"The fix to apply: {', '.join(fix.replace('_', '-') for fix in FIXES)}.")]
OnClips = Annotated[tuple[str, ...], Field(description="Only findings on these clips: ids or names. Default: all.")]


class Finding(Snapshot):
    """A finding of the dataset check."""

    kind: str
    """Kind of finding, as `findings` and `fix` take it."""

    title: str
    """What was found, in a few words."""

    sentence: str
    """What was found, with numbers."""

    severity: str
    """`stops the training`, `hurts it` or `worth a look`."""

    clips: tuple[str, ...]
    """File names of the affected clips."""

    names: tuple[str, ...]
    """Names of the affected clips."""

    fixes: tuple[str, ...]
    """Fixes that `dataset fix` can apply, best first."""


class Findings(Snapshot):
    """Results of the dataset check."""

    dataset: str
    """Name of the dataset."""

    sentence: str
    """The outcome in words."""

    checked_at: float | None
    """When the check ran, as Unix time."""

    model: str | None
    """The model that the clips were checked for."""

    clips: int | None
    """Number of clips that were checked."""

    new_clips: int | None
    """Number of clips that were added or changed since the check."""

    findings: tuple[Finding, ...]
    """The findings: kind, title, sentence, severity, clips (file names), names (of the clips), fixes (for `dataset
    fix`)."""

    def text(self) -> Iterator[str]:
        """Yield the findings by kind, worst first, with the command that fixes each kind."""
        yield f"{self.dataset}: {self.sentence}"
        kinds: dict[str, list[Finding]] = {}
        for one in self.findings:
            kinds.setdefault(one.kind, []).append(one)
        for kind, found in kinds.items():
            yield from ("", f"{kind} ({len(found)}, {found[0].severity}): {found[0].title}")
            listed = found if len(kinds) == 1 else found[:MOST_OF_A_KIND]
            for one in listed:
                yield f"  {one.sentence}" + (f"  [{shortened(one.names, 6)}]" if len(one.names) > 1 else "")
            if len(found) > len(listed):
                yield f"  ... list all: workbench dataset findings {self.dataset} {kind}"
            if found[0].fixes:
                yield f"  fix: workbench dataset fix {self.dataset} {kind} {' | '.join(found[0].fixes)}"


class DatasetTask(Findings, JobSnapshot):
    """A background task of a dataset."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "state", "activity", "sentence")

    name: TaskName
    """`import`, `split`, `check`, `fix`, `caption`, `make`, `track` or `export`."""

    share: Annotated[float | None, Shown(text="{:.0%}".format)]
    """Share of the work that is done, 0 to 1; null while unknown."""

    activity: str
    """What it is doing; "" unless it is running."""

    sentence: str
    """How it ended; "" until then."""

    details: Annotated[tuple[str, ...], Shown(text="; ".join)]
    """Details of the outcome, one line each."""

    log: str
    """The end of its log if it failed; otherwise ""."""

    actions: Annotated[tuple[str, ...], Shown(text=", ".join)]
    """What you can do with it now: `stop`, `resume`."""

    files: Annotated[tuple[FileResult, ...], HIDDEN]
    """The result for each file of an import, refused files first."""

    contents: str
    """Contents of the dataset in words."""

    checked_at: Annotated[float | None, HIDDEN]
    """When a finished check ran, as Unix time; null for any other task."""

    findings: Annotated[tuple[Finding, ...], HIDDEN]
    """What a finished check found, as in `dataset findings`."""

    def text(self) -> Iterator[str]:
        return Snapshot.text(self)

    def outcome(self) -> Iterable[str]:
        yield from (one.sentence for one in self.files)
        yield from self.details
        if self.checked_at is not None:
            yield from Findings.text(self)
        elif self.sentence:
            yield self.sentence
        if self.name == "import":
            yield f"{self.dataset}: {self.contents}"
            yield f"train on it: workbench train --dataset {self.dataset}"

    def after_failure(self) -> Iterable[str]:
        yield from (one.sentence for one in self.files)
        yield f"resume it: workbench dataset start {self.dataset} {self.name}"

    @property
    def goes_on(self) -> str:
        task = f"{self.dataset} {self.name}"
        follow, stop = f"workbench dataset follow {task}", f"workbench dataset stop {task}"
        return f"The task {self.name} continues in the background. Follow it: {follow}; stop it: {stop}"


def start_task(dataset: Dataset, task: TaskName, settings: Settings) -> DatasetTask:
    """Start a task and return its snapshot."""
    dataset.task(task).start(settings)
    return task_of(dataset, task)


def task_of(dataset: Dataset, name: TaskName) -> DatasetTask:
    """Return the current snapshot of a task."""
    task = dataset.task(name)
    status, seen = task.status, vars(task_snapshot(task))
    report = dataset.report if name == "check" and status.state is State.FINISHED else None
    found = vars(_findings(dataset, report)) if report else {}
    return DatasetTask(
        **{"checked_at": None, "model": None, "clips": None, "new_clips": None, "findings": (), **seen, **found}
        | {"dataset": dataset.name, "contents": dataset.summary.sentence},
        id=f"{dataset.name}/{name}",
        folder=str(task.folder),
        message="" if status.state.alive else status.message or seen["sentence"],
    )


# ---- one task


@operation(path="/dataset-job", shell=False)
def job(
    workspace: Workspace, id: Annotated[str, Field(title="Job", description="DATASET/TASK, such as cats/import.")]
) -> DatasetTask:
    """Show the progress of a dataset's task, such as an import or a check, or its outcome."""
    name, _, task = id.rpartition("/")
    if task not in NAMES:
        raise Unknown(f"id is {id[:80]!r}: give DATASET/TASK, where TASK is one of {', '.join(NAMES)}")
    return task_of(Dataset.open(workspace, name), task)


# ---- checking


class FixOffer(Snapshot):
    """A fix for all findings of one kind."""

    fix: str
    """The fix, as `fix` takes it for `how`."""

    label: str
    """Label for a button."""

    does: str
    """What it would do, in one sentence."""

    seconds: float
    """Estimated duration in seconds; 0 if it is instant."""


class KindOfFinding(Snapshot):
    """All findings of one kind."""

    kind: str
    """Kind of finding, as `fix` takes it."""

    title: str
    """What was found, in a few words."""

    severity: str
    """`stops the training`, `hurts it` or `worth a look`."""

    tone: str
    """How to color it: `bad`, `warn` or `idle`."""

    count: int
    """Number of findings."""

    findings: tuple[dict[str, Any], ...]
    """The first findings: sentence, clips (ids)."""

    fixes: tuple[FixOffer, ...]
    """Possible fixes, best first."""


class Checks(Snapshot):
    """Results of the last dataset check, by kind."""

    sentence: str
    """The outcome in words; "" before the first check."""

    checked_at: float | None
    """When the check ran, as Unix time; null before the first check."""

    new_clips: int
    """Number of clips that are not checked yet; before the first check, all clips."""

    kinds: tuple[KindOfFinding, ...]
    """Kinds of findings, worst first."""


@operation(changes=True, job=job, section=CHECKING)
def check(dataset: NamedDataset, settings: CheckSettings) -> DatasetTask:
    """Check a dataset for problems that would stop or hurt training."""
    return start_task(dataset, "check", settings)


def while_same(workspace: Workspace, name: str, read: Callable[[Dataset], T]) -> Callable[[], T]:
    """Watch what `read` returns, which changes only with the dataset's records."""
    kept = Kept[T]()

    def again() -> T:
        dataset = Dataset.open(workspace, name)
        return kept.of(name, (dataset.name, dataset.version), lambda: read(dataset))

    return again


def _watch_checks(workspace: Workspace, name: str) -> Callable[[], Checks]:
    return while_same(workspace, name, checks)


@operation(watch=_watch_checks, shell=False)
def checks(dataset: NamedDataset) -> Checks:
    """Show what the last check found, by kind, with possible fixes."""
    if (report := dataset.report) is None:
        return Checks(sentence="", checked_at=None, new_clips=len(dataset.clips), kinds=())
    ids = {clip.file_name: clip.id for clip in dataset.clips}
    return Checks.from_objects(
        report,
        kinds=tuple(
            KindOfFinding.from_objects(
                group,
                tone=group.severity.tone,
                count=len(group.findings),
                findings=tuple(
                    {"sentence": one.sentence, "clips": [ids[clip] for clip in one.clips]}
                    for one in group.findings[:MOST_SHOWN]
                ),
                fixes=tuple(
                    FixOffer(
                        fix=fix.replace("_", "-"),
                        label=FIXES[fix],
                        does=dataset.preview_fix(group.findings, fix),
                        seconds=expected_seconds(dataset.folder, group.findings, fix),
                    )
                    for fix in group.fixes
                ),
            )
            for group in report.groups
        ),
    )


@operation(section=CHECKING)
def findings(dataset: NamedDataset, kind: Kind = "") -> Findings:
    """Show the findings of the last check that still apply.

    With KIND, list all findings of that kind.
    """
    return _findings(dataset, _report(dataset, kind), kind)


def _findings(dataset: Dataset, report: CheckReport, kind: str = "") -> Findings:
    names = {clip.file_name: clip.name for clip in dataset.clips}
    return Findings.from_objects(
        report,
        dataset=dataset.name,
        findings=tuple(
            Finding.from_objects(
                one,
                names=tuple(names[clip] for clip in one.clips),
                fixes=tuple(fix.replace("_", "-") for fix in one.fixes),
            )
            for one in report.findings
            if kind in ("", one.kind)
        ),
    )


def _report(dataset: Dataset, kind: str) -> CheckReport:
    """Return the last check. Raises ConfigError if there was none or it found nothing of this kind."""
    if (report := dataset.report) is None:
        raise ConfigError(f"{dataset.name} was never checked: workbench dataset check {dataset.name}")
    kinds = list(dict.fromkeys(one.kind for one in report.findings))
    if kind and kind not in kinds:
        raise ConfigError(f"the check found no {kind!r}: it found {', '.join(kinds) or 'nothing to fix'}")
    return report


class Fixed(Snapshot):
    """What a fix would do."""

    sentence: str
    """What it would do, in words."""

    def text(self) -> Iterator[str]:
        yield self.sentence


def _to_fix(dataset: Dataset, kind: str, how: str, clips: Iterable[str]) -> tuple[list[Any], Fix]:
    """Return the findings of a kind, on some clips or all, and the fix. Raises ConfigError."""
    if (fix := how.replace("-", "_")) not in FIXES:
        raise ConfigError(f"how is {how[:40]!r}, must be one of {', '.join(one.replace('_', '-') for one in FIXES)}")
    names = {dataset.clip(one).file_name for one in clips}
    found = [one for one in _report(dataset, kind).findings if one.kind == kind and (not names or names & {*one.clips})]
    if not found:
        raise ConfigError(f"the check found no {kind} on these clips: see workbench dataset findings {dataset.name}")
    return found, fix


@operation(section=CHECKING)
def to_fix(dataset: NamedDataset, kind: Kind, how: How, clips: OnClips = ()) -> Fixed:
    """Show what a fix would do, without changing anything."""
    return Fixed(sentence=dataset.preview_fix(*_to_fix(dataset, kind, how, clips)))


@operation(changes=True, job=job, section=CHECKING)
def fix(
    dataset: NamedDataset,
    kind: Kind,
    how: How,
    clips: OnClips = (),
    model: Annotated[
        str,
        Field(
            description="For quote-speech: a Whisper model as OWNER/NAME on the Hub or its folder, instead of Whisper "
            "Small.",
            json_schema_extra={"path": True},
        ),
    ] = "",
) -> DatasetTask:
    """Fix all findings of one kind, or only those on some clips.

    A fix is one change, which `undo` reverts. A fix that cuts clips runs as a task, which can be stopped and resumed.
    `findings` lists the kinds of findings and the fixes for each.
    """
    done = dataset.start_fix(*_to_fix(dataset, kind, how, clips), model)
    started = task_of(dataset, "fix")
    if not done:
        return started
    finished = {"state": State.FINISHED.value, "share": None, "message": done, "sentence": done}
    return started.model_copy(update={**finished, "details": (), "log": "", "actions": ()})


# ---- all tasks


@operation(
    none="no tasks yet: import, split, check, fix, auto-caption, make, track and export start one", section=TASKS
)
def tasks(dataset: NamedDataset) -> list[DatasetTask]:
    """List the dataset's background tasks: what they are doing, or how they ended."""
    return [task_of(dataset, one) for one in NAMES if dataset.task(one).status.state is not State.NEW]


@operation(changes=True, job=job, section=TASKS)
def start(dataset: NamedDataset, task: Task) -> DatasetTask:
    """Resume a task that ended, with the settings it had."""
    if dataset.task(task).status.state is State.NEW:
        raise ConfigError(f"the task {task} of {dataset.name} was never started: start it with its own command")
    dataset.task(task).go_on()
    return task_of(dataset, task)


@operation(changes=True, section=TASKS)
def stop(dataset: NamedDataset, task: Task) -> DatasetTask:
    """Stop a task. What it has done so far stays."""
    if not (status := dataset.task(task).status).state.alive:
        raise ConfigError(
            f"the task {task} of {dataset.name} is {status.state.value}: only a running task can be stopped"
        )
    dataset.task(task).stop()
    return task_of(dataset, task)


@operation(changes=True, shell=False)
def dismiss(dataset: NamedDataset, task: Task) -> DatasetTask:
    """Dismiss the outcome of a task. What it made stays."""
    if dataset.task(task).status.state.alive:
        raise ConfigError(f"the task {task} of {dataset.name} is running: stop it first")
    dataset.task(task).dismiss()
    return task_of(dataset, task)
