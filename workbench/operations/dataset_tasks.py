"""The background tasks of a dataset: start, watch and stop them; what a check found, and how it is fixed.

A dataset has one task of each kind: import, split, check, fix, caption, make, track, export. Each is a job
whose id is `NAME/TASK`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from workbench.dataset_builder.checks.findings import FIXES, CheckReport, Fix
from workbench.dataset_builder.checks.fixes import expected_seconds
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import CheckSettings
from workbench.dataset_builder.snapshot import FileResult, task_snapshot
from workbench.dataset_builder.tasks import NAMES
from workbench.dataset_builder.tasks import Name as TaskName
from workbench.errors import ConfigError, Unknown
from workbench.jobs import State
from workbench.operations.registry import HIDDEN, JobSnapshot, Opened, Shown, Snapshot, operation
from workbench.settings import Settings
from workbench.workspace import Workspace
from workbench.workspace.records import Kept

CHECKING, TASKS = "Checking", "Background tasks"
MOST_SHOWN = 40  # findings of a kind on the page
MOST_OF_A_KIND = 5  # findings that the shell lists, unless one kind was asked for

Name = Annotated[
    str, Field(title="Dataset", description="Name of the dataset.", json_schema_extra={"source": "datasets"})
]
NamedDataset = Annotated[Dataset, Opened(Dataset.open, Name)]
Task = Annotated[TaskName, Field(description="Which task.")]
Kind = Annotated[str, Field(description="Kind of findings, as `findings` lists them.")]
How = Annotated[str, Field(description=f"What to do about them: {', '.join(fix.replace('_', '-') for fix in FIXES)}.")]
OnClips = Annotated[tuple[str, ...], Field(description="Ids or names of clips; the findings on all clips without one.")]


class Finding(Snapshot):
    """One thing that the check found."""

    kind: str
    """What `findings` and `fix` take."""

    title: str
    """What was found, in a few words."""

    sentence: str
    """The same with its numbers."""

    severity: str
    """`stops the training`, `hurts it` or `worth a look`."""

    clips: tuple[str, ...]
    """File names of the affected clips."""

    names: tuple[str, ...]
    """Their names."""

    fixes: tuple[str, ...]
    """What `dataset fix` takes, the best first."""


class Findings(Snapshot):
    """What the check found."""

    dataset: str
    """Its name."""

    sentence: str
    """The outcome in words."""

    checked_at: float | None
    """Unix time."""

    model: str | None
    """The model that the clips were checked for."""

    clips: int | None
    """How many were checked."""

    new_clips: int | None
    """Clips that were added or changed since and are not checked yet."""

    findings: tuple[Finding, ...]
    """A list: kind, title, sentence, severity, clips (file names), names (of the clips), fixes (what `dataset fix`
    takes)."""

    def text(self) -> Iterator[str]:
        """Yield the findings by kind, the worst first, each kind with the command that fixes it."""
        yield f"{self.dataset}: {self.sentence}"
        kinds: dict[str, list[Finding]] = {}
        for one in self.findings:
            kinds.setdefault(one.kind, []).append(one)
        for kind, found in kinds.items():
            yield from ("", f"{kind} ({len(found)}, {found[0].severity}): {found[0].title}")
            listed = found if len(kinds) == 1 else found[:MOST_OF_A_KIND]
            for one in listed:
                names = ", ".join(one.names[:6]) + (" ..." if len(one.names) > 6 else "")
                yield f"  {one.sentence}" + (f"  [{names}]" if len(one.names) > 1 else "")
            if len(found) > len(listed):
                yield f"  ... all of them: workbench dataset findings {self.dataset} {kind}"
            if found[0].fixes:
                yield f"  fix: workbench dataset fix {self.dataset} {kind} {' | '.join(found[0].fixes)}"


class DatasetTask(Findings, JobSnapshot):
    """A background task of a dataset."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "state", "activity", "sentence")

    name: TaskName
    """`import`, `split`, `check`, `fix`, `caption`, `make`, `track` or `export`."""

    share: Annotated[float | None, Shown(text="{:.0%}".format)]
    """The share of its work that is done; null while unknown."""

    activity: str
    """What it is doing; "" unless it is running."""

    sentence: str
    """How it ended; "" before."""

    details: Annotated[tuple[str, ...], Shown(text="; ".join)]
    """Details of the outcome, a line each."""

    log: str
    """The end of its log if it failed."""

    actions: Annotated[tuple[str, ...], Shown(text=", ".join)]
    """What may be done now: stop, resume."""

    files: Annotated[tuple[FileResult, ...], HIDDEN]
    """The result for each file of an import, refused files first."""

    contents: str
    """What is in the dataset, in words."""

    checked_at: Annotated[float | None, HIDDEN]
    """When a finished check ran, Unix time; null for other tasks, as are the following."""

    findings: Annotated[tuple[Finding, ...], HIDDEN]
    """What a check found, as in `dataset findings`."""

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
        yield f"let it go on: workbench dataset start {self.dataset} {self.name}"

    @property
    def goes_on(self) -> str:
        named = f"{self.dataset} {self.name}"
        follow, stop = f"workbench dataset follow {named}", f"workbench dataset stop {named}"
        return f"The task {self.name} goes on. See it again: {follow}; end it: {stop}"


def start_task(dataset: Dataset, task: TaskName, settings: Settings) -> DatasetTask:
    """Start a task."""
    dataset.task(task).start(settings)
    return task_of(dataset, task)


def task_of(dataset: Dataset, name: TaskName) -> DatasetTask:
    """Return a task at this moment."""
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
    """Show how far an import, a check ... is, or what came of it."""
    name, _, task = id.rpartition("/")
    if task not in NAMES:
        raise Unknown(f"id is {id[:80]!r}: give DATASET/TASK, of which TASK is one of {', '.join(NAMES)}")
    return task_of(Dataset.open(workspace, name), task)


# ---- checking


class FixOffer(Snapshot):
    """A way to fix the findings of a kind."""

    fix: str
    """What `fix` takes as `how`."""

    label: str
    """For a button."""

    does: str
    """What it would do to all of them, a sentence."""

    seconds: float
    """About how long it takes; 0 for at once."""


class KindOfFinding(Snapshot):
    """All findings of a kind."""

    kind: str
    """What `fix` takes."""

    title: str
    """What was found, in a few words."""

    severity: str
    """`stops the training`, `hurts it` or `worth a look`."""

    tone: str
    """bad, warn or idle."""

    count: int
    """How many."""

    findings: tuple[dict[str, Any], ...]
    """The first: sentence, clips (their ids)."""

    fixes: tuple[FixOffer, ...]
    """What can be done, the best first."""


class Checks(Snapshot):
    """What the last check found, by kind."""

    sentence: str
    """The outcome in words; "" before the first check."""

    checked_at: float | None
    """Unix time; null before the first check."""

    new_clips: int
    """Clips that are not checked yet: all of them before the first check."""

    kinds: tuple[KindOfFinding, ...]
    """The worst first."""


@operation(changes=True, job=job, section=CHECKING)
def check(dataset: NamedDataset, settings: CheckSettings) -> DatasetTask:
    """Look for what would stop or hurt a training."""
    return start_task(dataset, "check", settings)


def _watch_checks(workspace: Workspace, name: str) -> Callable[[], Checks]:
    kept = Kept[Checks]()

    def read() -> Checks:
        dataset = Dataset.open(workspace, name)
        return kept.of(name, (dataset.name, dataset.version), lambda: _checks(dataset))

    return read


@operation(watch=_watch_checks, shell=False)
def checks(dataset: NamedDataset) -> Checks:
    """Show what the last check found, by kind, and what can be done about it."""
    return _checks(dataset)


def _checks(dataset: Dataset) -> Checks:
    if (report := dataset.report) is None:
        return Checks(sentence="", checked_at=None, new_clips=len(dataset.clips), kinds=())
    ids = {clip.file_name: clip.id for clip in dataset.clips}
    return Checks(
        sentence=report.sentence,
        checked_at=report.checked_at,
        new_clips=report.new_clips,
        kinds=tuple(
            KindOfFinding(
                kind=group.kind,
                title=group.title,
                severity=group.severity.value,
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
    """Show what the last check found, as far as it still holds.

    With a KIND: all findings of that kind.
    """
    return _findings(dataset, _report(dataset, kind), kind)


def _findings(dataset: Dataset, report: CheckReport, kind: str = "") -> Findings:
    names = {clip.file_name: clip.name for clip in dataset.clips}
    return Findings(
        dataset=dataset.name,
        **{name: getattr(report, name) for name in ("sentence", "checked_at", "model", "clips", "new_clips")},
        findings=tuple(
            Finding(
                **{name: getattr(one, name) for name in ("kind", "title", "sentence", "severity", "clips")},
                names=tuple(names[clip] for clip in one.clips),
                fixes=tuple(fix.replace("_", "-") for fix in one.fixes),
            )
            for one in report.findings
            if kind in ("", one.kind)
        ),
    )


def _report(dataset: Dataset, kind: str) -> CheckReport:
    """Return the last check. Raises ConfigError where there was none, or it found nothing of this kind."""
    if (report := dataset.report) is None:
        raise ConfigError(f"{dataset.name} was never checked: workbench dataset check {dataset.name}")
    kinds = list(dict.fromkeys(one.kind for one in report.findings))
    if kind and kind not in kinds:
        raise ConfigError(f"the check found no {kind!r}: it found {', '.join(kinds) or 'nothing to fix'}")
    return report


class Fixed(Snapshot):
    """What a fix would do."""

    sentence: str
    """In words."""

    def text(self) -> Iterator[str]:
        yield self.sentence


def _to_fix(dataset: Dataset, kind: str, how: str, clips: Iterable[str]) -> tuple[list[Any], Fix]:
    """Return the findings of a kind, of those on some clips, and the fix. Raises ConfigError."""
    if (fix := how.replace("-", "_")) not in FIXES:
        raise ConfigError(f"how is {how[:40]!r}, must be one of {', '.join(one.replace('_', '-') for one in FIXES)}")
    names = {dataset.clip(one).file_name for one in clips}
    found = [one for one in _report(dataset, kind).findings if one.kind == kind and (not names or names & {*one.clips})]
    if not found:
        raise ConfigError(f"the check found no {kind} on these clips: see workbench dataset findings {dataset.name}")
    return found, fix


@operation(section=CHECKING)
def to_fix(dataset: NamedDataset, kind: Kind, how: How, clips: OnClips = ()) -> Fixed:
    """Say what a fix would do, and change nothing."""
    return Fixed(sentence=dataset.preview_fix(*_to_fix(dataset, kind, how, clips)))


@operation(changes=True, job=job, section=CHECKING)
def fix(dataset: NamedDataset, kind: Kind, how: How, clips: OnClips = ()) -> DatasetTask:
    """Fix every finding of a kind, or those on some clips.

    It is one change, which `undo` takes back. Where clips are cut it is a task, which can be stopped and goes on.
    `findings` shows the kinds there are and the ways to fix each.
    """
    done = dataset.start_fix(*_to_fix(dataset, kind, how, clips))
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
    """List the background tasks that were ever started: what they do, or how they ended."""
    return [task_of(dataset, one) for one in NAMES if dataset.task(one).status.state is not State.NEW]


@operation(changes=True, job=job, section=TASKS)
def start(dataset: NamedDataset, task: Task) -> DatasetTask:
    """Let a task that ended go on with the settings it had."""
    if dataset.task(task).status.state is State.NEW:
        raise ConfigError(f"{dataset.name} never had the task {task}: start it with its own command")
    dataset.task(task).go_on()
    return task_of(dataset, task)


@operation(changes=True, section=TASKS)
def stop(dataset: NamedDataset, task: Task) -> DatasetTask:
    """End a task; what it has done stays."""
    if not (status := dataset.task(task).status).state.alive:
        raise ConfigError(
            f"the task {task} of {dataset.name} is {status.state.value}: only a running one can be stopped"
        )
    dataset.task(task).stop()
    return task_of(dataset, task)


@operation(changes=True, shell=False)
def dismiss(dataset: NamedDataset, task: Task) -> DatasetTask:
    """Forget how a task ended; what it made stays."""
    if dataset.task(task).status.state.alive:
        raise ConfigError(f"the task {task} of {dataset.name} is at work: stop it first")
    dataset.task(task).dismiss()
    return task_of(dataset, task)
